"""snapshot.py SEED OUT.pickle: allocations and frees of random sizes over PyTorch's own allocator, recorded
as a user records them. Prints its reserved peak in bytes."""
import os
import random
import sys

sys.setdlopenflags(os.RTLD_LAZY)  # NVIDIA's libraries are stubs
import torch

torch.cuda.init()
torch.cuda.memory._record_memory_history(max_entries=100000)
random.seed(int(sys.argv[1]))
blocks = []
for _ in range(4000):
    if len(blocks) > 40 or (blocks and random.random() < 0.45):
        torch.cuda.caching_allocator_delete(blocks.pop(random.randrange(len(blocks))))
    else:
        blocks.append(torch.cuda.caching_allocator_alloc(random.choice([1, 2, 3, 4, 6]) * 2 ** 20 + 512))
torch.cuda.memory._dump_snapshot(sys.argv[2])
print(torch.cuda.memory_stats()["reserved_bytes.all.peak"])
