#!/usr/bin/env python3
"""run.py [--keep] [--arguments TEXT --peers TEXT] [BUILD] [NAME...]: runs the benchmarks, or those named, and prints what they print.

Writes one record for each to BUILD/results/NAME.json, with --keep to bench/results/ instead:
title, command, conditions, and the lines that the program printed. `scripts/results.py` makes
docs/results.md of the records in bench/results and brings the figures that pages cite up to date.
Exits with 1 when a program failed or missed a target, after all have run.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
REPLAY = "data/traces/*.csv.zst --policy all --find-capacity"
PEERS = {"libc6": "glibc", "libmimalloc2.0": "mimalloc", "libjemalloc2": "jemalloc",
         "libtcmalloc-minimal4": "tcmalloc", "libtbbmalloc2": "oneTBB",
         "libopenblas0-pthread": "OpenBLAS", "libdnnl2": "oneDNN", "mesa-vulkan-drivers": "lavapipe of Mesa",
         "python3-torch": "PyTorch", "python3-numpy": "NumPy"}
HOST = ["libc6", "libmimalloc2.0", "libjemalloc2", "libtcmalloc-minimal4", "libtbbmalloc2"]
BLAS = ["libopenblas0-pthread", "libdnnl2"]
DRIVERS = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json /usr/lib/chromium/vk_swiftshader_icd.json"  # lavapipe, SwiftShader

def over_drivers(command):
    """Once for each of the drivers that are installed, under its name."""
    return (f"for driver in {DRIVERS}; do test -e $driver || continue; basename $driver;"
            f" VK_DRIVER_FILES=$driver {command} || exit; done")


NAMED = {"pytorch_allocator", "pytorch_allocator_2_12", "preload", "preload_pypi", "forecast", "fsdp", "ranks", "overlap", "rank_weights", "rank_memory", "rank_network", "kills", "fleet"}  # run only where they are named: they need PyTorch, or MPI and root
EXACT = {"replay", "pytorch_allocator", "pytorch_allocator_2_12", "snapshots", "small_program", "verdict", "robson", "generated", "pages", "tradeoff"}  # what they print depends on no machine and no load
# name: what it shows, the command ({} is the build folder), the packages it compares with
PROGRAMS = {
    "replay": ("every policy on the shipped traces: reserved memory, smallest capacity",
                     "{}/tenon replay " + REPLAY + " --passes 0", []),
    "replay_times": ("every policy on the shipped traces, with times", "{}/tenon replay " + REPLAY, []),
    "snapshots": ("PyTorch's allocators and `stitched` on the shipped snapshots",
                  "{}/tenon replay data/snapshots/*.pickle --policy caching,expandable,stitched"
                  " --find-capacity --passes 0", []),
    "small_program": ("PyTorch's allocators and `stitched` on a program of a few MiB",
                      "{}/tenon train fashion-mnist --model mlp --epochs 1"
                      " | grep -E '^(which|  policy|  (caching|expandable|stitched)) '", []),
    "fidelity": ("`caching` and `expandable` beside PyTorch 2.11, to the byte (ns/event of PyTorch: on another host, that of the H200)",
                 "{}/bench/bench_peers", []),
    "pytorch_allocator": ("replays beside PyTorch's own allocator over a driver without a device: settings, capacities",
                          "for version in 2.11.0 2.13.0 ''; do $(scripts/pytorch_environment.sh $version)"
                          " tests/pytorch/allocator/compare.py {}/tenon 20 || exit; done", []),
    "pytorch_allocator_2_12": ("replays beside PyTorch 2.12's own allocator, whose rule replays follow in part",
                               "$(scripts/pytorch_environment.sh 2.12.0)"
                               " tests/pytorch/allocator/compare.py {}/tenon 20", []),
    "targets": ("`stitched` on each trace and by page size, a hot pair, the steady state",
                "{}/bench/bench_targets", []),
    "tradeoff": ("`stitched` by page size, for each shipped trace",
                 "scripts/draw_tradeoff.py {}", []),
    "generated": ("policies at five lags on shipped traces and on programs from seeds",
                  "{}/bench/bench_generated", []),
    "pages": ("what pages allow `stitched`, and where its bytes are, on generated programs",
              "{}/bench/bench_pages", []),
    "host_peers": ("the host allocator beside others", "{}/bench/bench_host_peers", HOST),
    "host_pairs": ("pairs of calls on the host: one size, two in turn, nested, as recorded",
                   "{}/bench/bench_host_pairs", HOST),
    "two_threads": ("two threads on two streams beside one", "{}/bench/bench_two_threads", []),
    "bias": ("ns an event of one thread while another polls stats(), and after",
             "{}/bench/bench_bias", []),
    "parallel": ("parallel loops beside OpenMP", "{}/bench/bench_parallel", []),
    "pool": ("a memory pool beside its driver and a cached allocator",
             "{}/bench/bench_pool_seed", []),
    "planning": ("static plans and advice: hard problems, shipped traces",
                 "{}/bench/bench_planning", []),
    "verdict": ("categories of memory, in programs whose categories are known",
                      "{}/bench/bench_verdict", []),
    "robson": ("the worst case: Robson's adversary against every policy",
                     "{}/bench/bench_robson", []),
    "import": ("reading recordings: speed and memory", "{}/bench/bench_import", []),
    "large_files": ("huge recordings and many ranks: time and memory of each subcommand",
                    "{}/bench/bench_large_files", []),
    "recorder": ("what leaving a recorder on costs", "{}/bench/bench_recorder", []),
    "metadata": ("tensors: what making, viewing and copying a handle costs",
                 "{}/bench/bench_metadata", []),
    "operators": ("operators beside PyTorch, OpenBLAS and oneDNN",
                  "{}/bench/bench_operators", BLAS),
    "more_operators": ("operators of other dtypes, shapes and strides beside PyTorch",
                       "{}/bench/bench_operators --section breadth", BLAS),
    "gradients": ("chains of additions and small steps, forward and backward, beside PyTorch",
                  "{}/bench/bench_gradients", []),
    "training": ("training steps, peak memory and losses, beside PyTorch", "{}/bench/bench_training", BLAS),
    "families": ("training steps and peak memory of seven families of models, beside PyTorch",
                 "{}/bench/bench_families", BLAS),
    "lab_peers": ("`tenon explain` beside Mosaic and memory_viz",
                  "python3 bench/lab_peers/compare.py {}/tenon", []),
    "library_size": ("what the stripped library of allocators consists of, and its folders' shares, in bytes",
                     "strip -o {0}/stripped.so {0}/libtenon_memory.so && stat -c 'File %s'"
                     " {0}/stripped.so && size -A -d {0}/stripped.so | sort -k2nr | head -12"
                     " && python3 scripts/library_size.py {0}/libtenon_memory.so", []),
    "preload": ("programs of PyTorch and NumPy on the CPU over preloaded allocators: a step, the first one, and the process's processor time, resident peak and page faults",
                "python3 bench/preload/compare.py {}/libtenon_preload.so",
                ["libc6", *HOST[1:4], "python3-torch", "python3-numpy"]),
    "preload_pypi": ("programs of JAX and ONNX Runtime on the CPU over preloaded allocators, as above",
                     "python3 bench/preload/compare.py --pypi {}/libtenon_preload.so",
                     ["libc6", *HOST[1:4]]),
    "vulkan": ("Vulkan devices without a GPU: buffers, operators, memory, products",
               over_drivers("{}/bench/bench_vulkan"),
               ["mesa-vulkan-drivers", "libopenblas0-pthread"]),
    "vulkan_memory": ("what is reserved on a Vulkan device, for a program and for training",
                      f"VK_DRIVER_FILES={DRIVERS.split()[0]} {{}}/bench/bench_vulkan memory", ["mesa-vulkan-drivers"]),
    "vulkan_vectors": ("operators and gradients on two Vulkan drivers, and which calls the host computed",
                       over_drivers("{}/tenon vectors data/vectors --grad --device vulkan:0"),
                       ["mesa-vulkan-drivers"]),
    "fashion_mnist": ("Fashion-MNIST: the cnn, five epochs (wanted: 91 % of the test images)",
                      "{}/tenon train fashion-mnist --model cnn --epochs 5", []),
    "same_bits": ("two runs with one seed: loss, weights, memory layout",
                  "for run in 1 2; do {}/tenon train fashion-mnist --model mlp --epochs 1 --json"
                  " | grep -E 'final_loss|_hash' | tr -d '\\n'; echo; done", []),
    "fsdp": ("`tenon train --shard 3` beside PyTorch's FSDP2: peak bytes of a rank",
             "python3 bench/fsdp/compare.py {}/tenon", []),
    "ranks": ("what training on several ranks costs: the α–β model beside runs, and up to 4,096 ranks",
              "scripts/bench_distributed.py --only model", []),
    "overlap": ("what of computing and transfer is at the same time, with 2 ranks",
                "scripts/bench_distributed.py --only overlap", []),
    "rank_weights": ("weights after 115 steps on 1, 2, 4 and 8 ranks, over Open MPI and MPICH",
                     "scripts/bench_distributed.py --only weights", []),
    "rank_memory": ("memory and traffic of a rank beside their formulas, and the forecast",
                    "scripts/bench_distributed.py --only memory", []),
    "rank_network": ("what the links of network namespaces carry, and a link that goes down",
                     "scripts/bench_distributed.py --only network", []),
    "kills": ("runs on several ranks that are killed at random moments, and resumed",
              "scripts/bench_distributed.py 200 --only kills", []),
    "fleet": ("`tenon fleet` over 1,000 recordings: jobs, kills, ranks", "scripts/bench_fleet.py", []),
    "forecast": ("forecasts of PyTorch programs beside what an H200 recorded, and `tenon.fit`",
                 "scripts/bench_forecast.sh", []),
}


def first_line(command):
    out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return out.splitlines()[0].strip() if out else ""


def version(package):
    return first_line(["dpkg-query", "-W", "-f", "${Version}", package])


def conditions(name, packages):
    """What a reader needs to judge a figure by."""
    if name in EXACT:
        return {"exact": True}
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    found = {PEERS[package]: version(package) for package in packages}
    record = {"date": datetime.date.today().isoformat(),
              "machine": f"{os.cpu_count()} x {model[1] if model else os.uname().machine}",
              "compiler": first_line(["c++", "--version"]) + ", release build",
              "load": round(os.getloadavg()[0], 1)}
    peers = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    return {**record, "peers": peers} if peers else record


def run(name, build, arguments="", peers=""):
    """Prints what the program prints; its status and its record."""
    title, command, packages = PROGRAMS[name]
    command = f"{command} {arguments}".rstrip()
    print(f"\n== {title}\n\n$ {command.format('build')}", flush=True)
    record = {"title": title, "command": command.format("build"),
              "conditions": conditions(name, packages)}
    if peers:
        known = record["conditions"].get("peers")
        record["conditions"]["peers"] = f"{known}, {peers}" if known else peers
    # Room for the thread-local data of libraries that are loaded later (jemalloc).
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=16384"}
    lines = []
    with subprocess.Popen(command.format(build), shell=True, text=True, stdout=subprocess.PIPE,
                          env=environment, cwd=ROOT) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    record["output"] = lines
    return process.returncode, record


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true", help="write to bench/results")
    parser.add_argument("--arguments", default="", help="for the programs: --peer, --minimalloc")
    parser.add_argument("--peers", default="", help="what those are, with versions, for the record")
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}: take {', '.join(PROGRAMS)}")
    build = pathlib.Path(options.build).resolve()
    folder = ROOT / "bench/results" if options.keep else build / "results"
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.names or [name for name in PROGRAMS if name not in NAMED]:
        status, record = run(name, build, options.arguments, options.peers)
        if status != 0:
            failed.append(name)
        if status not in (0, 1):  # 1: a target is missed; the figures are there
            continue
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if failed:
        sys.exit(f"failed, or missed a target: {', '.join(failed)}")
    print(f"\nrecords: {folder}")


if __name__ == "__main__":
    main()
