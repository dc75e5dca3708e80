#!/usr/bin/env python3
"""Random calls of tenon's tensors, to find one that ends the interpreter instead of raising.

    python scripts/fuzz_python.py [SECONDS] [SEED]

Runs rounds in processes of their own, with 256 MiB for tensors and 8 GiB of addresses. Prints how
many calls returned and raised; a round that dies is printed with its seed and its last call.
"""

import faulthandler
import inspect
import random
import resource
import subprocess
import sys
import tempfile
import time

ROUND_CALLS = 3000
# What calls a program's own functions, ends the fuzzer, or writes files.
LEFT_OUT = {"save_npy", "save_safetensors", "_save_state", "set_default_dtype", "data_ptr"}


def pool(tenon, chance):
    import numpy

    shape = tuple(chance.choice([0, 1, 2, 3, 5]) for _ in range(chance.randrange(4)))
    dtype = chance.choice(["float32", "float64", "int64", "uint8", "bool", "complex64", "float16",
                           "bfloat16", "int16"])
    kind = chance.randrange(12)
    if kind < 4:
        return (tenon.rand(shape) * 9).to(dtype)
    if kind == 4:
        return tenon.randn(shape, requires_grad=True)
    if kind == 5:
        return chance.choice([0, 1, -1, 2, 7, 2**31, 2**62, -2**63, 2**70, 0.5, float("nan"), 1j])
    if kind == 6:
        return chance.choice([None, "float32", "cpu", "meta", "", "mean", True, Ellipsis, dtype])
    if kind == 7:
        return shape or chance.choice([(0,), (-1,), (2**40, 2**40), (1,) * 65, [1, "a"]])
    if kind == 8:
        return slice(*(chance.choice([None, 0, 1, -1, 5, -2**70]) for _ in range(3)))
    if kind == 9:
        return chance.choice([numpy.ones(shape), numpy.arange(6).reshape(2, 3).T[::-1], b"bytes",
                              numpy.float32(2), numpy.datetime64("2020-01-01"), object(), {}])
    if kind == 10:
        return chance.choice([lambda *given: given[0] if given else None, tenon.float32,
                              tenon.empty(shape, device="meta"), tenon.Tensor,
                              tenon.Tensor.__new__(tenon.Tensor), tenon.eye(3).to_sparse_coo(),
                              tenon.arange(24).reshape(2, 3, 4).permute(2, 0, 1)])
    return [pool(tenon, chance) for _ in range(chance.randrange(3))]


def targets(tenon):
    import tenon._tensor as module

    found = [(name, thing) for name, thing in vars(module).items()
             if callable(thing) and not inspect.isclass(thing) and name not in LEFT_OUT]
    found += [(f"Tensor.{name}", thing) for name, thing in vars(tenon.Tensor).items()
              if callable(thing) and name not in LEFT_OUT and name != "__new__"
              and name != "__delattr__"]
    found += [(f"Tensor.{name}", thing.__get__) for name, thing in vars(tenon.Tensor).items()
              if isinstance(thing, property)]
    return sorted(found, key=lambda one: one[0])


def run_round(seed, log):
    faulthandler.enable(open(log + ".stack", "w"))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    import tenon

    chance = random.Random(seed)
    calls = targets(tenon)
    counts = [0, 0]
    with open(log, "w") as out, tenon.use(tenon.Allocator("host", limit="256MiB")):
        for number in range(ROUND_CALLS):
            name, call = chance.choice(calls)
            given = [pool(tenon, chance) for _ in range(chance.randrange(1, 5))]
            out.seek(0)
            out.write(f"call {number}: {name} of {[str(type(one)) for one in given]}\n")
            out.truncate()
            out.flush()
            try:
                call(*given)
                counts[0] += 1
            except Exception:
                counts[1] += 1
    print(*counts)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--round":
        run_round(int(sys.argv[2]), sys.argv[3])
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    end, totals, died = time.monotonic() + seconds, [0, 0], 0
    with tempfile.TemporaryDirectory() as folder:
        log = folder + "/calls"
        while time.monotonic() < end:
            done = subprocess.run([sys.executable, __file__, "--round", str(seed), log],
                                  capture_output=True, text=True, timeout=300)
            if done.returncode:
                died += 1
                print(f"seed {seed}: exit status {done.returncode}: {open(log).read()}"
                      f"{open(log + '.stack').read()[:1500]}{done.stderr[-500:]}")
            else:
                totals = [a + int(b) for a, b in zip(totals, done.stdout.split()[-2:])]
            seed += 1
    print(f"{sum(totals)} calls: {totals[0]} returned, {totals[1]} raised; {died} rounds died")
    sys.exit(died != 0)


if __name__ == "__main__":
    main()
