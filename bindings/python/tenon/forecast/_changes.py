# mypy: disable-error-code="import-not-found,import-untyped"
"""Changes to a program that a what-if tries: mixed precision, checkpoints."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, Sequence, Set, Tuple

import torch


@contextlib.contextmanager
def applied(changes: Sequence[str], session: Any) -> Iterator[None]:
    """The program runs as if it were changed: "bf16" (autocast around it), "checkpoints", or one of
    _shard.WAYS."""
    from tenon.forecast import _shard

    with contextlib.ExitStack() as stack:
        if "bf16" in changes:
            # Not one context around all of it: its cache of weights would never end.
            stack.enter_context(_patched(_autocast()))
        if "checkpoints" in changes:
            stack.enter_context(_patched(_checkpoints()))
        for way in _shard.WAYS:
            if way in changes:
                stack.enter_context(_patched(_shard.replacements(way, session)))
        yield


def _autocast() -> List[Tuple[Any, str, Any]]:
    """The outermost module's call runs under autocast."""
    real = torch.nn.Module.__call__
    depth = [0]

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if depth[0]:
            return real(self, *arguments, **keywords)
        depth[0] += 1
        try:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return real(self, *arguments, **keywords)
        finally:
            depth[0] -= 1

    return [(torch.nn.Module, "__call__", call)]


def layers(root: Any) -> List[Any]:
    """Layers that stand in a list or row with others of their kind.

    Beside layers of other kinds, rows of layers are no layers: what stands in them is.
    """
    rows = (torch.nn.ModuleList, torch.nn.Sequential)
    found: List[Any] = []
    for part in filter(lambda part: isinstance(part, rows), root.modules()):
        kinds = [type(child) for child in part]
        for child, kind in zip(part, kinds):
            alone = kinds.count(kind) < 2 or len(set(kinds)) > 1 and isinstance(child, rows)
            if not alone and any(True for _ in child.children()):
                found.append(child)
    return found


def _checkpoints() -> List[Tuple[Any, str, Any]]:
    """Layers that stand in a list or row of their kind are recomputed in backward."""
    from torch.utils.checkpoint import checkpoint

    real = torch.nn.Module.__call__
    known: Set[int] = set()
    inside = [0]
    looked: Set[int] = set()

    def look(module: Any) -> None:
        looked.update(id(part) for part in module.modules())
        known.update(id(layer) for layer in layers(module))

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if id(self) not in looked:
            look(self)
        if id(self) not in known or inside[0] or not self.training or not torch.is_grad_enabled():
            return real(self, *arguments, **keywords)

        def run(*given: Any, **named: Any) -> Any:
            inside[0] += 1
            try:
                return real(self, *given, **named)
            finally:
                inside[0] -= 1

        return checkpoint(run, *arguments, use_reentrant=False, **keywords)

    return [(torch.nn.Module, "__call__", call)]


@contextlib.contextmanager
def _patched(replacements: List[Tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(holder, name, getattr(holder, name)) for holder, name, _ in replacements]
    for holder, name, value in replacements:
        setattr(holder, name, value)
    try:
        yield
    finally:
        for holder, name, value in before:
            setattr(holder, name, value)
