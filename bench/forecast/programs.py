"""The programs whose allocations are recorded in data/traces: python programs.py NAME [STEPS]

They were recorded on one H200 with PyTorch 2.11.0+cu130, transformers 5.17.0, torchvision 0.26.0
and torch_geometric 2.8.0.post1. A forecast runs this file as it is.
"""

import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
device = "cuda"


def train_language_model(model, vocabulary, batch, length, steps, amp=True, checkpoints=False):
    model.to(device).train()
    if checkpoints:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        tokens = length()
        x = torch.randint(0, vocabulary, (batch(tokens), tokens), device=device)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def gpt2(steps=12):
    from transformers import GPT2Config, GPT2LMHeadModel

    train_language_model(GPT2LMHeadModel(GPT2Config()), 50257, lambda _: 8, lambda: 512, steps)


def gpt2_varlen(steps=40):
    from transformers import GPT2Config, GPT2LMHeadModel

    r = random.Random(1)
    train_language_model(
        GPT2LMHeadModel(GPT2Config(n_positions=2048)),
        50257,
        lambda tokens: max(1, 8192 // tokens),
        lambda: r.randrange(64, 2048),
        steps,
    )


def llama1b_ckpt(steps=10):
    from transformers import LlamaConfig, LlamaForCausalLM

    r = random.Random(2)
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5504,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=32000,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    train_language_model(
        model,
        32000,
        lambda tokens: max(1, 16384 // tokens),
        lambda: r.randrange(256, 4096),
        steps,
        amp=False,
        checkpoints=True,
    )


def resnet50_amp(steps=12):
    import torchvision

    model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        x = torch.randn(64, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (64,), device=device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def maskrcnn(steps=14):
    import torchvision

    r = random.Random(6)
    model = (
        torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
        .to(device)
        .train()
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
    for _ in range(steps):
        imgs, targets = [], []
        for _ in range(2):
            H, W = r.randrange(300, 800), r.randrange(300, 800)
            n = r.randrange(1, 12)
            imgs.append(torch.rand(3, H, W, device=device))
            xy = torch.rand(n, 2, device=device) * 150
            wh = torch.rand(n, 2, device=device) * 120 + 10
            targets.append(
                dict(
                    boxes=torch.cat([xy, xy + wh], 1),
                    labels=torch.randint(1, 90, (n,), device=device),
                    masks=(torch.rand(n, H, W, device=device) > 0.5).to(torch.uint8),
                )
            )
        loss = sum(model(imgs, targets).values())
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def gnn_sampled(steps=60):
    from torch_geometric.nn import SAGEConv

    r = random.Random(8)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1 = SAGEConv(128, 256)
            self.c2 = SAGEConv(256, 256)
            self.c3 = SAGEConv(256, 47)

        def forward(self, x, e):
            x = F.relu(self.c1(x, e))
            x = F.relu(self.c2(x, e))
            return self.c3(x, e)

    model = Net().to(device).train()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        n = r.randrange(2000, 120000)
        k = n * r.randrange(5, 15)
        x = torch.randn(n, 128, device=device)
        e = torch.randint(0, n, (2, k), device=device)
        y = torch.randint(0, 47, (n,), device=device)
        loss = F.cross_entropy(model(x, e), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def multistream_prefetch(steps=30):
    import torchvision

    r = random.Random(9)
    model = torchvision.models.resnet18().to(device).train()
    optimizer = torch.optim.Adam(model.parameters())
    side, aux = torch.cuda.Stream(), torch.cuda.Stream()

    def load():
        B = r.randrange(32, 128)
        hx = torch.randn(B, 3, 160, 160).pin_memory()
        hy = torch.randint(0, 1000, (B,)).pin_memory()
        with torch.cuda.stream(side):
            x = hx.to(device, non_blocking=True)
            y = hy.to(device, non_blocking=True)
            x = (x - x.mean()) / (x.std() + 1e-5)
        return x, y

    following = load()
    for _ in range(steps):
        torch.cuda.current_stream().wait_stream(side)
        x, y = following
        x.record_stream(torch.cuda.current_stream())
        y.record_stream(torch.cuda.current_stream())
        following = load()
        out = model(x)
        loss = F.cross_entropy(out, y)
        with torch.cuda.stream(aux):
            aux.wait_stream(torch.cuda.current_stream())
            stat = out.float().softmax(1).max(1).values.sum()  # noqa: F841
            out.record_stream(aux)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*[int(steps) for steps in sys.argv[2:3]])
