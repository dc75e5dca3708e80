"""Gradients: contexts, functions of one's own, checkpoints.

    with tenon.no_grad(): ...
    tenon.autograd.grad(loss, [weight])
    tenon.autograd.checkpoint(block, x)
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, List, Tuple

from tenon._compiled import require_tensors, tensor_module

if tensor_module is None:
    require_tensors("tenon.autograd")

from tenon import _tensor  # noqa: E402
from tenon._tensor import (Tensor, anomaly_mode, backward, checkpoint, grad,  # noqa: E402
                           gradcheck, gradgradcheck, is_grad_enabled, is_inference_mode_enabled,
                           jvp, offload_saved, recompute_cheap, saved_tensors_hooks, watch_views)


class _Mode(contextlib.ContextDecorator):
    """A setting of the thread, as a context and as a decorator; it may be entered several times."""

    def __init__(self, make: Callable[[], _tensor.Guard]) -> None:
        self._make = make
        self._open: List[_tensor.Guard] = []

    def __enter__(self) -> _Mode:
        guard = self._make()
        guard.__enter__()
        self._open.append(guard)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open[-1].__exit__(None, None, None)
        self._open.pop()


class no_grad(_Mode):
    """Nothing is recorded: results require no gradient."""

    def __init__(self) -> None:
        super().__init__(lambda: _tensor._grad_guard(False))


class enable_grad(_Mode):
    """Recording again, inside no_grad."""

    def __init__(self) -> None:
        super().__init__(lambda: _tensor._grad_guard(True))


class set_grad_enabled(_Mode):
    """Recording or not, for a with statement."""

    def __init__(self, mode: bool) -> None:
        super().__init__(lambda: _tensor._grad_guard(mode))


class inference_mode(_Mode):
    """Tensors that are made meanwhile can never require a gradient, and cost less."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(lambda: _tensor._inference_guard(mode))


class FunctionContext:
    """What a Function's forward keeps for its backward; attributes may be set freely."""

    def __init__(self) -> None:
        self._saved: Tuple[Tuple[Tensor, int], ...] = ()
        self.needs_input_grad: Tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors; backward finds them in saved_tensors."""
        self._saved = tuple((tensor, tensor.version) for tensor in tensors)

    @property
    def saved_tensors(self) -> Tuple[Tensor, ...]:
        """What was kept. Raises ValueError where one was changed in place since."""
        for number, (tensor, version) in enumerate(self._saved):
            if tensor.version != version:
                raise ValueError(
                    f"backward: saved tensor {number} was changed in place (version {version} was "
                    f"saved, it is {tensor.version}): clone() it before the change")
        return tuple(tensor for tensor, _ in self._saved)


class Function:
    """A call with a derivative of one's own: override forward and backward, call apply.

    class Double(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    y = Double.apply(x)

    forward returns one tensor; backward gives a gradient for each argument of forward, None for
    what needs none.
    """

    @staticmethod
    def forward(ctx: FunctionContext, *arguments: Any) -> Tensor:
        """Computes the result."""
        raise NotImplementedError("Function.forward: override it")

    @staticmethod
    def backward(ctx: FunctionContext, gradient: Tensor) -> Any:
        """The gradients of forward's arguments from that of its result."""
        raise NotImplementedError("Function.backward: override it")

    @classmethod
    def apply(cls, *arguments: Any) -> Tensor:
        """Runs forward and records the call."""
        context = FunctionContext()
        context.needs_input_grad = tuple(
            isinstance(one, Tensor) and one.requires_grad for one in arguments)
        result: Tensor = _tensor._apply(lambda *given: cls.forward(context, *given),
                                        lambda gradient: cls.backward(context, gradient),
                                        *arguments)
        return result


__all__ = ["Function", "FunctionContext", "anomaly_mode", "backward", "checkpoint", "enable_grad",
           "grad", "gradcheck", "gradgradcheck", "inference_mode", "is_grad_enabled",
           "is_inference_mode_enabled", "jvp", "no_grad", "offload_saved", "recompute_cheap",
           "saved_tensors_hooks", "set_grad_enabled", "watch_views"]
