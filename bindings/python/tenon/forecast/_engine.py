# mypy: disable-error-code="import-not-found,import-untyped"
"""PyTorch made ready to differentiate fake CUDA tensors on a machine without a GPU.

The autograd engine asks the CUDA hooks whether device 0 has a context before it notes that device's
stream. The hooks of a CUDA build raise where there is no device. The answer is "no" instead, given
through a copy of the hooks' virtual table.
"""

from __future__ import annotations

import ctypes
import importlib.util
import pathlib
import re
import sys
from typing import Any, List, Tuple

OLDEST = (2, 11)
"""The oldest PyTorch whose fake CUDA tensors do without a GPU as this package needs it."""

_kept: List[Any] = []


class ForecastError(RuntimeError):
    """A forecast that cannot be made, in one line."""


class ProgramFailed(ForecastError):
    """A program that failed before it allocated anything."""


class Ended(BaseException):
    """Ends a program that is forecast; its own handlers of exceptions are not for it."""


def torch_version() -> Tuple[int, ...]:
    """The installed PyTorch's version; raises ForecastError where it cannot serve."""
    if importlib.util.find_spec("torch") is None:
        raise ForecastError(
            "a forecast needs PyTorch, which is not installed: "
            f"{sys.executable} -m pip install torch"
        )
    import torch

    text = str(torch.__version__)
    version = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    least = ".".join(map(str, OLDEST))
    if version < OLDEST:
        raise ForecastError(f"PyTorch {text} is too old for a forecast: it needs {least} or later")
    if torch.version.cuda is None:
        raise ForecastError(
            f"PyTorch {text} is built without CUDA, so it has no fake CUDA tensors: "
            "install PyPI's build for Linux (no GPU is needed)"
        )
    return version


def prepare() -> None:
    """Make the autograd engine accept fake CUDA tensors; does nothing where a GPU is."""
    torch_version()
    import torch

    if _kept or torch._C._cuda_getDeviceCount() > 0:
        return
    torch._C._ensureCUDADeviceGuardSet()  # a guard that needs no device
    names = _virtual_functions(pathlib.Path(torch.__file__).parent)
    if "hasPrimaryContext" not in names:
        raise ForecastError(
            f"PyTorch {torch.__version__}: its headers do not say where "
            "AcceleratorHooksInterface::hasPrimaryContext is"
        )
    library = ctypes.CDLL("libtorch_cpu.so", mode=ctypes.RTLD_GLOBAL | 4)  # RTLD_NOLOAD
    get_hooks = library._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(get_hooks())
    # Type information lies before the functions; derived classes' own functions lie behind.
    before, behind = 2, 80
    count = before + len(names) + behind
    start = (hooks.value or 0) - before * ctypes.sizeof(ctypes.c_void_p)
    table = (ctypes.c_void_p * count)(*(ctypes.c_void_p * count).from_address(start))
    answer = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda *_: False)
    table[before + names.index("hasPrimaryContext")] = ctypes.cast(answer, ctypes.c_void_p).value
    for needed in (table, answer):  # the hooks outlive the interpreter
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(needed))
    _kept.extend((table, answer))
    hooks.value = ctypes.addressof(table) + before * ctypes.sizeof(ctypes.c_void_p)


def _virtual_functions(folder: pathlib.Path) -> List[str]:
    """The hooks' virtual functions in the order of their table, from PyTorch's own header."""
    try:
        text = (folder / "include/ATen/detail/AcceleratorHooksInterface.h").read_text()
    except OSError:
        return []
    names: List[str] = []
    for name in re.findall(r"^\s+virtual\s+(?:[\w:*&]+[\s*&]+)?(~?\w+)\(", text, re.MULTILINE):
        names.extend([name, name] if name.startswith("~") else [name])  # a destructor has two
    return names
