"""What a program asks of its cards and of Python's pools, and what a forecast does not follow."""

import torch
from test_forecast import live
from torch import nn

import tenon


def test_values_that_only_sizes_decide():
    """A mask that is made beside weights whose values are not known."""

    def program():
        weight = nn.Linear(512, 512).cuda().weight
        mask = weight.new_zeros(512, dtype=torch.bool)
        mask[:100] = True
        like = torch.ones_like(weight[0], dtype=torch.bool)
        return weight[mask & like]

    forecast = tenon.forecast(program)
    assert forecast.values == "fake" and not forecast.notes


def test_a_short_time_transform_and_back():
    def program():
        window = torch.hann_window(256, device="cuda")
        sound = torch.randn(65536, device="cuda")
        there = torch.stft(sound, 256, window=window, return_complex=True)
        assert torch.istft(there, 256, window=window, length=65536).shape == sound.shape

    assert live(tenon.forecast(program)) > 0


def test_derivatives_forward():
    def program():
        x = torch.ones(1000, device="cuda")
        value, tangent = torch.func.jvp(lambda y: (y**3).sum(), (x,), (x,))
        assert value.shape == tangent.shape == ()
        assert torch.func.hessian(lambda y: (y**3).sum())(x).shape == (1000, 1000)

    assert live(tenon.forecast(program)) > 4_000_000
