# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"
"""torch.compile, torch.jit and CUDA graphs: the program's own code runs as it is, and the answer
says so."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List, Tuple

import torch


def _wrapped(model: Any) -> Any:
    """What torch.compile makes of a module, with the module's own code inside."""
    from torch._dynamo.eval_frame import DisableContext, OptimizedModule

    class AsItIs(DisableContext):
        def __call__(self, function: Any) -> Any:
            return function

    return OptimizedModule(model, AsItIs())


def replacements(note: Callable[[str], None]) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""

    def compile_note() -> None:
        note(
            "torch.compile was left out: the figures are those of eager mode; compiled code fuses "
            "kernels and takes less memory as a rule"
        )

    def compiled(model: Any = None, *_: Any, **__: Any) -> Any:
        compile_note()
        if isinstance(model, torch.nn.Module):
            return _wrapped(model)
        return model if model is not None else lambda function: function

    real_script = torch.jit.script

    def scripted(code: Any, *_: Any, **__: Any) -> Any:
        """TorchScript compiles neither stand-ins of PyTorch's functions nor fake parameters."""
        if getattr(code, "__module__", "").startswith("torch._decomp"):  # derivatives forward
            return real_script(code)
        if isinstance(code, torch.nn.Module):
            note("torch.jit was left out: the figures are those of eager mode")
            vars(code)["save"] = lambda *_, **__: None
        return code

    class Graph:
        """A graph that is captured: what it captures runs once."""

        def __init__(self, *_: Any, **__: Any) -> None:
            note(
                "CUDA graphs were left out: what they capture ran once, on the common pool of "
                "memory; each graph keeps a pool of its own on a card"
            )

        def pool(self) -> Tuple[int, int]:
            return (0, 0)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *_, **__: None

    @contextlib.contextmanager
    def capture(graph: Any, pool: Any = None, stream: Any = None, **_: Any) -> Iterator[None]:
        yield

    found: List[Tuple[Any, str, Any]] = [
        (torch, "compile", compiled),
        (torch.jit, "script", scripted),
        (torch.jit, "trace", scripted),
        (torch.jit, "save", lambda *_, **__: None),
        (torch.nn.Module, "compile", lambda self, *_, **__: compile_note()),
        (torch.cuda, "CUDAGraph", Graph),
        (torch.cuda, "graph", capture),
        (torch.cuda, "graph_pool_handle", lambda: (0, 0)),
        (torch.cuda, "make_graphed_callables", lambda callables, *_, **__: callables),
    ]
    return found
