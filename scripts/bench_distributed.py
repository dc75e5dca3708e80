#!/usr/bin/env python3
"""scripts/bench_distributed.py [KILLS] [--only weights|memory|fsdp|network|overlap|model|finalize|launcher|kills|
loop]: checks what docs/distributed.md says of runs over MPI, with the builds of scripts/test_distributed.sh.
Status 1 where a check fails.
"""
import argparse
import collections
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import rank_model
from rank_checkpoint import is_whole, step_of, weights_of
from rank_network import HEADER_BYTES, Network, why_not
from rank_runs import LAUNCHERS, ROOT, RUN_SECONDS, Run, check, checked, failed_checks, result, send

TEXT = os.path.join(ROOT, "data/text/genesis.txt")
MODEL = ("--length", "16", "--layers", "2", "--width", "32", "--batch", "96")  # 115 steps
DEEP_LAYERS = 8
DEEP_MODEL = ("--length", "16", "--width", "128", "--batch", "32")
SMALL_MODEL = ("--length", "16", "--layers", "2", "--width", "32", "--batch", "64")  # 173 steps
WIDE_LAYERS = 16
WIDE_MODEL = ("--length", "16", "--layers", str(WIDE_LAYERS), "--width", "256", "--batch", "256")
MODEL_MEGABITS = 100
SEGMENT_BYTES = 1448  # of payload in a packet of 1,500 bytes
END_SECONDS = 10  # for the launcher, after a rank was killed
TARGETS = {  # each part prints whether its checks hold
    "weights": "1. weights after 100 steps and more equal those of one process: to the bit with --slices, 1e-5 "
               "apart at most without",
    "memory": "2. ZeRO 3's state is (parameters + gradients + optimiser) / n + a layer and the terms printed, 1 % "
              "apart at most; each peak is the forecast's, to the byte; 3. bytes sent are 1 % over the optimum at most",
    "fsdp": "2. beside PyTorch's FSDP2",
    "network": "3. links carry the bytes that ranks count, 1 % apart at most",
    "overlap": "3. over a slow link 80 % of the smaller of computing and transfer are hidden, or what the schedule "
               "allows less 10 %",
    "kills": "5. killed at random moments, runs lose the steps since the last checkpoint and nothing else",
    "loop": "5. the restart loop of docs/distributed.md ends with the same weights",
}


def train(mpi, ranks, model, *options, text=TEXT):
    """The words of a run of one epoch; 0 ranks: without a launcher."""
    command = [f"{ROOT}/build-{mpi}/tenon", "train", "text", text, *model, "--epochs", "1", "--json",
               *options]
    return (LAUNCHERS[mpi] + ["-n", str(ranks)] if ranks > 0 else []) + command


def is_key_bias(name, index, count):
    """Attention's weights do not depend on it, so its gradient is rounding alone, which Adam scales up."""
    return name.endswith(".attention.project.bias") and count // 3 <= index < 2 * count // 3


def distance(weights, others):
    """The norm of the difference by the norm: without the biases of keys, and with them."""
    squares = [0.0, 0.0]
    for name, elements in weights.items():
        for index, (one, other) in enumerate(zip(elements, others[name], strict=True)):
            squares[is_key_bias(name, index, len(elements))] += (one - other) ** 2
    norm = math.sqrt(sum(each * each for elements in weights.values() for each in elements))
    return math.sqrt(squares[0]) / norm, math.sqrt(sum(squares)) / norm


def compare_weights(folder):
    file = f"{folder}/alone.safetensors"
    alone = result(train("openmpi", 0, MODEL, "--save", file))
    sliced = result(train("openmpi", 1, MODEL, "--slices", "8", "--save", folder))
    weights = weights_of(file)
    print(f"weights after 115 steps of {' '.join(MODEL)}: {alone['weights_hash']} of one process, "
          f"{sliced['weights_hash']} with --slices 8\n"
          "apart: the norm of the difference by the norm, without biases of keys (and with them, whose "
          "gradients are rounding alone)")
    for mpi in LAUNCHERS:
        for how in (["--slices", "8"], []):
            for ranks in (1, 2, 4, 8):
                for shard in (0, 3):
                    run = result(train(mpi, ranks, MODEL, "--shard", str(shard), "--save", folder,
                                       *how))
                    name = f"{mpi:8} {ranks} ranks --shard {shard} {' '.join(how):10}"
                    if how:
                        same, words = run["weights_hash"] == sliced["weights_hash"], "the same bits"
                    else:
                        apart, with_keys = distance(weights, weights_of(folder))
                        same, words = apart < 1e-5, f"{apart:.1e} ({with_keys:.1e}) apart"
                    print(f"  {name} {run['weights_hash']}: {words} {check(same, name)}")


def part_of_text(folder, size):
    text = os.path.join(folder, "text")
    with open(TEXT, encoding="utf-8") as whole, open(text, "w", encoding="utf-8") as part:
        part.write(whole.read(size))
    return text


def plan(ranks, text, *options, layers=DEEP_LAYERS):
    """Each rank's forecast."""
    return result(train("openmpi", 0, DEEP_MODEL, "--layers", str(layers), "--plan-only", "--ranks",
                        str(ranks), *options, text=text))


def compare_memory(folder):
    text = part_of_text(folder, 4000)
    parameters = plan(1, text)[0]["at_peak"]["parameters"]
    layer = plan(1, text, layers=DEEP_LAYERS + 1)[0]["at_peak"]["parameters"] - parameters
    outside = parameters - DEEP_LAYERS * layer
    print(f"bytes of rank 0 at its peak: P = {parameters} of parameters, {DEEP_LAYERS} layers of "
          f"{layer}, {outside} outside of layers; n ranks, one slice each")
    for ranks in (2, 4, 8):
        for shard, *more in (("0",), ("1",), ("2",), ("3",), ("3", "--no-prefetch")):
            name = " ".join((f"{ranks} ranks --shard {shard}", *more))
            options = ("--shard", shard, *more)
            planned = plan(ranks, text, *options)
            run = None
            for mpi in LAUNCHERS:
                run = result(train(mpi, ranks, DEEP_MODEL, "--layers", str(DEEP_LAYERS), "--save",
                                   f"{folder}/run", *options, text=text))["ranks"]
                compare_peak(f"{mpi:8} {name}", planned, run)
            compare_traffic(name, run[0]["sent_bytes_per_step"], ranks, shard, parameters)
            if shard == "3":
                compare_state(name, run[0], ranks, parameters, outside, layer,
                              1 if more else 2)


def compare_peak(name, planned, run):
    keys = ("peak_bytes", "at_peak", "sent_bytes_per_step")
    same = all(a[key] == b[key] for a, b in zip(planned, run, strict=True) for key in keys)
    print(f"  {name}: peak {run[0]['peak_bytes']}, each rank's, its uses and traffic as planned "
          f"{check(same, f'{name}: peak')}")


def compare_traffic(name, sent, ranks, shard, parameters):
    factor = 3 if shard == "3" else 2
    optimum = factor * (ranks - 1) / ranks * parameters
    print(f"    sent in a step {sent} = {sent / optimum:.4f} of {factor} (n - 1)/n P, at most 1.01 "
          f"{check(sent <= 1.01 * optimum, f'{name}: traffic')}")


def compare_state(name, rank, ranks, parameters, outside, layer, layers_gathered):
    held, peak = rank["at_peak"], rank["peak_bytes"]
    gathered = outside + layers_gathered * layer
    exact = parameters // ranks + gathered
    print(f"    parameters {held['parameters']} = P/n + {gathered} gathered "
          f"{check(held['parameters'] == exact, f'{name}: parameters')}")
    known = 2 * parameters / ranks
    print(f"    optimiser {held['optimiser']} = {held['optimiser'] / known:.4f} of 2 P/n, 1 % apart at "
          f"most {check(abs(held['optimiser'] / known - 1) < 0.01, f'{name}: optimiser')}")
    known = parameters / ranks + layer
    print(f"    gradients {held['gradients']} = {held['gradients'] / known:.4f} of P/n + a layer, at "
          f"most 1.01 {check(held['gradients'] <= 1.01 * known, f'{name}: gradients')}")
    # The peak is where backward has the last layer's gradient.
    known = 4 * parameters // ranks + layer
    rest = {"parameters outside of layers": outside,
            "the layer that is prefetched": (layers_gathered - 1) * layer,
            "that layer's gradient": layer,
            "the buffer that receives its pieces": layer,
            "parts of the other layers' gradients, not computed yet": (layer - parameters) // ranks}
    state = sum(held[use] for use in ("parameters", "gradients", "optimiser", "communication"))
    apart = state - known - sum(rest.values())
    print(f"    state {state} = {state / known:.4f} of 4 P/n + a layer; the rest is "
          + ", ".join(f"{bytes_:+} {what}" for what, bytes_ in rest.items() if bytes_ != 0)
          + f", and {apart:+}, 1 % at most {check(abs(apart) < 0.01 * known, f'{name}: state')}")
    others = {use: bytes_ for use, bytes_ in held.items() if use in ("activations", "temporaries", "data")}
    unknown = peak - state - sum(others.values())
    print(f"    peak {peak} = state"
          + "".join(f" + {bytes_} of {use}" for use, bytes_ in others.items())
          + f", and {unknown:+} {check(unknown == 0, f'{name}: uses of the peak')}")


def compare_fsdp(_):
    ended = subprocess.run([sys.executable, os.path.join(ROOT, "bench/fsdp/compare.py"),
                            f"{ROOT}/build-openmpi/tenon"], check=False)
    check(ended.returncode == 0, "bench/fsdp/compare.py")


def skipped(part):
    reason = why_not()
    if reason:
        print(f"{part}: skipped: {reason}")
    return bool(reason)


def compare_network(folder):
    """Ranks in namespaces of their own: what their links carry, a link that fails."""
    if skipped("network"):
        return
    print("network: each rank in a namespace with one link, TCP alone")
    text = part_of_text(folder, 20000)
    for mpi, ranks in (("openmpi", 2), ("openmpi", 4), ("mpich", 2), ("mpich", 4)):
        for shard in ("0", "3"):
            count_on_links(mpi, ranks, shard, text, folder)
    for mpi in LAUNCHERS:
        cut_link(mpi, folder)


def count_on_links(mpi, ranks, shard, text, folder):
    name = f"{mpi:8} {ranks} ranks --shard {shard}"
    with Network(ranks) as network:
        words = train(mpi, 0, DEEP_MODEL, "--layers", "8", "--shard", shard, "--save",
                      f"{folder}/{mpi}{ranks}{shard}", text=text)
        run = result(network.launcher(mpi) + words)["ranks"]
        carried = network.payload_bytes()
    apart = max(abs(link / rank["sent_bytes"] - 1) for (link, _), rank in zip(carried, run))
    print(f"  {name}: rank 0 counts {run[0]['sent_bytes']} bytes, its link {carried[0][0]} and "
          f"{carried[0][1]} of headers; ranks differ by {100 * apart:.2f} % at most "
          f"{check(apart < 0.01, f'{name}: bytes on the link')}")


def step_of_ranks(shard, megabits, text, folder):
    """Seconds of a step, those of it in which a rank waited (the mean of both), bits that it sent."""
    with Network(2, megabits) as network:
        words = train("openmpi", 0, WIDE_MODEL, "--shard", shard, "--save", f"{folder}/wide",
                      text=text)
        run = result(network.launcher("openmpi") + words)
    waited = sum(rank["waited_seconds_per_step"] for rank in run["ranks"]) / 2
    sent = run["ranks"][0]["sent_bytes_per_step"]
    return 256 / run["samples_per_second"], waited, 8 * sent * (1 + HEADER_BYTES / SEGMENT_BYTES)


def compare_overlap(folder):
    """How much of computing and of transfer is at the same time."""
    if skipped("overlap"):
        return
    print("overlap: 2 ranks, each in a namespace with one link, TCP alone, Open MPI")
    text = part_of_text(folder, 20000)
    for shard, times in (("0", 1.5), ("1", 1.5), ("3", 1.5)):
        measure_overlap(shard, times, text, folder)


def measure_overlap(shard, times, text, folder):
    """Hidden: the seconds of transfer (bytes by the link's rate) in which no rank waited, by the
    smaller of computing and transfer. Computing is the part of the step that is not waiting."""
    step, waited, bits = step_of_ranks(shard, None, text, folder)
    megabits = max(1, round(bits / 1e6 / (times * (step - waited))))
    step, waited, bits = step_of_ranks(shard, megabits, text, folder)
    computing, transfer = step - waited, bits / 1e6 / megabits
    smaller = min(computing, transfer)
    hidden = (transfer - waited) / smaller
    least = rank_model.least_wait(int(shard), computing, transfer, WIDE_LAYERS)
    ideal = (transfer - least) / smaller
    name = f"--shard {shard}, {megabits} Mbit/s"
    # What the schedule itself cannot hide is no fault of the run.
    enough = hidden >= min(0.8, ideal - 0.1)
    print(f"  {name}: computing {computing:.2f} s, transfer {transfer:.2f} s, step {step:.2f} s, "
          f"{waited:.2f} s of it waiting: {100 * hidden:.0f} % of the smaller is hidden; the "
          f"schedule's most is {100 * ideal:.0f} % {check(enough, f'{name}: hidden')}")


def measure_link(mpi, ranks, megabits):
    """What bench_link prints, over links of that rate; None: ranks on this machine."""
    words = [f"{ROOT}/build-{mpi}/bench/bench_link"]
    if megabits is None:
        return rows_of(LAUNCHERS[mpi] + ["-n", str(ranks)] + words)
    with Network(ranks, megabits) as network:
        return rows_of(network.launcher(mpi) + words)


def rows_of(words):
    with Run(words) as run:
        if run.status(RUN_SECONDS) != 0:
            sys.exit(f"{' '.join(words)}: {run.text(run.err)}")
        return [json.loads(line) for line in run.text(run.out).splitlines()]


def compare_model(folder):
    """The α–β model: its constants, its error, and what it says of up to 4,096 ranks."""
    if skipped("model"):
        return
    print("model: alpha seconds for a message, beta for a byte; each rank with a link of its own\n"
          f"links of {MODEL_MEGABITS} Mbit/s: namespaces, TCP alone; memory: ranks of one machine")
    constants = {}
    for mpi, way in (("openmpi", "links"), ("openmpi", "memory"), ("mpich", "memory")):
        rows = measure_link(mpi, 2, MODEL_MEGABITS if way == "links" else None)
        alpha, beta = constants[mpi, way] = rank_model.fit(rows)
        print(f"  {mpi:8} {way:6} alpha {1e6 * alpha:.1f} us, 1/beta {1e-6 / beta:.1f} MB/s; "
              f"error on these: {100 * rank_model.median_error(rows, alpha, beta):.0f} % (median)")
    alpha, beta = constants["openmpi", "links"]
    for ranks in (4, 8):
        rows = measure_link("openmpi", ranks, MODEL_MEGABITS)
        print(f"  openmpi  links  {ranks} ranks, the constants of 2: error "
              f"{100 * rank_model.median_error(rows, alpha, beta):.0f} % (median of "
              f"{len(rows)} sizes and operations)")
    compare_model_steps(folder, alpha, beta)
    for way in ("links", "memory"):
        print(f"seconds of communication in a step, openmpi, {way}, by ranks (a model)")
        for name, shape in rank_model.MODELS.items():
            elements = rank_model.units(*shape)
            for shard in (0, 3):
                seconds = {ranks: rank_model.step_seconds(elements, shard, ranks,
                                                          *constants["openmpi", way])
                           for ranks in rank_model.RANKS}
                print(f"  {way} {name}, --shard {shard}: "
                      + " ".join(f"{ranks}:{time:.3g}" for ranks, time in seconds.items()))


def compare_model_steps(folder, alpha, beta):
    """Steps that compute little: one row for each of 8 ranks."""
    text = part_of_text(folder, 1800)
    options = ("--length", "16", "--width", "128", "--batch", "8")
    whole, longer = (plan(1, text, layers=layers)[0]["at_peak"]["parameters"]
                     for layers in (DEEP_LAYERS, DEEP_LAYERS + 1))
    layer = (longer - whole) // rank_model.ITEM
    elements = [whole // rank_model.ITEM - DEEP_LAYERS * layer] + [layer] * DEEP_LAYERS
    for ranks in (2, 4, 8):
        for shard in ("0", "3"):
            with Network(ranks, MODEL_MEGABITS) as network:
                run = result(network.launcher("openmpi") + train(
                    "openmpi", 0, options, "--layers", str(DEEP_LAYERS), "--shard", shard, "--save",
                    f"{folder}/model", text=text))
            step = 8 / run["samples_per_second"]
            said = rank_model.step_seconds(elements, int(shard), ranks, alpha, beta)
            print(f"  a step, {ranks} ranks --shard {shard}: model {said:.3f} s, measured {step:.3f} s, "
                  f"error {100 * (said / step - 1):+.0f} %")


def rank_of(process):
    """By the launcher's variable; None where the process has ended."""
    try:
        with open(f"/proc/{process}/environ", encoding="utf-8", errors="replace") as environ:
            found = re.search("(?:^|\0)(?:OMPI_COMM_WORLD|PMI)_RANK=([0-9]+)", environ.read())
    except OSError:
        return None
    return int(found.group(1)) if found else None


def cut_link(mpi, folder):
    """The link of rank 1 of 3 goes down during training."""
    save = f"{folder}/cut{mpi}"
    with Network(3) as network:
        words = train(mpi, 0, SMALL_MODEL, "--save", save, "--save-every", "5")
        words[words.index("--epochs") + 1] = "1000"
        with Run(["env", "-u", "TENON_RANK_TIMEOUT", *network.launcher(mpi), *words]) as run:
            end = time.monotonic() + 60
            while step_of(save) < 10 and time.monotonic() < end:
                time.sleep(0.05)
            network.cut(2)
            start = time.monotonic()
            while (any(rank_of(p) in (0, 2) for p in run.processes("tenon-training"))
                   and time.monotonic() < start + 60):
                time.sleep(0.1)
            seconds = time.monotonic() - start
            run.status(60)  # MPICH's launcher first waits for the host whose link is down
            said = [line for line in run.text(run.err).splitlines() if line.startswith("tenon: ")]
    named = len(said) > 0 and "rank 1 did not come" in said[0]
    print(f"  {mpi:8} a link goes down: the others ended after {seconds:.1f} s "
          f"{check(seconds < END_SECONDS, f'{mpi}: a link that is cut')}; rank 1 is named "
          f"{check(named, f'{mpi}: the rank whose link is cut')}: {said[0] if said else ''}")


def count_finalize(folder):
    """Not a check: a program without Tenon, whose MPI_Finalize should return."""
    if skipped("finalize"):
        return
    program, times = f"{folder}/mpich_finalize", 10
    subprocess.run(["mpicc.mpich", "-o", program, f"{ROOT}/bench/distributed/mpich_finalize.c"],
                   check=True)
    with Network(4) as network:
        for how in ("at once", "apart"):
            ended = 0
            for _ in range(times):
                with Run([*network.launcher("mpich"), program, how]) as run:
                    ended += run.status(10) == 0
            print(f"finalize: MPICH over TCP, 4 ranks, a program without Tenon, {how}: MPI_Finalize has "
                  f"returned within 10 s in {ended} of {times} runs")


def count_launcher(folder):
    """Not a check: whether Open MPI's launcher returns where a rank is killed as it starts."""
    program, times, stays = f"{folder}/starting", 40, 0
    subprocess.run(["mpicc.openmpi", "-o", program, f"{ROOT}/bench/distributed/mpich_finalize.c"],
                   check=True)
    for _ in range(times):
        with Run([*LAUNCHERS["openmpi"], "-n", "4", program]) as run:
            while run.launcher.poll() is None and len(run.processes("starting")) < 4:
                time.sleep(0.002)
            kill_one(run, "starting")
            stays += run.status(END_SECONDS) is None
    print(f"launcher: Open MPI, 4 ranks, a program without Tenon, a rank killed in MPI_Init: mpirun "
          f"has not returned within {END_SECONDS} s in {stays} of {times} runs")


def wait_for_moment(run, folder, moment):
    """Until a random time after the start, or after a rank has written a file of a checkpoint."""
    if moment == "starting":
        time.sleep(random.uniform(0, 1))
        return
    time.sleep(random.uniform(1, 4))
    if moment == "checkpointing":
        before = set(os.listdir(folder))
        end = time.monotonic() + 20
        while (set(os.listdir(folder)) <= before and run.launcher.poll() is None
               and time.monotonic() < end):
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.02))


def kill_one(run, program="tenon-training"):
    """Whether there was a rank to kill."""
    ranks = run.processes(program)
    if ranks:
        send(random.choice(ranks), signal.SIGKILL)
    return bool(ranks)


def run_and_kill(words, folder, moment, count):
    """One run, and a kill unless `moment` is None. The run's result where it came to its end."""
    with Run(words) as run:
        seen, killed = 0, False
        if moment is not None:
            wait_for_moment(run, folder, moment)
            seen = step_of(folder)
            killed = kill_one(run)
        status = run.status(END_SECONDS if killed else RUN_SECONDS)
        if killed:
            count["kills"] += 1
            count[moment] += 1
            count["ranks stay"] += bool(run.processes("tenon-training"))
            count["launcher stays"] += status is None
        elif status != 0:
            count["failed"] += 1
            print(f"  status {status} without a kill: {run.text(run.err)}")
        out = run.text(run.out)
    count["unreadable"] += not is_whole(folder)
    count["lost"] += step_of(folder) < seen
    return json.loads(out) if status == 0 else None


def kill_at_random(folder, kills):
    print(f"{kills} kills of one of 2 or 4 ranks at random moments; a checkpoint every 5 of 173 steps")
    options = ("--slices", "4", "--save", folder)
    whole = result(train("openmpi", 1, SMALL_MODEL, *options))["weights_hash"]
    count = collections.Counter()
    fresh = True
    while count["kills"] < kills or not fresh:
        if fresh:
            for name in os.listdir(folder):
                os.remove(os.path.join(folder, name))
            count["runs"] += 1
        resume = ("--resume", folder) if step_of(folder) > 0 else ()
        moment = random.choice(["starting", "training", "checkpointing"])
        mpi = random.choice(list(LAUNCHERS))
        words = train(mpi, random.choice((2, 4)), SMALL_MODEL, *options, "--shard",
                      random.choice("0123"), "--save-every", "5", *resume)
        before = count["kills"]
        end = run_and_kill(words, folder, moment if count["kills"] < kills else None, count)
        count[mpi] += count["kills"] - before
        count["resumed"] += bool(resume)
        fresh = end is not None
        if fresh:
            count["ended"] += 1
            count["wrong"] += end["weights_hash"] != whole
        if count["failed"] > 3 or count["unreadable"] > 0:
            break
    print(f"  {count['kills']} kills, {count['openmpi']} over Open MPI and {count['mpich']} over MPICH: "
          f"{count['starting']} within 1 s of the start, "
          f"{count['checkpointing']} within 20 ms of a checkpoint's file, {count['training']} at any "
          f"time; {count['resumed']} resumed runs")
    for what, found in (
            ("checkpoints that are not whole", count["unreadable"]),
            ("checkpoints older than the one seen before the kill", count["lost"]),
            ("runs that failed without a kill, to resume included", count["failed"]),
            (f"kills that left a rank alive after {END_SECONDS} s", count["ranks stay"]),
            (f"runs with other weights at their end, of {count['ended']}", count["wrong"])):
        print(f"  {what}: {found} {check(found == 0 and count['ended'] > 0, what)}")
    print(f"  all ranks had ended, and mpirun had to be killed: {count['launcher stays']} times")


def restart_loop():
    """The shell's loop of docs/distributed.md, with a limit that this program can wait for."""
    with open(os.path.join(ROOT, "docs/distributed.md"), encoding="utf-8") as page:
        blocks = re.findall(r"```sh\n(.*?)```", page.read(), re.S)
    loop, = (block for block in blocks if "until " in block)
    for words, others in (("data/text/genesis.txt", f"{TEXT} --epochs 1 {' '.join(SMALL_MODEL)}"),
                          ("--save-every 50", "--save-every 5"), (" 1h ", " 15s "),
                          ("sleep 5", "sleep 0.1")):
        if words not in loop:
            sys.exit(f"docs/distributed.md: its restart loop has no \"{words}\"")
        loop = loop.replace(words, others)
    return loop


def kill_in_loop(folder, kills):
    print(f"{kills} kills in the restart loop of docs/distributed.md")
    whole = result(train("openmpi", 1, SMALL_MODEL, "--slices", "8",
                         "--save", f"{folder}/whole"))["weights_hash"]
    for mpi, launcher in LAUNCHERS.items():
        work = os.path.join(folder, mpi)
        os.mkdir(work)
        with open(os.path.join(work, "mpirun"), "w", encoding="utf-8") as script:
            script.write(f"#!/bin/sh\nexec {' '.join(launcher)} \"$@\"\n")
        os.chmod(script.name, 0o755)
        path = f"{work}:{ROOT}/build-{mpi}:{os.environ['PATH']}"
        done = 0
        with Run(["sh", "-c", f"cd {work} && PATH={path}\n{restart_loop()}"]) as run:
            while done < kills // len(LAUNCHERS) and run.launcher.poll() is None:
                time.sleep(random.uniform(0.1, 4))
                done += kill_one(run)
            status = run.status(RUN_SECONDS)
            steps = step_of(os.path.join(work, "run"))
        last = result(train(mpi, 2, SMALL_MODEL, "--resume", f"{work}/run", "--save", f"{work}/run"))
        print(f"  {mpi:8} {done} kills; the loop's status is {status} after step {steps} "
              f"{check(status == 0 and done > 0, f'{mpi}: the loop')}; weights "
              f"{check(last['weights_hash'] == whole, f'{mpi}: weights of the loop')}")


def run_part(name, part):
    """One part in a folder of its own, and what it says of its target."""
    before, failed = len(checked), len(failed_checks)
    with tempfile.TemporaryDirectory() as folder:
        part(folder)
    count, bad = len(checked) - before, len(failed_checks) - failed
    if name in TARGETS:
        verdict = "NOT CHECKED" if count == 0 else f"{count} checks, {bad} FAILED" if bad else f"{count} checks, ok"
        print(f"target {TARGETS[name]}: {verdict}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main():
    parts = {"weights": compare_weights, "memory": compare_memory, "fsdp": compare_fsdp,
             "network": compare_network, "overlap": compare_overlap,
             "model": compare_model, "finalize": count_finalize, "launcher": count_launcher,
             "kills": lambda folder: kill_at_random(folder, options.kills),
             "loop": lambda folder: kill_in_loop(folder, options.kills // 10)}
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("kills", nargs="?", type=int, default=200)
    arguments.add_argument("--only", choices=parts, help="one part")
    options = arguments.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    for name, part in parts.items():
        if options.only in (None, name):
            run_part(name, part)
    if failed_checks:
        sys.exit("failed: " + "; ".join(failed_checks))


main()
