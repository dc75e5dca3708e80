"""One program for bench/preload/compare.py: `programs.py NAME` prints the milliseconds of a step and of the
first one, its resident peak in MiB and its page faults, as JSON. The allocator is whatever is preloaded."""

import json
import mmap
import resource
import statistics
import sys
import time


def torch_with_two_threads():
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(0)
    return torch


def elementwise():
    """Four operators on tensors of 64 MiB."""
    torch = torch_with_two_threads()
    x = torch.rand(16 << 20)
    y = torch.rand(16 << 20)
    return lambda: ((x + y) * x).relu().sqrt(), 10


def resnet18():
    """A training step of ResNet-18, batch 8, 96 x 96."""
    torch = torch_with_two_threads()
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inner, outer, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
                nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
            self.skip = nn.Identity() if inner == outer and stride == 1 else nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

        def forward(self, x):
            return torch.relu(self.body(x) + self.skip(x))

    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1),
              (256, 512, 2), (512, 512, 1)]
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                          nn.MaxPool2d(3, 2, 1), *[Block(*w) for w in widths],
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return training(torch, model, lambda: torch.rand(8, 3, 96, 96), 1000), 9


def transformer():
    """A training step of four layers of width 256, batch 8, 256 tokens."""
    torch = torch_with_two_threads()
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.TransformerEncoder(layer, 4)
            self.head = nn.Linear(256, 1000)

        def forward(self, x):
            return self.head(self.body(x).mean(1))

    return training(torch, Model(), lambda: torch.rand(8, 256, 256), 1000), 4


def training(torch, model, batch, classes):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        x = batch()
        loss = torch.nn.functional.cross_entropy(model(x), torch.randint(classes, (x.shape[0],)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def inference():
    """Inference of a perceptron with a batch that varies from call to call."""
    torch = torch_with_two_threads()
    nn = torch.nn
    model = nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Linear(4096, 256))
    sizes = [64, 700, 128, 1500, 333, 1024, 90, 2000]

    def step():
        with torch.no_grad():
            for size in sizes:
                model(torch.rand(size, 256))

    return step, 6


def numpy_pipeline():
    """Expressions over arrays of 1 to 256 MiB, temporaries included."""
    import numpy as np

    def step():
        for mebibytes in (1, 4, 16, 64, 256):
            x = np.ones(mebibytes << 17)
            y = (x * 2.0 + 1.0) / 3.0
            z = np.where(y > 0.5, y, x)
            np.concatenate([z[::2], y[1::2]]).sum()

    return step, 3


def numpy_zeros():
    """Accumulating into fresh zeroed arrays of 32 MiB."""
    import numpy as np

    rows = np.ones((16, 4 << 20))

    def step():
        for row in rows:
            total = np.zeros(4 << 20)
            total += row

    return step, 4


def jax_expressions():
    """Operators on arrays of 64 MiB, one after another."""
    import jax.numpy as jnp

    x = jnp.ones((4096, 4096))

    def step():
        jnp.sqrt(jnp.exp(x) * 2 + x).block_until_ready()

    return step, 10


def jax_training():
    """A compiled training step of a perceptron, five layers of 1,024, batch 2,048."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(0), 5)
    weights = [jax.random.normal(key, (1024, 1024)) * 0.03 for key in keys]
    x = jax.random.normal(keys[0], (2048, 1024))

    def loss(weights):
        y = x
        for weight in weights:
            y = jnp.tanh(y @ weight)
        return jnp.mean((y - jnp.sin(x)) ** 2)

    @jax.jit
    def update(weights):
        return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights))]

    def step():
        nonlocal weights
        weights = jax.block_until_ready(update(weights))

    return step, 8


def onnxruntime():
    """Inference of five convolutions with images whose number and size vary, without the arena that
    keeps the largest sizes for ever."""
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, name, channels = [], [], "x", 3
    for layer, width in enumerate((32, 64, 64, 128, 128)):
        weight = random.standard_normal((width, channels, 3, 3)).astype("f") * 0.05
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes += [helper.make_node("Conv", [name, f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1],
                                   strides=[1 + layer % 2] * 2),
                  helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"])]
        name, channels = f"r{layer}", width
    graph = helper.make_graph(
        nodes, "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.enable_cpu_mem_arena = False
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    batches = [random.standard_normal(shape).astype("f")
               for shape in ((1, 3, 224, 224), (4, 3, 160, 160), (8, 3, 128, 128), (2, 3, 320, 320))]

    def step():
        for batch in batches:
            session.run(None, {"x": batch})

    return step, 8


def free_memory():
    """Touches 1.5 GiB, more than the other programs need, and frees it."""
    def step():
        with mmap.mmap(-1, 3 << 29, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, len(memory), mmap.PAGESIZE):
                memory[at] = 1

    return step, 1


def timed(step):
    start = time.perf_counter()
    step()
    return (time.perf_counter() - start) * 1e3


def main():
    step, rounds = globals()[sys.argv[1]]()
    first = timed(step)
    times = [timed(step) for _ in range(rounds)]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"ms": statistics.median(times), "first_ms": first,
                      "cpu_s": usage.ru_utime + usage.ru_stime,
                      "peak_mib": usage.ru_maxrss / 1024, "faults": usage.ru_minflt}))


main()
