#!/usr/bin/env python3
"""PyTorch programs on Tenon beside PyTorch's own allocator, default and expandable.

    PYTHONPATH=build/bindings/torch bench/cuda/pytorch_compare.py [--program gpt2,resnet50]
        [--steps 30] [--find-capacity] [--json results.json] [--deadline 540]

Every run is a process of its own. Printed for each: the live peak (most bytes requested at once),
the most memory held, their ratio, the median time of a step after warming up, and whether the
losses are bit for bit those of PyTorch's default allocator. With --find-capacity: the smallest
limit with which the program completes, by the search of `tenon replay --find-capacity`.
Fails when Tenon's losses differ where PyTorch's own two agree, or a program breaks; what breaks is
said and the next one begins. With --deadline no run begins after so many seconds; with --json what
was found is kept after every run, and the same command goes on from there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
ALLOCATORS = ("default", "tenon", "expandable")
WARM_UP = 5
RUN_SECONDS = 300  # no single run takes longer


def one_run(program, allocator, steps, limit):
    """In a process of its own: prints one line of JSON."""
    if allocator == "tenon":
        import tenon_torch
        tenon_torch.enable(limit=limit or None)
    import torch
    from pytorch_workloads import PROGRAMS
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would write every new tensor
    if limit and allocator != "tenon":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
    try:
        step = PROGRAMS[program](torch.device("cuda", 0))
        losses, times = [], []
        for _ in range(steps):
            torch.cuda.synchronize()
            start = time.perf_counter()
            losses.append(step())
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    except torch.OutOfMemoryError as error:
        print(json.dumps({"out_of_memory": str(error)}))
        return
    if allocator == "tenon":
        stats = tenon_torch.stats()
        live, held = stats["requested_bytes.all.peak"], stats["device.held_peak_bytes"]
    else:
        stats = torch.cuda.memory_stats()
        live, held = stats["requested_bytes.all.peak"], stats["reserved_bytes.all.peak"]
    print(json.dumps({
        "live_peak_bytes": live, "reserved_peak_bytes": held,
        "step_ms": 1000 * statistics.median(times[min(WARM_UP, len(times) - 1):]),
        "losses": [loss.hex() for loss in losses]}))


def run(program, allocator, steps, limit=0):
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8", HF_HUB_OFFLINE="1")
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    environment.pop("PYTORCH_ALLOC_CONF", None)
    if allocator == "expandable":
        environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before 2.9
    try:
        done = subprocess.run(
            [sys.executable, os.path.abspath(__file__), "--one-run", program, allocator, str(steps),
             str(limit)], env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {RUN_SECONDS} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"error": f"exit {done.returncode}: {lines[-1]}", "stderr": lines[-30:]}
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": f"printed {done.stdout[-200:]!r}"}


class OutOfTime(Exception):
    pass


class Results:
    """What was found so far, kept in a file after every run; no run begins after the deadline."""

    def __init__(self, path, deadline):
        self._path, self._begin, self._deadline = path, time.monotonic(), deadline
        self.found = {}
        if path and os.path.exists(path):
            with open(path) as file:
                self.found = json.load(file)

    def run(self, program, allocator, steps, limit=0):
        runs = self.found.setdefault(program, {}).setdefault(allocator, {})
        key = f"{steps} steps" + (f", limit {limit}" if limit else "")
        if key not in runs or "error" in runs[key]:
            if self._deadline and time.monotonic() - self._begin > self._deadline:
                raise OutOfTime
            runs[key] = run(program, allocator, steps, limit)
            if limit:
                runs[key].pop("losses", None), runs[key].pop("stderr", None)
            self.keep()
        return runs[key]

    def keep(self):
        if self._path:
            with open(f"{self._path}.partial", "w") as file:
                json.dump(self.found, file, indent=1)
            os.replace(f"{self._path}.partial", self._path)


def smallest_capacity(results, program, allocator, steps, live, high):
    tolerance = max(8 * MIB, live // 500)
    low = live
    while high > low and high - low > tolerance:
        middle = low + (high - low) // 2
        completed = "step_ms" in results.run(program, allocator, steps, middle)
        low, high = (low, middle) if completed else (middle, high)
    return high


def missing():
    """Why nothing can run here, or None."""
    try:
        import torch
    except ImportError:
        return "there is no torch"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    try:
        import tenon_torch  # noqa: F401
    except ImportError:
        return "tenon_torch is not on PYTHONPATH (build/bindings/torch)"
    return None


def package_missing(program):
    import importlib.util
    needed = {"gpt2": "transformers", "llama_checkpointed": "transformers",
              "generation": "transformers", "mask_rcnn": "torchvision", "resnet50": "torchvision",
              "sampled_gnn": "torch_geometric"}[program]
    return None if importlib.util.find_spec(needed) else needed


def gib(size):
    return f"{size / (1 << 30):.2f} GiB"


def compare(results, program, steps, find_capacity):
    print(f"{program}, {steps} steps")
    runs = {}
    for allocator in ALLOCATORS:
        result = runs[allocator] = results.run(program, allocator, steps)
        if "losses" not in result:
            print(f"  {allocator:<10} {result.get('error') or result.get('out_of_memory')}")
            continue
        live, held = result["live_peak_bytes"], result["reserved_peak_bytes"]
        reference = runs["default"]
        same = result["losses"] == reference.get("losses")
        slower = result["step_ms"] / reference["step_ms"] if "step_ms" in reference else 1
        print(f"  {allocator:<10} live {gib(live)}  held {gib(held)}  x{held / live:.3f}  "
              f"{result['step_ms']:.1f} ms/step  x{slower:.3f}  losses "
              f"{'the same' if same else 'differ'}", flush=True)
    if find_capacity:
        for allocator in ALLOCATORS:
            result = runs[allocator]
            if "losses" in result:
                live = result["live_peak_bytes"]
                fits = smallest_capacity(results, program, allocator, steps, live,
                                         result["reserved_peak_bytes"])
                print(f"  {allocator:<10} fits {gib(fits)}  x{fits / live:.3f}", flush=True)
    return runs


def sound(runs):
    if any("losses" not in result for result in runs.values()):
        return False
    reference = runs["default"]["losses"]
    reproducible = runs["expandable"]["losses"] == reference
    return not reproducible or runs["tenon"]["losses"] == reference


def main():
    if sys.argv[1:2] == ["--one-run"]:
        program, allocator, steps, limit = sys.argv[2:6]
        return one_run(program, allocator, int(steps), int(limit))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    programs = ["gpt2", "llama_checkpointed", "mask_rcnn", "resnet50", "sampled_gnn", "generation"]
    parser.add_argument("--program", default=",".join(programs))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--find-capacity", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--deadline", type=float, default=0)
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        print(f"pytorch_compare: skipped: {reason}")
        return 0
    status, results = 0, Results(arguments.json, arguments.deadline)
    for program in arguments.program.split(","):
        if program not in programs:
            parser.error(f"{program} is no program: there are {', '.join(programs)}")
        package = package_missing(program)
        if package:
            print(f"{program}: skipped: there is no {package}")
            continue
        try:
            status |= 0 if sound(compare(results, program, arguments.steps,
                                         arguments.find_capacity)) else 1
        except OutOfTime:
            print(f"{program}: out of time; the same command goes on from here"
                  f"{'' if arguments.json else ' (with --json)'}")
            return 3
    return status


if __name__ == "__main__":
    sys.exit(main())
