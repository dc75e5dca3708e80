#!/usr/bin/env python3
"""constants.py [--build FOLDER] [--only NAME,...] [--seed N]: what each tuned constant costs at half and at double.

Changes one constant at a time in a copy of its file, compiles what includes it, links `tenon` with that and a
build's other objects, and replays recordings with the policies that use the constant: those of programs.py, which no
constant was chosen on, or with --traces the shipped ones. Prints the change against the constant as it is, in per
cent: of the bytes held at most, of the driver's stall (over recordings and lags of 0, 5, 20 and 100 ms) and of the
instructions of one warm pass over each (callgrind; --no-instructions leaves them out). Each as geometric mean, and in
brackets the one that is farthest from no change. "nothing": no figure changes by as much as 0.3 per cent.
"""
import argparse
import concurrent.futures
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import programs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAGS = ["0ms", "5ms", "20ms", "100ms"]

# name, file, text around the value ("@" stands for it), half, double, policies (with the recordings' device, if any)
CONSTANTS = [
    ("low islands: pages", "memory/gpu/block_heap.cc", "kLowPages = @;", "2", "8", "stitched"),
    ("low islands: looked at", "memory/gpu/block_heap.cc", "kIslandsLooked = @;", "6", "24", "stitched"),
    ("window: readopt, 1 / 20 of a page", "memory/gpu/window.cc", "kReadopt = @;", "0", "2", "stitched"),
    ("window: fresh addresses", "memory/gpu/window.cc", "kFresh = @;", "10", "40", "stitched"),
    ("window: undo", "memory/gpu/window.cc", "kUndo = @;", "18", "70", "stitched"),
    ("window: undo and wait", "memory/gpu/window.cc", "kUndoWait = @;", "2560", "10240", "stitched"),
    ("slack", "memory/gpu/stitched_allocator.h", "slack = @;", "0.005", "0.02", "stitched"),
    ("range, of the memory", "memory/gpu/stitched_allocator.cc", "kRangeTimesMemory = @;", "2", "8", "stitched"),
    ("page, at most", "memory/gpu/stitched_allocator.cc", "kLargestPage = @;", "8 * kMiB", "32 * kMiB", "stitched"),
    ("pages of a small program", "memory/gpu/stitched_allocator.cc", "kFewPages = @;", "192", "768", "stitched"),
    ("pages of a small device", "memory/gpu/stitched_allocator.cc", "kLeastPages = @;", "256", "1024", "stitched"),
    ("peak board: drift", "memory/front/peak_board.h", "kDriftBytes = @;", "1 << 19", "1 << 21",
     "caching,stitched"),
    ("bins to the octave", "heap/size_index.h", "kSubBits = @;", "5", "7", "caching,pool"),
    ("B+ tree: fan-out", "heap/size_tree.h", "kFanOut = @;", "10", "40", "caching,pool"),
    ("B+ tree: few keys", "heap/size_tree.h", "kFewKeys = @;", "3", "14", "caching,pool"),
    ("treap: deepest", "heap/size_index.cc", "kDeepest = @;", "6", "24", "caching,pool"),
    ("bias: first turns", "base/biased_lock.h", "kFirstTurns = @;", "128", "512", "caching,stitched"),
    ("arena: classes to the octave, bits", "memory/placement/buffer_bins.h", "kClassBits = @;", "2", "4", "arena"),
    ("arena: class unit", "memory/placement/buffer_bins.h", "kClassUnitBytes = @;", "128", "512", "arena"),
    ("arena: buffers kept of a class", "memory/placement/arena_allocator.h", "max_per_size = @;", "512", "2048",
     "arena"),
    ("plan: sizes remembered", "memory/placement/plan_placement.h", "kMemory = @;", "2", "8", "plan"),
    ("unified: heap below 10 MiB", "memory/unified/heap_supply.h", "kLargeHeapBytes = @;", "16 * kMiB", "64 * kMiB",
     "unified"),
    ("unified: tickets to a mark", "memory/unified/completions.h", "kTicketsPerMark = @;", "32", "128", "unified"),
    ("unified: events kept", "memory/unified/completions.h", "kMostEvents = @;", "4", "16", "unified"),
    ("shares: of a small program", "memory/growth_share.h", "kShares = @,", "16", "64", "pool,unified on vulkan:0"),
    ("shares: of a large program", "memory/growth_share.h", "kLargeShares = @,", "6", "24", "pool,unified on vulkan:0"),
    ("shares: where a program is large", "memory/growth_share.h", "kBoundBytes = std::uint64_t{@}", "20", "80",
     "pool,unified on vulkan:0"),
    ("shares: growth, at least", "memory/growth_share.h", "kLeastGrowthBytes = std::uint64_t{1} << @;", "18", "20",
     "pool,unified on vulkan:0"),
    ("host: classes to the octave, bits", "memory/host/size_classes.h", "SizeClasses<kSmallestClass, @>", "2", "4",
     "host"),
    ("host: slots linked at once", "memory/host/local_heap.cc", "kBatch = @;", "16", "64", "host"),
    ("host: cached large blocks, bytes", "memory/host/large_cache.h", "kBytes = @;", "1 << 20", "4 << 20", "host"),
    ("host: cached block, at most", "memory/host/large_cache.h", "kLargestBytes = @;", "256 << 10", "1 << 20", "host"),
    ("host: sets of the cache, bits", "memory/host/large_cache.h", "kSetBits = @;", "4", "6", "host"),
    ("host: operations until a region decays", "memory/host/region_store.h", "kDecayOperations = @;", "2048", "8192",
     "host"),
    ("host: looks for decayed regions", "memory/host/region_store.cc", "kLookEvery = @;", "128", "512", "host"),
    ("host: region, at most", "memory/host/region_store.h", "512 << 20", "256 << 20", "1024 << 20", "host"),
    ("host: region, of the memory", "memory/host/region_store.h", "total_bytes / @ /", "8", "32", "host"),
]


def run(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


class Build:
    """The objects of a build folder, linked with those that a changed constant makes anew."""

    def __init__(self, build, traces, seed):
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix="tenon_constants_")
        shipped = f"{ROOT}/data/traces"
        shipped = sorted(f"{shipped}/{name}" for name in os.listdir(shipped) if name.endswith(".csv.zst"))
        self.files = lambda device: shipped if traces else programs.write(self.folder, seed, device)
        self.command = f"{self.folder}/tenon"
        commands = run(["ninja", "-t", "commands", "tenon"], cwd=self.build).split("\n")
        self.link_line = [line for line in commands if line.startswith(": &&")][-1].split(" && ")[1]
        self.compile_lines = {line.split(" -o ")[1].split()[0]: line for line in commands if " -c " in line}
        self.users = {}  # objects of the library by the headers and sources that they are made of
        target = None
        for line in run(["ninja", "-t", "deps"], cwd=self.build).split("\n"):
            if line and not line.startswith(" "):
                target = line.split(":")[0]
            elif re.search("tenon_memory(_small)?_objects[.]dir/", target or "") and "/src/tenon/" in line:
                self.users.setdefault(line.split("/src/tenon/")[1].strip(), set()).add(target)
        self.link([])

    def link(self, objects):
        line = self.link_line.replace(" -o tenon ", f" -o {self.command} {' '.join(objects)} ")
        subprocess.run(line, shell=True, check=True, cwd=self.build)

    def compile(self, target):
        """As the build does, but from the changed file. A group of sources is a file that includes them."""
        line, source = self.compile_lines[target].rsplit(" -c ", 1)
        with open(os.path.join(self.build, source), encoding="utf-8") as file:
            text = file.read()
        included = re.findall(r'#include "(/.*/src/(tenon/.*[.]cc))"', text) or [(source, source.split("/src/")[1])]
        made = f"{self.folder}/{target.replace('/', '_')}"
        with open(f"{made}.cc", "w", encoding="utf-8") as file:
            for path, name in included:
                changed = f"{self.folder}/include/{name}"
                file.write(f'#include "{changed if os.path.exists(changed) else path}"\n')
        line = re.sub(r" -MD -MT \S+ -MF \S+", "", line).replace(f" -o {target}", f" -o {made}")
        line = line.replace(" -I", f" -I{self.folder}/include -I", 1)
        run([*shlex.split(line), "-c", f"{made}.cc"], cwd=self.build)
        return made

    def with_value(self, path, pattern, value, measure):
        with open(f"{ROOT}/src/tenon/{path}", encoding="utf-8") as file:
            before = file.read()
        if "@" in pattern:
            left, right = pattern.split("@")
            old = re.escape(left) + r"[^;/,>}]+?" + re.escape(right)
            after, count = re.subn(old, left + str(value) + right, before)
        else:
            after, count = before.replace(pattern, str(value)), before.count(pattern)
        if value is None:
            after = before
        elif count != 1:
            sys.exit(f"{path}: {pattern} stands there {count} times")
        shutil.rmtree(f"{self.folder}/include", ignore_errors=True)
        changed = f"{self.folder}/include/tenon/{path}"
        os.makedirs(os.path.dirname(changed))
        with open(changed, "w", encoding="utf-8") as file:
            # Some say what the constant as it is makes of a size.
            file.write(re.sub(r"^ *static_assert.*;\n", "", after, flags=re.MULTILINE))
        targets = sorted(self.users[path])
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            self.link(list(pool.map(self.compile, targets)))
        return measure()

    def instructions(self, policy, file):
        out = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*timed_pass*",
             self.command, "replay", file, "--policy", policy, "--passes", "1", "--threads", "1"],
            check=True, capture_output=True, text=True).stderr
        return int(re.search(r"Collected : (\d+)", out).group(1))

    def figures(self, users, instructions):
        """By (recording, policy, lag): bytes held at most, driver stall; and instructions by (policy, recording)."""
        held, stall, counts = {}, {}, {}
        policies, _, device = users.partition(" on ")
        files = self.files(device)
        for lag in LAGS:
            out = run([self.command, "replay", *files, "--policy", policies, "--lag", lag, "--passes", "0",
                       "--json"])
            for row in json.loads(out):
                key = row["trace"], row["policy"], lag
                held[key] = row["reserved_peak_bytes"]
                stall[key] = row["driver_stall_us"]
        runs = [(policy, file) for policy in policies.split(",") for file in files] if instructions else []
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            counts = dict(zip(runs, pool.map(lambda one: self.instructions(*one), runs)))
        return held, stall, counts


def change(ratios):
    """The geometric mean, and the ratio farthest from 1, as percentages."""
    if not ratios:
        return "–"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)))
    return f"{100 * (mean - 1):+.2f} ({100 * (worst - 1):+.2f})"


def row(base, new):
    ratios = [[after[key] / before[key] for key in before if before[key] > 0 and after[key] > 0]
              for before, after in zip(base, new)]
    if all(abs(ratio - 1) < 0.003 for figure in ratios for ratio in figure):
        return "nothing | | "
    return " | ".join(map(change, ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=f"{ROOT}/build", help="a folder where `tenon` is built")
    parser.add_argument("--only", help="constants whose names begin so, separated by commas")
    parser.add_argument("--no-instructions", action="store_true")
    parser.add_argument("--traces", action="store_true", help="on the shipped traces")
    parser.add_argument("--seed", type=int, default=20, help="of the programs")
    options = parser.parse_args()
    build = Build(options.build, options.traces, options.seed)
    print("| constant | value | policies | held | driver stall | instructions |")
    print("|---|---|---|---|---|---|", flush=True)
    bases = {}
    for name, path, pattern, half, double, policies in CONSTANTS:
        if options.only and not name.startswith(tuple(options.only.split(","))):
            continue
        measure = lambda: build.figures(policies, not options.no_instructions)
        if policies not in bases:
            bases[policies] = build.with_value(path, pattern, None, measure)
        for value in half, double:
            try:
                new = build.with_value(path, pattern, value, measure)
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name} = {value}: {error.cmd[0]} failed\n{(error.stderr or '')[-2000:]}")
            print(f"| {name} | {value} | {policies.replace(',', ', ')} | {row(bases[policies], new)} |", flush=True)
    shutil.rmtree(build.folder)


if __name__ == "__main__":
    main()
