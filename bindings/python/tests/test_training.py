"""Gradients, modules, optimisers, files."""

import gc
import threading
import weakref

import pytest

pytest.importorskip("tenon._tensor", reason="the package has no tensors")

import tenon  # noqa: E402
from tenon import autograd, nn, optim  # noqa: E402


def leaf(*values):
    return tenon.tensor(values, dtype="float64", requires_grad=True)


# --- Gradients.


def test_backward():
    x = leaf(1, 2, 3)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4, 6]
    (x * 2).sum().backward()
    assert x.grad.tolist() == [4, 6, 8]
    x.grad = None
    assert x.grad is None
    y = x.exp()
    assert y.grad_fn.name == "exp" and not y.is_leaf and x.is_leaf and x.grad_fn is None
    y.retain_grad()
    y.sum().backward()
    assert y.grad.tolist() == [1, 1, 1]


def test_grad_of_grad():
    x = leaf(2)
    (first,) = autograd.grad(x**3, [x], create_graph=True)
    (second,) = autograd.grad(first, x)
    assert first.item() == 12 and second.item() == 12 and x.grad is None
    with pytest.raises(ValueError):
        autograd.grad(x * 2, [leaf(1)])
    assert autograd.grad(x * 2, [leaf(1)], allow_unused=True) == (None,)


def test_through_indices_and_assignment():
    x = leaf(1, 2, 3, 4)
    y = tenon.zeros(2, dtype="float64")
    y[0] = x[1] * x[2]
    y[1:] = x[[0, 0]][1:]
    y.sum().backward()
    assert x.grad.tolist() == [1, 3, 2, 0]


def test_modes():
    x = leaf(1)
    with tenon.no_grad():
        assert not (x * 2).requires_grad and not autograd.is_grad_enabled()
        with tenon.enable_grad():
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad and not (x * 2).detach().requires_grad
    with tenon.inference_mode():
        y = x * 2
    with pytest.raises(ValueError):
        y.requires_grad = True

    @tenon.no_grad()
    def plain(depth):
        return plain(depth - 1) if depth else (x * 2).requires_grad

    assert not plain(3) and autograd.is_grad_enabled()


def test_contexts_end_in_order():
    first, second = tenon.no_grad(), tenon.enable_grad()
    first.__enter__()
    second.__enter__()
    with pytest.raises(RuntimeError, match="begun inside"):
        first.__exit__()
    second.__exit__()
    first.__exit__()
    assert autograd.is_grad_enabled()
    opened = tenon.no_grad()
    opened.__enter__()
    caught = []

    def elsewhere():
        try:
            opened.__exit__()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    opened.__exit__()
    assert len(caught) == 1


def test_hooks():
    x = leaf(1, 2)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    after = x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 3).sum().backward()
    assert seen == [[3, 3], [30, 30]]
    handle.remove()
    after.remove()
    handle.remove()
    (x * 3).sum().backward()
    assert len(seen) == 2 and x.grad.tolist() == [33, 33]
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * 3).sum().backward()
    with pytest.raises(TypeError, match="function"):
        x.register_hook(3)


class Cube(autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * x * factor

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x * ctx.factor, None


def test_watched_tensors_take_values_that_need_gradients():
    x = leaf(1, 2)
    plain = tenon.zeros((2, 2), "float64")
    row = plain[0]
    with pytest.raises(ValueError, match="watch_views"):
        plain[0] = x
    watched = tenon.zeros((2, 2), "float64")
    autograd.watch_views(watched)
    row = watched[0]
    watched[0] = x
    row.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_functions_of_ones_own():
    x = leaf(1, 2)
    y = Cube.apply(x, 2)
    assert y.tolist() == [2, 16] and y.grad_fn.name == "python_function"
    y.sum().backward()
    assert x.grad.tolist() == [6, 24]
    with pytest.raises(ValueError, match="used up"):
        y.sum().backward()
    assert autograd.gradcheck(lambda x: Cube.apply(x, 3), [leaf(1, 2)])
    z = Cube.apply(x, 2)
    x.data.add_(1)
    with tenon.no_grad():
        x.add_(1)
    with pytest.raises(ValueError, match="changed in place"):
        z.sum().backward()
    gone = weakref.ref(z)
    del z
    gc.collect()
    assert gone() is None


def test_functions_that_err():
    class Wrong(autograd.Function):
        forward = staticmethod(lambda ctx, x, kind: x * 1 if kind else "text")
        backward = staticmethod(lambda ctx, g: (g, g, g))

    with pytest.raises(TypeError, match="one tensor"):
        Wrong.apply(leaf(1), 0)
    with pytest.raises(ValueError, match="3 gradients for 2"):
        Wrong.apply(leaf(1), 1).backward()


def test_checkpoints_give_the_same_gradients():
    tenon.manual_seed(0)
    w = tenon.randn((16, 16), requires_grad=True)
    x = tenon.randn((4, 16), requires_grad=True)

    def block(x):
        return tenon.tanh(x @ w).relu()

    block(x).sum().backward()
    direct = (w.grad, x.grad)
    w.grad = x.grad = None
    autograd.checkpoint(block, x).sum().backward()
    assert (w.grad == direct[0]).all() and (x.grad == direct[1]).all()


def test_saved_tensors_go_through_hooks_and_other_memory():
    x = leaf(*range(1, 9))
    packed = []
    with autograd.saved_tensors_hooks(lambda t: packed.append(t.numel()) or t.tolist(),
                                      lambda kept: tenon.tensor(kept, dtype="float64")):
        y = (x.exp() * x.sin()).sum()
    y.backward()
    expected = x.grad
    assert packed
    allocator = tenon.Allocator("host")
    x.grad = None
    with autograd.offload_saved(allocator):
        y = (x.exp() * x.sin()).sum()
    assert allocator.stats()["allocated_bytes.all.current"] > 0
    y.backward()
    assert (x.grad == expected).all()


def test_forward_mode_and_checks():
    values, tangents = autograd.jvp(lambda x: x * x, [leaf(3)], [tenon.ones(1, dtype="float64")])
    assert values[0].item() == 9 and tangents[0].item() == 6
    assert autograd.gradgradcheck(lambda x: x.sin() * x, [leaf(0.5, 1)])
    with autograd.anomaly_mode(), pytest.raises(ValueError, match="(?i)nan"):
        (leaf(0) * leaf(-1).sqrt()).sum().backward()


def test_backward_leaves_the_gil_to_others():
    x = tenon.randn((700, 700), requires_grad=True)
    done = threading.Event()
    loops = 0

    def work():
        y = x
        for _ in range(6):
            y = y @ x
        y.sum().backward()
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        loops += 1
        done.wait(0.001)
    thread.join()
    assert loops > 2


# --- Modules.


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 16)
        self.norm = nn.BatchNorm(16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(tenon.relu(self.norm(self.hidden(x))))


def test_modules_hold_parameters():
    net = Net()
    names = [name for name, _ in net.named_parameters()]
    assert names == ["hidden.weight", "hidden.bias", "norm.weight", "norm.bias", "out.weight",
                     "out.bias"]
    assert set(net.state_dict()) == {*names, "norm.running_mean", "norm.running_var"}
    assert all(p.is_leaf and p.requires_grad for p in net.parameters())
    assert "Linear(4, 16, bias=True)" in repr(net)
    net.eval()
    assert not net.norm.training
    net.tied = net.out
    assert len(list(net.parameters())) == 6
    with pytest.raises(TypeError, match="Parameter"):
        net.out.weight = tenon.ones(1)
    with pytest.raises(AttributeError, match="nothing"):
        net.nothing
    with pytest.raises(ValueError, match="no dot"):
        net.add_module("a.b", nn.ReLU())
    net.to("float64")
    assert net.out.weight.dtype is tenon.float64 and net.out.weight.requires_grad


def test_state_dicts():
    one, other = Net(), Net()
    other.load_state_dict(one.state_dict())
    assert all((a == b).all() for a, b in zip(one.parameters(), other.parameters()))
    wrong = one.state_dict()
    wrong["out.bias"] = tenon.ones(4)
    with pytest.raises(ValueError, match="out.bias"):
        other.load_state_dict(wrong)
    del wrong["out.bias"]
    with pytest.raises(ValueError, match="out.bias"):
        other.load_state_dict(wrong)


def train(net, optimizer, steps):
    tenon.manual_seed(1)
    x = tenon.randn((64, 4))
    target = (x[:, 0] > 0).to(tenon.int64) + (x[:, 1] > 0).to(tenon.int64)
    for _ in range(steps):
        loss = nn.CrossEntropyLoss()(net(x), target)
        loss.backward()
        optim.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@pytest.mark.parametrize("kind, options", [
    (optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.Adam, {"lr": 0.02}),
    (optim.AdamW, {"lr": 0.02})], ids=lambda x: getattr(x, "__name__", ""))
def test_training_lowers_the_loss_and_goes_on_from_a_file(kind, options, tmp_path):
    tenon.manual_seed(0)
    net = Net()
    optimizer = kind(net.named_parameters(), **options)
    assert train(net, optimizer, 40) < 0.3
    nn.save_state(tmp_path / "run.safetensors", net, optimizer, {"step": "40"})
    tenon.manual_seed(5)
    again = Net()
    other = kind(again.named_parameters(), **options)
    assert nn.load_state(tmp_path / "run.safetensors", again, other) == {"step": "40"}
    assert all(p.requires_grad for p in again.parameters())
    assert train(net, optimizer, 5) == train(again, other, 5)
    third = kind(again.named_parameters(), **options)
    third.load_state_dict(other.state_dict())
    assert third._native.updates == other._native.updates
    with pytest.raises(tenon.ParseError, match="run.safetensors"):
        nn.load_state(tmp_path / "run.safetensors", nn.Linear(2, 2))


def test_updates_in_backward_are_those_of_step():
    def run(in_backward):
        tenon.manual_seed(0)
        layer = nn.Linear(8, 8)
        optimizer = optim.SGD(layer.named_parameters(), lr=0.1, momentum=0.9)
        x = tenon.randn((4, 8))
        for _ in range(3):
            if in_backward:
                with optimizer.updates_in_backward():
                    (layer(x) ** 2).sum().backward()
            else:
                (layer(x) ** 2).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        return layer.weight.detach()

    assert (run(True) == run(False)).all()


def test_schedules():
    optimizer = optim.SGD([leaf(1)], lr=2.0)
    scheduler = optim.Scheduler(optimizer, optim.warmup_schedule(2, optim.linear_schedule(4)))
    rates = [optimizer.lr]
    for _ in range(6):
        scheduler.step()
        rates.append(optimizer.lr)
    assert rates == [1, 2, 2, 1.5, 1, 0.5, 0]


@pytest.mark.parametrize("module, shape", [
    (lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 8, 8)), (lambda: nn.Conv1d(3, 4, 3), (2, 3, 8)),
    (lambda: nn.LayerNorm(8), (2, 8)), (lambda: nn.RMSNorm(8), (2, 8)),
    (lambda: nn.GroupNorm(2, 4), (2, 4, 3)), (lambda: nn.Dropout(0.5), (4, 4)),
    (lambda: nn.MaxPool2d(2), (1, 2, 4, 4)), (lambda: nn.GELU("tanh"), (3,)),
    (lambda: nn.SelfAttention(8, 2, causal=True), (2, 5, 8)),
    (lambda: nn.TransformerBlock(8, 2), (2, 5, 8)),
    (lambda: nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)], checkpoints=2), (2, 4))])
def test_layers_give_gradients(module, shape):
    made = module()
    x = tenon.randn(shape, requires_grad=True)
    made(x).sum().backward()
    assert x.grad.shape == shape
    assert all(p.grad is not None for p in made.parameters())


def test_models_in_cpp():
    tenon.manual_seed(0)
    gpt = nn.CharGpt(vocabulary=11, length=8, layers=2, width=16, heads=2)
    index = tenon.randint(0, 11, (2, 8))
    logits = gpt(index)
    assert logits.shape == (2, 8, 11)
    optimizer = optim.Adam(gpt.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        loss = tenon.cross_entropy(gpt(index).reshape(-1, 11), index.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    name = next(iter(gpt.state_dict()))
    with pytest.raises(AttributeError, match="copy_"):
        setattr(gpt, name, tenon.ones(1))


def test_paths_are_seen_by_recorders():
    net = Net()
    net.set_path("net")
    allocator = tenon.Allocator("host")
    with tenon.Recorder("step") as recorder, tenon.use(allocator):
        net(tenon.randn((8, 4)))
    device = recorder.recording().devices[0]
    import numpy

    assert "net.hidden" in {device.tag(site) for site in numpy.unique(device.events["site"])}


def test_files(tmp_path):
    tensors = {"a": tenon.arange(6).reshape(2, 3), "b": tenon.ones(3, dtype="bfloat16")}
    tenon.save_safetensors(str(tmp_path / "t.safetensors"), tensors, {"made": "here"})
    loaded, metadata = tenon.load_safetensors(str(tmp_path / "t.safetensors"))
    assert metadata == {"made": "here"} and loaded["b"].dtype is tenon.bfloat16
    assert (loaded["a"] == tensors["a"]).all()
    tenon.save_npy(str(tmp_path / "t.npy"), tensors["a"])
    assert (tenon.load_npy(str(tmp_path / "t.npy")) == tensors["a"]).all()
    with pytest.raises(tenon.ParseError, match="t.npy"):
        tenon.load_safetensors(str(tmp_path / "t.npy"))
    header = b'{"a": \xff\xfe}'
    (tmp_path / "no_text").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(tenon.ParseError, match="no JSON at its byte 7"):
        tenon.load_safetensors(str(tmp_path / "no_text"))
    (tmp_path / "bad_name").write_bytes(len(header).to_bytes(8, "little") + b'{"a\xff": 1}  ')
    with pytest.raises(tenon.ParseError, match="bad_name"):
        tenon.load_safetensors(str(tmp_path / "bad_name"))
