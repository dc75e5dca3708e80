#!/usr/bin/env python3
"""compare.py TENON [SEEDS]: PyTorch's own caching allocator beside `tenon replay --torch VERSION`, without a
GPU. Runs in an environment with a CUDA build of PyTorch (scripts/pytorch_environment.sh): libc10_cuda is
linked with a driver that has no device (no_device.cc). The traces are the shipped ones and those of so many
seeds from 1,000 on (default 10), each with several settings; then each within several capacities. Then
PyTorch records programs of random sizes (snapshot.py), and tenon replays the snapshots by what they say of
their version, and finds the calls of empty_cache(). Prints what differs, and how many answers are equal to the byte. Exits with 1 if any
differs."""
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SETTINGS = {  # and the first version that means the same by them
    "": (2, 0), "expandable_segments:True": (2, 1), "max_split_size_mb:200": (2, 0),
    "max_split_size_mb:64,max_non_split_rounding_mb:40": (2, 6), "roundup_power2_divisions:8": (2, 0),
    "expandable_segments:True,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]": (2, 9),
    "large_segment_size_mb:64": (2, 11)}
SNAPSHOTS = 8
CAPACITIES = [1.02, 1.05, 1.1, 1.25]  # of the live peak; for the first two settings


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), env={**os.environ, **environment}, text=True,
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"compare.py: {' '.join(map(str, command))}: {done.stderr.strip()[:600]}")
    return done.stdout


def cuda_headers(site, cache):
    """CUDA's header folders: of the runtime's wheel, and the compiler's part, which is in one of its own."""
    runtime = next(site.glob("nvidia/*/include/cuda_runtime_api.h")).parent
    found = list(cache.glob("nvidia/*/include/crt/host_defines.h"))
    if not found:
        number = re.search(r"define CUDA_VERSION (\d+)", (runtime / "cuda.h").read_text())[1]
        major, minor = int(number) // 1000, int(number) % 1000 // 10
        package = f"nvidia-cuda-crt=={major}.{minor}.*" if major > 12 else \
            f"nvidia-cuda-nvcc-cu{major}=={major}.{minor}.*"
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", cache, package)
        with zipfile.ZipFile(next(cache.glob("*.whl"))) as wheel:
            wheel.extractall(cache, [name for name in wheel.namelist() if "/include/crt/" in name])
        found = list(cache.glob("nvidia/*/include/crt/host_defines.h"))
    return [runtime, found[0].parents[1]]


def build(site, folder):
    """The program, and how it is run."""
    torch = site / "torch"
    includes = [f"-I{path}" for path in [torch / "include", *cuda_headers(site, site.parents[2] / "crt")]]
    needed = run("readelf", "-d", torch / "lib/libc10_cuda.so")
    runtime = re.search(r"\[(libcudart\.so\.\d+)\]", needed)[1]
    (folder / "versions").write_text(f"{runtime} {{ global: *; }};")
    compile = ["g++", "-std=c++20", "-O1", *includes]
    library, nvml, driver = folder / "no_device.so", folder / "libnvidia-ml.so.1", folder / "libcuda.so.1"
    run(*compile, "-fPIC", "-shared", HERE / "no_device.cc", f"-Wl,--version-script,{folder / 'versions'}",
        "-o", library)
    for name in (nvml, driver):  # looked up by name; the functions are in the first
        run("g++", "-shared", f"-Wl,-soname,{name.name}", "-Wl,--no-as-needed", library, "-o", name)
    flags = re.findall(r"-D_GLIBCXX_USE_CXX11_ABI=\d",
                       (torch / "share/cmake/Torch/TorchConfig.cmake").read_text())
    program = folder / "replay"
    run(*compile, *flags, HERE / "replay.cc", f"-L{torch / 'lib'}", "-lc10_cuda", "-lc10",
        library, f"-Wl,-rpath,{torch / 'lib'}", "-o", program)
    return program, f"{library} {nvml} {driver}"


def traces(tenon, seeds, folder):
    """As CSV files."""
    for source in sorted((ROOT / "data/traces").glob("*.csv.zst")):
        path = folder / source.name.removesuffix(".zst")
        run(tenon, "convert", source, path)
        yield path
    for seed in range(1000, 1000 + seeds):
        path = folder / f"seed_{seed}.csv"
        run(tenon, "synthesize", seed, "-o", path)
        yield path


def difference(ours, theirs):
    """Of two answers that differ, as a share of PyTorch's bytes; 1 where one is no number."""
    numbers = ours.isdigit() and theirs.isdigit()
    return abs(int(ours) - int(theirs)) / int(theirs) if numbers else 1.0


def main():
    tenon = pathlib.Path(sys.argv[1]).resolve()
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    site = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
    version = importlib.metadata.version("torch")
    number = tuple(map(int, version.split(".")[:2]))
    settings = [conf for conf, since in SETTINGS.items() if number >= since]
    equal, count, worst = 0, 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program, preload = build(site, folder)

        def pytorchs(trace, conf, *capacity):
            return run(program, trace, *capacity, LD_PRELOAD=preload, PYTORCH_CUDA_ALLOC_CONF=conf).strip()

        def tenons(trace, conf, *arguments):
            found, = json.loads(run(tenon, "replay", trace, "--policy", "caching", "--conf", conf,
                                    "--passes", "0", "--lag", "0ms", "--json", *arguments))
            return found

        for seed in range(SNAPSHOTS):
            path, copy = folder / f"snapshot_{seed}.pickle", folder / "snapshot.csv"
            said = run(sys.executable, HERE / "snapshot.py", seed, path, LD_PRELOAD=preload)
            theirs = json.loads(said.splitlines()[-1])
            limit = theirs["limit_bytes"]
            if (theirs["retries"] > 0) != (limit > 0):
                sys.exit(f"compare.py: {path.stem} has {theirs['retries']} retries within {limit} bytes")
            run(tenon, "convert", path, copy)
            ours = tenons(path, "", *(["--capacity", f"{limit}B"] if limit else []))
            peak = ours["reserved_in_capacity_bytes" if limit else "reserved_peak_bytes"]
            pairs = [(peak, theirs["reserved_peak_bytes"], "peak"),
                     (ours["driver_calls"], theirs["segments"], "calls of the driver"),
                     (copy.read_text().count(",empty_cache,"), theirs["emptied"], "calls of empty_cache")]
            for ours, theirs, what in pairs:
                count += 1
                equal += ours == theirs
                if ours != theirs:
                    worst = max(worst, difference(f"{ours}", f"{theirs}"))
                    print(f"{path.stem}, {what}: PyTorch {theirs}, tenon {ours}", flush=True)
        for trace in traces(tenon, seeds, folder):
            for conf in settings:
                ours = tenons(trace, conf, "--torch", version)
                pairs = [(f"{ours['reserved_peak_bytes']}", pytorchs(trace, conf), "")]
                for capacity in CAPACITIES if conf in settings[:2] else []:
                    limit = int(capacity * ours["live_peak_bytes"])
                    within = tenons(trace, conf, "--torch", version, "--capacity", f"{limit}B")
                    fits = "no" if within["out_of_memory"] else "yes"
                    theirs = pytorchs(trace, conf, limit)
                    pairs.append((fits, "no" if theirs == "out of memory" else "yes", f"fits {limit}"))
                for ours, theirs, what in pairs:
                    count += 1
                    equal += ours == theirs
                    if ours != theirs:
                        worst = max(worst, difference(ours, theirs))
                        print(f"{trace.stem} [{conf}] {what}: PyTorch {theirs}, tenon {ours}", flush=True)
    print(f"PyTorch {version}: {equal} of {count} answers of its caching allocator equal those of tenon" +
          (f", the others differ by up to {100 * worst:.2f} %" if worst else ""))
    sys.exit(equal != count)


if __name__ == "__main__":
    main()
