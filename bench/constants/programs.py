"""Recordings of three made-up programs, by a seed: nothing in Tenon was tuned on them.

    training   a network of 24 layers, whose batches differ in length; backward frees what forward kept
    random     blocks of 512 B to 64 MiB that live for random times, on two streams
    server     requests that come and go; each keeps blocks for the text so far, and asks for more
"""
import random

MIB = 1 << 20


class Recording:
    def __init__(self):
        self.lines = ["time_us,op,id,size,stream"]
        self.sizes = {}
        self.count = 0
        self.live = 0

    def alloc(self, size, stream=0):
        self.count += 1
        self.sizes[self.count] = (size, stream)
        self.live += size
        self._write("alloc", self.count)
        return self.count

    def free(self, block):
        self._write("free_requested", block)
        self._write("free_completed", block)
        self.live -= self.sizes.pop(block)[0]

    def _write(self, op, block):
        size, stream = self.sizes[block]
        self.lines.append(f"{100 * len(self.lines)},{op},{block},{size},{stream}")

    def finish(self):
        for block in list(self.sizes):
            self.free(block)
        return "\n".join(self.lines) + "\n"


def training(seed):
    rng, out = random.Random(seed), Recording()
    for _ in range(48):
        out.alloc(rng.choice([9, 12, 36]) * MIB + 512 * rng.randrange(64))  # weights
    for _ in range(20):
        tokens = rng.randrange(1000, 6000)
        kept = []
        for _ in range(24):
            for width in 768, 2304, 768, 3072, 3072, 768:
                scratch = out.alloc(tokens * width * 2)
                kept.append(out.alloc(tokens * width * 2))
                out.free(scratch)
        while kept:
            gradient = out.alloc(out.sizes[kept[-1]][0])
            out.free(kept.pop())
            out.free(gradient)
    return out.finish()


def random_lifetimes(seed):
    rng, out = random.Random(seed), Recording()
    for _ in range(8000):
        while out.sizes and (out.live > 3072 * MIB or rng.random() < 0.47):
            out.free(rng.choice(list(out.sizes)))
        out.alloc(int(512 * 2 ** rng.uniform(0, 17)), rng.randrange(2))
    return out.finish()


def server(seed):
    rng, out = random.Random(seed), Recording()
    running = []
    for _ in range(800):
        if len(running) < 24:
            running.append(([], rng.randrange(10, 400)))
        step = out.alloc(len(running) * 200_000)
        for blocks, _ in running:
            blocks.append(out.alloc(512 * rng.randrange(16, 2048)))
        out.free(step)
        for blocks, wanted in running:
            if len(blocks) >= wanted:
                for block in blocks:
                    out.free(block)
                blocks.clear()
        running = [request for request in running if request[0]]
    return out.finish()


PROGRAMS = {"training": training, "random": random_lifetimes, "server": server}


def write(folder, seed, device=""):
    """One file for each program; `device` goes into a column of its own."""
    paths = []
    for name, program in PROGRAMS.items():
        text = program(seed)
        if device:
            header, events = text.split("\n", 1)
            text = f"{header},device\n" + events.replace("\n", f",{device}\n")
        paths.append(f"{folder}/{name}{device.partition(':')[0]}.csv")
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(text)
    return paths
