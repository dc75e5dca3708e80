# mypy: disable-error-code="import-not-found,import-untyped,misc"
"""Pools of processes, as programs use them to read data: threads of the program's own process."""

from __future__ import annotations

import concurrent.futures.process
import multiprocessing.context
import multiprocessing.pool
from typing import Any, Callable, List, Tuple

import torch.multiprocessing


def replacements(note: Callable[[str], None]) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""

    def pool_of(context: Any, *given: Any, **named: Any) -> Any:
        return pool(*given, **named)

    def pool(
        processes: Any = None, initializer: Any = None, initargs: Any = (), *_: Any, **__: Any
    ) -> Any:
        """multiprocessing.Pool(), which a context has as a method."""
        note(_NOTE)
        return multiprocessing.pool.ThreadPool(processes, initializer, initargs)

    class Executor(concurrent.futures.ThreadPoolExecutor):
        def __init__(
            self,
            max_workers: Any = None,
            mp_context: Any = None,
            initializer: Any = None,
            initargs: Any = (),
            **_: Any,
        ) -> None:
            note(_NOTE)
            super().__init__(max_workers, "", initializer, initargs)

    return [
        (multiprocessing.context.BaseContext, "Pool", pool_of),
        (multiprocessing, "Pool", pool),
        (torch.multiprocessing, "Pool", pool),
        (concurrent.futures.process, "ProcessPoolExecutor", Executor),
        (concurrent.futures, "ProcessPoolExecutor", Executor),
    ]


_NOTE = "pools of processes ran as threads of the program's own process"
