import contextlib
import ctypes
import pickle

from .. import _C

__all__ = ["memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved",
           "reset_peak_memory_stats", "memory_snapshot", "empty_cache", "MemPool", "use_mem_pool",
           "set_per_process_memory_fraction", "get_per_process_memory_fraction"]


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        self._allocator = _C._cuda_customAllocator(
            ctypes.cast(getattr(library, malloc), ctypes.c_void_p).value,
            ctypes.cast(getattr(library, free), ctypes.c_void_p).value)

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    _C._cuda_changeCurrentAllocator(allocator.allocator())


def memory_stats_as_nested_dict(device=0):
    return _C._cuda_memoryStats(device)


def memory_stats(device=0):
    flat = {}

    def flatten(prefix, value):
        if isinstance(value, dict):
            for name, inner in value.items():
                flatten(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value
    flatten("", memory_stats_as_nested_dict(device))
    return flat


def memory_allocated(device=0):
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=0):
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=0):
    return memory_stats(device)["reserved_bytes.all.current"]


def reset_peak_memory_stats(device=0):
    _C._cuda_resetPeakMemoryStats(device)


def memory_snapshot(pool=(0, 0)):
    return _C._cuda_memorySnapshot(pool)["segments"]


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=1 << 62):
    _C._cuda_record_memory_history(enabled, context, stacks, max_entries, False, False, False, [])


def _dump_snapshot(path):
    with open(path, "wb") as file:
        pickle.dump(_C._cuda_memorySnapshot(None), file)


def empty_cache():
    _C._cuda_emptyCache()


def set_per_process_memory_fraction(fraction, device=0):
    _C._cuda_setMemoryFraction(fraction, device)


def get_per_process_memory_fraction(device=0):
    return _C._cuda_getMemoryFraction(device)


class MemPool:
    def __init__(self, *arguments):
        _C._MemPool(*arguments)


@contextlib.contextmanager
def use_mem_pool(pool, device=0):
    _C._cuda_beginAllocateCurrentThreadToPool(device, pool.id)
    try:
        yield
    finally:
        _C._cuda_endAllocateToPool(device, pool.id)
        _C._cuda_releasePool(device, pool.id)


class Tensor:
    """A block as a tensor has it: freed when it goes. PyTorch keeps size and stream beside it."""

    def __init__(self, size, device=0, stream=None):
        _C.state["initialized"] = True
        self.size = size
        allocator = _C.state["allocator"]
        self.data = allocator.malloc(size, device, stream)
        allocator.metadata.setdefault(self.data, (size, device, stream))

    def record_stream(self, stream):
        _C.state["allocator"].call("set_record_stream_fn", self.data, stream)

    def free(self):
        allocator = _C.state["allocator"]
        if self.data:
            allocator.free(self.data, *allocator.metadata.pop(self.data))
            self.data = None
