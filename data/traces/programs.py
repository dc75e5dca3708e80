"""The programs whose allocations are recorded in this folder (one H200, PyTorch 2.11.0+cu130, transformers 5.17.0, torchvision 0.26.0,
torch_geometric 2.8.0.post1, Python 3.12). Each trace begins after torch.cuda.init() and one torch.zeros(1) followed by empty_cache(), and
holds every alloc and free of the caching allocator, workspaces included, in the order of the host.

usage: programs.py NAME [steps]     runs one on a CUDA device, as recorded
"""
import sys, random
import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(0); random.seed(0)
dev = "cuda"

def lm_train(model, vocab, batch, lens, steps, amp=True, opt=None, ckpt=False):
    model.to(dev).train()
    if ckpt: model.gradient_checkpointing_enable()
    opt = (opt or torch.optim.AdamW)(model.parameters(), lr=1e-4)
    for s in range(steps):
        L = lens[s % len(lens)] if not callable(lens) else lens()
        B = batch if not callable(batch) else batch(L)
        x = torch.randint(0, vocab, (B, L), device=dev)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = model(input_ids=x, labels=x).loss
        loss.backward(); opt.step(); opt.zero_grad(set_to_none=True)

def gpt2(steps=12):
    from transformers import GPT2Config, GPT2LMHeadModel
    lm_train(GPT2LMHeadModel(GPT2Config()), 50257, 8, [512], steps)

def gpt2_varlen(steps=40):
    from transformers import GPT2Config, GPT2LMHeadModel
    r = random.Random(1)
    lm_train(GPT2LMHeadModel(GPT2Config(n_positions=2048)), 50257, lambda L: max(1, 8192 // L), lambda: r.randrange(64, 2048), steps)

def llama1b_ckpt(steps=10):
    from transformers import LlamaConfig, LlamaForCausalLM
    r = random.Random(2)
    c = LlamaConfig(hidden_size=2048, intermediate_size=5504, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=8, vocab_size=32000, use_cache=False)
    m = LlamaForCausalLM(c).to(torch.bfloat16)
    lm_train(m, 32000, lambda L: max(1, 16384 // L), lambda: r.randrange(256, 4096), steps, amp=False, ckpt=True)

def resnet50_amp(steps=12):
    import torchvision
    m = torchvision.models.resnet50().to(dev, memory_format=torch.channels_last).train()
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    for s in range(steps):
        x = torch.randn(64, 3, 224, 224, device=dev).to(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (64,), device=dev)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(m(x), y)
        loss.backward(); opt.step(); opt.zero_grad(set_to_none=True)

def maskrcnn(steps=14):
    import torchvision
    r = random.Random(6)
    m = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None).to(dev).train()
    opt = torch.optim.SGD(m.parameters(), lr=1e-5, momentum=0.9)
    for s in range(steps):
        imgs, tgts = [], []
        for b in range(2):
            H, W = r.randrange(300, 800), r.randrange(300, 800); n = r.randrange(1, 12)
            imgs.append(torch.rand(3, H, W, device=dev))
            xy = torch.rand(n, 2, device=dev) * 150; wh = torch.rand(n, 2, device=dev) * 120 + 10
            tgts.append(dict(boxes=torch.cat([xy, xy + wh], 1), labels=torch.randint(1, 90, (n,), device=dev), masks=(torch.rand(n, H, W, device=dev) > .5).to(torch.uint8)))
        loss = sum(m(imgs, tgts).values())
        if torch.isfinite(loss): loss.backward(); opt.step()
        opt.zero_grad(set_to_none=True)

def gnn_sampled(steps=60):
    from torch_geometric.nn import SAGEConv
    r = random.Random(8)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = SAGEConv(128, 256); s.c2 = SAGEConv(256, 256); s.c3 = SAGEConv(256, 47)
        def forward(s, x, e):
            x = F.relu(s.c1(x, e)); x = F.relu(s.c2(x, e)); return s.c3(x, e)
    m = Net().to(dev).train(); opt = torch.optim.Adam(m.parameters())
    for s in range(steps):
        n = r.randrange(2000, 120000); k = n * r.randrange(5, 15)
        x = torch.randn(n, 128, device=dev); e = torch.randint(0, n, (2, k), device=dev); y = torch.randint(0, 47, (n,), device=dev)
        loss = F.cross_entropy(m(x, e), y); loss.backward(); opt.step(); opt.zero_grad(set_to_none=True)

def multistream_prefetch(steps=30):
    import torchvision
    r = random.Random(9)
    m = torchvision.models.resnet18().to(dev).train(); opt = torch.optim.Adam(m.parameters())
    side = torch.cuda.Stream(); aux = torch.cuda.Stream()
    def load():
        B = r.randrange(32, 128)
        hx = torch.randn(B, 3, 160, 160).pin_memory(); hy = torch.randint(0, 1000, (B,)).pin_memory()
        with torch.cuda.stream(side):
            x = hx.to(dev, non_blocking=True); y = hy.to(dev, non_blocking=True); x = (x - x.mean()) / (x.std() + 1e-5)
        return x, y
    nxt = load()
    for s in range(steps):
        torch.cuda.current_stream().wait_stream(side)
        x, y = nxt; x.record_stream(torch.cuda.current_stream()); y.record_stream(torch.cuda.current_stream())
        nxt = load()
        out = m(x); loss = F.cross_entropy(out, y)
        with torch.cuda.stream(aux):
            aux.wait_stream(torch.cuda.current_stream()); stat = out.float().softmax(1).max(1).values.sum(); out.record_stream(aux)
        loss.backward(); opt.step(); opt.zero_grad(set_to_none=True)

if __name__ == "__main__":
    torch.cuda.init(); torch.zeros(1, device=dev)
    torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
    globals()[sys.argv[1]](*[int(a) for a in sys.argv[2:3]])
    torch.cuda.synchronize()
    print({k: torch.cuda.memory_stats()[k] for k in ("requested_bytes.all.peak", "allocated_bytes.all.peak", "reserved_bytes.all.peak")})
