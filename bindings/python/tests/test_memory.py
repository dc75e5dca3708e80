"""Allocators, arrays that others share, scopes and recordings."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

import tenon


@pytest.fixture(params=["host", "caching", "stitched", "unified", "buddy", "pool", "system"])
def allocator(request):
    return tenon.Allocator(request.param)


def test_policies_are_the_commands():
    policies = tenon.policies()
    assert {"host", "caching", "expandable", "stitched", "plan"} <= set(policies)
    assert all(policies.values())


def test_an_array_is_bytes_to_write(allocator):
    array = allocator.allocate(1000)
    assert (array.nbytes, array.shape, array.dtype, len(array)) == (1000, (1000,), "uint8", 1000)
    view = memoryview(array)
    view[:] = bytes(range(250)) * 4
    assert bytes(array)[:5] == b"\0\1\2\3\4"
    assert array.address % 64 == 0 and not array.freed
    assert array.allocator is allocator


def test_statistics_follow(allocator):
    before = allocator.stats()["requested_bytes.all.current"]
    array = allocator.empty((100, 10), "float64")
    assert allocator.stats()["requested_bytes.all.current"] - before == 8000
    assert allocator.reserved_bytes >= 8000
    array.free()
    assert allocator.stats()["requested_bytes.all.current"] == before
    allocator.empty_cache()
    allocator.reset_peak_stats()
    allocator.check_invariants()


def test_snapshot_has_pytorchs_names():
    allocator = tenon.Allocator("caching", tenon.sim_device())
    kept = allocator.allocate(3 << 20)
    segments = allocator.snapshot()
    assert sum(s["total_size"] for s in segments) == allocator.reserved_bytes
    active = [b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
    assert [b["requested_size"] for b in active] == [kept.nbytes]


def test_memory_lives_as_long_as_its_arrays():
    numpy = pytest.importorskip("numpy")
    views = []
    for policy in ("host", "stitched", "caching"):
        allocator = tenon.Allocator(policy)
        array = allocator.zeros((1000, 100))
        view = numpy.asarray(array)
        view[:] = 7
        views.append(view)
        del allocator, array
    gc.collect()
    for view in views:
        assert (view == 7).all()
        view += 1
    simulated = tenon.sim_device(capacity="1GiB", real_memory=True)
    last = tenon.Allocator("caching", simulated).empty(1 << 20, "uint8")
    del simulated
    gc.collect()
    memoryview(last)[:4] = b"last"
    assert bytes(memoryview(last)[:4]) == b"last"


def test_freed_arrays_are_refused(allocator):
    array = allocator.empty(10)
    array.free()
    array.free()
    assert array.freed and "freed" in repr(array)
    for use in (lambda: memoryview(array), lambda: array.__dlpack__(),
                lambda: array.__array_interface__, lambda: array.__dlpack_device__(),
                lambda: allocator.record_stream(array, 0)):
        with pytest.raises(ValueError, match="freed"):
            use()


def test_shared_arrays_are_not_freed_early(allocator):
    array = allocator.empty(10)
    view = memoryview(array)
    with pytest.raises(BufferError, match="hold"):
        array.free()
    view.release()
    capsule = array.__dlpack__()
    with pytest.raises(BufferError, match="hold"):
        array.free()
    del capsule
    array.free()


def test_out_of_memory_is_a_memory_error_with_the_numbers():
    allocator = tenon.Allocator("caching", tenon.sim_device(capacity="1GiB"))
    kept = allocator.allocate(600 << 20)
    with pytest.raises(MemoryError) as raised:
        allocator.allocate(600 << 20)
    error = raised.value
    assert isinstance(error, tenon.OutOfMemoryError)
    assert error.requested_bytes == 600 << 20
    assert error.allocated_bytes == kept.nbytes <= error.reserved_bytes
    assert error.allocator == "caching" and error.device == "sim:0"
    assert "600" in str(error)
    assert allocator.allocate(100 << 20).nbytes == 100 << 20


@pytest.mark.parametrize("call, error, reason", [
    (lambda a: a.allocate(-1), TypeError, r"^allocate: the arguments \(Allocator, int\) do not fit"),
    (lambda a: a.allocate("many"), TypeError,
     r"\(Allocator, str\) do not fit allocate\(self, nbytes: int, stream: int = 0\) -> Array$"),
    (lambda a: a.allocate(8, lag=2.5), TypeError, r"\(Allocator, int, lag=float\) do not fit"),
    (lambda a: a.allocate(2**63), ValueError, ""),
    (lambda a: a.allocate(10, stream=5), ValueError, "no stream 5"),
    (lambda a: a.empty((2, -1)), ValueError, "-1"),
    (lambda a: a.empty((2**40, 2**40)), ValueError, "exceeds|bytes"),
    (lambda a: a.empty([1] * 65), ValueError, "65"),
    (lambda a: a.empty(3, "float31"), ValueError, "float31.*float32"),
    (lambda a: a.empty(3, None), ValueError, "None"),
    (lambda a: a.empty("ab"), TypeError, ""),
    (lambda a: a.record_stream(5, 0), TypeError, "Array"),
    (lambda a: a.device.destroy_stream(0), ValueError, "default"),
    (lambda a: a.device.advance_to(5), ValueError, "simulated"),
    (lambda a: tenon.Allocator("nonsense"), ValueError, "nonsense"),
    (lambda a: tenon.Allocator("plan"), ValueError, "plan"),
    (lambda a: tenon.Allocator("caching", conf="x:y"), ValueError, "x"),
    (lambda a: tenon.Allocator("pool", conf="max_split_size_mb:64"), ValueError, "does not use"),
    (lambda a: tenon.Allocator("caching", page="2MiB"), ValueError, "page_bytes"),
    (lambda a: tenon.Allocator(device=3), TypeError, r"^__init__: .* do not fit .*device: Device"),
    (lambda a: tenon.sim_device("0"), ValueError, "capacity"),
    (lambda a: tenon.sim_device(index=-1), ValueError, "index"),
    (lambda a: tenon.Array(), TypeError, ""),
])
def test_misuse_raises_and_harms_nothing(call, error, reason):
    allocator = tenon.Allocator("host")
    with pytest.raises(error, match=reason):
        call(allocator)
    assert allocator.allocate(10).nbytes == 10


def test_record_stream_of_another_allocators_array_is_refused():
    device = tenon.sim_device()
    stream = device.create_stream()
    one, other = tenon.Allocator("caching", device), tenon.Allocator("caching", device)
    with pytest.raises(tenon.InvalidPointerError):
        one.record_stream(other.allocate(1000), stream)


def test_streams_keep_blocks_apart_until_work_is_done():
    device = tenon.sim_device(lag="10ms")
    side = device.create_stream()
    allocator = tenon.Allocator("caching", device)
    array = allocator.allocate(1 << 20)
    device.queue_work(side)
    allocator.record_stream(array, side)
    address = array.address
    array.free()
    assert allocator.allocate(1 << 20).address != address
    device.advance_to(20_000_000)
    assert device.now_ns >= 20_000_000
    allocator.empty_cache()


def test_simulated_addresses_have_no_bytes():
    array = tenon.Allocator("caching", tenon.sim_device()).empty(5)
    assert array.address != 0 and array.device == "sim:0"
    for use in (lambda: memoryview(array), lambda: array.__dlpack__()):
        with pytest.raises(BufferError, match="real_memory"):
            use()
    with pytest.raises(ValueError, match="real_memory"):
        tenon.Allocator("caching", tenon.sim_device()).zeros(5)


def test_zero_bytes_is_an_array(allocator):
    numpy = pytest.importorskip("numpy")
    for shape in (0, (0, 3), (3, 0, 2)):
        array = allocator.empty(shape)
        assert array.nbytes == 0 and numpy.asarray(array).size == 0
        assert numpy.from_dlpack(array).size == 0
    scalar = allocator.zeros(())
    assert scalar.shape == () and scalar.nbytes == 4 and numpy.asarray(scalar) == 0


# --------------------------------------------------------------------------------------------------
# Others share the bytes

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_shares_the_bytes_by_each_way(dtype):
    numpy = pytest.importorskip("numpy")
    allocator = tenon.Allocator("host")
    array = allocator.zeros((3, 5, 2), dtype)

    class ByInterfaceAlone:
        __array_interface__ = array.__array_interface__
        keeps = array

    by_buffer, by_dlpack = numpy.asarray(memoryview(array)), numpy.from_dlpack(array)
    by_interface = numpy.asarray(ByInterfaceAlone())
    for view in (by_buffer, by_dlpack, by_interface):
        assert view.shape == (3, 5, 2) == array.shape and view.dtype == numpy.dtype(dtype)
        assert view.strides == array.strides
        assert view.__array_interface__["data"][0] == array.address
    by_dlpack_writable = by_buffer
    by_dlpack_writable[1, 2, 1] = 1
    assert by_interface[1, 2, 1] == 1 and by_dlpack[1, 2, 1] == 1
    assert allocator.empty(3, numpy.dtype(dtype)).dtype == dtype
    scalar_type = getattr(numpy, dtype + ("_" if dtype == "bool" else ""))
    assert allocator.empty(3, scalar_type).dtype == dtype


def test_bfloat16_goes_by_dlpack_alone():
    array = tenon.Allocator().empty(4, "bfloat16")
    with pytest.raises(BufferError, match="DLPack"):
        memoryview(array)
    with pytest.raises(TypeError, match="DLPack"):
        pytest.importorskip("numpy").asarray(array)     # and no array of objects
    assert array.__dlpack__(max_version=(1, 0)) is not None


def test_dlpack_speaks_the_consumers_version():
    array = tenon.Allocator().empty((2, 3))
    names = {None: "dltensor", (0, 8): "dltensor", (1, 0): "dltensor_versioned",
             (1, 1): "dltensor_versioned", (2, 0): "dltensor_versioned"}
    for version, name in names.items():
        assert f'"{name}"' in repr(array.__dlpack__(max_version=version))
    assert array.__dlpack_device__() == (1, 0)
    assert array.__dlpack__(dl_device=(1, 0), copy=False, stream=None) is not None
    for wrong, error in (({"dl_device": (2, 0)}, BufferError), ({"stream": 1}, BufferError),
                         ({"copy": True}, BufferError), ({"max_version": 5}, TypeError),
                         ({"dl_device": "cpu"}, TypeError), ({"nonsense": 1}, TypeError)):
        with pytest.raises(error):
            array.__dlpack__(**wrong)
    array.free()


def test_torch_shares_the_bytes_both_ways():
    torch = pytest.importorskip("torch")
    array = tenon.Allocator("stitched").empty((4, 3), torch.float32)
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == array.address and tensor.shape == (4, 3)
    tensor.fill_(2.5)
    assert memoryview(array)[3, 2] == 2.5
    del array
    gc.collect()
    assert (tensor == 2.5).all()


def test_jax_shares_the_bytes():
    jax = pytest.importorskip("jax")
    array = tenon.Allocator("host").zeros((4, 3), "float32")
    memoryview(array).cast("B").cast("f")[5] = 9
    shared = jax.dlpack.from_dlpack(array)
    assert shared.shape == (4, 3) and shared[1, 2] == 9


# --------------------------------------------------------------------------------------------------
# Scopes, tags, recordings

def test_a_scope_takes_its_memory_back_and_spares_what_is_held():
    allocator = tenon.Allocator("host")
    for step in range(50):
        with tenon.scope(allocator) as scope:
            temporaries = [scope.empty((100, layer)) for layer in range(1, 20)]
            kept = scope.empty(10, "int32")
            memoryview(kept)[0] = step
            del temporaries
    assert memoryview(kept)[0] == 49
    report = scope.report()
    assert report["allocations"] == 20 and report["escapes"] == 1
    with pytest.raises(ValueError, match="open"):
        scope.empty(3)


def test_scopes_end_in_order():
    allocator = tenon.Allocator("host")
    outer, inner = tenon.scope(allocator), tenon.scope(allocator)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="begun inside"):
        outer.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="open"):
        outer.__enter__()
    failed = []

    def elsewhere():
        try:
            inner.__exit__(None, None, None)
        except RuntimeError as error:
            failed.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "thread" in failed[0]
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="not open"):
        outer.__exit__(None, None, None)
    with pytest.raises(TypeError):
        tenon.scope(3)
    unmade = tenon.Allocator.__new__(tenon.Allocator)
    for wrong in (lambda: unmade.allocate(10), lambda: tenon.scope(unmade),
                  lambda: tenon.Allocator.allocate(5, 10), lambda: tenon.Scope.__enter__(5)):
        with pytest.raises(TypeError):
            wrong()


def test_recordings_are_recordings(tmp_path):
    allocator = tenon.Allocator("host")
    with tenon.Recorder("steps", save=tmp_path / "steps.csv.zst") as recorder:
        for _ in range(20):
            with tenon.tag("forward"):
                activation = allocator.empty((64, 1024))
            with tenon.tag("backward", "linear"):
                gradient = allocator.empty((64, 1024))
            del activation, gradient
    recording = recorder.recording()
    for one in (recording, tenon.load(tmp_path / "steps.csv.zst")):
        (device,) = one.devices
        assert len(device) >= 80
        assert device.live_peak_bytes == 2 * 64 * 1024 * 4
    assert recording.replay("stitched", passes=0)[0]["events"] == 80
    assert "forward" in {recording.devices[0].tag(site) for site in range(1, 3)}
    with pytest.raises(RuntimeError, match="not recording"):
        recorder._recorder.stop()
    with pytest.raises(ValueError):
        tenon.record(tmp_path / "x.nonsense")


def test_a_plan_serves_what_it_was_made_from(tmp_path):
    device = tenon.sim_device()

    def step(allocator):
        kept = [allocator.allocate((i % 7 + 1) << 16) for i in range(30)]
        del kept[::2]
        return [allocator.allocate(1 << 17) for _ in range(10)], kept

    with tenon.Recorder() as recorder:
        step(tenon.Allocator("caching", device))
    recorder.recording().plan(whole=True).save(tmp_path / "step.plan")
    planned = tenon.Allocator("plan", tenon.sim_device(), plan=tmp_path / "step.plan")
    arrays = step(planned)
    assert planned.stats()["requested_bytes.all.peak"] > 0
    del arrays
    planned.check_invariants()


def test_threads_allocate_and_drop_each_others_arrays():
    allocator = tenon.Allocator("host")
    made = [[] for _ in range(4)]

    def work(number):
        for i in range(2000):
            made[number].append(allocator.allocate(64 + i % 500))
            if i % 3 == 0 and made[(number + 1) % 4]:
                try:
                    made[(number + 1) % 4].pop()
                except IndexError:
                    pass

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.clear()
    gc.collect()
    allocator.check_invariants()
    assert allocator.stats()["requested_bytes.all.current"] == 0


def test_a_forked_child_allocates_and_frees():
    allocator = tenon.Allocator("host")
    before = [allocator.allocate(1000) for _ in range(10)]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            del before
            arrays = [allocator.allocate(5000) for _ in range(100)]
            memoryview(arrays[3])[0] = 1
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(before) == 10


FORKS = """
import os, signal, sys, threading
import tenon
allocators = [tenon.Allocator(policy) for policy in ("host", "caching", "pool", "unified")]
at_work = True
def work():
    while at_work:
        for allocator in allocators:
            allocator.empty((400_000,))     # without the GIL
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = set()
for _ in range(100):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        for allocator in allocators:
            allocator.empty((7_000,))
            allocator.empty((700_000,))
        os._exit(0)
    statuses.add(os.waitpid(child, 0)[1])
at_work = False
for thread in threads:
    thread.join()
sys.exit(statuses != {0})
"""


def test_children_forked_while_threads_allocate_can_allocate():
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS],
                          capture_output=True, timeout=600, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_array_may_be_referred_to_weakly():
    array = tenon.Allocator("host").empty((3,))
    gone = []
    reference = weakref.ref(array, gone.append)
    assert reference() is array
    del array
    gc.collect()
    assert reference() is None and gone == [reference]


def test_numpy_takes_an_arrays_dtype():
    numpy = pytest.importorskip("numpy", minversion="2.4")
    array = tenon.Allocator("host").empty((3,), "int16")
    assert numpy.result_type(array) == numpy.dtype(array) == numpy.dtype("int16")


def test_a_scope_that_is_dropped_ends_with_what_was_begun_inside():
    def numbers():
        with tenon.scope(tenon.Allocator("host")) as scope:
            yield scope.empty(100)

    outer, inner = numbers(), numbers()
    kept = [next(outer), next(inner)]
    with pytest.raises(RuntimeError, match="begun inside"):
        outer.close()
    del outer
    gc.collect()
    inner.close()                       # and the other one with it
    tenon.scope(tenon.Allocator("host")).__enter__()
    with tenon.tag("around"):           # which could not end if that one were open
        with tenon.scope(tenon.Allocator("host")) as scope:
            assert scope.empty(10).nbytes == 40
    assert [array.shape for array in kept] == [(100,), (100,)]
    dropped = []

    def elsewhere():
        dropped.append(tenon.scope(tenon.Allocator("host")).__enter__())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    dropped.clear()                     # its thread is gone: its memory stays
    with tenon.scope(tenon.Allocator("host")) as scope:
        assert scope.empty(10).nbytes == 40


def test_arrays_may_outlive_the_interpreters_modules():
    program = """
import sys, tenon
class Holder: pass
holder = Holder()
allocator = tenon.Allocator("stitched")
holder.array = allocator.empty(100)
holder.view = memoryview(holder.array)
sys.holder = holder
scope = tenon.scope(allocator); scope.__enter__()
inside = scope.empty(10)
recorder = tenon.Recorder(); recorder.__enter__()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
