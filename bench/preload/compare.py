#!/usr/bin/env python3
"""bench/preload/compare.py PRELOAD [--pypi] [--rounds N] [PROGRAM...]: programs of PyTorch and NumPy on
the CPU over each allocator that is installed, preloaded in turn; medians over the rounds. PYTHON names
the interpreter that has PyTorch and NumPy (Debian: python3-torch, python3-numpy). With --pypi they are
programs of JAX and ONNX Runtime, which it installs in an environment in ~/.cache/tenon. Times are of one
step and of the first one; processor seconds, resident peak and page faults of the whole process.

Before each run another process touches memory and frees it: a hypervisor may have taken a guest's free
pages, and gives them again at the first touch, at many times the cost of a page fault. The line behind
the table has both costs."""

import argparse
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

PROGRAMS = ["elementwise", "resnet18", "transformer", "inference", "numpy_pipeline", "numpy_zeros"]
PYPI_PROGRAMS = ["jax_expressions", "jax_training", "onnxruntime"]
PYPI = ["jax", "onnxruntime", "onnx"]
OTHERS = {"jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2",
          "tcmalloc": "libtcmalloc_minimal.so.4"}
IDLE_SECONDS = 30


def allocators(preload):
    found = {"glibc": "", "tenon": str(pathlib.Path(preload).resolve())}
    for name, library in OTHERS.items():
        paths = glob.glob(f"/usr/lib/*/{library}") + glob.glob(f"/usr/lib/{library}")
        if paths:
            found[name] = paths[0]
        else:
            print(f"{name}: skipped, {library} is not installed", file=sys.stderr)
    if "tcmalloc" in found:  # which then serves what is below 64 KiB
        found["tenon over tcmalloc"] = f"{found['tenon']} {found['tcmalloc']}"
    return found


def pypi_environment():
    """Its interpreter; prints the versions. The newest ones when it is made."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    folder = cache / "tenon/preload"
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYPI],
                       check=True)
        (folder / "complete").touch()
    ask = f"from importlib.metadata import version; print(*[p + ' ' + version(p) for p in {PYPI}], sep=', ')"
    print(subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout)
    return str(python)


def run(program, library):
    python = os.environ.get("PYTHON", "/usr/bin/python3")
    # Threads that wait sleep: spinning ones would count as processor time, and slow a busy machine.
    environment = dict(os.environ, LD_PRELOAD=library, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2",
                       OMP_WAIT_POLICY="passive")
    here = pathlib.Path(__file__).parent
    result = subprocess.run([python, str(here / "programs.py"), program], env=environment,
                            capture_output=True, text=True)
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"compare.py: {program}: {last}")
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preload")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pypi", action="store_true")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_intermixed_args()
    programs = arguments.programs or (PYPI_PROGRAMS if arguments.pypi else PROGRAMS)
    if arguments.pypi:
        os.environ["PYTHON"] = pypi_environment()
    found = allocators(arguments.preload)
    print("| program | " + " | ".join(found) + " |")
    print("|---" * (len(found) + 1) + "|")
    for program in programs:
        results = {name: [] for name in found}
        for _ in range(arguments.rounds):  # in turn, so that all meet the same load
            for name, library in found.items():
                run("free_memory", "")
                results[name].append(run(program, library))
        cells = []
        for name in found:
            median = lambda key: statistics.median(r[key] for r in results[name])
            cells.append(f"{median('ms'):.1f} ms, {median('first_ms'):.0f} ms the first, "
                         f"{median('cpu_s'):.1f} s CPU, {median('peak_mib'):.0f} MiB, "
                         f"{median('faults') / 1e3:.0f} k faults")
        print(f"| {program} | " + " | ".join(cells) + " |", flush=True)
    time.sleep(IDLE_SECONDS)
    touch = run("free_memory", "")
    print(f"\nTouching 1.5 GiB of huge pages took {touch['first_ms']:.0f} ms after {IDLE_SECONDS} idle "
          f"seconds, {touch['ms']:.0f} ms again.")


main()
