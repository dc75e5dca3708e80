"""Programs whose batch or length varies, for `tenon.fit`: fit_program.py NAME BATCH LENGTH"""

import sys

import torch


def gpt2(batch, length):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_positions=1 << 16)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        tokens = torch.randint(0, 50257, (batch, length), device="cuda")
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def resnet50(batch, length):
    import torchvision

    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    while True:
        pictures = torch.randn(batch, 3, length, length, device="cuda")
        labels = torch.randint(0, 1000, (batch,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


globals()[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
