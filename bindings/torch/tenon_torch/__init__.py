"""PyTorch's CUDA memory on Tenon.

    import tenon_torch
    tenon_torch.enable(policy="stitched", limit="12GiB")   # before the first CUDA call
    import torch
    ...                                                     # train as ever
    print(tenon_torch.stats()["reserved_bytes.all.peak"])

All functions take a device's index where it matters (default: 0). Bad arguments raise ValueError,
everything else RuntimeError; a request that does not fit raises torch.OutOfMemoryError as ever.
"""

import ctypes
import json
import os
import pickle
import threading

from . import call_stacks, memory_pools, out_of_memory, pytorch_functions
from .memory_pools import MemPool

__all__ = [
    "enable", "is_enabled", "empty_cache", "set_memory_fraction", "stats", "reset_peak_stats",
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
    "snapshot", "record", "record_history", "MemPool",
]

_HOOKS = (  # PyTorch's setter, and our function
    ("set_record_stream_fn", "tenon_record_stream"),
    ("set_reset_fn", "tenon_reset"),
    ("set_memory_fraction_fn", "tenon_memory_fraction"),
    ("set_base_alloc_fn", "tenon_base_alloc"),
    ("set_init_fn", "tenon_init"),
    ("set_begin_allocate_to_pool", "tenon_begin_allocate_to_pool"),
    ("set_end_allocate_to_pool_fn", "tenon_end_allocate_to_pool"),
    ("set_release_pool", "tenon_release_pool"),
)

_SUPPORTED = "tenon_torch works with CUDA builds of PyTorch 2.1 and later"

_library = None
_allocator = None  # PyTorch's object; it must stay alive
_call_lock = threading.Lock()  # the library keeps one error and one answer
_history = {"on": False, "stacks": None}


def enable(policy="stitched", limit=None, conf="", library=None, functions=True,
           shareable_pools=False):
    """Makes Tenon PyTorch's CUDA allocator, for this process and for good.

    policy: stitched (the default), caching, expandable or unified; `tenon policies` explains them.
    limit: most device memory to hold, for each device: bytes, or text such as "12GiB".
    conf: PyTorch's allocator settings, "key:value,key:value".
    library: path of libtenon_torch.so; by default the one beside this file.
    functions: whether torch.cuda's own statistics, snapshots and memory pools answer for Tenon
        (pytorch_functions.py). Without, PyTorch says that it asks no pluggable allocator.
    shareable_pools: whether cudaIpcGetMemHandle can export memory of graphs and MemPools (custom
        all-reduce kernels over captured inputs). Such pools are made of whole segments of the
        driver (cudaMalloc) in place of pages.

    The driver is not looked at before the first CUDA call, so CUDA_VISIBLE_DEVICES may be set and
    the process may fork between enable() and that call. What only the driver can tell (no driver,
    no device, a limit larger than the device) is a RuntimeError of that first call.

    Raises RuntimeError when CUDA was used already, when PyTorch is older than 2.1, is built without
    CUDA or lacks the record_stream hook (memory that a second stream uses could be reused too
    early), or when Tenon is enabled already; ValueError for an unknown policy or setting, a policy
    that cannot be used, and a limit of no bytes.
    """
    global _library, _allocator
    import torch

    if _library is not None:
        raise RuntimeError("tenon_torch is enabled already")
    _require_pluggable_allocators(torch)
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "tenon_torch.enable() came after CUDA was initialised: PyTorch cannot change its "
            "allocator any more; call it before the first CUDA tensor, stream or seed")
    path = os.path.abspath(library or os.path.join(os.path.dirname(__file__), "libtenon_torch.so"))
    if not os.path.exists(path):
        raise RuntimeError(f"there is no {path}: build it (make build), or pass library=")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "tenon_malloc", "tenon_free")
    hooks = allocator.allocator() if hasattr(allocator, "allocator") else allocator._allocator
    if not hasattr(hooks, "set_record_stream_fn"):
        raise RuntimeError(
            f"PyTorch {torch.__version__} has no record_stream hook for pluggable allocators: "
            f"memory that a second stream uses could be reused too early; {_SUPPORTED}")
    opened = _open(path)
    _ask(opened, "tenon_torch_configure", str(policy).encode(), _limit_text(limit).encode(),
         conf.encode(), path.encode(), bool(shareable_pools))
    try:
        for setter, function in _HOOKS:
            if hasattr(hooks, setter):
                address = ctypes.cast(getattr(opened, function), ctypes.c_void_p).value
                getattr(hooks, setter)(address)
        torch.cuda.memory.change_current_allocator(allocator)
    except BaseException:
        opened.tenon_torch_cancel()
        raise
    _library, _allocator = opened, allocator
    if functions:
        pytorch_functions.take_over(torch)
        memory_pools.take_over(torch)


def _require_pluggable_allocators(torch):
    if not hasattr(getattr(torch.cuda, "memory", None), "CUDAPluggableAllocator"):
        raise RuntimeError(f"PyTorch {torch.__version__} has no pluggable allocators; {_SUPPORTED}")
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise RuntimeError(f"PyTorch {torch.__version__} is built without CUDA; {_SUPPORTED}")


def is_enabled():
    return _library is not None


def empty_cache():
    """Gives memory that no tensor uses back to the driver, on all devices."""
    _ask(_enabled(), "tenon_torch_empty_cache")


def set_memory_fraction(fraction, device=0):
    """At most this share of the device's memory, from 0 (every request is refused) to 1."""
    _ask(_enabled(), "tenon_torch_set_fraction", float(fraction), _index(device))


def memory_fraction(device=0):
    """The share of the device's memory that set_memory_fraction() left; 1 at first."""
    return float(_ask(_enabled(), "tenon_torch_fraction", _index(device)))


def stats(device=0):
    """What torch.cuda.memory_stats() would say, and what the driver was asked for.

    With private pools (graphs, MemPool) the peaks are sums of peaks: no less than the true ones.
    """
    return json.loads(_ask(_enabled(), "tenon_torch_stats", _index(device)))


def reset_peak_stats(device=0):
    _ask(_enabled(), "tenon_torch_reset_peaks", _index(device))


def memory_allocated(device=0):
    return stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=0):
    return stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=0):
    """Device memory held: by the policy, its caches, and private pools."""
    return stats(device)["device.held_bytes"]


def max_memory_reserved(device=0):
    return stats(device)["reserved_bytes.all.peak"]


def record_history(max_entries=100000, stacks=None):
    """Keeps the last events for snapshot(); max_entries=0 stops that.

    stacks="python": with the Python call stack of each allocation, for some microseconds each.
    Threads of PyTorch's own, such as the backward pass's, have none.
    """
    if stacks not in (None, "python"):
        raise ValueError(f"stacks={stacks!r}: None or \"python\"")
    on = max_entries > 0
    library = _enabled()
    library.tenon_torch_stack_source(
        call_stacks.source(library) if on and stacks else call_stacks.NO_SOURCE)
    _ask(library, "tenon_torch_log_events", min(int(max_entries), 1 << 40))
    _history.update(on=on, stacks=stacks if on else None)


def snapshot(path=None):
    """The state in the format of torch.cuda.memory._dump_snapshot, written to `path` if given.

    PyTorch's viewer (pytorch.org/memory_viz) and `tenon replay` open it. With events, and on wish
    call stacks, where record_history() was called before. Returns the dictionary.
    """
    state = json.loads(_ask(_enabled(), "tenon_torch_snapshot"))
    for segment in state["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
        for block in segment["blocks"]:
            block["frames"] = call_stacks.frames_of(block.pop("stack"))
    for trace in state["device_traces"]:
        for entry in trace:
            entry["frames"] = call_stacks.frames_of(entry.pop("stack"))
            entry.update(compile_context="N/A", user_metadata="")
            if entry["action"] == "oom":
                entry["device_free"] = entry.pop("addr")
    state["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "", "backend": "tenon"}
    state["external_annotations"] = []
    if path is not None:
        partial = f"{path}.partial"
        with open(partial, "wb") as file:
            pickle.dump(state, file, protocol=4)
        os.replace(partial, path)
    return state


class record:
    """Records every allocation on a device as a trace for `tenon replay`.

        with tenon_torch.record("run.csv.zst"):
            train()

    Or: recording = tenon_torch.record(path); ...; recording.stop().
    """

    def __init__(self, path, device=0):
        self._path, self._device = os.fspath(path), _index(device)
        if not self._path.endswith((".csv", ".csv.zst")):
            raise ValueError(f"{self._path}: a trace is written as .csv or .csv.zst")
        name = os.path.basename(self._path).split(".")[0]
        _ask(_enabled(), "tenon_torch_start_recording", self._device, name.encode())
        self._running = True

    def stop(self):
        """Writes the file. A second call does nothing."""
        if self._running:
            self._running = False
            _ask(_enabled(), "tenon_torch_stop_recording", self._device, self._path.encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def _limit_text(limit):
    if limit is None:
        return ""
    if isinstance(limit, bool) or not isinstance(limit, (int, str)):
        raise ValueError(f"limit={limit!r}: give bytes, or text such as \"12GiB\"")
    if limit == "" or (isinstance(limit, int) and limit <= 0):
        raise ValueError(f"limit={limit!r}: a limit of nothing leaves no memory at all")
    return f"{limit}B" if isinstance(limit, int) else limit


def _open(path):
    opened = ctypes.CDLL(path)
    text, number = ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
            ("tenon_torch_configure", number, (text, text, text, text, number)),
            ("tenon_torch_cancel", None, ()),
            ("tenon_torch_error", text, ()),
            ("tenon_torch_answer", text, ()),
            ("tenon_torch_stats", number, (number,)),
            ("tenon_torch_snapshot", number, ()),
            ("tenon_torch_reset_peaks", number, (number,)),
            ("tenon_torch_empty_cache", number, ()),
            ("tenon_torch_set_fraction", number, (ctypes.c_double, number)),
            ("tenon_torch_fraction", number, (number,)),
            ("tenon_torch_retain_pool", number, (number, ctypes.c_ulonglong, ctypes.c_ulonglong)),
            ("tenon_torch_pool_users", number, (number, ctypes.c_ulonglong, ctypes.c_ulonglong)),
            ("tenon_torch_stack_source", None, (call_stacks.SOURCE,)),
            ("tenon_torch_observe_out_of_memory", None, (out_of_memory.OBSERVER,)),
            ("tenon_torch_log_events", number, (ctypes.c_size_t,)),
            ("tenon_torch_start_recording", number, (number, text)),
            ("tenon_torch_stop_recording", number, (number, text))):
        function = getattr(opened, name)
        function.restype, function.argtypes = result, arguments
    return opened


def _enabled():
    if _library is None:
        raise RuntimeError("tenon_torch is not enabled: call tenon_torch.enable() first")
    return _library


def _ask(library, function, *arguments):
    """Calls the library; returns its answer. Raises what it says went wrong."""
    with _call_lock:
        status = getattr(library, function)(*arguments)
        if status == 0:
            return library.tenon_torch_answer().decode()
        message = library.tenon_torch_error().decode()
    raise ValueError(message) if status == 2 else RuntimeError(message)


def _index(device):
    """A device's index: of a number, a torch.device, "cuda:1"; None is the current one."""
    if isinstance(device, int):
        return device
    import torch
    index = torch.device(device).index if device is not None else None
    return torch.cuda.current_device() if index is None else index
