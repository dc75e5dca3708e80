"""What a program asks of its cards and of Python's pools, and what a forecast does not follow."""

import concurrent.futures
import multiprocessing

import numpy
import pytest
import torch
from test_forecast import live
from torch import nn

import tenon

MIB = 1 << 20


def test_questions_about_a_card():
    def program():
        held = torch.ones(MIB, device="cuda")
        with torch.cuda.device_of(held), torch.cuda.device("cuda:0") as device:
            assert not isinstance(device, torch.cuda.device)
        known = torch.cuda.get_device_properties("cuda")
        assert known.max_threads_per_block == 1024 and known.clock_rate > 0
        assert "4096 KiB" in torch.cuda.memory_summary()
        assert torch.cuda.get_per_process_memory_fraction() == 1
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()
        assert torch.cuda.temperature() == torch.cuda.power_draw() == 0
        assert torch.cuda.Stream.priority_range() == (0, -5)
        assert 1000 / torch.cuda.Event().elapsed_time(torch.cuda.Event()) > 0
        with torch.cuda.StreamContext(torch.cuda.Stream()):
            pass
        with pytest.raises(AssertionError, match="Invalid device id"):
            torch.cuda.get_device_properties(1)

    assert live(tenon.forecast(program)) == 4 * MIB


def test_cards_beside_the_first_are_named():
    def program(card):
        return torch.ones(MIB, device=card)

    note = "tensors of all cards count as ones of the first: the figures are their sum"
    assert note in tenon.forecast(program, "cuda:1").notes
    assert note not in tenon.forecast(program, "cuda:0").notes


def test_a_batch_over_several_cards_is_refused():
    forecast = tenon.forecast(lambda: nn.DataParallel(nn.Linear(8, 8).cuda(), device_ids=[0, 1]))
    assert "give device_ids=[0]" in forecast.problem

    def one():
        nn.DataParallel(nn.Linear(8, 8, bias=False).cuda(), device_ids=[0])

    assert live(tenon.forecast(one)) == 256


def _doubled(number):
    return 2 * number


@pytest.mark.parametrize(
    "pool",
    [
        lambda: multiprocessing.Pool(2),
        lambda: multiprocessing.get_context("spawn").Pool(processes=2, maxtasksperchild=1),
        lambda: torch.multiprocessing.Pool(2),
        lambda: concurrent.futures.ProcessPoolExecutor(max_workers=2),
    ],
)
def test_pools_of_processes_are_threads(pool):
    def program():
        with pool() as workers:
            sizes = list(workers.map(_doubled, range(1, 4)))
        torch.ones(sum(sizes), device="cuda")

    forecast = tenon.forecast(program)
    assert live(forecast) == 48
    assert "pools of processes ran as threads of the program's own process" in forecast.notes


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


@pytest.mark.parametrize("real", ["never", "always"])
def test_cudnn_samples_a_grid(real):
    """A grid of 16 × 16 places, with align_corners as flow networks give it."""
    seen = []

    def program():
        source = torch.ones(2, 3, 32, 32, device="cuda", requires_grad=True)
        grid = torch.zeros(2, 16, 16, 2, device="cuda", requires_grad=True)
        found = nn.functional.grid_sample(source, grid, align_corners=True)
        found.sum().backward()
        seen.append((found.shape, source.grad.shape, grid.grad.shape, source.grad.sum().item()))

    held = (2 * 3 * 32 * 32 + 2 * 16 * 16 * 2) * 4 * 2 + 2 * 3 * 16 * 16 * 4
    assert held <= live(tenon.forecast(program, real=real)) < held + 100
    assert seen[0][:3] == ((2, 3, 16, 16), (2, 3, 32, 32), (2, 16, 16, 2))
    assert real == "never" or seen[0][3] == pytest.approx(2 * 3 * 16 * 16)


def test_derivatives_forward():
    def program():
        x = torch.ones(1000, device="cuda")
        value, tangent = torch.func.jvp(lambda y: (y**3).sum(), (x,), (x,))
        assert value.shape == tangent.shape == ()
        assert torch.func.hessian(lambda y: (y**3).sum())(x).shape == (1000, 1000)

    assert live(tenon.forecast(program)) > 4_000_000


def test_an_encoder_evaluates_padded_batches():
    def program():
        layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2).cuda().eval()
        padding = torch.arange(10, device="cuda").expand(4, 10) > 6
        with torch.no_grad():
            found = encoder(torch.randn(4, 10, 64, device="cuda"), src_key_padding_mask=padding)
        assert found.shape == (4, 10, 64)

    forecast = tenon.forecast(program)
    assert live(forecast) > 0 and any("kept its padding" in note for note in forecast.notes)


@pytest.mark.parametrize("legacy", [False, True])
def test_tensors_of_the_host_where_the_card_is_the_default(legacy):
    def program():
        if legacy:
            torch.set_default_tensor_type("torch.cuda.FloatTensor")
        else:
            torch.set_default_device("cuda")
        made = [torch.tensor([1.0]), torch.as_tensor([1.0]), torch.asarray([1.0]), torch.ones(1)]
        assert [each.device.type for each in made] == ["cuda"] * 4
        labels = torch.LongTensor([3, 4])
        assert labels.device.type == "cpu" and labels.tolist() == [3, 4]
        assert torch.from_numpy(numpy.ones(3)).sum().item() == 3
        assert torch.ones(3).nonzero().shape == (3, 1) and torch.ones(2).tolist() == [1, 1]
        assert torch.Tensor([1, 2]).sum() == 3 and nn.Linear(4, 4)(torch.rand(2, 4)).shape == (2, 4)

    assert tenon.forecast(program).problem is None


def test_more_than_addresses_reach():
    def program():
        torch.empty(2000, 1 << 30, dtype=torch.uint8, device="cuda")

    forecast = tenon.forecast(program)
    assert forecast.figures()["expandable"]["reserved_peak_bytes"] is None
    assert "expandable not found without a limit; smallest card not found" in forecast.text
