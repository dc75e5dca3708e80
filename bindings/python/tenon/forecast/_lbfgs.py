# mypy: disable-error-code="import-not-found"
"""torch.optim.LBFGS decides by gradients, which a forecast does not know: it goes on, and keeps its
history, as it does until it has converged."""

from __future__ import annotations

import linecache
import os
import sys
from typing import Any, Optional

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(__file__) + os.sep
_FILE = os.path.join(_TORCH, "optim", "lbfgs.py")

NOTE = (
    "torch.optim.LBFGS is taken to run to its max_iter and max_eval, and to fill its history: "
    "until it has converged"
)


def decision() -> Optional[bool]:
    """What LBFGS decides where it asks for a number that is not known; None: another asks."""
    frame: Optional[Any] = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _FILE:
            break
        if not file.startswith((_TORCH, _OWN)):
            return None
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "step":
        return None
    # "if ys > 1e-10:" keeps a pair of vectors; all others end the loop.
    return "ys" in linecache.getline(_FILE, frame.f_lineno).split()
