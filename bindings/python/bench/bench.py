"""The Python package's figures: `make bench-python`.

Prints what a call that allocates costs above the C++ one, how long a million events take to become
a NumPy array, and how soon Ctrl-C ends long work. Each figure is a median with its conditions.
"""

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import tenon

ROUNDS = 15


def median_ns(body, calls, rounds=ROUNDS):
    """Nanoseconds of processor time a call: the median of rounds, each of so many calls."""
    times = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        body(calls)
        times.append((time.thread_time_ns() - start) / calls)
    return statistics.median(times)


def python_pair_ns(allocator, size):
    def body(calls):
        allocate = allocator.allocate
        for _ in range(calls):
            allocate(size)

    def loop(calls):
        for _ in range(calls):
            pass

    return median_ns(body, 100_000) - median_ns(loop, 100_000)


def allocations():
    print("allocate and drop, ns of processor time a pair: in C++, in Python, and the difference "
          "(at most 150)")
    for policy, device in (("host", tenon.host_device()), ("stitched", tenon.sim_device()),
                           ("caching", tenon.sim_device())):
        for size in (64, 4096, 65536):
            allocator = tenon.Allocator(policy, device)
            keep = allocator.allocate(size)
            cpp = statistics.median(tenon._core.pair_ns(allocator, size, 100_000)
                                    for _ in range(ROUNDS))
            python = python_pair_ns(allocator, size)
            print(f"  {policy:9} {size:6}  {cpp:7.1f} {python:7.1f} {python - cpp:7.1f}")
            del keep


def events():
    import numpy

    lines = ["time_us,op,id,size,stream"]
    for number in range(500_000):
        lines.append(f"{2 * number},alloc,{number},{512 * (number % 100 + 1)},0")
        lines.append(f"{2 * number + 1},free_completed,{number},0,0")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "million.csv"
        path.write_text("\n".join(lines) + "\n")
        start = time.perf_counter()
        recording = tenon.load(path)
        parsed = time.perf_counter() - start
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        array = recording.devices[0].events
        times.append(time.perf_counter() - start)
    assert len(array) == 1_000_000 and isinstance(array, numpy.ndarray)
    blocks = []
    for _ in range(5):
        start = time.perf_counter()
        recording.devices[0].blocks
        blocks.append(time.perf_counter() - start)
    print(f"a million events: parsed in {parsed * 1e3:.0f} ms; as a NumPy array in "
          f"{statistics.median(times) * 1e3:.3f} ms (at most 30); as blocks in "
          f"{statistics.median(blocks) * 1e3:.1f} ms")


INTERRUPTED = """
import os, signal, sys, threading, time
import tenon
recording = tenon.load(sys.argv[1])
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    while True:
        recording.advise(effort=100)
except KeyboardInterrupt:
    print(time.monotonic() - start - 1.0)
"""


def interrupts(trace):
    delays = [float(subprocess.run([sys.executable, "-c", INTERRUPTED, trace], check=True,
                                   capture_output=True, text=True).stdout) for _ in range(5)]
    print(f"Ctrl-C ends advise after {statistics.median(delays) * 1e3:.0f} ms, at most "
          f"{max(delays) * 1e3:.0f} (5 runs; at most 200)")


def tensors():
    """A fresh tensor and its end from Python, above the same in C++."""
    try:
        from tenon import _tensor
    except ImportError:
        print("tensors: not in this package")
        return
    count = 100_000
    for shape in ((64,), (64, 64), (1024, 1024)):
        rows = []
        for _ in range(ROUNDS):
            inside = _tensor._empty_ns(shape, count)
            start = time.process_time()
            for _ in range(count):
                _tensor.empty(shape)
            rows.append((time.process_time() - start) * 1e9 / count - inside)
        print(f"tenon.empty({shape}): {statistics.median(rows):.0f} ns above C++'s {inside:.0f}, "
              "the loop included (at most 150)")


def start_up():
    def seconds(code):
        times = []
        for _ in range(9):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    bare, with_tenon = seconds("pass"), seconds("import tenon")
    print(f"import tenon: {(with_tenon - bare) * 1e3:.0f} ms above Python's own "
          f"{bare * 1e3:.0f} ms")


def main():
    print(f"{platform.python_implementation()} {platform.python_version()}, tenon "
          f"{tenon.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    allocations()
    events()
    tensors()
    start_up()
    if len(sys.argv) > 1:
        interrupts(sys.argv[1])


if __name__ == "__main__":
    main()
