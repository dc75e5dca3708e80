#!/usr/bin/env python3
"""PyTorch on Tenon, for the first time on a machine: one case per process, the riskiest ground first.

    PYTHONPATH=build/bindings/torch bench/cuda/check_pytorch.py CASE     (--list: all of them)

Exits with 77 where there is no GPU. bench/cuda/check.sh runs them all.
"""

import gc
import os
import pickle
import sys
import tempfile
import threading

MIB = 1 << 20


def raises(error, pattern, call):
    try:
        call()
    except error as raised:
        assert pattern in str(raised), f"{type(raised).__name__} does not say {pattern!r}: {raised}"
        return raised
    raise AssertionError(f"no {error.__name__}")


def plug_in(**arguments):
    """Tenon under PyTorch, before CUDA starts."""
    import tenon_torch
    tenon_torch.enable(**arguments)
    import torch
    assert torch.cuda.memory.get_allocator_backend() == "pluggable"
    return torch, tenon_torch


def first_tensor():
    torch, tenon = plug_in()
    x = torch.full((1000,), 3.0, device="cuda")
    assert x.sum().item() == 3000
    assert tenon.stats()["allocation.all.current"] >= 1
    assert torch.zeros(0, device="cuda").numel() == 0
    del x
    torch.cuda.synchronize()
    tenon.empty_cache()


def products():
    torch, _ = plug_in()
    a, b = (torch.randn(512, 512, device="cuda") for _ in range(2))
    assert torch.allclose((a @ b).cpu(), a.cpu() @ b.cpu(), atol=0.1)
    image = torch.randn(8, 16, 64, 64, device="cuda")
    weight = torch.randn(32, 16, 3, 3, device="cuda")
    torch.nn.functional.conv2d(image, weight).sum().item()


def backward():
    """The backward pass runs on a thread of PyTorch's own."""
    torch, _ = plug_in()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(),
                                torch.nn.Linear(1024, 10)).cuda()
    optimiser = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(20):
        loss = model(torch.ones(64, 256, device="cuda")).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses


def same_numbers():
    """The same training as with PyTorch's own allocator, bit by bit, if that repeats itself."""
    import subprocess
    program = (
        "import sys\n"
        "if sys.argv[1] == 'tenon':\n    import tenon_torch; tenon_torch.enable()\n"
        "import torch\ntorch.manual_seed(0)\n"
        "layer = torch.nn.TransformerEncoderLayer(256, 8, 512, dropout=0, batch_first=True).cuda()\n"
        "step = torch.optim.SGD(layer.parameters(), lr=0.01)\n"
        "for length in (64, 128, 32, 96, 128, 64):\n"
        "    x = torch.randn(16, length, 256, generator=torch.Generator().manual_seed(length))\n"
        "    loss = layer(x.cuda()).square().mean()\n    loss.backward()\n"
        "    step.step(); step.zero_grad(); print(loss.item().hex())\n")
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    out = [subprocess.run([sys.executable, "-c", program, which], check=True, env=environment,
                          capture_output=True, text=True).stdout
           for which in ("own", "own", "tenon")]
    assert out[0] != out[1] or out[0] == out[2], out


def out_of_memory():
    torch, _ = plug_in(limit="1GiB")
    kept = torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
    error = raises(torch.OutOfMemoryError, "CUDA out of memory",
                   lambda: torch.empty(800 * MIB, dtype=torch.uint8, device="cuda"))
    assert "1 GiB" in str(error), error
    del kept
    torch.empty(800 * MIB, dtype=torch.uint8, device="cuda")


def statistics():
    torch, tenon = plug_in()
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == tenon.memory_allocated() >= 5 * MIB
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert "Allocated memory" in torch.cuda.memory_summary()
    assert torch.cuda.memory_stats()["allocation.all.current"] >= 1
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    del x
    gc.collect()
    torch.cuda.empty_cache()


def snapshots():
    torch, tenon = plug_in()
    torch.cuda.memory._record_memory_history(max_entries=10000)
    x = torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "memory.pickle")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as file:
            state = pickle.load(file)
        alloc = [e for e in state["device_traces"][0] if e["action"] == "alloc"][-1]
        assert alloc["addr"] == x.data_ptr() and alloc["size"] == 7 * MIB
        assert any(f["name"] == "snapshots" for f in alloc["frames"]), alloc["frames"]
        from torch.cuda._memory_viz import segments, trace_plot  # PyTorch's own reader
        assert segments(state) and trace_plot(state)
        with tenon.record(os.path.join(folder, "run.csv")):
            torch.ones(100, device="cuda")


def other_streams():
    """A block that another stream still reads is not handed out again."""
    torch, _ = plug_in()
    side = torch.cuda.Stream()
    for i in range(50):
        x = torch.full((4 * MIB,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            total = x[:1000].sum()
        x.record_stream(side)
        del x
        torch.full((4 * MIB,), -1.0, device="cuda")
        side.synchronize()
        assert total.item() == 1000 * i


def threads():
    torch, tenon = plug_in()
    failures = []

    def work(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(300):
                    size = int(torch.randint(1, 4 * MIB, (1,), generator=generator))
                    x = torch.full((size,), seed, dtype=torch.uint8, device="cuda")
                    y = x.clone()
                    if int(y[-1]) != seed:
                        failures.append(seed)
        except Exception as error:
            failures.append(repr(error))
    workers = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures
    assert tenon.stats()["num_ooms"] == 0


def graphs():
    torch, tenon = plug_in()
    x = torch.ones(1000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        (x * 2 + 1).relu()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        temporary = x * 2
        large = torch.zeros(6 * MIB, device="cuda")  # grows in the middle of the capture
        y = temporary + 1 + large[0]
        del temporary, large
    others = [torch.full((1000,), 9.0, device="cuda") for _ in range(50)]
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert y.sum().item() == 1000 * (2 * value + 1)
    assert all(other.sum().item() == 9000 for other in others), "a graph wrote other tensors"
    assert tenon.stats()["private_pools"] == 1
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        z = x + 3
    second.replay()
    assert z[0].item() == 8
    del graph, second, y, z
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def memory_pools():
    torch, tenon = plug_in()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((3 * MIB,), 1.0, device="cuda")
    assert len(pool.snapshot()) == 1
    assert x.sum().item() == 3 * MIB
    del x, pool
    gc.collect()
    assert tenon.stats()["private_pools"] == 0, tenon.stats()


def replay_then_delete():
    """A graph that still runs when it and its output go."""
    torch, tenon = plug_in()
    x = torch.ones(8 * MIB, device="cuda")
    for _ in range(5):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x
            for _ in range(50):
                y = y + 1
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(20):
                graph.replay()
            total = y.sum()
        del graph, y  # without a wait
        gc.collect()
        other = torch.full((64 * MIB,), 3.0, device="cuda")
        side.synchronize()
        assert total.item() == 51 * 8 * MIB
        assert other.min().item() == 3
        del other
    torch.cuda.synchronize()
    assert tenon.stats()["private_pools"] == 0


def delete_while_capturing():
    """One graph goes while another is captured, on a stream from which nothing was asked yet."""
    torch, _ = plug_in()
    x = torch.ones(1000, device="cuda")
    first = torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x + 1
    first.replay()
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, capture_error_mode="relaxed"):
        del first, y
        gc.collect()
        z = x + 2
    second.replay()
    assert z[0].item() == 3


def destroyed_stream():
    """An ExternalStream whose owner destroys it; its work goes on, its handle may come again."""
    import ctypes
    torch, tenon = plug_in(limit="1GiB")
    torch.ones(1, device="cuda")
    driver = ctypes.CDLL(os.environ.get("TENON_CUDA_DRIVER") or "libcuda.so.1")
    for i in range(30):
        handle = ctypes.c_void_p()
        assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
        external = torch.cuda.ExternalStream(handle.value)
        lent = torch.zeros(4 * MIB, device="cuda")
        with torch.cuda.stream(external):
            x = torch.full((64 * MIB,), float(i), device="cuda")
            torch.cuda._sleep(20_000_000)
            x.add_(1)
            lent.add_(1)
        lent.record_stream(external)
        if i % 2:
            del lent
        assert driver.cuStreamDestroy_v2(handle) == 0
        del x, external
        y = torch.full((200 * MIB,), -1.0, device="cuda")  # needs its pages
        assert y[::65536].max().item() == -1 and y[-1].item() == -1
        del y
        lent = None
    torch.cuda.empty_cache()
    assert tenon.stats()["num_ooms"] == 0


def record_stream_across_devices():
    torch, _ = plug_in()
    if torch.cuda.device_count() < 2:
        skip("there is one GPU")
    torch.ones(1, device="cuda:1")
    other = torch.cuda.Stream("cuda:1")
    for stream in (other, torch.cuda.default_stream("cuda:1")):
        for i in range(30):
            x = torch.full((4 * MIB,), float(i), device="cuda:0")
            torch.cuda.synchronize("cuda:0")
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)
                y = x.to("cuda:1", non_blocking=True)
            x.record_stream(stream)
            del x
            torch.full((4 * MIB,), -1.0, device="cuda:0")
            stream.synchronize()
            assert y[0].item() == i and y[-1].item() == i


def visible_devices_set_late():
    """As a script does that reads its device from the command line, after enable()."""
    import tenon_torch
    import torch
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else ["0", "1"]
    tenon_torch.enable()
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[-1] if visible else "0"
    assert torch.cuda.device_count() == 1
    torch.ones(1000, device="cuda").sum().item()
    assert tenon_torch.stats(0)["allocation.all.allocated"] > 0
    raises(RuntimeError, "no cuda:1", lambda: tenon_torch.stats(1))


def accelerator():
    torch, tenon = plug_in()
    if not hasattr(torch, "accelerator") or not hasattr(torch.accelerator, "memory_stats"):
        skip("this PyTorch has no torch.accelerator.memory_stats")
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.accelerator.memory_allocated() == tenon.memory_allocated() >= 5 * MIB
    assert torch.accelerator.memory_stats()["allocation.all.current"] >= 1
    torch.accelerator.reset_peak_memory_stats()
    held = tenon.memory_reserved()
    del x
    torch.accelerator.empty_cache()
    assert tenon.memory_reserved() < held


def shareable_pools():
    torch, _ = plug_in(shareable_pools=True)
    import ctypes
    torch.ones(1, device="cuda")
    driver = ctypes.CDLL(os.environ.get("TENON_CUDA_DRIVER") or "libcuda.so.1")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(3 * MIB, device="cuda")
    outside = torch.ones(3 * MIB, device="cuda")
    handle = ctypes.create_string_buffer(64)
    assert driver.cuIpcGetMemHandle(handle, ctypes.c_ulonglong(x.data_ptr())) == 0
    assert driver.cuIpcGetMemHandle(handle, ctypes.c_ulonglong(outside.data_ptr())) != 0


def nccl():
    """Collectives over Tenon's memory, and the registration that is refused in one line."""
    torch, _ = plug_in()
    import torch.distributed as dist
    if not dist.is_available() or not dist.is_nccl_available():
        skip("there is no NCCL")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1,
                                device_id=torch.device("cuda:0"))
        x = torch.ones(8 * MIB, device="cuda")
        dist.all_reduce(x)
        assert x.sum().item() == 8 * MIB
        backend = dist.group.WORLD._get_backend(torch.device("cuda"))
        if hasattr(backend, "register_mem_pool"):
            pool = torch.cuda.MemPool()
            raises(RuntimeError, "NCCL cannot register", lambda: backend.register_mem_pool(pool))
        dist.destroy_process_group()


def benchmark_flag():
    import warnings
    torch, _ = plug_in()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.backends.cudnn.benchmark = True
    assert caught and not torch.backends.cudnn.benchmark
    x = torch.randn(4, 3, 32, 32, device="cuda", requires_grad=True)
    torch.nn.Conv2d(3, 8, 3).cuda()(x).sum().backward()


def dlpack():
    torch, _ = plug_in()
    x = torch.arange(100, device="cuda")
    y = torch.from_dlpack(x)
    assert y.data_ptr() == x.data_ptr() and int(y.sum()) == 4950
    y.record_stream(torch.cuda.Stream())


def forked_child():
    torch, _ = plug_in()
    x = torch.ones(1000, device="cuda")
    child = os.fork()
    if child == 0:
        del x  # silently: it is the parent's
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert x.sum().item() == 1000


def pressure():
    """Sizes that change from step to step under a limit near the live peak."""
    torch, tenon = plug_in(limit="2GiB")
    generator = torch.Generator().manual_seed(3)
    for _ in range(200):
        held, total = [], 0
        while True:
            size = int(torch.randint(MIB, 200 * MIB, (1,), generator=generator))
            if total + size > 1900 * MIB:
                break
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            held[-1][-1] = 7
            total += size
        assert all(int(x[-1]) == 7 for x in held)
    stats = tenon.stats()
    assert stats["num_ooms"] == 0 and stats["device.held_bytes"] <= 2 << 30


def late_enable():
    import torch
    import tenon_torch
    torch.ones(1, device="cuda")
    raises(RuntimeError, "after CUDA was initialised", tenon_torch.enable)


def left_at_exit():
    """Tensors that live until Python ends are freed without a word."""
    import subprocess
    program = ("import tenon_torch; tenon_torch.enable(); import torch\n"
               "tenon_torch.record_history(stacks='python')\n"
               "class Keeper: pass\n"
               "Keeper.x = torch.ones(1000, device='cuda'); Keeper.me = Keeper\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "tenon" not in done.stderr, (done.returncode, done.stderr)


def skip(why):
    print(f"check_pytorch: skipped: {why}")
    sys.exit(77)


CASES = {case.__name__: case for case in (
    first_tensor, products, backward, out_of_memory, statistics, other_streams, threads, pressure,
    graphs, replay_then_delete, delete_while_capturing, memory_pools, shareable_pools,
    destroyed_stream, record_stream_across_devices, accelerator, nccl, snapshots,
    benchmark_flag, dlpack, same_numbers, forked_child,
    late_enable, left_at_exit, visible_devices_set_late)}


def has_device():
    """In another process: it reads CUDA_VISIBLE_DEVICES, which a case may still want to set."""
    import subprocess
    program = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", program]).returncode == 0


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CASES))
        return 0
    if len(sys.argv) != 2 or sys.argv[1] not in CASES:
        print(f"usage: check_pytorch.py CASE, one of: {', '.join(CASES)}", file=sys.stderr)
        return 2
    if not has_device():
        print("check_pytorch: skipped: torch finds no CUDA device")
        return 77
    CASES[sys.argv[1]]()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
