"""PyTorch's out-of-memory observers: functions that are called before OutOfMemoryError is raised."""

import atexit
import ctypes
import sys
import traceback

OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_int, *[ctypes.c_ulonglong] * 3)
NO_OBSERVER = OBSERVER()

_observers = []


def attach(library, observer):
    """observer(device, requested_bytes, most_bytes, free_bytes), on the thread that runs out.

    As in PyTorch, observers stay attached for good. What an observer raises is printed.
    """
    if not callable(observer):
        raise TypeError(f"{observer!r} is not callable: an out-of-memory observer takes (device, "
                        "requested_bytes, most_bytes, free_bytes)")
    _observers.append(observer)
    if len(_observers) == 1:
        library.tenon_torch_observe_out_of_memory(_observe)
        # ctypes can call no Python function once the interpreter has ended.
        atexit.register(library.tenon_torch_observe_out_of_memory, NO_OBSERVER)


@OBSERVER
def _observe(*figures):
    for observer in _observers:
        try:
            observer(*figures)
        except Exception:
            traceback.print_exc(file=sys.stderr)
