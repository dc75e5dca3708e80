"""One rank of the model of `tenon train text`, sharded by PyTorch's fully_shard over gloo on the CPU.

worker.py TEXT_VOCABULARY LENGTH LAYERS WIDTH HEADS ROWS; RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT are torchrun's variables. Trains two steps and prints one JSON object: parameters, the
peak of live bytes, and live bytes after a step, all of this rank.

Counted: each block of PyTorch's CPU allocator, as its profiler reports it, from before the model is
made until the end of the second step. gloo's own buffers are not among them.
"""
import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.project(self.norm1(x)).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class CharGpt(nn.Module):
    def __init__(self, vocabulary, length, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.empty(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, index):
        x = self.tokens(index) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def sharded_model(*sizes):
    """As FSDP2's documentation does it: made on the meta device, sharded, then given memory."""
    with torch.device("meta"):
        model = CharGpt(*sizes)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().normal_(0, 0.02)
    return model


def step(model, optimiser, vocabulary, rows, length):
    batch = torch.randint(vocabulary, (rows, length + 1))
    logits = model(batch[:, :-1])
    F.cross_entropy(logits.view(-1, vocabulary), batch[:, 1:].reshape(-1)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5)
    optimiser.step()
    optimiser.zero_grad()


def main():
    vocabulary, length, layers, width, heads, rows = map(int, sys.argv[1:])
    dist.init_process_group("gloo")
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        model = sharded_model(vocabulary, length, layers, width, heads)
        optimiser = torch.optim.Adam(model.parameters())
        for _ in range(2):
            step(model, optimiser, vocabulary, rows, length)
    blocks = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(blocks, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    parameters = 4 * sum(p.numel() for p in model.parameters())
    print(json.dumps({"parameters": parameters, "peak": peak, "kept": live}), flush=True)
    dist.destroy_process_group()


main()
