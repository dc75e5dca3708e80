"""What a function finds that its caller has already, and what it leaves behind."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch
from torch import nn

import tenon

MIB = 1 << 20
NET = nn.Linear(1024, 1024, bias=False)


def test_a_model_and_its_optimizer_as_arguments():
    def step(net, optimizer, x):
        net.cuda()
        for _ in range(2):
            optimizer.zero_grad()
            net(x.cuda()).sum().backward()
            optimizer.step()

    net = nn.Linear(1024, 1024, bias=False)
    weight, before = net.weight, net.weight.detach().clone()
    optimizer = torch.optim.Adam(net.parameters())
    found = tenon.forecast(step, net, optimizer, torch.ones(4, 1024))
    assert found.problem is None and found.live_peak_bytes >= 64 * MIB + 4 * 4 * MIB
    assert net.weight is weight and type(weight) is nn.Parameter
    assert torch.equal(weight, before) and weight.grad is None and not optimizer.state


def test_a_model_of_the_caller_is_as_it_was():
    def step():
        NET.cuda()
        NET(torch.ones(4, 1024, device="cuda")).sum().backward()

    weight, before = NET.weight, NET.weight.detach().clone()
    assert tenon.forecast(step).problem is None
    assert NET.weight is weight and torch.equal(weight, before) and weight.grad is None
    NET(torch.ones(1, 1024)).sum().backward()
    assert weight.grad.eq(1).all()
    weight.grad = None


def test_a_handler_of_everything_does_not_keep_the_end():
    rounds = []

    def make():
        def train(net, optimizer):
            while True:
                rounds.append(1)
                try:
                    net(torch.ones(4, 8, device="cuda")).sum().backward()
                    optimizer.step()
                except:  # noqa: E722
                    time.sleep(0.01)

        return train

    def program():
        net = nn.Linear(8, 8).cuda()
        make()(net, torch.optim.SGD(net.parameters(), lr=0.1))

    code = program.__code__
    found = tenon.forecast(program, steps=3, time_limit=30)
    assert found.problem is None and found.ended.startswith("stopped after 3 steps")
    assert len(rounds) == 3 and program.__code__ is code


def test_a_stop_that_is_swallowed_is_no_problem():
    def program():
        net = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        while True:
            try:
                net(torch.ones(4, 8, device="cuda")).sum().backward()
                optimizer.step()
            finally:
                left.append(signal.getitimer(signal.ITIMER_REAL)[0])
                continue  # noqa: B012

    left = []
    found = tenon.forecast(program, steps=2, time_limit=600)
    assert max(left) > 300 and min(left) <= 2  # the limit, and what is left of it after the stop
    assert found.problem is None and found.ended.startswith("stopped after 2 steps")


def test_inference_mode_allocates_what_no_grad_does(tmp_path):
    def evaluate(context):
        net = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).cuda().eval()
        recurrent = nn.LSTM(64, 64, batch_first=True).cuda()
        with context():
            assert torch.is_inference_mode_enabled() == (context is torch.inference_mode)
            x = torch.randn(8, 50, 64, device="cuda")
            y = recurrent(net(x))[0]
            nn.functional.scaled_dot_product_attention(y[:, None], x[:, None], x[:, None])
            assert torch.tensor(3, device="cuda").item() == 3 and not y.requires_grad
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()

    texts = []
    for context in (torch.no_grad, torch.inference_mode):
        found = tenon.forecast(evaluate, context)
        assert found.problem is None, found.problem
        found.recording.save(tmp_path / "trace.csv")
        texts.append((tmp_path / "trace.csv").read_bytes())
    assert texts[0] == texts[1]


def test_a_compiled_model_is_wrapped():
    def train():
        net = torch.compile(nn.Linear(8, 8).cuda())
        net(torch.ones(4, 8, device="cuda")).sum().backward()
        assert set(net.state_dict()) == {"_orig_mod.weight", "_orig_mod.bias"}
        assert isinstance(net._orig_mod, nn.Linear)

    assert tenon.forecast(train).problem is None


def test_flex_attention_keeps_no_scores():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    def attend():
        x = torch.randn(2, 4, 2048, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 2048, 2048)
        torch.cuda.reset_peak_memory_stats()
        flex.flex_attention(x, x, x, block_mask=mask).sum().backward()

    found = tenon.forecast(attend)
    assert found.problem is None, found.problem
    assert found.live_peak_bytes < 2 * 4 * 2048 * 2048 * 2  # scores alone would take this


def test_what_numpy_writes_lies_elsewhere(tmp_path):
    def write():
        torch.ones(9, device="cuda")
        numpy.savetxt(tmp_path / "mine.csv", numpy.ones(3))

    (tmp_path / "mine.csv").write_text("mine")
    assert tenon.forecast(write).problem is None
    assert (tmp_path / "mine.csv").read_text() == "mine"


def test_a_loop_until_the_memory_is_full_ends():
    def search():
        count = 1
        while True:
            try:
                torch.empty(count << 40, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                return
            count *= 2

    found = tenon.forecast(search, time_limit=30)
    assert found.problem is None and str(found)


@pytest.mark.parametrize(
    "leave, word", [(lambda: os._exit(3), "3"), (lambda: os.abort(), "134")]
)
def test_an_exit_at_once_keeps_the_answer(leave, word):
    def program():
        torch.ones(9, device="cuda")
        leave()

    found = tenon.forecast(program)
    assert found.live_peak_bytes == 36 and f"exited with {word}" in found.problem


def test_another_program_in_place_of_this_one():
    def program():
        torch.ones(9, device="cuda")
        os.execv("/bin/true", ["true"])

    assert "replaces its process" in tenon.forecast(program).problem


def test_cuda_past_the_stand_ins_is_one_line():
    def program():
        torch.ones(9, device="cuda")
        torch._C._cuda_init()

    problem = tenon.forecast(program).problem
    assert "asked for CUDA itself" in problem and "test_callers.py:" in problem


def test_what_an_earlier_forecast_left_does_not_count():
    def make():
        kept.append(nn.Linear(1024, 1024, bias=False).cuda())

    kept = []
    assert tenon.forecast(make).live_peak_bytes == tenon.forecast(make).live_peak_bytes == 4 * MIB


def test_threads_of_the_program_use_the_card():
    def work(count):
        assert torch.cuda.current_stream().cuda_stream == 0
        return torch.ones(count, MIB, dtype=torch.uint8, device="cuda")

    def program():
        with torch.cuda.stream(torch.cuda.Stream()), ThreadPoolExecutor(4) as pool:
            kept = list(pool.map(work, [1, 2, 3, 4] * 5))
            assert torch.cuda.current_stream().cuda_stream != 0
        assert sum(part.nbytes for part in kept) == 50 * MIB

    found = tenon.forecast(program)
    assert found.problem is None and found.live_peak_bytes == 50 * MIB
    assert any("threads" in note for note in found.notes)
