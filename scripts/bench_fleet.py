#!/usr/bin/env python3
"""scripts/bench_fleet.py [FILES [ROUNDS]]: tenon fleet over FILES recordings (1000) of twelve kinds in four
formats, made from seeds: with 1 and 2 jobs in turn (ROUNDS times, 3), after kills, and over 8 ranks of the builds
of scripts/test_distributed.sh that are there. Prints seconds, processor time, how many workers ran at a time,
memory, and whether reports have the same bytes.
"""
import concurrent.futures
import hashlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
}
KINDS = ("transformer experts long-context lora convolution detection diffusion recommender graph speech generate "
         "serve").split()
FORMATS = ("pickle", "csv", "csv.zst", "pickle.zst")


def tenon():
    for build in ("build", "build-openmpi", "build-mpich"):
        program = f"{ROOT}/{build}/tenon"
        if os.access(program, os.X_OK):
            return program
    return sys.exit("no tenon in build, build-openmpi or build-mpich: run make build")


def make(folder, files):
    def one(number):
        kind, ending = KINDS[number % len(KINDS)], FORMATS[number // len(KINDS) % len(FORMATS)]
        inside = f"{folder}/{number % 10}"
        os.makedirs(inside, exist_ok=True)
        subprocess.run([tenon(), "synthesize", f"{kind}:{number}", "--steps", str(1 + number % 3), "-o",
                        f"{inside}/{kind}-{number}.{ending}"], check=True, stdout=subprocess.DEVNULL)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(files)))


def children_of(process):
    try:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as children:
            return len(children.read().split())
    except OSError:
        return 0  # it has ended


class Run:
    """A run of `words` and what it took, with all processes below it."""

    def __init__(self, words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(words, stdout=out, stderr=err)
            workers = []
            while process.poll() is None:
                workers.append(children_of(process.pid))
                time.sleep(0.01)
            self.seconds = time.monotonic() - start
            out.seek(0)
            err.seek(0)
            report, complaint = out.read(), err.read().decode()
        self.workers = statistics.mean(workers)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if process.returncode != 0:
            sys.exit(f"{' '.join(words)}: status {process.returncode}\n{complaint}")
        self.report = hashlib.sha256(report).hexdigest()


def fleet(folder, results, *options):
    return [tenon(), "fleet", folder, "--results", results, *options]


def compare_jobs(folder, results, rounds):
    """Alternating runs, so that a load from elsewhere meets both; returns a report's hash."""
    runs = {1: [], 2: []}
    for _ in range(rounds):
        for jobs, kept in runs.items():
            shutil.rmtree(results, ignore_errors=True)
            kept.append(Run(fleet(folder, results, "--jobs", str(jobs))))
    for jobs, kept in runs.items():
        print(f"  {jobs} job{'s' if jobs > 1 else ' '}  {statistics.median(run.seconds for run in kept):7.2f} s  "
              f"{statistics.median(run.cpu for run in kept):7.2f} s of processors, "
              f"{statistics.median(run.workers for run in kept):.2f} workers at a time")
    speed_ups = [one.seconds / two.seconds for one, two in zip(runs[1], runs[2])]
    print(f"  2 jobs are {statistics.median(speed_ups):.2f} times as fast as 1 (each round: "
          f"{', '.join(f'{each:.2f}' for each in speed_ups)}), at "
          f"{statistics.median(run.cpu for run in runs[2]) / statistics.median(run.cpu for run in runs[1]):.3f} "
          f"of its processor time; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"  the largest process took {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")
    reports = {run.report for kept in runs.values() for run in kept}
    print(f"  reports: {'the same bytes' if len(reports) == 1 else 'DIFFERENT'}")
    return runs[1][0].report


def answers(results):
    return sum(len(files) for _, _, files in os.walk(results))


def compare_interrupted(folder, results, files, report):
    shutil.rmtree(results, ignore_errors=True)
    kills = 0
    for target in range(files // 5, files, files // 5):
        process = subprocess.Popen(fleet(folder, results), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and answers(results) < target:
            time.sleep(0.02)
        kills += process.poll() is None
        process.kill()
        process.wait()
    last = Run(fleet(folder, results))
    again = Run(fleet(folder, results))
    print(f"  after {kills} kills: {'the same bytes' if last.report == report else 'DIFFERENT'}; "
          f"once more, with nothing left to do: {again.seconds:.2f} s")


def compare_ranks(folder, results, report):
    for mpi, launcher in LAUNCHERS.items():
        program = f"{ROOT}/build-{mpi}/tenon"
        if not os.access(program, os.X_OK) or shutil.which(launcher[0]) is None:
            print(f"  {mpi}: not here")
            continue
        shutil.rmtree(results, ignore_errors=True)
        run = Run(launcher + ["-n", "8", program, *fleet(folder, results)[1:]])
        print(f"  {mpi}, 8 ranks: {run.seconds:.2f} s, {run.cpu:.2f} s of processors, "
              f"{'the same bytes' if run.report == report else 'DIFFERENT'}")


def main():
    sys.stdout.reconfigure(line_buffering=True)
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as scratch:
        folder, results = f"{scratch}/recordings", f"{scratch}/results"
        make(folder, files)
        held = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
        print(f"tenon fleet over {files} recordings, {held / 2**20:.0f} MiB")
        report = compare_jobs(folder, results, rounds)
        compare_interrupted(folder, results, files, report)
        compare_ranks(folder, results, report)


if __name__ == "__main__":
    main()
