#!/usr/bin/env python3
"""scripts/bench_distributed.py [KILLS]: prints what docs/distributed.md promises of runs over MPI, from
the builds that scripts/test_distributed.sh makes: weights, each rank's memory, traffic, runs that are killed.
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEXT = os.path.join(ROOT, "data/text/genesis.txt")
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
}
ENVIRONMENT = dict(os.environ, TENON_NUM_THREADS="1", TENON_RANK_TIMEOUT="60")
WIDTH, LAYERS, LENGTH = 64, 3, 16


def train(mpi, ranks, *options):
    """The words of a run: 115 steps of a small GPT at a batch of 96."""
    command = [f"{ROOT}/build-{mpi}/tenon", "train", "text", TEXT, "--length", str(LENGTH), "--layers",
               str(LAYERS), "--width", str(WIDTH), "--batch", "96", "--epochs", "1", "--json", *options]
    return (LAUNCHERS[mpi] + ["-n", str(ranks)] if ranks > 0 else []) + command


def result(words):
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def compare_weights(folder):
    print("weights after an epoch (the same hash: the same bits), and final loss")
    for mpi in LAUNCHERS:
        for how in (["--slices", "8"], []):
            for ranks in (1, 2, 4, 8):
                for shard in (0, 3):
                    run = result(train(mpi, ranks, "--shard", str(shard), "--save", folder, *how))
                    print(f"  {mpi:8} {ranks} ranks --shard {shard} {' '.join(how):10} "
                          f"{run['weights_hash']} {run['final_loss']:.9f}")


def compare_memory(folder):
    print("each rank's peak in bytes, as planned and as run; sent in a step against the known optimum")
    alone = result(train("openmpi", 0, "--plan-only", "--slices", "8", "--ranks", "1"))[0]
    parameters = alone["at_peak"]["parameters"]
    for ranks in (2, 4, 8):
        for shard in (0, 1, 2, 3):
            options = ("--shard", str(shard))
            plan = result(train("openmpi", 0, "--plan-only", "--ranks", str(ranks), *options))
            run = result(train("openmpi", ranks, "--save", folder, *options))["ranks"]
            known = (3 if shard == 3 else 2) * (ranks - 1) / ranks * parameters
            same = all(a["peak_bytes"] == b["peak_bytes"] for a, b in zip(plan, run))
            state = sum(run[0]["at_peak"][use] for use in ("parameters", "gradients", "optimiser"))
            print(f"  {ranks} ranks --shard {shard}: {run[0]['peak_bytes']:>9} "
                  f"{'as planned' if same else 'NOT AS PLANNED'}, of it state {state:>8}; sent "
                  f"{run[0]['sent_bytes_per_step']:>8}, {run[0]['sent_bytes_per_step'] / known:.4f} of "
                  "the optimum")


def ranks_of(mark):
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/comm", encoding="utf-8") as comm:
                program = comm.read().strip()
            with open(f"/proc/{process}/environ", "rb") as environ:
                ours = f"TENON_BENCH_RUN={mark}\0".encode() in environ.read()
        except OSError:
            continue  # it ended meanwhile
        if program == "tenon-training" and ours:
            found.append(int(process))
    return found


def kill_at_random(folder, kills):
    print(f"{kills} kills at random moments")
    random.seed(1)
    options = ("--slices", "4", "--shard", "3", "--save", folder)
    whole = result(train("openmpi", 4, *options))["weights_hash"]
    ended = wrong = runs = done = 0
    fresh = True
    while done < kills:
        if fresh:
            for name in os.listdir(folder):
                os.remove(os.path.join(folder, name))
            runs += 1
        index = os.path.exists(os.path.join(folder, "model.safetensors.index.json"))
        more = ("--resume", folder) if index else ()
        mark = str(random.random())
        process = subprocess.Popen(train("openmpi", 4, *options, "--save-every", "5", *more),
                                   env=dict(ENVIRONMENT, TENON_BENCH_RUN=mark), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.3, 4))
        ranks = ranks_of(mark)
        if ranks and process.poll() is None:
            os.kill(random.choice(ranks), signal.SIGKILL)
            done += 1
        out = process.communicate()[0]
        fresh = process.returncode == 0
        if fresh:
            ended += 1
            wrong += json.loads(out)["weights_hash"] != whole
        elif index and process.returncode == 2:
            sys.exit(f"a checkpoint cannot be read after {done} kills")
    print(f"  {runs} runs, {ended} of them at their end with {ended - wrong} times the right weights; "
          "every checkpoint could be read")


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        compare_weights(folder)
        compare_memory(folder)
        kill_at_random(folder, kills)


main()
