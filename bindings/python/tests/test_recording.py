"""Recordings, their arrays, progress and Ctrl-C."""

import gc
import json
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest
from conftest import ROOT

import tenon

numpy = pytest.importorskip("numpy")


def test_figures_are_those_an_independent_reader_found(snapshot, recording):
    expected = json.loads((ROOT / "data/snapshots/multistream_prefetch.expect.json").read_text())
    explanation = recording.explain(replay=False)
    for key in ("segments", "blocks", "total_size", "allocated_size"):
        assert explanation[key] == expected[key], key


def test_events_are_the_recordings_own_bytes(recording):
    device = recording.devices[0]
    events = device.events
    assert len(events) == len(device) > 0
    assert events.dtype.itemsize == 32
    assert not events.flags.owndata and not events.flags.writeable
    address = events.__array_interface__["data"][0]
    assert device.events.__array_interface__["data"][0] == address
    with pytest.raises(ValueError):
        events["size_bytes"][0] = 1


def test_arrays_keep_the_recording(snapshot):
    recording = tenon.load(snapshot)
    events, blocks = recording.devices[0].events, recording.devices[0].blocks
    copies = events.copy(), blocks.copy()
    gone = weakref.ref(recording)
    del recording
    gc.collect()
    assert gone() is None
    assert (events == copies[0]).all() and (blocks == copies[1]).all()


def test_events_add_up_to_the_live_peak(trace):
    device = tenon.load(trace).devices[0]
    events = device.events
    assert [device.OPS[op] for op in (0, 1, 2)] == ["alloc", "free_requested", "free_completed"]
    signs = numpy.select([events["op"] == 0, events["op"] == 2], [1, -1], 0)
    live = numpy.cumsum(signs * events["size_bytes"].astype(numpy.int64))
    assert live.max() == device.live_peak_bytes
    assert int(events["time_us"].max() - events["time_us"].min()) == device.duration_us


def test_blocks_say_what_their_events_say(trace):
    device = tenon.load(trace).devices[0]
    events, blocks = device.events, device.blocks
    assert len(blocks) == (events["op"] == 0).sum()
    allocated = events[blocks["allocated_event"]]
    assert (allocated["op"] == 0).all()
    assert (allocated["block"] == numpy.arange(len(blocks))).all()
    assert (allocated["size_bytes"] == blocks["size_bytes"]).all()
    freed = blocks[blocks["freed_event"] >= 0]
    assert (events["op"][freed["freed_event"]] == 2).all()
    assert (events["time_us"][freed["freed_event"]] == freed["freed_us"]).all()
    assert len(freed) == (events["op"] == 2).sum()


def test_segments_are_tiled_by_their_blocks(recording):
    segments, blocks = recording.segments, recording.segment_blocks
    assert len(segments) > 0 and len(blocks) > 0
    for segment in segments:
        inside = blocks[segment["first_block"]:segment["first_block"] + segment["blocks"]]
        assert inside["size_bytes"].sum() == segment["size_bytes"]
        assert inside["address"][0] == segment["address"]


def test_sites_name_call_stacks(recording):
    device = recording.devices[0]
    site = int(device.events["site"].max())
    stack = device.stack(site)
    assert stack and all(isinstance(frame.function, str) and frame.line >= 0 for frame in stack)
    assert stack[0].function in device.label(site) or device.label(site)
    assert device.stack(0) == []
    with pytest.raises(IndexError, match="there are"):
        device.stack(2**31)
    kinds = {device.mark_kind(kind) for kind in device.marks["kind"]}
    assert "segment_alloc" in kinds or "segment_map" in kinds


def test_answers_are_mappings_and_text(recording):
    explanation = recording.explain(replay=False)
    assert set(explanation) == set(json.loads(explanation.json)) and len(explanation) > 5
    assert explanation["devices"][0]["live_peak_bytes"] == recording.devices[0].live_peak_bytes
    assert "nothing of that name" not in explanation
    assert str(explanation) == explanation.text and repr(explanation) in explanation.text
    assert explanation._repr_html_().startswith("<pre>")
    own = explanation.to_dict()
    own["devices"] = None
    assert explanation["devices"] is not None


def test_replay_is_a_sequence_of_results(recording):
    replay = recording.replay("caching,stitched", passes=0)
    assert [result["policy"] for result in replay] == ["caching", "stitched"]
    assert replay["stitched"] is replay[1] and len(replay) == 2
    with pytest.raises(KeyError):
        replay["buddy"]


def test_view_shows_itself_in_a_notebook(recording):
    view = recording.view("none")
    shown = view._repr_html_()
    assert shown.startswith("<iframe") and "srcdoc=" in shown
    assert '"' not in shown.split('srcdoc="')[1][:-len('"></iframe>')]
    assert "page of" in repr(view) and len(view) > 0


def test_progress_is_told(trace):
    told = []
    tenon.load(trace, progress=lambda share, step: told.append((share, step)))
    recording = tenon.load(trace)
    recording.replay("caching,stitched,buddy,pool", passes=3,
                     progress=lambda share, step: told.append((share, step)))
    assert told
    assert all(share is None or 0 <= share <= 1 for share, _ in told)
    assert any("over" in step for _, step in told)


def test_an_exception_in_progress_ends_the_work(trace):
    recording = tenon.load(trace)

    class Enough(Exception):
        pass

    def progress(share, step):
        raise Enough(step)

    start = time.monotonic()
    with pytest.raises(Enough, match="trying"):
        recording.advise(effort=50, progress=progress)
    assert time.monotonic() - start < 5
    assert recording.replay("caching", passes=0)[0]["policy"] == "caching"


def test_progress_must_be_callable(trace):
    with pytest.raises(TypeError, match="progress"):
        tenon.load(trace, progress=3)


INTERRUPTED = """
import signal, sys, threading, time, os
import tenon
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is started with it ignored
recording = tenon.load(sys.argv[1])
work = {"advise": lambda: [recording.advise(effort=100) for _ in range(1000)],
        "replay": lambda: recording.replay("all", passes=2000),
        "view": lambda: [recording.view("all") for _ in range(100)],
        "plan": lambda: [recording.plan(whole=True) for _ in range(1000)]}[sys.argv[2]]
threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    work()
    print("not interrupted")
except KeyboardInterrupt:
    print("after", time.monotonic() - start - 0.7)
"""


@pytest.mark.parametrize("work", ["advise", "replay", "view", "plan"])
def test_ctrl_c_ends_long_work(work, trace):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, trace, work], capture_output=True,
                          timeout=120, text=True)
    assert done.stdout.startswith("after "), done.stdout + done.stderr
    assert float(done.stdout.split()[1]) < 2  # a busy machine; docs/python.md has the usual figure


def test_the_gil_is_free_meanwhile(trace):
    recording = tenon.load(trace)
    counted = [0]
    ended = threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    recording.replay("caching,stitched", passes=300)
    during = counted[0]
    ended.set()
    thread.join()
    assert during > 20


DAEMON = """
import os, sys, threading, time
import tenon
recording = tenon.load(sys.argv[1])
def work():
    while True:
        try:
            recording.replay("all", passes=2000)
        except RuntimeError:
            pass
threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
if os.fork() == 0:
    sys.exit(0)                     # it has no work in progress
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_daemon_thread_at_work_does_not_abort_the_end(trace):
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", DAEMON, trace],
                          capture_output=True, timeout=60, text=True)
    assert (done.returncode, done.stderr) == (0, "")


FORKS = """
import os, sys, threading
import tenon
recording = tenon.load(sys.argv[1])
threads = [threading.Thread(target=recording.replay, args=("caching,stitched",), kwargs={"passes": 0})
           for _ in range(3)]
for thread in threads:
    thread.start()
child = os.fork()
if child == 0:
    recording.replay("caching", passes=0)
    os._exit(0)
for thread in threads:
    thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_while_threads_begin_to_work_can_work(snapshot):
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", FORKS, snapshot], capture_output=True,
                              timeout=60, text=True)
        assert done.returncode == 0, done.stderr


def test_threads_may_ask_at_once(recording):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(recording.explain().json))
               for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 3 and len(set(answers)) == 1


def test_signal_handlers_of_the_program_run(trace):
    recording = tenon.load(trace)
    seen = []
    earlier = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        recording.replay("caching,stitched", passes=300)
    finally:
        signal.signal(signal.SIGALRM, earlier)
    assert seen == [signal.SIGALRM]
