"""Training programs for pytorch_compare.py. Random weights and data; the seed fixes both.

Each function returns `step`, which runs one step and returns the loss (or another number that
depends on everything computed). What a program needs beyond PyTorch it imports itself, so that a
missing package skips one program only.
"""

import torch


def _optimiser(model, **arguments):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, **arguments)


def gpt2(device):
    """GPT-2 124M, batch 8 x 1024, bf16 autocast."""
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).to(device)
    optimiser = _optimiser(model)
    generator = torch.Generator().manual_seed(1)

    def step():
        tokens = torch.randint(0, 50257, (8, 1024), generator=generator).to(device)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()
    return step


def llama_checkpointed(device):
    """A Llama of 1.1B with activation checkpointing; the length varies from step to step."""
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                         num_attention_heads=32, num_key_value_heads=4, use_cache=False)
    model = LlamaForCausalLM(config).to(device, torch.bfloat16)
    model.gradient_checkpointing_enable(
        gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimiser = _optimiser(model)
    generator = torch.Generator().manual_seed(2)

    def step():
        length = int(torch.randint(256, 2049, (1,), generator=generator))
        tokens = torch.randint(0, 32000, (4, length), generator=generator).to(device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()
    return step


def mask_rcnn(device):
    """Mask R-CNN on images of many sizes."""
    from torchvision.models.detection import maskrcnn_resnet50_fpn
    model = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91).to(device)
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(3)

    def sample():
        height, width = (int(torch.randint(480, 801, (1,), generator=generator))
                         for _ in range(2))
        count = int(torch.randint(1, 12, (1,), generator=generator))
        corners = torch.rand(count, 2, generator=generator) * 200
        boxes = torch.cat([corners, corners + 20 + torch.rand(count, 2, generator=generator) * 200],
                          dim=1)
        masks = torch.zeros(count, height, width, dtype=torch.uint8)
        for mask, (left, top, right, bottom) in zip(masks, boxes.long().tolist()):
            mask[top:bottom, left:right] = 1
        labels = torch.randint(1, 91, (count,), generator=generator)
        image = torch.rand(3, height, width, generator=generator)
        target = {"boxes": boxes, "labels": labels, "masks": masks}
        return image.to(device), {name: value.to(device) for name, value in target.items()}

    def step():
        images, targets = zip(*(sample() for _ in range(4)))
        loss = sum(model(list(images), list(targets)).values())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()
    return step


def resnet50(device):
    """ResNet-50 at several resolutions, fp16 with a gradient scaler."""
    from torchvision.models import resnet50 as build
    model = build(weights=None).to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    generator = torch.Generator().manual_seed(4)
    sides = (160, 192, 224, 256, 288)

    def step():
        side = sides[int(torch.randint(0, len(sides), (1,), generator=generator))]
        images = torch.rand(96, 3, side, side, generator=generator).to(
            device, memory_format=torch.channels_last)
        labels = torch.randint(0, 1000, (96,), generator=generator).to(device)
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()
    return step


def sampled_gnn(device):
    """GraphSAGE over sampled neighbourhoods, whose sizes differ at every step."""
    from torch_geometric.nn import GraphSAGE
    nodes, features = 400_000, 256
    model = GraphSAGE(features, 512, num_layers=3, out_channels=64).to(device)
    optimiser = _optimiser(model)
    generator = torch.Generator().manual_seed(5)
    everything = torch.rand(nodes, features, generator=generator)

    def step():
        count = int(torch.randint(40_000, 160_000, (1,), generator=generator))
        chosen = torch.randint(0, nodes, (count,), generator=generator)
        edges = torch.randint(0, count, (2, count * 8), generator=generator).to(device)
        labels = torch.randint(0, 64, (1024,), generator=generator).to(device)
        out = model(everything[chosen].to(device), edges)[:1024]
        loss = torch.nn.functional.cross_entropy(out, labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()
    return step


def generation(device):
    """Text generation with a cache that grows by a token at a time."""
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                         num_attention_heads=32, num_key_value_heads=4)
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).eval()
    generator = torch.Generator().manual_seed(6)

    def step():
        length = int(torch.randint(64, 513, (1,), generator=generator))
        tokens = torch.randint(0, 32000, (16, length), generator=generator).to(device)
        with torch.inference_mode():
            out = model.generate(tokens, attention_mask=torch.ones_like(tokens), pad_token_id=0,
                                 min_new_tokens=128, max_new_tokens=128, do_sample=False)
        return float(out.double().sum().item())
    return step


PROGRAMS = {function.__name__: function for function in (
    gpt2, llama_checkpointed, mask_rcnn, resnet50, sampled_gnn, generation)}
