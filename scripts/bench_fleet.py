#!/usr/bin/env python3
"""scripts/bench_fleet.py [FILES [ROUNDS]]: tenon fleet over FILES recordings (1000) of twelve kinds in four
formats, made from seeds: with 1 and 2 jobs in turn (ROUNDS times, 3), after kills, and over 8 ranks of the builds
of scripts/test_distributed.sh that are there. Prints seconds, processor time, how many workers ran at a time,
memory, whether reports have the same bytes, and whether speed-ups are 0.9 of the ideal at least.
Where other programs take over 0.2 of the cores that a run has jobs for, a speed-up measures them, so it is no check.
Status 1 where a check fails.
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

from rank_runs import LAUNCHERS, ROOT, check, failed_checks

KINDS = ("transformer experts long-context lora convolution detection diffusion recommender graph speech generate "
         "serve").split()
FORMATS = ("pickle", "csv", "csv.zst", "pickle.zst")

left_out = []


def check_speed_up(found, jobs, runs, what):
    """The words behind a speed-up."""
    wanted = 0.9 * min(jobs, os.cpu_count())
    others = max(run.others for run in runs)
    words = f"wanted: {wanted:.1f}; other programs took {others:.1f} of the runs' cores"
    if others > 0.2:
        left_out.append(what)
        return f"{words}: NOT MEASURED"
    return f"{words} {check(found >= wanted, what)}"


def same(report, other, what):
    return ("the same bytes " if report == other else "DIFFERENT ") + check(report == other, what)


def busy_seconds():
    """Of all processors, since the machine started."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system = stat.readline().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


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
    """A run of `words` with so many jobs, and what it took, with all processes below it."""

    def __init__(self, words, jobs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start, busy = time.monotonic(), busy_seconds()
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
        others = (busy_seconds() - busy - self.cpu) / self.seconds
        self.others = max(0, others - max(0, os.cpu_count() - jobs))  # cores that this run had jobs for
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
            kept.append(Run(fleet(folder, results, "--jobs", str(jobs)), jobs))
    for jobs, kept in runs.items():
        print(f"  {jobs} job{'s' if jobs > 1 else ' '}  {statistics.median(run.seconds for run in kept):7.2f} s  "
              f"{statistics.median(run.cpu for run in kept):7.2f} s of processors, "
              f"{statistics.median(run.workers for run in kept):.2f} workers at a time")
    speed_ups = [one.seconds / two.seconds for one, two in zip(runs[1], runs[2])]
    found = statistics.median(speed_ups)
    both = [run for kept in runs.values() for run in kept]
    print(f"  2 jobs are {found:.2f} times as fast as 1 (each round: "
          f"{', '.join(f'{each:.2f}' for each in speed_ups)}), at "
          f"{statistics.median(run.cpu for run in runs[2]) / statistics.median(run.cpu for run in runs[1]):.3f} "
          f"of its processor time; {check_speed_up(found, 2, both, 'speed-up of 2 jobs')}")
    print(f"  the largest process took {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")
    one = runs[1][0].report
    others = [run.report for run in both if run.report != one]
    print(f"  reports: {same(one, (others or [one])[0], 'reports of 1 and 2 jobs')}")
    return runs[1]


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
    last, again = (Run(fleet(folder, results), os.cpu_count()) for _ in range(2))
    print(f"  after {kills} kills: {same(last.report, report, 'report after kills')}; "
          f"once more, with nothing left to do: {again.seconds:.2f} s")


def compare_ranks(folder, results, one_job):
    for mpi, launcher in LAUNCHERS.items():
        program = f"{ROOT}/build-{mpi}/tenon"
        if not os.access(program, os.X_OK) or shutil.which(launcher[0]) is None:
            print(f"  {mpi}: not here")
            continue
        shutil.rmtree(results, ignore_errors=True)
        run = Run(launcher + ["-n", "8", program, *fleet(folder, results)[1:]], 8)
        times = statistics.median(one.seconds for one in one_job) / run.seconds
        print(f"  {mpi}, 8 ranks: {run.seconds:.2f} s, {run.cpu:.2f} s of processors, "
              f"{same(run.report, one_job[0].report, f'{mpi}: report of 8 ranks')}; {times:.2f} times as fast as 1 "
              f"job; {check_speed_up(times, 8, [run, *one_job], f'{mpi}: speed-up of 8 ranks')}")


def main():
    sys.stdout.reconfigure(line_buffering=True)
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as scratch:
        folder, results = f"{scratch}/recordings", f"{scratch}/results"
        make(folder, files)
        held = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
        print(f"tenon fleet over {files} recordings, {held / 2**20:.0f} MiB")
        one_job = compare_jobs(folder, results, rounds)
        compare_interrupted(folder, results, files, one_job[0].report)
        compare_ranks(folder, results, one_job)
    verdict = "; ".join([f"FAILED: {each}" for each in failed_checks]
                        + [f"not measured: {each}" for each in left_out]) or "ok"
    print(f"target 4. {files} recordings over 8 ranks: the same bytes as over 1, 0.9 of the ideal speed-up: {verdict}")
    if failed_checks:
        sys.exit(1)


if __name__ == "__main__":
    main()
