"""What ends a program that is in a call which no signal interrupts, and on a thread."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import tenon

BLOCKED = """
import ctypes, sys, torch
x = torch.ones(9, device="cuda")
print("ready", file=sys.stderr, flush=True)
mutex = ctypes.create_string_buffer(64)
ctypes.CDLL(None).pthread_mutex_lock(mutex)
ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


def start(folder, text, *options):
    (folder / "train.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "-m", "tenon.forecast", *options, "train.py"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def answer_of(child):
    out, errors = child.communicate(timeout=200)
    assert child.returncode == 1, errors
    return json.loads(out)


def test_the_time_limit_ends_a_call_that_python_cannot_end(tmp_path):
    answer = answer_of(start(tmp_path, BLOCKED, "--json", "--time-limit", "2"))
    assert answer["problem"].startswith("train.py:7: it did not end within 2 s and is in a call")
    assert answer["live_peak_bytes"] == 36


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_call_that_python_cannot_end(tmp_path, number):
    child = start(tmp_path, BLOCKED, "--json")
    for line in child.stderr:
        if line == "ready\n":
            break
    time.sleep(0.5)
    child.send_signal(number)
    answer = answer_of(child)
    assert answer["problem"].startswith("train.py:7: it was interrupted in a call")
    assert answer["live_peak_bytes"] == 36


def test_a_call_after_the_last_step_keeps_the_answer(tmp_path):
    text = BLOCKED.replace("mutex =", """
layer = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
try:
    layer(x[:8]).sum().backward()
    optimizer.step()
finally:
    mutex = ctypes.create_string_buffer(64)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
mutex =""")
    (tmp_path / "train.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tenon.forecast", "--json", "--steps", "1", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["problem"] is None
    assert answer["ended"] == "stopped after 1 step of an optimizer, as asked"


def test_a_call_that_keeps_the_interpreter_ends_and_names_its_line(tmp_path):
    text = "import torch\nx = torch.ones(9, device='cuda')\nsum(range(10**13))\n"
    child = start(tmp_path, text, "--time-limit", "1")
    _, errors = child.communicate(timeout=200)
    assert child.returncode == 1 and 'train.py", line 3 in <module>' in errors


def test_a_programs_own_handler_is_left_alone(tmp_path):
    text = ("import os, signal, time, torch\nx = torch.ones(9, device='cuda')\n"
            "signal.signal(signal.SIGTERM, lambda *_: None)\nos.kill(os.getpid(), signal.SIGTERM)\n"
            "end = time.monotonic() + 5\nwhile time.monotonic() < end: time.sleep(1)\n")
    child = start(tmp_path, text, "--json")
    out, errors = child.communicate(timeout=200)
    assert child.returncode == 0, errors
    assert json.loads(out)["ended"].startswith("it ran to its end")


def test_control_c_before_the_script_has_no_traceback(tmp_path):
    child = start(tmp_path, "import torch\n")
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=200)
    assert child.returncode != 0 and "Traceback" not in errors


def test_a_function_in_such_a_call_is_named_and_goes_on(capfd):
    def program():
        import torch

        torch.ones(9, device="cuda")
        libc = ctypes.CDLL(None)
        mask = ctypes.create_string_buffer(b"\xff" * 128, 128)
        kept = ctypes.create_string_buffer(128)
        libc.pthread_sigmask(signal.SIG_BLOCK, mask, kept)  # so that no signal ends the sleep
        libc.sleep(5)
        libc.pthread_sigmask(signal.SIG_SETMASK, kept, None)
        while True:
            pass

    found = tenon.forecast(program, time_limit=1)
    assert "it did not end within 1 s" in found.problem
    assert "the limit of 1 s has passed" in capfd.readouterr().err
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_the_limit_ends_a_program_on_another_thread():
    def program():
        import torch

        torch.ones(9, device="cuda")
        while True:
            pass

    found = []
    thread = threading.Thread(target=lambda: found.append(tenon.forecast(program, time_limit=1)))
    thread.start()
    thread.join(120)
    assert "it did not end within 1 s" in found[0].problem and found[0].live_peak_bytes == 36


@pytest.mark.parametrize("limit", [-1, float("nan")])
def test_a_limit_is_a_number_of_seconds(limit):
    with pytest.raises(tenon.forecast.ForecastError, match="time_limit"):
        tenon.forecast(os.getpid, time_limit=limit)
