"""What PyTorch's own library gives Python about its allocator, when that is a pluggable one."""

import ctypes
import os

pointer, number = ctypes.c_void_p, ctypes.c_int
state = {"allocator": None, "initialized": False, "pools": 0, "benchmark": False}


class Pool(ctypes.Structure):  # MempoolId_t: a std::pair, passed as a structure of two is
    _fields_ = [("first", ctypes.c_ulonglong), ("second", ctypes.c_ulonglong)]


class _cuda_CUDAAllocator:
    pass


class _CUDAPluggableAllocator(_cuda_CUDAAllocator):
    """Each setter takes a function pointer as an integer."""

    _HOOKS = {
        "set_init_fn": (None, number),
        "set_reset_fn": (None,),
        "set_memory_fraction_fn": (None, ctypes.c_double, number),
        "set_base_alloc_fn": (pointer, pointer, ctypes.POINTER(ctypes.c_size_t)),
        "set_record_stream_fn": (None, pointer, pointer),
        "set_begin_allocate_to_pool": (None, number, Pool, pointer),  # a std::function, by address
        "set_end_allocate_to_pool_fn": (None, number, Pool),
        "set_release_pool": (None, number, Pool),
    }

    def __init__(self, malloc, free):
        self.malloc = ctypes.CFUNCTYPE(pointer, ctypes.c_ssize_t, number, pointer)(malloc)
        self.free = ctypes.CFUNCTYPE(None, pointer, ctypes.c_ssize_t, number, pointer)(free)
        self.hooks, self.metadata = {}, {}

    def __getattr__(self, name):
        if name not in self._HOOKS or name in os.environ.get("FAKE_TORCH_LACKS", "").split(","):
            raise AttributeError(name)
        result, *arguments = self._HOOKS[name]

        def setter(address):
            assert isinstance(address, int) and address != 0, name
            self.hooks[name] = ctypes.CFUNCTYPE(result, *arguments)(address)
        return setter

    def call(self, hook, *arguments):
        if hook in self.hooks:
            return self.hooks[hook](*arguments)


def _cuda_customAllocator(malloc, free):
    assert isinstance(malloc, int) and isinstance(free, int)
    return _CUDAPluggableAllocator(malloc, free)


def _cuda_changeCurrentAllocator(allocator):
    assert isinstance(allocator, _cuda_CUDAAllocator)
    if state["initialized"]:
        raise RuntimeError("Can't swap an already initialized allocator")
    state["allocator"] = allocator


def _refusing(name):
    def refuse(*_):
        raise RuntimeError(f"CUDAPluggableAllocator does not yet support {name}. If you need it, "
                           "please file an issue describing your use case.")
    return refuse


_cuda_memoryStats = _refusing("getDeviceStats")
_cuda_resetPeakMemoryStats = _refusing("resetPeakStats")
_cuda_resetAccumulatedMemoryStats = _refusing("resetAccumulatedStats")
_cuda_memorySnapshot = _refusing("snapshot")
_cuda_record_memory_history = _refusing("recordHistory")
_cuda_getMemoryFraction = _refusing("getMemoryFraction")
_MemPool = _refusing("createOrIncrefPool")
_cuda_attach_out_of_memory_observer = _refusing("attachOutOfMemoryObserver")
_accelerator_getDeviceStats = _refusing("getDeviceStats")
_cuda_checkPoolLiveAllocations = _refusing("checkPoolLiveAllocations")
_cuda_getCheckpointState = _refusing("getCheckpointState")
_cuda_setCheckpointPoolState = _refusing("setCheckpointPoolState")


def _accelerator_setAllocatorSettings(settings):
    state["settings"] = settings


class _CUDAGraph:
    """pools() and reset() of a graph; retaining a pool is what a pluggable allocator refuses."""

    _retain_pool = _refusing("createOrIncrefPool")

    def pools(self):
        return [(9, 0)]

    def reset(self):
        pass


class _distributed_c10d:
    class ProcessGroupNCCL:
        register_mem_pool = deregister_mem_pool = _refusing("attachAllocatorTraceTracker")


def _accelerator_isAllocatorInitialized():  # of PyTorch's own allocator, which never is
    return False


def _accelerator_emptyCache():
    pass


def _cuda_emptyCache():
    state["allocator"].call("set_reset_fn")


def _cuda_setMemoryFraction(fraction, device):
    state["allocator"].call("set_memory_fraction_fn", fraction, device)


def _graph_pool_handle():
    state["pools"] += 1
    return (0, state["pools"])


# std::function<bool(cudaStream_t)> over a function of ours: its first word is what it holds, the
# third and fourth manage and call it (libstdc++).
_takes_all = ctypes.CFUNCTYPE(ctypes.c_bool, pointer, pointer)(lambda *_: True)
_manages = ctypes.CFUNCTYPE(ctypes.c_bool, pointer, pointer, number)(lambda *_: False)


def _filter():
    words = (pointer * 4)(None, None, ctypes.cast(_manages, pointer),
                          ctypes.cast(_takes_all, pointer))
    return words


def _cuda_beginAllocateCurrentThreadToPool(device, pool):
    state["filter"] = _filter()
    state["allocator"].call("set_begin_allocate_to_pool", device, Pool(*pool),
                            ctypes.addressof(state["filter"]))


def _cuda_endAllocateToPool(device, pool):
    state["allocator"].call("set_end_allocate_to_pool_fn", device, Pool(*pool))


def _cuda_releasePool(device, pool):
    state["allocator"].call("set_release_pool", device, Pool(*pool))


def _get_cudnn_benchmark():
    return state["benchmark"]


def _set_cudnn_benchmark(value):
    state["benchmark"] = value
