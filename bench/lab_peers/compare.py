#!/usr/bin/env python3
"""Tenon's explain beside Mosaic and PyTorch's memory_viz on the same snapshots: figures and time.

  compare.py [TENON [SNAPSHOT...]]     default: build/tenon and data/snapshots/*.pickle

Peers that are not installed are skipped with one line: Mosaic (github.com/facebookresearch/mosaic; on the
Python path), PyTorch's torch/cuda/_memory_viz.py (of an installed torch, or the file that MEMORY_VIZ names: it
needs nothing else of PyTorch). A third reader, Python's own unpickler and fifteen lines, checks all
of them. Exit status 1 where a figure differs.
"""
import collections
import importlib.util
import json
import logging
import os
import pathlib
import pickle
import subprocess
import sys
import time

logging.disable(logging.CRITICAL)
ROOT = pathlib.Path(__file__).resolve().parents[2]


def innermost(frames):
    """The innermost frame of Python's, as text."""
    for frame in frames:
        if frame["filename"].endswith(".py"):
            return f"{frame['name']} {frame['filename']}:{frame['line']}"
    return ""


def plain(path):
    """The traced peak, and what was live then by innermost frame, from the pickle alone."""
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    entries = max(snapshot["device_traces"], key=len)
    live, now, peak, at_peak = {}, 0, 0, {}
    for entry in entries:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry
            now += entry["size"]
            if now > peak:
                peak, at_peak = now, dict(live)
        elif entry["action"] == "free_completed" and entry["addr"] in live:
            now -= live.pop(entry["addr"])["size"]
    sites = collections.Counter()
    for entry in at_peak.values():
        sites[innermost(entry["frames"])] += entry["size"]
    return {"peak": peak, "sites": sites,
            "reserved": sum(s["total_size"] for s in snapshot["segments"]),
            "allocated": sum(s["allocated_size"] for s in snapshot["segments"])}


def tenon(command, path):
    out = subprocess.run([command, "explain", "--json", "--no-replay", path], check=True,
                         capture_output=True, text=True).stdout
    found = json.loads(out)
    return {"peak": max(found["traced_peak_bytes"])
            if isinstance(found["traced_peak_bytes"], list) else found["traced_peak_bytes"],
            "reserved": found["total_size"], "allocated": found["allocated_size"]}


def read_mosaic(path):
    from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract
    abstract = MemoryAbstract(memory_snapshot_file=path)
    abstract.load_memory_snapshot()
    abstract.memory_snapshot.analyze_memory_snapshot(opt="memory_peak")
    snapshot = abstract.memory_snapshot
    sites = collections.Counter()
    for event in snapshot.call_stack_hash_set.values():
        sites[innermost(event.call_stack)] += event.mem_size
    return {"peak": snapshot.dynamic_memory_peak, "sites": sites}


def memory_viz():
    """The module of PyTorch's that reads snapshots."""
    path = os.environ.get("MEMORY_VIZ")
    if path is None:
        from torch.cuda import _memory_viz
        return _memory_viz
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    if spec is None:
        raise ImportError(f"MEMORY_VIZ={path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_memory_viz(path, module):
    """It draws the peak in the browser; in Python it has the end: folded stacks, each with its bytes."""
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    folded = {name: [line.rsplit(" ", 1) for line in text.splitlines()]
              for name, text in (("reserved", module.segments(snapshot, lambda lines: lines)),
                                 ("allocated", module.memory(snapshot, lambda lines: lines)))}
    module.segsum(snapshot)
    module.trace_plot(snapshot)  # the page
    return {"reserved": sum(int(size) for _, size in folded["reserved"]),
            "allocated": sum(int(size) for stack, size in folded["allocated"]
                             if "active_allocated" in stack)}


def readers(command):
    yield "plain unpickler", plain
    yield "tenon explain", lambda path: tenon(command, path)
    try:
        import mosaic.libmosaic  # noqa: F401
        yield "mosaic", read_mosaic
    except ImportError as error:
        print(f"mosaic: skipped: {error}")
    try:
        module = memory_viz()
        yield "memory_viz", lambda path: read_memory_viz(path, module)
    except (ImportError, OSError) as error:
        print(f"memory_viz: skipped: {error}")


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/tenon")
    paths = sys.argv[2:] or sorted(map(str, (ROOT / "data/snapshots").glob("*.pickle")))
    same = True
    tools = list(readers(command))
    print(f"{'snapshot':28} {'reader':16} {'traced peak':>16} {'reserved':>16} "
          f"{'top call site at the peak':>26} {'seconds':>8}")
    for path in paths:
        truth = None
        for name, read in tools:
            start = time.perf_counter()
            try:
                found = read(path)
            except Exception as error:  # a peer's failure is a result
                print(f"{pathlib.Path(path).stem:28} {name:16} failed: {error!r}")
                continue
            seconds = time.perf_counter() - start
            truth = truth or found
            top = found["sites"].most_common(1)[0][1] if found.get("sites") else None
            for key in ("peak", "reserved", "allocated", "sites"):
                if key in found and found[key] != truth[key]:
                    same = False
                    print(f"  {name}: {key} differs from the plain unpickler's")
            shown = [f"{value:,}" if value is not None else "-"
                     for value in (found.get("peak"), found.get("reserved"), top)]
            print(f"{pathlib.Path(path).stem:28} {name:16} {shown[0]:>16} {shown[1]:>16} "
                  f"{shown[2]:>26} {seconds:8.2f}")
    print("figures agree" if same else "figures DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
