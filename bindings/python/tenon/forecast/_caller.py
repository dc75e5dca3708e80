# mypy: disable-error-code="import-not-found,import-untyped"
"""Modules, optimizers and tensors that the caller's program has before the forecast.

A function gets copies of those among its arguments, whose tensors are fakes. Those that it reaches
in another way (globals, closures) are afterwards as they were.
"""

from __future__ import annotations

import contextlib
import copy
import gc
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tenon.forecast import _cuda


def copied(
    arguments: Sequence[Any], keywords: Dict[str, Any]
) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """Copies of the arguments, data sets excepted; the arguments where they cannot be copied.

    Runs inside of the modes, which make a fake of each tensor that is copied.
    """
    data = (torch.utils.data.DataLoader, torch.utils.data.Dataset)
    memo = {id(part): part for part in (*arguments, *keywords.values()) if isinstance(part, data)}
    kept = {kind: kind.__deepcopy__ for kind in (torch.Tensor, torch.nn.Parameter)}
    try:
        for kind in kept:
            kind.__deepcopy__ = _cuda.deep_copy
        return copy.deepcopy((tuple(arguments), dict(keywords)), memo)
    except (TypeError, RuntimeError, copy.Error):
        return arguments, keywords
    finally:
        for kind, method in kept.items():
            kind.__deepcopy__ = method


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """What the caller's program has holds the same values afterwards."""
    tables: List[Tuple[Any, Any]] = []
    tensors: List[Tuple[Any, Any, Any]] = []
    with _disable_current_modes():
        _look(tables, tensors)
    try:
        yield
    finally:
        for table, before in tables:
            table.clear()
            table.update(before)
        for tensor, values, gradient in tensors:
            if tensor.device != values.device:
                tensor.data = values
            if tensor.is_leaf and tensor.grad is not gradient:
                tensor.grad = gradient


def _look(tables: List[Tuple[Any, Any]], tensors: List[Tuple[Any, Any, Any]]) -> None:
    """Collects dictionaries with what is in them, tensors with their values and gradients."""
    for found in gc.get_objects():
        kind = type(found)
        if issubclass(kind, torch.nn.Module):
            parts = vars(found)
            tables += [
                (parts[name], dict(parts[name]))
                for name in ("_parameters", "_buffers", "_modules")
                if name in parts
            ]
        elif issubclass(kind, torch.optim.Optimizer):
            groups = getattr(found, "param_groups", [])
            tables += [(group, dict(group)) for group in groups]
            state = getattr(found, "state", {})
            tables += [(part, dict(part)) for part in (*state.values(), state)]
        elif kind in (torch.Tensor, torch.nn.Parameter) and found.layout is torch.strided:
            tensors.append((found, found.detach(), found.grad if found.is_leaf else None))
