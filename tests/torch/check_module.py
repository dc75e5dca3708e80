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
    for tensor in tensors:
        tensor.free()
    assert tenon_torch.stats()["allocation.all.current"] == 0
    assert tenon_torch.max_memory_allocated() > 43 * MIB
    tenon_torch.reset_peak_stats()
    assert tenon_torch.max_memory_allocated() == 0
    tenon_torch.empty_cache()
    assert tenon_torch.memory_reserved() == 0
    tenon_torch.set_memory_fraction(0.5)
    raises(ValueError, "not above 0", lambda: tenon_torch.set_memory_fraction(0))
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
    raises(ValueError, "no stream but", lambda: enable(policy="pool"))
    raises(ValueError, "larger than cuda:0", lambda: enable(limit="1TiB"))
    raises(ValueError, "no unit", lambda: enable(limit="12 parsecs"))
    for limit in (0, -5, "", True, 1.5):
        raises(ValueError, "limit", lambda: enable(limit=limit))
    raises(ValueError, "0", lambda: enable(limit="0GiB"))
    raises(ValueError, "max_split", lambda: enable(conf="max_split_size_mb:none"))
    raises(RuntimeError, "no /nowhere", lambda: tenon_torch.enable(library="/nowhere/lib.so"))
    enable(limit=64 * MIB)  # and nothing of it was left behind
    Tensor(MIB).free()


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


def no_driver():
    raises(RuntimeError, "no NVIDIA driver", enable)


def old_driver():
    raises(RuntimeError, "too old", enable)


def no_device():
    raises(RuntimeError, "CUDA_ERROR_NO_DEVICE", enable)


def two_libraries():
    import ctypes
    import shutil
    enable()
    with tempfile.TemporaryDirectory() as folder:
        other = shutil.copy(LIBRARY, os.path.join(folder, "libtenon_torch.so"))
        second = tenon_torch._open(other)
        status = second.tenon_torch_configure(b"stitched", b"", b"", other.encode())
        assert status == 1 and b"another libtenon_torch.so" in second.tenon_torch_error()


def fork():
    enable()
    Tensor(MIB).free()
    child = os.fork()
    if child == 0:
        raises(RuntimeError, "spawn", lambda: tenon_torch.stats())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


globals()[CASE]()
print("ok")
