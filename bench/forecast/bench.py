"""Forecasts beside what one H200 recorded (data/traces): python bench.py [NAME... | fit]

For each program: live peak, reserved peak and smallest card under default and expandable settings,
each as forecast / recorded; seconds, processor seconds and peak resident memory of the forecast's
process; and for the live peak what PyTorch's MemTracker and the sum of tensors say. Under fakes
alone (--real never): values of the host would take minutes for maskrcnn, whose sizes depend on
data. The second
line leaves blocks that live for one kernel, which are cuDNN's workspaces for the most part, out of
both traces: what remains of the error has other causes.

Then, and with `fit` alone: the largest value that `tenon.fit` names, and whether other forecasts
at that value and the next one run through in a replay at the capacity.
"""

import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

import tenon

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "data" / "traces" / "programs.py"
RECORDED = HERE.parents[1] / "data" / "traces" / "pytorch_figures.json"
FIT = str(HERE / "fit_program.py")
SEARCHES = [  # what varies, capacity in GiB, policy, the program's arguments
    ("batch_size", 24, "caching", ("gpt2", "{}", "512")),
    ("seq_len", 24, "caching", ("gpt2", "2", "{}")),
    ("batch_size", 16, "expandable", ("resnet50", "{}", "224")),
]

TRACKER = """
import sys, runpy, contextlib
from tenon.forecast import _scratch, _session
from torch.distributed._tools.mem_tracker import MemTracker
from torch.optim.optimizer import register_optimizer_step_post_hook
session = _session.Session(_scratch.Card(), 141 << 30, 0)
sys.argv = sys.argv[1:]
with session.running():
    tracker = MemTracker()
    register_optimizer_step_post_hook(lambda *_: tracker.reset_mod_stats())
    with tracker, contextlib.redirect_stdout(sys.stderr):
        runpy.run_path(sys.argv[0], run_name="__main__")
peak = tracker.get_tracker_snapshot("peak")
print(max(figures["Total"] for device, figures in peak.items() if device.type == "cuda"))
"""


def run(*command):
    """The command's output, seconds, and what it used."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    output = child.stdout.read()
    _, _, usage = os.wait4(child.pid, 0)
    return output, time.monotonic() - start, usage


def lasting(recording, folder):
    """Reserved and smallest card without blocks whose free follows their allocation at once."""
    path = pathlib.Path(folder) / "trace.csv"
    recording.save(path)
    head, *rows = [line.split(",") for line in path.read_text().splitlines()]
    op, block = head.index("op"), head.index("id")
    momentary = {
        row[block]
        for row, following in zip(rows, rows[1:])
        if row[op] == "alloc" and following[block] == row[block]
    }
    path.write_text(
        "".join(",".join(row) + "\n" for row in [head, *rows] if row[block] not in momentary)
    )
    found = tenon.load(path).replay("caching,expandable", passes=0, find_capacity=True)
    return [
        found[policy][key]
        for key in ("reserved_peak_bytes", "min_capacity_bytes")
        for policy in ("caching", "expandable")
    ]


def without_scratch(name, forecast):
    """Forecast / recorded, both without blocks that live for one kernel."""
    with tempfile.TemporaryDirectory() as folder:
        ours = lasting(tenon.load(forecast), folder)
        theirs = lasting(tenon.load(PROGRAMS.parent / f"{name}.csv.zst"), folder)
    return [one / other for one, other in zip(ours, theirs)]


def partial_sums():
    """Prints how often the forecast's rule for partial sums is cuDNN's own, without a GPU."""
    import torch
    from tenon.forecast import _cudnn, _scratch

    numbers = random.Random(0)
    asked = same = 0
    for _ in range(100):
        batch, size = numbers.randrange(1, 65), numbers.randrange(7, 57)
        kernel = numbers.choice((3, 5))  # the forecast asks for no single points
        inner, outer = (numbers.choice((32, 64, 96, 128, 192, 256, 512)) for _ in range(2))
        shapes = [
            (batch, inner, size, size), (batch, outer, size, size), (outer, inner, kernel, kernel)
        ]
        tensors = [torch.empty(shape, device="meta") for shape in shapes]
        for operation in ("forward", "input", "weight"):
            place = [kernel // 2] * 2, [1, 1], [1, 1], _scratch.Card()
            _cudnn.workspace(operation, *tensors, *place)
            found = next(reversed(_cudnn.LIBRARY._known.values()))
            if found is None or found["knobs"].get(_cudnn._NOT_DIVIDED) != 0:
                continue
            rule = _cudnn._partial_sums(
                _cudnn._WITHOUT_GPU, found["knobs"], operation, shapes
            ) + _cudnn.transposed_bytes(shapes)
            asked += 1
            same += abs(found["bytes"] - rule) < 4096
    print(f"partial sums of cuDNN's kernels: {same} of {asked} workspaces by the rule within 4 KiB")


def runs(arguments, value, policy, capacity):
    """Whether a forecast at this value, saved and loaded, runs through at the capacity."""
    given = [part.replace("{}", str(value)) for part in arguments]
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "forecast.csv")
        run(sys.executable, "-m", "tenon.forecast", "--save", trace, FIT, "--", *given)
        answer = tenon.load(trace).replay(policy, capacity=capacity, passes=0)
    return not answer[policy].get("out_of_memory", False)


def search(vary, gib, policy, arguments):
    """Prints what `tenon.fit` finds, in what time; whether the replays agree."""
    options = ["--capacity", f"{gib}GiB", "--vary", vary]
    options += ["--expandable"] if policy == "expandable" else []
    command = [sys.executable, "-u", "-m", "tenon.fit", FIT, *options, "--", *arguments]
    start = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        line = child.stdout.readline()  # the table of what-ifs follows
        seconds = time.monotonic() - start
        usage = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        child.terminate()
    if " is the largest " not in line:
        sys.exit(f"tenon.fit {' '.join(arguments)}: {line.strip() or 'no answer'}")
    found = int(line.split(" = ")[1].split()[0])
    kept = [runs(arguments, value, policy, gib << 30) for value in (found, found + 1)]
    ticks = os.sysconf("SC_CLK_TCK")
    print(
        f"fit {' '.join(arguments)}, {gib} GiB, {policy}: {vary} = {found}, found in {seconds:.0f} s"
        f" ({(int(usage[11]) + int(usage[12])) / ticks:.0f} cpu s); in a replay {found} "
        f"{'runs' if kept[0] else 'FAILS'}, {found + 1} {'RUNS' if kept[1] else 'does not'}",
        flush=True,
    )
    return kept == [True, False]


def main():
    recorded = json.loads(RECORDED.read_text())
    names = sys.argv[1:] or list(recorded)
    if names == ["fit"]:
        sys.exit(not all([search(*each) for each in SEARCHES]))
    import torch
    import transformers

    print(
        f"PyTorch {torch.__version__}, transformers {transformers.__version__}, Python"
        f" {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};"
        " recorded: H200, PyTorch 2.11.0+cu130. Forecast / recorded:"
    )
    print(
        f"{'':22}{'live':>8}{'reserved':>18}{'smallest card':>18}{'':>16}"
        f"{'MemTracker':>12}{'tensors':>9}"
    )
    print(
        f"{'program':22}{'peak':>8}{'default':>9}{'expand.':>9}{'default':>9}{'expand.':>9}"
        f"{'s':>8}{'cpu s':>8}{'MiB':>8}{'live peak':>12}{'alone':>9}"
    )
    errors = {key: [] for key in ("live peak", "reserved", "smallest card")}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "forecast.csv")
            output, seconds, usage = run(
                sys.executable, "-m", "tenon.forecast", "--card", "H200", "--steps", "0",
                "--real", "never", "--json", "--save", trace, str(PROGRAMS), "--", name,
            )
            rest = without_scratch(name, trace) if os.path.exists(trace) else []
        answer = json.loads(output)
        if answer["problem"]:
            sys.exit(f"{name}: {answer['problem']}")
        true = recorded[name]
        live = answer["live_peak_bytes"] / true["live_peak_bytes"]
        ratios = [
            answer[kind][key] / true[f"pytorch_{kind}"][key]
            for key in ("reserved_peak_bytes", "min_capacity_bytes")
            for kind in ("default", "expandable")
        ]
        tracked, *_ = run(sys.executable, "-c", TRACKER, str(PROGRAMS), name)
        tracker = (
            f"{int(tracked) / true['live_peak_bytes']:.4f}"
            if tracked.strip().isdigit()
            else "fails"
        )
        print(
            f"{name:22}{live:8.4f}"
            + "".join(f"{ratio:9.4f}" for ratio in ratios)
            + f"{seconds:8.1f}{usage.ru_utime + usage.ru_stime:8.1f}"
            f"{usage.ru_maxrss >> 10:8}{tracker:>12}"
            + f"{answer['tensor_peak_bytes'] / true['live_peak_bytes']:9.4f}",
            flush=True,
        )
        print(f"{'  without scratch':30}" + "".join(f"{ratio:9.4f}" for ratio in rest), flush=True)
        errors["live peak"].append(abs(live - 1))
        errors["reserved"] += [abs(ratio - 1) for ratio in ratios[:2]]
        errors["smallest card"] += [abs(ratio - 1) for ratio in ratios[2:]]
    for key, found in errors.items():
        print(f"{key}: error {statistics.median(found):.2%} (median), {max(found):.2%} (worst)")
    print(
        "xMem (arXiv 2510.21048) publishes a median error 91 % below that of DNNMem, SchedTune and"
        " LLMem, on other programs."
    )
    partial_sums()
    if not sys.argv[1:]:
        sys.exit(not all([search(*each) for each in SEARCHES]))


main()
