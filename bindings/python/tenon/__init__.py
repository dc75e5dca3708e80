"""Memory of PyTorch programs, explained; and memory allocators to try.

    import tenon
    recording = tenon.load("snapshot.pickle")    # torch.cuda.memory._dump_snapshot
    print(recording.explain())                   # what filled the memory, why did it run out?
    print(recording.advise(capacity="24GiB"))    # which settings would have made it fit?
    recording.view()                             # a page to look at, also in a notebook

    allocator = tenon.Allocator("stitched", tenon.sim_device(capacity="8GiB"))
    host = tenon.Allocator("host")
    array = host.empty((1024, 1024), "float32").numpy()

Tensors, where the package was built with them:

    x = tenon.randn((64, 784), requires_grad=True)
    (x @ x.T).sum().backward()

docs/python.md is the longer story. The command is `tenon`, or `python -m tenon`.
"""

import importlib
import pathlib
import re
from typing import TYPE_CHECKING, Any, Set

from tenon._answers import (Advice, Answer, Diff, Explanation, PlanAnswer, Replay, Report, View,
                            advise, diff, replay, report)
from tenon._core import (Array, DeviceError, InternalError, InvalidPointerError, OutOfMemoryError,
                         ParseError)
from tenon._fleet import Fleet, fleet
from tenon._memory import (Allocator, Device, Recorder, Scope, host_device, policies, record, scope,
                           sim_device, tag, use)
from tenon._recording import DeviceRecording, Recording, load
from tenon import _core

if TYPE_CHECKING:
    from tenon.tensors import *  # noqa: F401,F403

__version__: str = _core.version

__all__ = [
    "Advice", "Allocator", "Answer", "Array", "Device", "DeviceError", "DeviceRecording", "Diff",
    "Explanation", "Fleet", "InternalError", "InvalidPointerError", "OutOfMemoryError", "ParseError",
    "PlanAnswer", "Recorder", "Recording", "Replay", "Report", "Scope", "View", "__version__",
    "advise", "diff", "fleet", "host_device", "load", "policies", "record", "replay", "report",
    "scope", "sim_device", "tag", "use",
]


_TENSOR_MODULES = ("array_api", "autograd", "nn", "optim", "tensors")


def __getattr__(name: str) -> Any:
    """Tensors are loaded when the first of their names is used: they need BLAS."""
    if name.startswith("_"):
        raise AttributeError(f"module 'tenon' has no attribute {name!r}")
    if name == "forecast" or name in _TENSOR_MODULES:
        return importlib.import_module(f"tenon.{name}")
    from tenon._compiled import require_tensors, tensor_module

    if tensor_module is None:
        if name in _tensor_names():
            require_tensors(f"tenon.{name}")
        raise AttributeError(f"module 'tenon' has no attribute {name!r}")
    found = getattr(importlib.import_module("tenon.tensors"), name, None)
    if found is None and name != "newaxis":
        raise AttributeError(f"module 'tenon' has no attribute {name!r}")
    globals()[name] = found
    return found


def _tensor_names() -> Set[str]:
    """Names that the tensor part has, also where it is not here: the stub's."""
    stub = pathlib.Path(__file__).with_name("_tensor.pyi").read_text()
    return set(re.findall(r"^(?:def |class )?(\w+)[:(]", stub, re.MULTILINE))

