"""The same answers from Python, from `python -m tenon` and from the C++ program, to the byte."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request

import pytest
from conftest import PYTHON_COMMAND, ROOT, run_command

import tenon


def without_seconds(text):
    """Planning and searching print how long they took; nothing else may differ."""
    text = re.sub(r'"seconds": [0-9.e+-]+', '"seconds": 0', text)
    return re.sub(r"(planned|tried) in [0-9.]+ s\b", r"\1 in 0 s", text)


def output_of(*arguments):
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr.decode()
    return without_seconds(done.stdout.decode())


@pytest.mark.parametrize("name", ["snapshot", "trace"])
def test_explain_is_the_commands(name, request):
    path = request.getfixturevalue(name)
    explanation = tenon.load(path).explain()
    assert explanation.text == output_of("explain", path)
    assert explanation.json == output_of("explain", path, "--json")
    assert explanation.to_text(rows=2) == output_of("explain", path, "--rows", 2)
    assert tenon.load(path).explain(replay=False).json == output_of("explain", path, "--json",
                                                                    "--no-replay")


def test_advise_is_the_commands(snapshot, recording):
    for capacity, reserve in (None, None), ("2GiB", None), ("3GiB", "1GiB"), (None, 0):
        more = [] if capacity is None else ["--capacity", capacity]
        more += [] if reserve is None else ["--reserve-for-context", reserve]
        advice = recording.advise(capacity, reserve_for_context=reserve, effort=0.02)
        assert without_seconds(advice.json) == output_of("advise", snapshot, "--effort", 0.02,
                                                         "--json", *more)
        assert without_seconds(advice.text) == output_of("advise", snapshot, "--effort", 0.02,
                                                         *more)


FAILED = ROOT / "data" / "failed" / "gpt2.pickle"


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    """A trace of two devices, whose numbers are not their places in the file."""
    lines = ["time_us,op,id,size,stream,device"]
    for step in range(40):
        for device in (3, 5):
            size = (step * 7 % 11 + 1) * device << 20
            lines.append(f"{step},alloc,{step},{size},0,{device}")
            if step >= 4:
                lines.append(f"{step},free_requested,{step - 4},,,{device}")
                lines.append(f"{step},free_completed,{step - 4},,,{device}")
    path = tmp_path_factory.mktemp("devices") / "two.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("arguments, options", [
    ({"torch": "2.6"}, ["--torch", "2.6"]),
    ({"torch": "2.15.0+cu130"}, ["--torch", "2.15.0+cu130"]),
    ({"card": "rtx3090"}, ["--card", "rtx3090"]),
    ({"capacity": "20GiB", "card": "rtx6000ada"}, ["--capacity", "20GiB", "--card", "rtx6000ada"]),
])
def test_advise_has_the_commands_options(arguments, options):
    for files in ([FAILED], [FAILED, FAILED]):
        advice = tenon.advise([tenon.load(file) for file in files], effort=0.02, **arguments)
        printed = output_of("advise", *files, "--effort", 0.02, *options, "--json")
        assert without_seconds(advice.json) == printed
        assert without_seconds(advice.text) == output_of("advise", *files, "--effort", 0.02, *options)


def test_one_device_is_the_commands(two_devices):
    recording = tenon.load(two_devices)
    number = recording.devices[1].index
    assert number == 5
    for method, options in (("explain", {}), ("advise", {"effort": 0.02}),
                            ("replay", {"passes": 0}), ("plan", {})):
        answer = getattr(recording, method)(device=1, **options)
        more = [text for key, value in options.items() for text in (f"--{key}", value)]
        assert without_seconds(answer.json) == output_of(method, two_devices, "--device", number,
                                                         *more, "--json"), method
        with pytest.raises(IndexError, match="device=2"):
            getattr(recording, method)(device=2)
    assert len(recording.replay(passes=0)) == 2 * len(recording.replay(passes=0, device=0))


def test_fleet_is_the_commands(snapshot, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        shutil.copy(snapshot, folder / f"rank_{rank}.pickle")
    (folder / "notes.pickle").write_text("no recording")
    options = {"effort": 0.02, "torch": "2.6", "memory": "4GiB", "jobs": 2, "time_limit": 100}
    fleet = tenon.fleet(folder, results=tmp_path / "ours", **options)
    assert len(fleet["unread"]) == 1
    for printed, more in ((fleet.text, []), (fleet.json, ["--json"])):
        command = run_command("fleet", folder, "--results", tmp_path / "theirs", "--effort", 0.02,
                              "--torch", "2.6", *more)
        assert command.returncode == 2  # a file is no recording
        assert printed == command.stdout.decode()


def test_fleet_refuses_what_it_cannot_do(tmp_path):
    with pytest.raises(FileNotFoundError):
        tenon.fleet(tmp_path / "none")
    with pytest.raises(ValueError, match="empty: no files in this folder"):
        (tmp_path / "empty").mkdir()
        tenon.fleet(tmp_path / "empty", results=tmp_path / "answers")
    for wrong in ({"jobs": -1}, {"effort": 0}, {"time_limit": -1}, {"memory": 0},
                  {"torch": "nightly"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            tenon.fleet(tmp_path, results=tmp_path / "answers", **wrong)


def test_plan_is_the_commands(snapshot, recording, tmp_path):
    plan = recording.plan("24GiB")
    assert without_seconds(plan.json) == output_of("plan", snapshot, "--json", "--capacity",
                                                   "24GiB")
    assert without_seconds(plan.text) == output_of("plan", snapshot, "--capacity", "24GiB")
    plan.save(tmp_path / "ours.plan")
    output_of("plan", snapshot, "-o", tmp_path / "theirs.plan")
    assert (tmp_path / "ours.plan").read_bytes() == (tmp_path / "theirs.plan").read_bytes()
    replay = recording.replay("plan", plan=tmp_path / "ours.plan", passes=0)
    assert replay.json == output_of("replay", snapshot, "--policy", "plan", "--plan",
                                    tmp_path / "theirs.plan", "--passes", 0, "--json")


def test_replay_is_the_commands(snapshot, trace, recording):
    replay = tenon.replay([recording, tenon.load(trace)], "caching,stitched", passes=0,
                          capacity="16GiB", lag="20ms")
    arguments = ["replay", snapshot, trace, "--policy", "caching,stitched", "--passes", 0,
                 "--capacity", "16GiB", "--lag", "20ms"]
    assert replay.text == output_of(*arguments)
    assert replay.json == output_of(*arguments, "--json")
    searched = recording.replay(["caching"], passes=0, find_capacity=True)
    assert searched.json == output_of("replay", snapshot, "--policy", "caching", "--passes", 0,
                                      "--find-capacity", "--json")


@pytest.mark.parametrize("arguments, options", [
    ({}, []),
    ({"conf": "garbage_collection_threshold:0.5"}, ["--conf", "garbage_collection_threshold:0.5"]),
    ({"policies": "caching", "conf": "pinned_use_background_threads:True"},
     ["--policy", "caching", "--conf", "pinned_use_background_threads:True"]),
    ({"page": "4MiB"}, ["--page", "4MiB"]),
    ({"policies": "all"}, ["--all"]),
    ({"torch": "2.13"}, ["--torch", "2.13"]),
    ({"torch": "2.12"}, ["--torch", "2.12"]),
    ({"serve_failed": True}, ["--serve-failed"]),
    ({"serve_failed": True, "torch": "2.13", "capacity": "8GiB"},
     ["--serve-failed", "--torch", "2.13", "--capacity", "8GiB"]),
])
def test_replay_has_the_commands_rows_and_notes(arguments, options):
    replay = tenon.load(FAILED).replay(passes=0, **arguments)
    assert replay.text == output_of("replay", FAILED, "--passes", 0, *options)
    assert replay.json == output_of("replay", FAILED, "--passes", 0, *options, "--json")


def test_torch_changes_a_replay():
    """maskrcnn is the trace on which PyTorch 2.13 chooses other blocks."""
    path = ROOT / "data" / "traces" / "maskrcnn.csv.zst"
    recording = tenon.load(path)
    old, new = (recording.replay("caching", passes=0, torch=version) for version in ("2.11", "2.13"))
    assert old["caching"]["reserved_peak_bytes"] < new["caching"]["reserved_peak_bytes"]
    assert new.json == output_of("replay", path, "--policy", "caching", "--passes", 0, "--torch",
                                 "2.13", "--json")
    assert recording.replay("caching", passes=0).json == old.json, "the recording itself is as it was"


@pytest.mark.parametrize("name", ["snapshot", "trace", FAILED])
def test_view_is_the_commands(name, request, tmp_path):
    path = name if name == FAILED else request.getfixturevalue(name)
    view = tenon.load(path).view("caching")
    assert view.json == output_of("view", path, "--policy", "caching", "--json")
    output_of("view", path, "--policy", "caching", "-o", tmp_path / "page.html")
    assert view.html == (tmp_path / "page.html").read_text()
    view.save(tmp_path / "ours.html")
    assert (tmp_path / "ours.html").read_bytes() == (tmp_path / "page.html").read_bytes()


def test_report_is_the_commands(snapshot, tmp_path):
    ranks = [tmp_path / f"rank_{number}.pickle" for number in (0, 1)]
    for rank in ranks:
        shutil.copy(snapshot, rank)
    failed = ROOT / "data" / "failed" / "gpt2.pickle"  # its settings, where a rank failed
    for files in ([*ranks, failed], ranks, ranks[:1]):
        recordings = [tenon.load(file) for file in files]
        report = tenon.report(recordings, capacity="8GiB")
        page = tmp_path / "page.html"
        assert report.json == output_of("report", *files, "--capacity", "8GiB", "-o", page, "--json")
        assert report.html == page.read_text()
        report.save(tmp_path / "ours.html")
        assert (tmp_path / "ours.html").read_bytes() == page.read_bytes()
    assert recordings[0].report(capacity="8GiB").html == report.html
    assert "<iframe" in report._repr_html_() and "allow-scripts" not in report._repr_html_()
    with pytest.raises(ValueError, match="one recording at least"):
        tenon.report([])
    with pytest.raises(TypeError, match="report: give recordings, not str"):
        tenon.report(["snapshot.pickle"])


def test_diff_is_the_commands(snapshot, trace, recording):
    other = tenon.load(trace)
    assert tenon.diff(recording, other).json == output_of("diff", snapshot, trace, "--json")
    assert tenon.diff(recording, other).text == output_of("diff", snapshot, trace)


@pytest.mark.parametrize("ending", ["csv", "csv.zst", "pickle", "json"])
def test_save_is_convert(ending, snapshot, recording, tmp_path):
    recording.save(tmp_path / f"ours.{ending}")
    output_of("convert", snapshot, tmp_path / f"theirs.{ending}")
    ours = (tmp_path / f"ours.{ending}").read_bytes()
    assert ours == (tmp_path / f"theirs.{ending}").read_bytes()


def test_module_and_script_are_the_program(snapshot):
    script = pathlib.Path(sysconfig.get_path("scripts")) / "tenon"
    for arguments in (["explain", snapshot], ["policies"], ["--version"], ["explain", "--help"]):
        expected = run_command(*arguments)
        # The help names the program by the path that it was started by.
        path = os.environ.get("TENON_COMMAND", "tenon").encode()
        expected.stdout = expected.stdout.replace(b"Usage: " + path, b"Usage: tenon")
        for program in (PYTHON_COMMAND, [str(script)]):
            done = run_command(*arguments, program=program)
            assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)


def test_arguments_need_not_be_utf_8(trace, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv.zst")
    os.symlink(trace, path)
    expected = run_command("explain", path)
    done = run_command("explain", path, program=PYTHON_COMMAND)
    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout) and expected.stdout


@pytest.mark.parametrize("arguments", [["explain", "no such file"], ["nonsense"], [],
                                       ["replay", "--policy", "wrong", "x.csv"]])
def test_bad_usage_is_the_programs(arguments):
    expected = run_command(*arguments)
    done = run_command(*arguments, program=PYTHON_COMMAND)
    assert (done.returncode, done.stderr) == (expected.returncode, expected.stderr)
    assert done.returncode != 0


def test_what_ships_is_that_version():
    version = re.search(r'TENON_VERSION "([^"]+)"',
                        (ROOT / "src/tenon/base/version.h").read_text())
    assert tenon.__version__ == version.group(1)


def test_serve_answers_and_ends_at_ctrl_c(snapshot):
    server = subprocess.Popen([*PYTHON_COMMAND, "serve", snapshot, "--policy", "none"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        address = server.stdout.readline().decode().split()[0]
        with urllib.request.urlopen(address, timeout=30) as page:
            assert b"<html" in page.read(100_000)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=10) == 0
    finally:
        server.kill()
        server.communicate()


def test_ctrl_c_ends_the_command(trace):
    program = subprocess.Popen([*PYTHON_COMMAND, "replay", trace, "--passes", "100000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)
    start = time.monotonic()
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=10)
    assert time.monotonic() - start < 5
    assert program.returncode in (-signal.SIGINT, 130)


def test_a_closed_pipe_ends_the_command_quietly(trace):
    shell = f"'{sys.executable}' -m tenon explain --help | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, timeout=60,
                          env={**os.environ})
    assert done.returncode == 0
    assert done.stderr == b""
