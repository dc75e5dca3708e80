"""snapshot.py SEED OUT.pickle: allocations and frees of random sizes over PyTorch's own allocator, recorded
as a user records them, with calls of empty_cache() between them. Of four seeds one records each of PyTorch's
contexts; of eight, the last four find the device full. Prints as JSON its reserved peak in bytes, how many
calls gave memory back, how often a request found no room at first, and the memory that the allocator was
allowed (0: all)."""
import inspect
import json
import os
import random
import sys

sys.setdlopenflags(os.RTLD_LAZY)  # NVIDIA's libraries are stubs
import torch


def reserved():
    return torch.cuda.memory_stats()["reserved_bytes.all.current"]


def main():
    seed = int(sys.argv[1])
    random.seed(seed)
    torch.cuda.init()
    limit = 160 << 20 if seed % 8 >= 4 else 0
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit / (1 << 42))
    record = torch.cuda.memory._record_memory_history
    context = ("all", "alloc", "state", None)[seed % 4]
    if "context" in inspect.signature(record).parameters:
        record(context=context, max_entries=100000)
    blocks, emptied = [], 0
    for _ in range(4000):
        if random.random() < 0.005:
            before = reserved()
            torch.cuda.empty_cache()
            emptied += reserved() < before
        if len(blocks) > 40 or (blocks and random.random() < 0.45):
            torch.cuda.caching_allocator_delete(blocks.pop(random.randrange(len(blocks))))
            continue
        try:
            size = random.choice([1, 2, 3, 4, 6]) * 2 ** 20 + 512
            blocks.append(torch.cuda.caching_allocator_alloc(size))
        except torch.OutOfMemoryError:
            for block in blocks[: len(blocks) // 2]:
                torch.cuda.caching_allocator_delete(block)
            del blocks[: len(blocks) // 2]
    torch.cuda.memory._dump_snapshot(sys.argv[2])
    stats = torch.cuda.memory_stats()
    print(json.dumps({"reserved_peak_bytes": stats["reserved_bytes.all.peak"], "emptied": emptied,
                      "retries": stats["num_alloc_retries"], "limit_bytes": limit}))


main()
