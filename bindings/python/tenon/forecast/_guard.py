# mypy: disable-error-code="import-not-found,import-untyped"
"""What a forecast keeps a program from: writing over files, starting processes."""

from __future__ import annotations

import functools
import inspect
import multiprocessing.process
import os
import subprocess
import sys
import sysconfig
from typing import Any, Callable, List, Tuple

import torch

from tenon.forecast import _files, _overlay
from tenon.forecast._engine import Ended, ForecastError


class Exited(Ended):
    """os._exit() or os.abort()."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def replacements(note: Callable[[str], None]) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    def no_process(self: Any) -> None:
        raise ForecastError(f"it starts a process, and a forecast follows one only: {_LEAVE_OUT}")

    def guarded(real: Any, what: str) -> Any:
        """Refuses the call where the program makes it; its libraries' own calls go on."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            if not by_program():
                return real(*arguments, **keywords)
            raise ForecastError(f"{what}, and a forecast follows one process only: {_LEAVE_OUT}")

        return call

    real_popen = subprocess.Popen.__init__

    def no_fork() -> int:
        raise ForecastError(f"it forks, and a forecast follows one process only: {_LEAVE_OUT}")

    def exit_at_once(status: int) -> None:
        raise Exited(status)

    def no_other_program(*_: Any) -> None:
        raise ForecastError("it replaces its process by another program")

    parallel = torch.nn.DataParallel
    real_parallel = parallel.__init__

    @functools.wraps(real_parallel)
    def over_cards(self: Any, module: Any, device_ids: Any = None, *rest: Any, **named: Any) -> Any:
        if (torch.cuda.device_count() if device_ids is None else len(device_ids)) > 1:
            raise ForecastError(
                "DataParallel splits its batch over several cards, and a forecast follows one: "
                "give device_ids=[0] and that card's share of the batch"
            )
        real_parallel(self, module, device_ids, *rest, **named)

    loader = torch.utils.data.DataLoader
    real_init = loader.__init__

    @functools.wraps(real_init)  # Lightning makes loaders anew by their signature
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        given = {**dict(zip(_LOADER, arguments)), **keywords}
        if given.get("num_workers"):
            note("data loaders ran in the program's own process, without workers")
            given["num_workers"] = 0
            for name in (
                "prefetch_factor",
                "persistent_workers",
                "multiprocessing_context",
                "timeout",
            ):
                given.pop(name, None)
        real_init(self, **given)

    found: List[Tuple[Any, str, Any]] = [
        (multiprocessing.process.BaseProcess, "start", no_process),
        *[(os, name, no_fork) for name in ("fork", "forkpty")],
        (os, "_exit", exit_at_once),
        (os, "abort", lambda: exit_at_once(134)),
        *[(os, name, no_other_program) for name in ("execv", "execve")],
        (loader, "__init__", init),
        (parallel, "__init__", over_cards),
        (torch.jit, "save", lambda *_, **__: note("torch.jit.save was left out")),
        (subprocess.Popen, "__init__", guarded(real_popen, "it starts a process")),
        *[
            (os, name, guarded(getattr(os, name), "it starts a process"))
            for name in ("system", "posix_spawn", "posix_spawnp")
        ],
    ]
    overlay = _overlay.Overlay(note)
    found += overlay.replacements()
    found += _files.replacements(note, overlay.place)
    return found


_LEAVE_OUT = "leave that call out of what is forecast"
_LOADER = tuple(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)[1:]
_HERE = os.path.dirname(__file__) + os.sep
_LIBRARIES = (
    *[
        path
        for path in sysconfig.get_paths().values()
        if path.endswith(("site-packages", "dist-packages", "python"))
    ],
    os.path.dirname(os.__file__),
    "<frozen",
)


def _installed(file: str) -> bool:
    """Whether a source file is an installed library's, or of this package, wherever it lies."""
    return "site-packages" in file or "dist-packages" in file or file.startswith(_HERE)


def of_library(file: str) -> bool:
    """Whether a source file is an installed library's or Python's own."""
    return _installed(file) or file.startswith(_LIBRARIES)


def by_program() -> bool:
    """Whether the program's own code asks, also by way of the standard library."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (__file__, _overlay.__file__):
        frame = frame.f_back  # type: ignore[assignment]
    while frame is not None:
        file = frame.f_code.co_filename
        if os.path.basename(file) == "tempfile.py" or _installed(file):
            return False
        if not file.startswith(_LIBRARIES):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
