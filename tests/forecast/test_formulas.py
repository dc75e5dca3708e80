"""Formulas of derivatives: what they write into, and forward differentiation."""

import pytest
import torch
from test_forecast import MIB, live
from torch.func import hessian, vmap

import tenon

OUT_OF_PLACE = {  # MiB in backward, beside the leaf, its result and the gradient of that
    # grad.scatter(index, 0)
    "scatter": (lambda x, at: x.scatter(0, at, 2.0), 4),
    # where x is the result, as floats; how many; the gradient over it; (where, again); for x
    "amax": (lambda x, at: x.scatter_reduce(0, at, x.detach()[:1], "amax"), 4 + 4 + 4 + 1 + 4),
    "index": (lambda x, at: x.index_reduce(0, at, x.detach()[:1], "amax"), 4 + 4 + 4 + 4),
}


@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_formulas_of_scatter_write_into_no_operand(name):
    function, more = OUT_OF_PLACE[name]
    peaks = []

    def train():
        x = torch.rand(MIB, device="cuda", requires_grad=True)
        result = function(x, torch.zeros(1, dtype=torch.int64, device="cuda"))
        result.register_hook(lambda gradient: torch.cuda.reset_peak_memory_stats())
        result.mul(2).sum().backward()
        peaks.append(torch.cuda.max_memory_allocated())

    tenon.forecast(train, real="never")
    assert 0 <= peaks[0] - (12 + more) * MIB <= 64 << 10


def test_the_formula_of_gather_writes_into_its_zeros():
    peaks = []

    def train():
        x = torch.rand(MIB, device="cuda", requires_grad=True)
        result = x.gather(0, torch.zeros(1, dtype=torch.int64, device="cuda"))
        result.register_hook(lambda gradient: torch.cuda.reset_peak_memory_stats())
        result.mul(2).sum().backward()
        peaks.append(torch.cuda.max_memory_allocated())

    tenon.forecast(train, real="never")
    assert 0 <= peaks[0] - 8 * MIB <= 64 << 10


def test_second_derivatives_of_single_samples_are_differentiable():
    kinds = []

    def train():
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        model.cuda()
        curvature = vmap(hessian(lambda x: model(x).sum()))(torch.rand(16, 8, device="cuda"))
        curvature.pow(2).mean().backward()
        kinds.extend(part.grad.device.type for part in model.parameters() if part.grad is not None)

    forecast = tenon.forecast(train, real="never")
    assert forecast.problem is None
    assert set(kinds) == {"cuda"} and len(kinds) >= 2


def test_zeros_of_forward_differentiation_have_no_bytes():
    def make():
        zeros = torch._efficientzerotensor((64 * MIB,), device="cuda")
        assert zeros.view(64, MIB).is_cuda
        return zeros, torch.rand(MIB, device="cuda")

    assert live(tenon.forecast(make, real="never")) == 4 * MIB
