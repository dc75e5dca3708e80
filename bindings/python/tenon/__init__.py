"""Memory of PyTorch programs, explained; and memory allocators to try.

    import tenon
    recording = tenon.load("snapshot.pickle")    # torch.cuda.memory._dump_snapshot
    print(recording.explain())                   # what filled the memory, why did it run out?
    print(recording.advise(capacity="24GiB"))    # which settings would have made it fit?
    recording.view()                             # a page to look at, also in a notebook

    allocator = tenon.Allocator("stitched", tenon.sim_device(capacity="8GiB"))
    host = tenon.Allocator("host")
    array = host.empty((1024, 1024), "float32").numpy()

docs/python.md is the longer story. The command is `tenon`, or `python -m tenon`.
"""

from tenon._answers import (Advice, Answer, Diff, Explanation, PlanAnswer, Replay, Report, View,
                            diff, replay, report)
from tenon._core import (Array, DeviceError, InternalError, InvalidPointerError, OutOfMemoryError,
                         ParseError)
from tenon._memory import (Allocator, Device, Recorder, Scope, host_device, policies, record, scope,
                           sim_device, tag)
from tenon._recording import DeviceRecording, Recording, load
from tenon import _core

__version__: str = _core.version

__all__ = [
    "Advice", "Allocator", "Answer", "Array", "Device", "DeviceError", "DeviceRecording", "Diff",
    "Explanation", "InternalError", "InvalidPointerError", "OutOfMemoryError", "ParseError",
    "PlanAnswer", "Recorder", "Recording", "Replay", "Report", "Scope", "View", "__version__", "diff",
    "host_device", "load", "policies", "record", "replay", "report", "scope", "sim_device", "tag",
]
