#!/usr/bin/env python3
"""Bytes of a rank that trains a sharded transformer: tenon train --shard 3 beside PyTorch's FSDP2.

  compare.py [TENON]     default: build/tenon

The same model, batch, clipping and Adam; 2 and 4 ranks, two steps. Tenon's bytes are those of
--plan-only, which a run equals to the byte. worker.py is PyTorch's rank and says what it counts.
PyTorch is the one of scripts/forecast_environment.sh, or of python3. Without it, prints one line.
Exit status 1 where the models differ in size.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LENGTH, LAYERS, WIDTH, HEADS, BATCH = 16, 8, 128, 4, 32
CHARACTERS = 4000  # of the text, for a short start
SECONDS = 600


def interpreter():
    """One that has PyTorch; None."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for python in (os.path.join(cache, "tenon/forecast-2.11.0/bin/python"), "python3"):
        try:
            probe = subprocess.run([python, "-c", "from torch.distributed.fsdp import fully_shard"],
                                   capture_output=True, timeout=SECONDS, check=False)
        except OSError:
            continue
        if probe.returncode == 0:
            return python
    return None


def ours(tenon, text, ranks, *options):
    """Each rank's forecast."""
    words = [tenon, "train", "text", text, "--length", LENGTH, "--layers", LAYERS, "--width", WIDTH,
             "--heads", HEADS, "--batch", BATCH, "--plan-only", "--ranks", ranks, "--shard", 3, "--json",
             *options]
    return json.loads(subprocess.run(list(map(str, words)), stdout=subprocess.PIPE,
                                     check=True).stdout)


def torch_ranks(python, vocabulary, ranks):
    """What each rank of PyTorch prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sizes = (vocabulary, LENGTH, LAYERS, WIDTH, HEADS, BATCH // ranks)
    words = [python, str(ROOT / "bench/fsdp/worker.py"), *map(str, sizes)]
    environment = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    processes = [subprocess.Popen(words, env=dict(environment, RANK=str(rank)), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for rank in range(ranks)]
    try:
        outputs = [process.communicate(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode != 0:
            sys.exit(f"worker.py: status {process.returncode}\n{errors}")
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def compare(tenon):
    python = interpreter()
    if python is None:
        print("skipped: PyTorch is not installed; scripts/forecast_environment.sh installs it")
        return
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                             capture_output=True, check=True).stdout.strip()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as text:
        text.write((ROOT / "data/text/genesis.txt").read_text(encoding="utf-8")[:CHARACTERS])
        text.flush()
        vocabulary = len(set(pathlib.Path(text.name).read_text(encoding="utf-8")))
        # One rank's optimiser has two numbers for each parameter.
        parameters = ours(tenon, text.name, 1)[0]["at_peak"]["optimiser"] // 2
        print(f"peak bytes of tensors of a rank in two steps: a GPT of {LAYERS} layers of width {WIDTH}, "
              f"{parameters} bytes of parameters, batch {BATCH} of length {LENGTH}, Adam; "
              f"PyTorch {version}, gloo, CPU")
        print(f"{'':8} {'tenon':>12} {'--no-prefetch':>14} {'FSDP2':>12} {'tenon/FSDP2':>12}")
        for ranks in (2, 4):
            peaks = [max(rank["peak_bytes"] for rank in ours(tenon, text.name, ranks, *how))
                     for how in ((), ("--no-prefetch",))]
            theirs = torch_ranks(python, vocabulary, ranks)
            peak = max(rank["peak"] for rank in theirs)
            print(f"{ranks} ranks: {peaks[0]:12} {peaks[1]:14} {peak:12} {peaks[0] / peak:12.3f}")
            if theirs[0]["parameters"] != parameters:
                sys.exit(f"PyTorch's model has {theirs[0]['parameters']} bytes of parameters")


if __name__ == "__main__":
    compare(sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/tenon"))
