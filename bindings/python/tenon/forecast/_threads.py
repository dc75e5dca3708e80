# mypy: disable-error-code="import-not-found,import-untyped"
"""Threads that the program starts: on the fake card, too, which dispatch modes alone are not."""

from __future__ import annotations

import threading
from typing import Any, List, Tuple

from torch.utils._python_dispatch import _push_mode


def replacements(session: Any) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    real = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def begin(thread: Any) -> None:
        with session.mode.lock:  # the modes go with the thread
            session.fake_mode.__enter__()
            _push_mode(session.mode)
        real(thread)

    return [(threading.Thread, "_bootstrap_inner", begin)]
