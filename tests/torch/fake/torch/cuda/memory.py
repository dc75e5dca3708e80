import ctypes
import os

from .. import cuda

current = None


class _Hooks:
    """PyTorch's own object: each setter takes a function pointer as an integer."""

    def __init__(self):
        self.functions = {}

    def _set(self, name, result, *arguments):
        def setter(address):
            assert isinstance(address, int) and address != 0, name
            self.functions[name] = ctypes.CFUNCTYPE(result, *arguments)(address)
        return setter

    def __getattr__(self, name):
        pointer, number = ctypes.c_void_p, ctypes.c_int
        known = {
            "set_init_fn": (None, number),
            "set_reset_fn": (None,),
            "set_memory_fraction_fn": (None, ctypes.c_double, number),
            "set_base_alloc_fn": (pointer, pointer, ctypes.POINTER(ctypes.c_size_t)),
            "set_record_stream_fn": (None, pointer, pointer),
            "set_begin_allocate_to_pool": (None,),  # C++ arguments: not called from here
            "set_end_allocate_to_pool_fn": (None,),
            "set_release_pool": (None,),
        }
        if name not in known or name in os.environ.get("FAKE_TORCH_LACKS", "").split(","):
            raise AttributeError(name)
        return self._set(name, *known[name])


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        self.malloc = getattr(library, malloc)
        self.malloc.restype = ctypes.c_void_p
        self.malloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        self.free = getattr(library, free)
        self.free.restype = None
        self.free.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        self._allocator = _Hooks()

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    global current
    if cuda.is_initialized():
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator


class Tensor:
    """A block as a tensor has it: freed when it goes."""

    def __init__(self, size, device=0, stream=None):
        cuda.initialize()
        self.size, self.device, self.stream = size, device, stream
        self.data = current.malloc(size, device, stream)

    def record_stream(self, stream):
        current._allocator.functions["set_record_stream_fn"](self.data, stream)

    def free(self):
        if self.data:
            current.free(self.data, self.size, self.device, self.stream)
            self.data = None
