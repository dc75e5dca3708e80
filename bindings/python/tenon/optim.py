"""Optimisers and schedules of the learning rate.

    optimizer = tenon.optim.AdamW(model.named_parameters(), lr=1e-3)
    loss.backward(); optimizer.step(); optimizer.zero_grad()
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple, Union

from tenon._compiled import require_tensors, tensor_module

if tensor_module is None:
    require_tensors("tenon.optim")

from tenon import _tensor  # noqa: E402
from tenon._tensor import (Schedule, Tensor, clip_factor, constant_schedule,  # noqa: E402
                           cosine_schedule, linear_schedule, one_cycle_schedule, step_schedule,
                           warmup_schedule)

Parameters = Union[Iterable[Tensor], Iterable[Tuple[str, Tensor]], Dict[str, Tensor]]
"""Tensors, pairs of a name and a tensor, or a dictionary."""


def named(parameters: Parameters) -> Dict[str, Tensor]:
    """Parameters by name; those without one are numbered."""
    if isinstance(parameters, Tensor):
        raise TypeError("parameters: give a sequence of tensors, not one tensor")
    entries = parameters.items() if isinstance(parameters, dict) else parameters
    found: Dict[str, Tensor] = {}
    for number, entry in enumerate(entries):
        name, tensor = entry if isinstance(entry, tuple) else (str(number), entry)
        if not isinstance(tensor, Tensor):
            raise TypeError(f"parameter {name}: give a tensor, not {type(tensor).__name__}")
        if name in found:
            raise ValueError(f"parameters: there are two named {name!r}")
        found[name] = tensor
    return found


class Optimizer:
    """Changes parameters along their gradients; make SGD, Adam or AdamW."""

    def __init__(self, native: _tensor.NativeOptimizer, parameters: Dict[str, Tensor]) -> None:
        self._native = native
        self._parameters = parameters

    def step(self, gradient_scale: float = 1.0) -> None:
        """Updates every parameter that has a gradient, multiplied by gradient_scale first."""
        self._native.step(gradient_scale)

    def zero_grad(self) -> None:
        """Lets every gradient go."""
        self._native.zero_grad()

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self._native.lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self._native.lr = rate

    def updates_in_backward(self) -> _tensor.Guard:
        """While it lasts, backward updates each parameter as soon as its gradient is whole."""
        return self._native.updates_in_backward()

    def state_dict(self) -> Dict[str, Any]:
        """Tensors by name, the number of updates of each parameter, and the learning rate."""
        return {"state": self._native.named_state(), "updates": list(self._native.updates),
                "lr": self.lr}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes over what state_dict of an optimiser made alike gave."""
        own = self._native.named_state()
        if set(state["state"]) != set(own):
            odd = sorted(set(state["state"]) ^ set(own))
            raise ValueError(f"load_state_dict: {odd[0]!r} is not in both: the optimisers must be "
                             "made alike")
        for name, tensor in own.items():
            if tensor.shape != state["state"][name].shape:
                raise ValueError(f"load_state_dict: {name}: shape {state['state'][name].shape} for "
                                 f"{tensor.shape}")
        for name, tensor in own.items():
            tensor.copy_(state["state"][name])
        self._native.updates = state["updates"]
        self.lr = state["lr"]

    def __repr__(self) -> str:
        return f"<tenon.optim.{type(self).__name__} of {len(self._parameters)} parameters>"


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum."""

    def __init__(self, parameters: Parameters, lr: float = 1e-2, momentum: float = 0.0,
                 dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False) -> None:
        held = named(parameters)
        super().__init__(_tensor._sgd(held, lr, momentum, dampening, weight_decay, nesterov), held)


class Adam(Optimizer):
    """Kingma and Ba 2015."""

    _decoupled = False

    def __init__(self, parameters: Parameters, lr: float = 1e-3,
                 betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0) -> None:
        held = named(parameters)
        super().__init__(_tensor._adam(held, lr, betas[0], betas[1], eps, weight_decay,
                                       self._decoupled), held)


class AdamW(Adam):
    """Adam that decays the parameter instead of its gradient (Loshchilov and Hutter 2019)."""

    _decoupled = True

    def __init__(self, parameters: Parameters, lr: float = 1e-3,
                 betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)


class Scheduler:
    """Sets an optimiser's learning rate: its own at first, times the schedule at each step."""

    def __init__(self, optimizer: Optimizer, schedule: Schedule) -> None:
        self._optimizer = optimizer
        self._schedule = schedule
        self.base_lr = optimizer.lr
        self.last_step = 0
        optimizer.lr = self.base_lr * schedule(0)

    def step(self) -> None:
        """Goes on to the next step."""
        self.last_step += 1
        self._optimizer.lr = self.base_lr * self._schedule(self.last_step)


def gradient_norm(parameters: Parameters) -> float:
    """The Euclidean norm of all gradients together."""
    return _tensor._gradient_norm(named(parameters))


def clip_grad_norm_(parameters: Parameters, max_norm: float) -> float:
    """Scales gradients so that their norm is at most max_norm; returns the norm before."""
    held: List[Tensor] = list(named(parameters).values())
    norm = gradient_norm(held)
    factor = clip_factor(norm, max_norm)
    if factor != 1:
        for parameter in held:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
    return norm


__all__ = ["Adam", "AdamW", "Optimizer", "SGD", "Schedule", "Scheduler", "clip_factor",
           "clip_grad_norm_", "constant_schedule", "cosine_schedule", "gradient_norm",
           "linear_schedule", "one_cycle_schedule", "step_schedule", "warmup_schedule"]
