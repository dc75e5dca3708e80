"""tenon_torch against PyTorch itself, a CUDA build on a machine without a GPU:

    TENON_CUDA_DRIVER=libtenon_cuda_stand_in.so python3 check_real.py CASE LIBRARY [SNAPSHOT...]
    python3 check_real.py --list

Each case runs in a process of its own. Exits with 77 where PyTorch lacks what it is about.
"""

import ast
import ctypes
import inspect
import os
import pickle
import subprocess
import sys
import tempfile
import warnings

sys.setdlopenflags(os.RTLD_LAZY)  # for stub_libraries.py
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402

import tenon_torch  # noqa: E402
from tenon_torch import memory_pools, pytorch_functions  # noqa: E402

LIBRARY = sys.argv[2] if len(sys.argv) > 2 else None
SNAPSHOTS = sys.argv[3:]


class Lacks(Exception):
    """PyTorch has not got it."""


def raises(call, *patterns):
    try:
        call()
    except Exception as error:
        assert any(pattern in str(error) for pattern in patterns), (
            f"{type(error).__name__} says none of {patterns}: {error}")
        return error
    raise AssertionError(f"nothing was raised that says one of {patterns}")


def enable(**arguments):
    tenon_torch.enable(library=LIBRARY, **arguments)


def plugged_in():
    """CUDAPluggableAllocator loads the library, takes every hook, becomes current, once."""
    offered = {name for name in dir(torch._C._CUDAPluggableAllocator) if name.startswith("set_")}
    known = {setter for setter, _ in tenon_torch._HOOKS}
    assert offered == known, f"hooks without an answer: {offered - known}; gone: {known - offered}"
    enable(policy="stitched", limit="1GiB")
    assert torch.cuda.memory.get_allocator_backend() == "pluggable"
    raises(enable, "enabled already")


def _library():
    library = ctypes.CDLL(LIBRARY)
    library.tenon_malloc.restype = ctypes.c_void_p
    library.tenon_malloc.argtypes = ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
    library.tenon_free.argtypes = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
    return library


def _first(*names):
    return next(getattr(torch._C, name) for name in names if hasattr(torch._C, name))


def hooks_are_called():
    """PyTorch's C++ calls the hooks, with its own std::function for a pool's streams. The device is
    the stand-in's, which PyTorch knows nothing of."""
    enable()
    library = _library()
    torch._C._cuda_setMemoryFraction(0.5, 0)
    assert tenon_torch.memory_fraction(0) == 0.5
    begin = _first("_cuda_beginAllocateCurrentThreadToPool", "_cuda_beginAllocateToPool")
    end = _first("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")
    begin(0, (0, 7))
    inside = library.tenon_malloc(3 << 20, 0, None)
    end(0, (0, 7))
    outside = library.tenon_malloc(3 << 20, 0, None)
    pool_of = {block["address"]: segment["segment_pool_id"]
               for segment in tenon_torch.snapshot()["segments"] for block in segment["blocks"]}
    assert pool_of[inside] == (0, 7) and pool_of[outside] == (0, 0), pool_of
    library.tenon_free(inside, 0, 0, None)
    library.tenon_free(outside, 0, 0, None)
    assert tenon_torch.stats()["private_pools"] == 1
    torch._C._cuda_releasePool(0, (0, 7))
    assert tenon_torch.stats()["private_pools"] == 0
    assert tenon_torch.memory_reserved() > 0
    torch._C._cuda_emptyCache()
    assert tenon_torch.memory_reserved() == 0
    raises(lambda: torch._C._cuda_cudaCachingAllocator_raw_delete(12345), "not allocated here")


def errors_are_pytorchs():
    """A request that does not fit throws c10::OutOfMemoryError, which PyTorch's own header catches.
    The device is the stand-in's."""
    enable(limit="64MiB")
    torch_folder = os.path.dirname(torch.__file__)
    with tempfile.TemporaryDirectory() as folder:
        catcher = os.path.join(folder, "catch.so")
        subprocess.run(
            ["c++", "-std=c++20", "-O0", "-w", "-shared", "-fPIC", "-o", catcher,
             f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
             "-isystem", os.path.join(torch_folder, "include"),
             os.path.join(os.path.dirname(__file__), "catch_out_of_memory.cc"),
             os.path.join(torch_folder, "lib", "libc10.so")], check=True)
        catch = ctypes.CDLL(catcher).catch_out_of_memory
        catch.argtypes = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_char_p
        malloc = ctypes.cast(ctypes.CDLL(LIBRARY).tenon_malloc, ctypes.c_void_p)
        outcome = catch(malloc, 100 << 20, b"CUDA out of memory. ")
    assert outcome == 1, ("nothing was thrown", "", "other words", "not OutOfMemoryError")[outcome]
    assert issubclass(torch.OutOfMemoryError, RuntimeError)


def streams_are_told_apart():
    """Note [PyTorch's streams without its headers] in bindings/torch/pytorch_streams.cc."""
    c10 = ctypes.CDLL("libc10_cuda.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    for symbol in ("_ZN3c104cuda20getCurrentCUDAStreamEa", "_ZNK3c104cuda10CUDAStream6streamEv"):
        assert hasattr(c10, symbol), f"libc10_cuda has no {symbol}"

    class CudaStream(ctypes.Structure):
        _fields_ = [("device_type", ctypes.c_int8), ("device_index", ctypes.c_int8),
                    ("number", ctypes.c_int64)]

    make = c10._ZN3c104cuda21getStreamFromExternalEP11CUstream_sta
    make.restype, make.argtypes = CudaStream, (ctypes.c_void_p, ctypes.c_int8)
    handle = c10._ZNK3c104cuda10CUDAStream6streamEv
    handle.restype, handle.argtypes = ctypes.c_void_p, (ctypes.POINTER(CudaStream),)
    external = make(0x7F1234560, 2)
    assert (external.device_type, external.device_index) == (1, 2), "CUDAStream has changed"
    assert external.number == 0x7F1234560, "an external stream's number is not its handle"
    if os.fork() == 0:  # PyTorch 2.15 asks the driver first, and throws where there is none
        os._exit(0 if handle(ctypes.byref(external)) == 0x7F1234560 else 1)
    status = os.wait()[1]
    assert status == 0 or os.WIFSIGNALED(status), "a stream's handle is not its own"


def _declared():
    """Parameters of the functions of torch._C, by name, as its stubs say."""
    stub = os.path.join(os.path.dirname(torch.__file__), "_C", "__init__.pyi")
    with open(stub) as file:
        tree = ast.parse(file.read())
    return {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}


def names_and_signatures():
    """Every name that tenon_torch replaces exists, and ours takes what PyTorch's callers pass."""
    before = {name: getattr(torch._C, name) for name in dir(torch._C)}
    enable()
    replaced = {name for name, value in before.items() if getattr(torch._C, name) is not value}
    assert {"_cuda_memoryStats", "_cuda_memorySnapshot", "_cuda_record_memory_history"} <= replaced
    new = {name for name in dir(torch._C)} - set(before)
    assert not new, f"names that PyTorch has not: {new}"
    declared = _declared()
    undeclared = {"_cuda_attach_out_of_memory_observer": 1}  # METH_O in torch/csrc/cuda/Module.cpp
    checked = 0
    for name in sorted(replaced):
        ours = inspect.signature(getattr(torch._C, name))
        count = len(declared[name].args) if name in declared else undeclared.get(name)
        text = (before[name].__doc__ or "").strip()
        if text.startswith(name + "("):  # pybind11's own words are surer than the stubs
            inside = ast.parse(f"def f{_types_left_out(text[len(name):])}: pass").body[0].args
            count = len(inside.args)
        assert count is not None, f"{name}: PyTorch says nowhere what it takes"
        ours.bind(*[None] * count)
        checked += 1
    print(f"note: {checked} names: {', '.join(sorted(replaced))}")


def _types_left_out(signature):
    """"(arg0: A, arg1: B) -> C" as "(arg0, arg1)"."""
    return "(" + ", ".join(f"a{i}" for i in range(signature.split(")")[0].count(": "))) + ")"


def callers_find_ours():
    """torch.cuda's functions look names up at each call, so they reach Tenon's."""
    asked = []
    enable()
    for name in ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_cuda_memorySnapshot",
                 "_cuda_getMemoryFraction", "_cuda_record_memory_history"):
        def note(*_, name=name):
            asked.append(name)
            return {"segments": [], "device_traces": []}
        setattr(torch._C, name, note)
    torch.cuda.is_initialized = lambda: True
    memory = torch.cuda.memory
    memory._lazy_init = lambda: None
    torch.cuda._lazy_init = lambda: None
    torch.cuda.memory.is_initialized = lambda: True
    memory.memory_stats(0)
    memory.reset_peak_memory_stats(0)
    memory.memory_snapshot()
    memory.get_per_process_memory_fraction(0)
    memory._record_memory_history(max_entries=10)
    with tempfile.TemporaryDirectory() as folder:
        memory._dump_snapshot(os.path.join(folder, "memory.pickle"))
    assert set(asked) == {"_cuda_memoryStats", "_cuda_resetPeakMemoryStats",
                          "_cuda_memorySnapshot", "_cuda_getMemoryFraction",
                          "_cuda_record_memory_history"}, asked


def pools():
    """Pools of torch.cuda are ours, and what cannot be served says so in one line."""
    enable()
    assert torch.cuda.MemPool is tenon_torch.MemPool is torch.cuda.memory.MemPool
    raises(lambda: torch.cuda.MemPool(allocator=object()), "every pool is Tenon's")
    raises(lambda: torch.cuda.MemPool(no_split=True), "leave it out")
    raises(lambda: torch._C._cuda_getCheckpointState(0, (0, 1)), "cannot be checkpointed")
    wanted = {name for name, value in inspect.getmembers(torch._C._MemPool)
              if not name.startswith("_")}
    missing = {name for name in wanted if not hasattr(tenon_torch.MemPool, name)}
    assert not missing, f"MemPool has no {missing}"
    parameters = set(inspect.signature(tenon_torch.MemPool.__init__).parameters)
    with_context = hasattr(torch._C, "_MemPoolContext")
    if with_context:
        assert torch.cuda.memory.MemPoolContext is memory_pools.MemPoolContext
        context = torch.cuda.MemPoolContext("a pool of ours")
        assert torch.cuda.MemPoolContext.active_pool() == "a pool of ours"
        del context
        assert torch.cuda.MemPoolContext.active_pool() is None
    assert {"allocator", "use_on_oom", "no_split"} <= parameters


def graphs_keep_pools():
    """torch.cuda.use_mem_pool, PyTorch's own, outside of a capture and in one."""
    enable()
    library = _library()
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_current_stream_capturing = lambda: False
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool, device=0):
        block = library.tenon_malloc(3 << 20, 0, None)
        assert pool.use_count() == 2
    assert pool.use_count() == 1 and len(pool.snapshot()) == 1
    if hasattr(torch._C._CUDAGraph, "_retain_pool"):
        class Graph:  # PyTorch makes none without a GPU
            _retain_pool = torch.cuda.CUDAGraph.__dict__["_retain_pool"]
        graph = Graph()
        torch.cuda.is_current_stream_capturing = lambda: True
        torch.cuda.CUDAGraph.get_currently_capturing_graph = staticmethod(lambda: graph)
        with torch.cuda.use_mem_pool(pool, device=0):
            assert pool.use_count() == 3
        assert pool.use_count() == 2, "the graph's"
        for name in ("reset", "pools"):
            assert hasattr(torch._C._CUDAGraph, name)
            assert getattr(torch.cuda.CUDAGraph, name).__module__ == "tenon_torch.memory_pools"
        del graph, torch.cuda.CUDAGraph.get_currently_capturing_graph
        assert pool.use_count() == 1
    library.tenon_free(block, 0, 0, None)
    del pool
    assert tenon_torch.stats()["private_pools"] == 0


def nccl():
    distributed = getattr(torch._C, "_distributed_c10d", None)
    group = getattr(distributed, "ProcessGroupNCCL", None)
    if not hasattr(group, "register_mem_pool"):
        raise Lacks("ProcessGroupNCCL.register_mem_pool")
    assert "_MemPool" in group.register_mem_pool.__doc__, "it takes something else now"
    enable()
    raises(lambda: group.register_mem_pool(None, None), "NCCL cannot register a pool")


def refusals_are_known():
    """PyTorch refuses nothing that neither tenon_torch answers nor the docs name."""
    answered = {"getDeviceStats", "resetAccumulatedStats", "resetPeakStats", "snapshot",
                "recordHistory", "attachOutOfMemoryObserver", "getMemoryFraction",
                "createOrIncrefPool", "ensureExistsAndIncrefPool", "getPoolUseCount",
                "setUseOnOOM", "setNoSplit",
                "checkPoolLiveAllocations", "getCheckpointState", "setCheckpointPoolState",
                "attachAllocatorTraceTracker", "isHistoryEnabled"}
    named = {"cacheInfo", "shareIPcHandle", "shareIpcHandle", "getIpcDevPtr",
             "attachOomRejectionObserver", "allocateWithAddress"}
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    found = set()
    for library in ("libtorch_python.so", "libtorch_cuda.so", "libc10_cuda.so"):
        text = subprocess.run(["strings", "-n", "12", os.path.join(folder, library)],
                              capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            if "does not yet support " in line and not line.startswith("cudaMallocAsync"):
                if "CUDAPluggableAllocator" in line or line.startswith(" does not yet support"):
                    found.add(line.split("support ")[1].split(".")[0])
            elif "CUDAPluggableAllocator does not support " in line:
                found.add(line.split("support ")[1].split(".")[0])
    found -= {"sequence numbers"}
    assert len(found) > 8, found
    unknown = found - answered - named
    assert not unknown, f"PyTorch refuses what nothing here answers: {unknown}"


def accelerator():
    if not hasattr(torch._C, "_accelerator_getDeviceStats"):
        raise Lacks("torch.accelerator's statistics")
    enable()
    assert torch._C._accelerator_getDeviceStats is pytorch_functions._nested_stats
    assert torch._C._accelerator_emptyCache is tenon_torch.empty_cache
    assert torch.accelerator.memory.memory_stats is not None
    assert torch._C._accelerator_isAllocatorInitialized() is False


def own_viewer():
    """Our snapshots in torch.cuda._memory_viz: every function that makes something of one."""
    from torch.cuda import _memory_viz as viz
    assert SNAPSHOTS
    for path in SNAPSHOTS:
        def state(path=path):
            with open(path, "rb") as file:
                return pickle.load(file)
        live = sum(block["requested_size"] for segment in state()["segments"]
                   for block in segment["blocks"] if block["state"] == "active_allocated")
        assert live > 0 and state()["device_traces"][0]
        for text in (viz.segsum(state()), viz.trace(state()), viz.trace_plot(state()),
                     viz.trace_plot(state(), plot_segments=True), viz.segment_plot(state())):
            assert isinstance(text, str) and len(text) > 100, path
        for text in (viz.memory(state(), format_flamegraph=str),
                     viz.segments(state(), format_flamegraph=str),
                     viz.compare([], state()["segments"], format_flamegraph=str)):
            assert "stream_" in text, path


CASES = {case.__name__: case for case in (
    plugged_in, hooks_are_called, errors_are_pytorchs, streams_are_told_apart,
    names_and_signatures, callers_find_ours, pools, graphs_keep_pools, nccl, refusals_are_known,
    accelerator, own_viewer)}

if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CASES))
        sys.exit(0)
    try:
        CASES[sys.argv[1]]()
    except Lacks as lack:
        print(f"PyTorch {torch.__version__} has no {lack}")
        sys.exit(77)
