"""PyTorch's own functions, answered by Tenon.

PyTorch refuses statistics, snapshots, memory pools and cuDNN's benchmarks when its allocator is a
pluggable one, since it has no hook for them. Programs, trainers and notebooks call them all the
same. So the entries of torch._C that torch.cuda looks up at each call are replaced, those that the
installed PyTorch has; torch.cuda.memory_stats(), max_memory_allocated(), memory_summary(),
memory_snapshot(), _record_memory_history() and _dump_snapshot() then work as ever.
"""

import warnings

import tenon_torch
from tenon_torch import out_of_memory


def take_over(torch):
    """Replaces what PyTorch would refuse. Requires: tenon_torch is enabled."""
    for name, function in (
            ("_cuda_memoryStats", _nested_stats),
            ("_cuda_resetPeakMemoryStats", tenon_torch.reset_peak_stats),
            ("_cuda_resetAccumulatedMemoryStats", _ignore_accumulated),
            ("_cuda_attach_out_of_memory_observer", _attach_out_of_memory_observer),
            ("_accelerator_isAllocatorInitialized", torch.cuda.is_initialized),
            ("_accelerator_emptyCache", tenon_torch.empty_cache),
            ("_accelerator_getDeviceStats", _nested_stats),
            ("_accelerator_resetPeakStats", tenon_torch.reset_peak_stats),
            ("_accelerator_resetAccumulatedStats", _ignore_accumulated),
            ("_cuda_getMemoryFraction", tenon_torch.memory_fraction),
            ("_cuda_memorySnapshot", _snapshot),
            ("_cuda_record_memory_history", _record_history),
            ("_cuda_record_memory_history_legacy", _record_history_legacy),
            ("_cuda_allocationTraceback", _allocation_traceback),
            ("_cuda_isHistoryEnabled", lambda: tenon_torch._history["on"])):
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
    _forbid_benchmarks(torch)


def _nested_stats(device):
    """As torch._C gives it: dictionaries of dictionaries, down to each number."""
    nested = {}
    for name, value in tenon_torch.stats(device).items():
        *path, last = name.split(".")
        if path and path[0] in ("private_pools", "device", "driver") or last == "private_pools":
            continue  # Tenon's own
        inside = nested
        for step in path:
            inside = inside.setdefault(step, {})
        inside[last] = value
    nested.setdefault("max_split_size", -1)
    nested.setdefault("num_oom_rejections", 0)  # of a setting that Tenon does not have
    return nested


def _ignore_accumulated(device):
    """Tenon's totals since the start are never reset; peaks are."""


def _attach_out_of_memory_observer(observer):
    out_of_memory.attach(tenon_torch._library, observer)


def _snapshot(pool=None):
    """pool: (first, second), or (first, second, whether traces are wanted)."""
    state = tenon_torch.snapshot()
    wanted = tuple(pool)[:2] if pool is not None else (0, 0)
    if pool is not None and len(pool) > 2 and not pool[2]:
        state["device_traces"] = [[] for _ in state["device_traces"]]
    if wanted != (0, 0):
        state["segments"] = [s for s in state["segments"] if s["segment_pool_id"] == wanted]
    return state


def _allocation_traceback(data_ptr):
    for segment in tenon_torch.snapshot()["segments"]:
        for block in segment["blocks"]:
            if block["address"] == data_ptr and block["state"] == "active_allocated":
                return block["frames"] or None
    return None


def _record_history(enabled="all", context="all", stacks="all", max_entries=None, *_, **__):
    if enabled is None:
        return tenon_torch.record_history(0)
    most = 100000 if max_entries is None else max(1, max_entries)
    tenon_torch.record_history(most, "python" if context is not None else None)


def _record_history_legacy(enabled, record_context=True, max_entries=1, *_, **__):
    tenon_torch.record_history(max(1, max_entries) if enabled else 0,
                               "python" if record_context else None)


def _forbid_benchmarks(torch):
    """cuDNN's benchmark asks the allocator for its largest free block, and a pluggable one has no
    way to answer: the first convolution would raise. So it stays off, with a word of warning."""
    if not hasattr(torch._C, "_set_cudnn_benchmark"):
        return
    set_benchmark, get_benchmark = torch._C._set_cudnn_benchmark, torch._C._get_cudnn_benchmark

    def set_off(value):
        if value:
            warnings.warn("tenon_torch: torch.backends.cudnn.benchmark stays off: PyTorch cannot "
                          "benchmark with a pluggable allocator", stacklevel=3)
        set_benchmark(False)

    was_on = get_benchmark()
    torch._C._set_cudnn_benchmark = set_off
    cudnn = type(torch.backends.cudnn)
    if hasattr(cudnn, "benchmark"):  # its property kept the function from before
        cudnn.benchmark = property(lambda self: get_benchmark(),
                                   lambda self, value: set_off(value))
    if was_on:
        set_off(True)
