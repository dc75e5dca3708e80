# mypy: disable-error-code="import-not-found,import-untyped"
"""What a program may change for the whole process: random states and PyTorch's defaults."""

from __future__ import annotations

import random
import sys
from typing import Any, Callable, List, Tuple

import torch
from torch.utils import _device

_FLAGS = {
    "cudnn": ("enabled", "benchmark", "deterministic", "allow_tf32"),
    "cuda.matmul": ("allow_tf32",),
}


def begin() -> Callable[[], None]:
    """Random numbers begin alike in every forecast; returns what takes everything back."""
    _device._device_constructors()  # PyTorch keeps this set: of functions before any is replaced
    taken_back = [_random_states(), _defaults()]
    random.seed(0)
    torch.default_generator.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)

    def restore() -> None:
        for one in taken_back:
            one()

    return restore


def _random_states() -> Callable[[], None]:
    state, tensors = random.getstate(), torch.get_rng_state()
    arrays = sys.modules.get("numpy")
    numbers = arrays.random.get_state() if arrays is not None else None

    def restore() -> None:
        random.setstate(state)
        torch.set_rng_state(tensors)
        if arrays is not None:
            arrays.random.set_state(numbers)

    return restore


def _device_mode() -> Any:
    """What torch.set_default_device has left: None where it was not called."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _flags() -> List[Tuple[Any, str, Any]]:
    found = []
    for path, names in _FLAGS.items():
        holder = torch.backends
        for part in path.split("."):
            holder = getattr(holder, part)
        found += [(holder, name, getattr(holder, name)) for name in names]
    return found


def _defaults() -> Callable[[], None]:
    dtype, device, flags = torch.get_default_dtype(), _device_mode(), _flags()
    gradients, precision = torch.is_grad_enabled(), torch.get_float32_matmul_precision()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    fuses = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(False)  # TorchScript's fuser compiles for a GPU

    def restore() -> None:
        torch.set_default_dtype(dtype)
        torch._C._jit_set_texpr_fuser_enabled(fuses)
        if _device_mode() is not device:
            torch.set_default_device(device.device if device is not None else None)
        torch.set_grad_enabled(gradients)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for holder, name, value in flags:
            if getattr(holder, name) != value:
                setattr(holder, name, value)

    return restore
