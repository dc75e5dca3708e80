#!/usr/bin/env python3
"""PyTorch programs on Tenon beside PyTorch's own allocator, default and expandable.

    PYTHONPATH=build/bindings/torch bench/cuda/pytorch_compare.py [--program gpt2,resnet50]
        [--steps 30] [--find-capacity] [--json results.json]

Every run is a process of its own. Printed for each: the live peak (most bytes requested at once),
the most memory held, their ratio, the median time of a step after warming up, and whether the
losses are bit for bit those of PyTorch's default allocator. With --find-capacity: the smallest
limit with which the program completes, by the search of `tenon replay --find-capacity`.
Fails when Tenon's losses differ where PyTorch's own two agree, or a program breaks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
ALLOCATORS = ("default", "expandable", "tenon")
WARM_UP = 5


def one_run(program, allocator, steps, limit):
    """In a process of its own: prints one line of JSON."""
    if allocator == "tenon":
        import tenon_torch
        tenon_torch.enable(limit=limit or None)
    import torch
    from pytorch_workloads import PROGRAMS
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
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
    except torch.cuda.OutOfMemoryError as error:
        print(json.dumps({"out_of_memory": str(error)}))
        return
    if allocator == "tenon":
        stats = tenon_torch.stats()
        live, held = stats["requested_bytes.all.peak"], stats["reserved_bytes.all.peak"]
    else:
        stats = torch.cuda.memory_stats()
        live, held = stats["requested_bytes.all.peak"], stats["reserved_bytes.all.peak"]
    print(json.dumps({
        "live_peak_bytes": live, "reserved_peak_bytes": held,
        "step_ms": 1000 * statistics.median(times[min(WARM_UP, len(times) - 1):]),
        "losses": [loss.hex() for loss in losses]}))


def run(program, allocator, steps, limit=0):
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    environment.pop("PYTORCH_ALLOC_CONF", None)
    if allocator == "expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--one-run", program, allocator, str(steps),
         str(limit)], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def smallest_capacity(program, allocator, steps, live, high):
    tolerance = max(8 * MIB, live // 500)
    low = live
    while high > low and high - low > tolerance:
        middle = low + (high - low) // 2
        completed = "losses" in run(program, allocator, steps, middle)
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


def compare(program, steps, find_capacity):
    print(f"{program}, {steps} steps")
    results = {}
    for allocator in ALLOCATORS:
        result = results[allocator] = run(program, allocator, steps)
        if "losses" not in result:
            print(f"  {allocator:<10} {result.get('error') or result.get('out_of_memory')}")
            continue
        live, held = result["live_peak_bytes"], result["reserved_peak_bytes"]
        same = result["losses"] == results["default"].get("losses")
        line = (f"  {allocator:<10} live {gib(live)}  held {gib(held)}  x{held / live:.3f}  "
                f"{result['step_ms']:.1f} ms/step  losses {'the same' if same else 'differ'}")
        if find_capacity:
            result["min_capacity_bytes"] = smallest_capacity(program, allocator, steps, live, held)
            line += (f"  fits {gib(result['min_capacity_bytes'])} "
                     f"x{result['min_capacity_bytes'] / live:.3f}")
        print(line, flush=True)
    return results


def sound(results):
    if any("losses" not in result for result in results.values()):
        return False
    reference = results["default"]["losses"]
    reproducible = results["expandable"]["losses"] == reference
    return not reproducible or results["tenon"]["losses"] == reference


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
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        print(f"pytorch_compare: skipped: {reason}")
        return 0
    status, everything = 0, {}
    for program in arguments.program.split(","):
        if program not in programs:
            parser.error(f"{program} is no program: there are {', '.join(programs)}")
        package = package_missing(program)
        if package:
            print(f"{program}: skipped: there is no {package}")
            continue
        everything[program] = compare(program, arguments.steps, arguments.find_capacity)
        status |= 0 if sound(everything[program]) else 1
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(everything, file, indent=1)
    return status


if __name__ == "__main__":
    sys.exit(main())
