"""snapshot.py SEED OUT.pickle: allocations and frees of random sizes over PyTorch's own allocator, recorded
as a user records them, with calls of empty_cache() between them. Odd seeds record stacks of allocations
alone; of four seeds, the last two find the device full. Prints as JSON the reserved peak in bytes, how often
segments came and went, how many calls gave memory back, how often a request found no room at first, and the
memory that the allocator was allowed (0: all)."""
import json
import os
import random
import sys

sys.setdlopenflags(os.RTLD_LAZY)  # NVIDIA's libraries are stubs
import torch

MIB = 2 ** 20


def main():
    seed = int(sys.argv[1])
    random.seed(seed)
    torch.cuda.init()
    stats, limit = torch.cuda.memory_stats, 200 * MIB if seed % 4 >= 2 else 0
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit / 2 ** 42)
    torch.cuda.memory._record_memory_history(context="alloc" if seed % 2 else "all", max_entries=100000)
    blocks, emptied = [], 0
    for _ in range(4000):
        if random.random() < 0.005:
            before = stats()["reserved_bytes.all.current"]
            torch.cuda.empty_cache()
            emptied += stats()["reserved_bytes.all.current"] < before
        if stats()["allocated_bytes.all.current"] > 120 * MIB or (blocks and random.random() < 0.45):
            torch.cuda.caching_allocator_delete(blocks.pop(random.randrange(len(blocks))))
        else:
            size = random.choice([1, 2, 3, 4, 6, 12, 15, 20]) * MIB + 512
            try:
                blocks.append(torch.cuda.caching_allocator_alloc(size))
            except torch.OutOfMemoryError:
                pass
    torch.cuda.memory._dump_snapshot(sys.argv[2])
    found = stats()
    print(json.dumps({"reserved_peak_bytes": found["reserved_bytes.all.peak"],
                      "segments": found["segment.all.allocated"] + found["segment.all.freed"],
                      "emptied": emptied, "retries": found["num_alloc_retries"], "limit_bytes": limit}))


main()
