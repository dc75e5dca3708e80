"""Bad input is one clear exception."""

import subprocess
import sys

import pytest

import tenon


@pytest.mark.parametrize("content, reason", [
    (b"", "empty"),
    (b"hello\n", ""),
    (b"\x80\x04garbage", ""),
    (b"\x28\xb5\x2f\xfd cut", ""),
    (b"time_us,op,id,size,stream\n0,alloc,1,-5,0\n", "size"),
])
def test_a_wrong_file_is_a_parse_error(content, reason, tmp_path):
    path = tmp_path / "wrong.bin"
    path.write_bytes(content)
    with pytest.raises(tenon.ParseError, match="wrong.bin") as raised:
        tenon.load(path)
    assert reason in str(raised.value)
    assert isinstance(raised.value, ValueError)
    assert raised.value.name == str(path) and raised.value.line >= 0 and raised.value.reason


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        tenon.load(tmp_path / "none.pickle")
    with pytest.raises(IsADirectoryError):
        tenon.load(tmp_path)
    with pytest.raises((ValueError, TypeError)):
        tenon.load("a\0b")
    with pytest.raises(TypeError):
        tenon.load(b"bytes")
    with pytest.raises(TypeError):
        tenon.load(None)


@pytest.mark.parametrize("call, error, reason", [
    (lambda r: r.advise("24 gigabananas"), ValueError, "24 gigabananas"),
    (lambda r: r.advise(0), ValueError, "capacity"),
    (lambda r: r.advise(2.5), TypeError, "capacity"),
    (lambda r: r.advise("100MiB"), ValueError, "give a larger capacity, or less to reserve for the c"),
    (lambda r: r.advise(reserve_for_context="x"), ValueError, "x"),
    (lambda r: r.advise(reserve_for_context=False), TypeError, "reserve_for_context: .* not bool"),
    (lambda r: r.advise(device=9), IndexError, "device"),
    (lambda r: r.advise(effort=0), ValueError, "effort"),
    (lambda r: r.advise(lag="5 parsecs"), ValueError, "parsecs"),
    (lambda r: r.advise(torch="nightly"), ValueError, "nightly"),
    (lambda r: r.advise(torch="1.13"), ValueError, "1.13"),
    (lambda r: r.advise(torch=2.6), TypeError, "torch: give text, not float"),
    (lambda r: r.advise(torch=""), ValueError, "torch: it is empty"),
    (lambda r: r.advise(card="z80"), ValueError, "card z80: known are rtx3090"),
    (lambda r: r.advise("30GiB", card="rtx3090"), ValueError, "card rtx3090 has 24 GiB: the capacity"),
    (lambda r: tenon.advise([]), ValueError, "advise: give one recording at least"),
    (lambda r: r.replay(torch="nightly"), ValueError, "nightly"),
    (lambda r: r.replay(page="3MiB"), ValueError, "pages of 3 MiB are no multiple"),
    (lambda r: r.replay(device=1), IndexError, "device=1"),
    (lambda r: r.explain(device=-1), IndexError, "device=-1"),
    (lambda r: r.replay("nonsense"), ValueError, "nonsense"),
    (lambda r: tenon.Recorder(save="x\x1b[31m.none"), ValueError, "x\ufffd\\[31m.none"),
    (lambda r: r.replay([1]), TypeError, "policies"),
    (lambda r: r.replay([]), ValueError, "policies: give one name at least"),
    (lambda r: r.replay("caching", conf="nonsense:1"), ValueError, "nonsense"),
    (lambda r: r.replay("caching", passes=-1), ValueError, "passes"),
    (lambda r: r.view(device=-1), IndexError, "device"),
    (lambda r: r.explain().to_text(rows=0), ValueError, "rows"),
    (lambda r: r.save("nowhere.xyz"), ValueError, "nowhere.xyz"),
    (lambda r: r.save("/nonexistent/folder/x.csv"), OSError, "folder"),
    (lambda r: r.plan().save("/nonexistent/folder/x.plan"), OSError, "folder"),
    (lambda r: r.replay("plan", plan="/nonexistent.plan"), tenon.ParseError, "nonexistent"),
    (lambda r: tenon.Recorder(save="x.unknown"), ValueError, "x.unknown"),
    (lambda r: tenon.diff(r, 3), TypeError, "diff: give recordings, not int"),
    (lambda r: tenon.replay([]), ValueError, "replay: give one recording at least"),
    (lambda r: tenon.replay(3), TypeError, "replay: give recordings, not int"),
    (lambda r: tenon.Allocator().empty(2.5), TypeError, "shape=2.5: give a whole number"),
    (lambda r: tenon.Allocator().zeros("3"), TypeError, "shape='3': give a whole number"),
    (lambda r: tenon.scope(tenon.Allocator()).empty((1, None)), TypeError, "shape="),
    (lambda r: tenon.Allocator().empty((1, 2**70)), ValueError, "length 1180591620717411303424"),
    (lambda r: r.advise(True), TypeError, "capacity: .* not bool"),
    (lambda r: r.save("\udcff.csv"), ValueError, "not in UTF-8"),
])
def test_wrong_arguments_say_which(call, error, reason, recording):
    with pytest.raises(error, match=reason):
        call(recording)


def test_sizes_may_be_numpys(recording):
    numpy = pytest.importorskip("numpy")
    capacity = numpy.uint64(1 << 34)
    assert recording.replay("caching", passes=0, capacity=capacity)[0]["capacity_bytes"] == capacity


def test_without_numpy_all_but_arrays_works(snapshot):
    program = """
import sys
sys.modules["numpy"] = None
import tenon
recording = tenon.load(sys.argv[1])
assert len(recording.explain().text) > 0
assert len(memoryview(recording.devices[0]._device.event_rows())) > 0
for what in (lambda: recording.devices[0].events, lambda: tenon.Allocator().empty(3).numpy()):
    try:
        what()
        sys.exit("no error")
    except ImportError as error:
        assert "pip install numpy" in str(error), error
assert len(memoryview(tenon.Allocator().empty(3))) == 3
"""
    done = subprocess.run([sys.executable, "-c", program, snapshot], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_import_is_quick_and_needs_nothing(snapshot):
    program = "import tenon, sys; print([m for m in ('numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-S", "-E", "-c",
                           f"import sys; sys.path[:0] = {sys.path!r}; " + program],
                          capture_output=True, text=True)
    assert "numpy" not in done.stdout and "torch" not in done.stdout, done.stdout + done.stderr


def test_another_interpreter_in_the_process_gets_an_error_or_a_module():
    try:
        import _interpreters as interpreters  # 3.13
    except ImportError:
        interpreters = pytest.importorskip("_xxsubinterpreters")
    interpreter = interpreters.create()
    code = "import tenon"
    try:
        interpreters.run_string(interpreter, f"import sys; sys.path[:0] = {sys.path!r}\n"
                                f"try:\n    {code}\nexcept ImportError:\n    pass")
    except Exception as error:  # noqa: BLE001 (whatever it is, the process lives)
        assert "tenon" in str(error) or error
    interpreters.destroy(interpreter)  # CPython 3.13.0 crashes in fork() while there is another one
    assert tenon.Allocator().allocate(10).nbytes == 10


@pytest.mark.parametrize("size, says", [(-1, True), (2**64, True), (1.5, False), ("1GiB", False)])
def test_a_size_that_no_number_can_hold_is_called_that(size, says):
    with pytest.raises(TypeError, match="^allocate: the arguments ") as refused:
        tenon.Allocator("host").allocate(size)
    assert str(refused.value).endswith(": a number is negative or too large") == says


def test_a_dtype_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match="is not known"):
        tenon.Allocator("host").empty((3,), "\ud800")
