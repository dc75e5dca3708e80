"""tenon_torch with a fake torch, over the stand-in driver. Each case runs in a process of its own:

    python3 check_module.py CASE LIBRARY
"""

import os
import pickle
import re
import sys
import tempfile

import tenon_torch
import torch
from torch.cuda.memory import Tensor

MIB = 1 << 20
CASE, LIBRARY = sys.argv[1], sys.argv[2]


def raises(error, pattern, call):
    try:
        call()
    except error as raised:
        assert re.search(pattern, str(raised)), f"{raised!r} does not say {pattern!r}"
        return
    raise AssertionError(f"no {error.__name__} that says {pattern!r}")


def throws(pattern, call):
    """The call throws a C++ exception. PyTorch makes Python's of it; here it ends a child process,
    whose stderr says what it was."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 2)
        call()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stderr:
        said = stderr.read()
    assert os.waitpid(child, 0)[1] != 0, "nothing was thrown"
    assert re.search(pattern, said), f"{said!r} does not say {pattern!r}"


def enable(**arguments):
    tenon_torch.enable(library=LIBRARY, **arguments)


def life():
    enable(policy="stitched", limit="1GiB")
    assert tenon_torch.is_enabled()
    raises(RuntimeError, "enabled already", enable)
    tensors = [Tensor(size) for size in (1, 512, 3 * MIB, 40 * MIB)]
    stats = tenon_torch.stats()
    assert stats["requested_bytes.all.current"] == 513 + 43 * MIB, stats
    assert stats["allocation.all.current"] == 4, stats
    assert tenon_torch.memory_allocated() == stats["allocated_bytes.all.current"]
    assert tenon_torch.memory_reserved() >= tenon_torch.memory_allocated()
    assert Tensor(0).data is None
    tensors[2].record_stream(None)
    foreign = Tensor(0)
    foreign.data = 12345  # memory of another library, as DLPack brings it
    foreign.record_stream(None)
    for tensor in tensors:
        tensor.free()
    assert tenon_torch.stats()["allocation.all.current"] == 0
    assert tenon_torch.max_memory_allocated() > 43 * MIB
    tenon_torch.reset_peak_stats()
    assert tenon_torch.max_memory_allocated() == 0
    tenon_torch.empty_cache()
    assert tenon_torch.memory_reserved() == 0
    tenon_torch.set_memory_fraction(0.5)
    raises(ValueError, "not from 0 to 1", lambda: tenon_torch.set_memory_fraction(-0.1))
    raises(ValueError, "cuda:99", lambda: tenon_torch.stats(99))
    raises(RuntimeError, "no cuda:5", lambda: tenon_torch.stats(5))


def every_policy():
    for policy in ("stitched", "caching", "expandable", "unified"):
        if os.fork() == 0:
            enable(policy=policy)
            tensors = [Tensor(i * 300_000 + 1) for i in range(30)]
            for tensor in tensors[::2]:
                tensor.free()
            more = [Tensor(5 * MIB) for _ in range(5)]
            assert len({tensor.data for tensor in tensors[1::2] + more}) == 20
            for tensor in tensors + more:
                tensor.free()
            tenon_torch.empty_cache()
            assert tenon_torch.stats()["allocation.all.current"] == 0
            os._exit(0)
        assert os.wait()[1] == 0, policy


def snapshots():
    enable(policy="expandable")
    tenon_torch.record_history()
    kept = Tensor(10 * MIB)
    gone = Tensor(20 * MIB)
    gone.free()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "memory.pickle")
        tenon_torch.snapshot(path)
        with open(path, "rb") as file:
            state = pickle.load(file)
        assert os.listdir(folder) == ["memory.pickle"]
    blocks = [block for segment in state["segments"] for block in segment["blocks"]]
    active = [block for block in blocks if block["state"] == "active_allocated"]
    assert [block["requested_size"] for block in active] == [10 * MIB], blocks
    assert active[0]["address"] == kept.data
    for segment in state["segments"]:
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
        assert segment["segment_pool_id"] == (0, 0) and segment["device"] == 0
    actions = [entry["action"] for entry in state["device_traces"][0]]
    assert [a for a in actions if not a.startswith("segment_")] == [
        "alloc", "alloc", "free_requested", "free_completed"], actions
    assert "segment_map" in actions
    kept.free()


def recording():
    enable()
    before = Tensor(MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.csv")
        with tenon_torch.record(path):
            raises(ValueError, "recorded already", lambda: tenon_torch.record(path))
            Tensor(7 * MIB).free()
            before.free()
        lines = open(path).read().splitlines()
    assert lines[0].startswith("time_us,op,id,size,stream"), lines
    operations = [line.split(",")[1] for line in lines[1:]]
    assert operations == ["alloc", "alloc", "free_completed", "free_completed"], lines
    raises(ValueError, "written as", lambda: tenon_torch.record("run.txt"))


def bad_arguments():
    raises(RuntimeError, "not enabled", tenon_torch.stats)
    raises(ValueError, "is no policy.*stitched", lambda: enable(policy="best"))
    raises(ValueError, "supports only a block's own stream", lambda: enable(policy="pool"))
    raises(ValueError, "no unit", lambda: enable(limit="12 parsecs"))
    for limit in (0, -5, "", True, 1.5):
        raises(ValueError, "limit", lambda: enable(limit=limit))
    raises(ValueError, "0", lambda: enable(limit="0GiB"))
    raises(ValueError, "max_split", lambda: enable(conf="max_split_size_mb:none"))
    raises(RuntimeError, "no /nowhere", lambda: tenon_torch.enable(library="/nowhere/lib.so"))
    enable(limit=64 * MIB)  # and nothing of it was left behind
    Tensor(MIB).free()


def pytorch_functions():
    """torch.cuda's own functions, which PyTorch refuses with a pluggable allocator."""
    raises(RuntimeError, "does not yet support", torch.cuda.memory_allocated)
    enable(policy="stitched", limit="1GiB")
    kept = Tensor(3 * MIB)
    Tensor(40 * MIB).free()
    mine, theirs = tenon_torch.stats(), torch.cuda.memory_stats()
    for name, value in theirs.items():
        if not name.startswith("oversize") and name not in ("max_split_size", "num_oom_rejections"):
            assert mine[name] == value, name
    assert theirs["oversize_segments.current"] == 0 and "allocation.large_pool.freed" in theirs
    assert torch.cuda.memory_allocated() == tenon_torch.memory_allocated() == 3 * MIB
    assert torch.cuda.max_memory_allocated() > 40 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 3 * MIB
    assert torch.cuda.get_per_process_memory_fraction() == 1
    torch.cuda.set_per_process_memory_fraction(0.25)
    assert torch.cuda.get_per_process_memory_fraction() == 0.25
    torch.cuda.memory._record_memory_history(max_entries=1000)
    traced = Tensor(5 * MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "memory.pickle")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as file:
            state = pickle.load(file)
    last = state["device_traces"][0][-1]
    assert last["action"] == "alloc" and last["size"] == 5 * MIB, last
    assert "pytorch_functions" in [frame["name"] for frame in last["frames"]], last
    torch.cuda.memory._record_memory_history(None)
    kept.free(), traced.free()
    assert len(torch.cuda.memory_snapshot()) > 0
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


def without_functions():
    enable(functions=False)
    raises(RuntimeError, "does not yet support getDeviceStats", torch.cuda.memory_allocated)
    raises(RuntimeError, "does not yet support createOrIncrefPool", torch.cuda.MemPool)
    Tensor(MIB).free()


def memory_pools():
    enable()
    outside = Tensor(3 * MIB)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        first = Tensor(3 * MIB)
        raises(AssertionError, "", lambda: _assert(first.data == outside.data))
    with torch.cuda.use_mem_pool(pool):
        second = Tensor(3 * MIB)
        second.free()
        again = Tensor(3 * MIB)
    assert len(pool.snapshot()) == 2 and len(torch.cuda.memory_snapshot(pool.id)) == 2
    assert torch.cuda.memory_allocated() == 9 * MIB
    assert tenon_torch.stats()["private_pools"] == 1
    outside.free(), first.free()
    reserved = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert tenon_torch.stats()["private_pools.reserved_bytes"] == 8 * MIB, "it keeps its memory"
    assert torch.cuda.memory_reserved() < reserved
    del pool
    assert tenon_torch.stats()["private_pools.reserved_bytes"] == 4 * MIB, "the last block's"
    again.free()
    assert tenon_torch.stats()["private_pools"] == 0
    assert torch.cuda.memory_reserved() == 0
    raises(RuntimeError, "every pool is Tenon's", lambda: torch.cuda.MemPool(object()))
    for unknown in ("use_on_oom", "no_split"):
        raises(RuntimeError, unknown, lambda: torch.cuda.MemPool(**{unknown: True}))


def pools_that_graphs_keep():
    enable()
    pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
    assert pool.use_count() == 1
    with torch.cuda.use_mem_pool(pool):
        block = Tensor(3 * MIB)
        assert pool.use_count() == 2
        graph._retain_pool(pool)  # as use_mem_pool does in a capture
        graph._retain_pool(pool.id)
    assert pool.use_count() == 2, "once for a graph"
    assert graph.pools() == [(9, 0), pool.id]
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool.id, {block.data})
    assert not torch._C._cuda_checkPoolLiveAllocations(0, pool.id, set())
    block.free()
    del pool
    assert tenon_torch.stats()["private_pools.reserved_bytes"] == 4 * MIB, "the graph's"
    graph.reset()
    assert tenon_torch.stats()["private_pools"] == 0
    pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
    graph._retain_pool(pool)
    assert pool.use_count() == 2
    del graph
    assert pool.use_count() == 1


def refusals():
    import warnings
    enable()
    state = torch._C
    for call in (lambda: state._cuda_getCheckpointState(0, (0, 1)),
                 lambda: state._cuda_setCheckpointPoolState(0, None, [], [])):
        raises(RuntimeError, "checkpointed.*reduce-overhead", call)
    nccl = state._distributed_c10d.ProcessGroupNCCL()
    for register in (nccl.register_mem_pool, nccl.deregister_mem_pool):
        raises(RuntimeError, "NCCL cannot register.*leave", lambda: register(None, True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state._accelerator_setAllocatorSettings("expandable_segments:True")
    assert len(caught) == 1 and "enable()" in str(caught[0].message), caught
    assert state.state["settings"] == "expandable_segments:True", "PyTorch's own still hears of it"


def shareable_pools():
    """What cudaIpcGetMemHandle does with a block of a pool."""
    import ctypes
    for shareable in (False, True):
        if os.fork() == 0:
            enable(shareable_pools=shareable)
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                block = Tensor(3 * MIB)
            driver = ctypes.CDLL(os.environ["TENON_CUDA_DRIVER"])
            context, handle = ctypes.c_void_p(), ctypes.create_string_buffer(64)
            assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
            assert driver.cuCtxPushCurrent_v2(context) == 0
            status = driver.cuIpcGetMemHandle(handle, ctypes.c_ulonglong(block.data))
            assert (status == 0) == shareable, status
            block.free()
            del pool
            assert tenon_torch.stats()["private_pools"] == 0
            assert tenon_torch.memory_reserved() == 0
            os._exit(0)
        assert os.wait()[1] == 0, shareable


def _assert(condition):
    assert condition


def call_stacks():
    enable()
    raises(ValueError, "stacks=", lambda: tenon_torch.record_history(stacks="all"))
    before = Tensor(MIB)
    tenon_torch.record_history(stacks="python")

    def deep(levels):
        return Tensor(7 * MIB) if levels == 0 else deep(levels - 1)

    tensors = [deep(3), *(deep(1) for _ in range(2))]
    state = tenon_torch.snapshot()
    blocks = {block["requested_size"]: block["frames"]
              for segment in state["segments"] for block in segment["blocks"]
              if block["state"] == "active_allocated"}
    assert blocks[MIB] == [], "from before"
    names = [[frame["name"] for frame in entry["frames"]]
             for entry in state["device_traces"][0] if entry["action"] == "alloc"]
    assert [stack.count("deep") for stack in names] == [4, 2, 2], names
    assert names[0].index("deep") < names[0].index("call_stacks") < names[0].index("<module>")
    frame = state["device_traces"][0][-1]["frames"][1]
    assert frame["filename"] == __file__ and frame["line"] > 100, frame
    traced = state["device_traces"][0]
    assert traced[-1]["frames"] is [e for e in traced if e["action"] == "alloc"][1]["frames"]
    tenon_torch.record_history(0)
    for tensor in (before, *tensors):
        tensor.free()
    assert tenon_torch.snapshot()["device_traces"] == [[]]


def traces_add_up():
    """Every block lies in memory that is mapped at that moment: looked at from the end back to the
    start, as PyTorch's viewer does. Pages move, streams differ, pools come and go."""
    import ctypes
    import random
    for policy in ("stitched", "expandable", "caching", "unified"):
        if os.fork() == 0:
            _churn(policy, ctypes, random.Random(5))
            os._exit(0)
        assert os.wait()[1] == 0, policy


def _churn(policy, ctypes, random):
    enable(policy=policy, limit="192MiB")
    tenon_torch.record_history()
    stand_in = ctypes.CDLL(os.environ["TENON_CUDA_DRIVER"])
    Tensor(1).free()  # the device is in use
    context, streams = ctypes.c_void_p(), [None]
    assert stand_in.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert stand_in.cuCtxPushCurrent_v2(context) == 0
    for _ in range(2):
        made = ctypes.c_void_p()
        assert stand_in.cuStreamCreate(ctypes.byref(made), 1) == 0
        streams.append(made.value)
    held, moved = [], 0
    for step in range(400):
        if step % 50 == 10:
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                held.append(Tensor(random.randrange(1, 4 * MIB)))
            del pool
        while sum(tensor.size for tensor in held) > 90 * MIB or random.random() < 0.5 and held:
            held.pop(random.randrange(len(held))).free()
        size = int(2 ** random.uniform(9, 24.5))
        held.append(Tensor(size, stream=streams[random.randrange(3)]))
        if step % 97 == 96:
            torch.cuda.empty_cache()
        _replay_backwards(tenon_torch.snapshot() if step % 40 == 39 else None)
    state = tenon_torch.snapshot()
    if "TENON_KEEP_SNAPSHOT" in os.environ:  # scripts/test_pytorch.sh opens them elsewhere
        tenon_torch.snapshot(f"{os.environ['TENON_KEEP_SNAPSHOT']}{policy}.pickle")
    _replay_backwards(state)
    actions = {entry["action"] for entry in state["device_traces"][0]}
    if policy in ("stitched", "expandable"):
        assert {"segment_map", "segment_unmap"} <= actions and "segment_free" not in actions
    for tensor in held:
        tensor.free()


def _replay_backwards(state):
    if state is None:
        return
    def pages_of(address, size):
        return range(address // 4096, (address + size - 1) // 4096 + 1)

    pages, blocks = set(), {}  # where something is mapped; live blocks
    for segment in state["segments"]:
        pages.update(pages_of(segment["address"], segment["total_size"]))
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                blocks[block["address"]] = block["size"]
    for entry in reversed(state["device_traces"][0]):
        action, size = entry["action"], entry["size"]
        if action == "oom":
            continue
        span = pages_of(entry["addr"], size)
        if action in ("segment_map", "segment_alloc"):
            assert pages.issuperset(span), f"{entry}: not mapped afterwards"
            pages.difference_update(span)
            inside = [a for a in blocks if entry["addr"] <= a < entry["addr"] + size]
            assert not inside, f"{entry}: blocks lie there before"
        elif action in ("segment_unmap", "segment_free"):
            assert pages.isdisjoint(span), f"{entry}: still mapped afterwards"
            pages.update(span)
        elif action == "alloc":
            assert pages.issuperset(span), f"{entry}: in nothing"
            blocks.pop(entry["addr"], None)
        elif action == "free_completed":
            assert pages.issuperset(span), f"{entry}: in nothing"
            blocks[entry["addr"]] = size


def threads_with_stacks():
    import threading
    enable()
    tenon_torch.record_history(stacks="python")

    def work():
        for _ in range(200):
            Tensor(MIB).free()
            tenon_torch.stats()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    allocs = [e for e in tenon_torch.snapshot()["device_traces"][0] if e["action"] == "alloc"]
    assert len(allocs) == 800 and all(len(e["frames"]) > 3 for e in allocs)


def benchmarks():
    import warnings
    torch.backends.cudnn.benchmark = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        enable()
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.benchmark = False
    assert len(caught) == 2 and "stays off" in str(caught[0].message), caught
    assert torch.backends.cudnn.benchmark is False


def several_devices():
    enable(limit="2GiB")
    tensors = [Tensor(5 * MIB, device) for device in (0, 1, 1)]
    assert [tenon_torch.memory_allocated(d) for d in (0, 1)] == [5 * MIB, 10 * MIB]
    assert tenon_torch.memory_allocated("cuda:1") == 10 * MIB
    assert tenon_torch.memory_allocated(torch.device("cuda:1")) == 10 * MIB
    assert tenon_torch.memory_allocated("cuda") == tenon_torch.memory_allocated(None) == 5 * MIB
    assert {s["device"] for s in torch.cuda.memory_snapshot()} == {0, 1}
    for tensor in tensors:
        tensor.free()


def _free_after(disaster):
    """What PyTorch still frees then goes without a word, also on stderr."""
    import ctypes
    enable()
    stand_in = ctypes.CDLL(os.environ["TENON_CUDA_DRIVER"])
    other = ctypes.c_void_p()
    tensors = [Tensor(size * MIB) for size in (1, 3, 30, 30)]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensors.append(Tensor(5 * MIB))
    for tensor in tensors[::2]:
        tensor.record_stream(other)
    disaster(stand_in)
    for tensor in tensors:
        tensor.free()
    return stand_in


def driver_gone():
    _free_after(lambda stand_in: stand_in.stand_in_end())
    raises(RuntimeError, "DEINITIALIZED|lost", tenon_torch.stats)


def device_lost():
    _free_after(lambda stand_in: stand_in.stand_in_lose_device(1))
    raises(RuntimeError, "LAUNCH_FAILED.*lost", tenon_torch.stats)


def too_late():
    torch.cuda.initialize()
    raises(RuntimeError, "after CUDA was initialised", enable)


def refused_by_pytorch():
    def refuse(_):
        raise RuntimeError("no")
    keep = torch.cuda.memory.change_current_allocator
    torch.cuda.memory.change_current_allocator = refuse
    raises(RuntimeError, "^no$", enable)
    assert not tenon_torch.is_enabled()
    torch.cuda.memory.change_current_allocator = keep
    enable()


def without_record_stream():
    raises(RuntimeError, "record_stream hook", enable)


def without_pools():
    enable()
    Tensor(MIB).free()


def limit_above_the_device():
    enable(limit="1TiB")
    throws("larger than cuda:0.*smaller limit", lambda: Tensor(1))


def no_driver():
    enable()
    throws("no NVIDIA driver", lambda: Tensor(1))
    raises(RuntimeError, "no NVIDIA driver", tenon_torch.stats)


def old_driver():
    enable()
    throws("too old", lambda: Tensor(1))
    raises(RuntimeError, "too old", tenon_torch.stats)


def no_device():
    enable()
    throws("CUDA_ERROR_NO_DEVICE", lambda: Tensor(1))
    raises(RuntimeError, "CUDA_ERROR_NO_DEVICE", tenon_torch.stats)


def visible_devices_set_late():
    enable()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    Tensor(MIB).free()
    raises(RuntimeError, "cuda:1", lambda: tenon_torch.stats(1))


def old_pytorch():
    del torch.cuda.memory.CUDAPluggableAllocator
    raises(RuntimeError, "no pluggable allocators.*2.1 and later", enable)


def without_cuda():
    del torch._C._cuda_customAllocator
    raises(RuntimeError, "built without CUDA.*2.1 and later", enable)


def out_of_memory_observers():
    def runs_out():  # before the driver is first used: it would refuse a forked child
        enable(limit="64MiB")
        attach = torch._C._cuda_attach_out_of_memory_observer
        attach(lambda *figures: os.write(2, b"first %d %d %d %d\n" % figures))
        attach(lambda *figures: undefined)
        attach(lambda *figures: os.write(2, b"third\n"))
        raises(TypeError, "not callable", lambda: attach(3))
        Tensor(16 * MIB)
        os.write(2, b"so far\n")
        Tensor(100 * MIB)

    throws(f"^so far\nfirst 0 {100 * MIB} {64 * MIB} \\d+\n(.|\n)*NameError(.|\n)*third\n"
           "(.|\n)*CUDA out of memory", runs_out)


def no_memory_at_all():
    def runs_out():
        enable()
        tenon_torch.set_memory_fraction(0)
        Tensor(1)

    throws("CUDA out of memory", runs_out)


def accelerator():
    raises(AssertionError, "", lambda: _assert(torch._C._accelerator_isAllocatorInitialized()))
    enable()
    kept = Tensor(3 * MIB)
    Tensor(40 * MIB).free()
    assert torch._C._accelerator_isAllocatorInitialized()
    stats = torch._C._accelerator_getDeviceStats(0)
    assert stats["allocated_bytes"]["all"]["current"] == 3 * MIB, stats
    held = tenon_torch.memory_reserved()
    torch._C._accelerator_emptyCache()
    assert tenon_torch.memory_reserved() < held
    kept.free()


def two_libraries():
    import ctypes
    import shutil
    enable()
    with tempfile.TemporaryDirectory() as folder:
        other = shutil.copy(LIBRARY, os.path.join(folder, "libtenon_torch.so"))
        second = tenon_torch._open(other)
        status = second.tenon_torch_configure(b"stitched", b"", b"", other.encode(), 0)
        assert status == 1 and b"another libtenon_torch.so" in second.tenon_torch_error()


def fork():
    enable()
    early = os.fork()  # before the driver was looked at: the child has it for itself
    if early == 0:
        Tensor(MIB).free()
        os._exit(0)
    assert os.waitpid(early, 0)[1] == 0
    Tensor(MIB).free()
    inherited = Tensor(2 * MIB)
    child = os.fork()
    if child == 0:
        raises(RuntimeError, "spawn", lambda: tenon_torch.stats())
        inherited.free()  # silently: the memory is the parent's
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


globals()[CASE]()
print("ok")
