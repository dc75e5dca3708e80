"""Programs whose sizes depend on data."""

import csv
import time

import pytest
import torch
from test_forecast import MIB, live, run
from torch import nn

import tenon


def masked(count=1024, columns=1024):
    """Keeps the rows whose number, which a product of matrices makes, is above zero."""
    weight = torch.ones(8, 1, device="cuda")
    x = torch.ones(count, 8, device="cuda")
    x[: count // 4] = -1
    keep = (x @ weight).squeeze(1) > 0
    return torch.zeros(count, columns, device="cuda")[keep]


def test_a_mask_is_followed_with_real_values():
    found = tenon.forecast(masked)
    assert found.values == "real" and "real values" in " ".join(found.notes)
    # The table of 4 MiB, three quarters of it, places of 8 bytes, the workspace and small inputs.
    assert 0 <= live(found) - (7 * MIB + 32 * MIB) < MIB // 8


def test_values_that_do_not_fit_on_the_host_give_a_range(monkeypatch):
    from tenon.forecast import _real

    monkeypatch.setattr(_real, "host_bytes", lambda: MIB)
    found = tenon.forecast(masked)
    least, most = found.live_peak_range
    assert found.values == "assumed" and found.live_peak_bytes == least
    assert 4 * MIB <= most - least < 4.1 * MIB
    assert "between" in found.notes[-1] and "the host has 1 MiB" in found.notes[-1]
    once = tenon.forecast(masked, real="never")
    assert once.live_peak_bytes == least and "counts as zero" in once.notes[-1]
    monkeypatch.setattr(_real, "host_bytes", lambda: 5 * MIB)  # less than the full mask takes
    assert "do not fit" in tenon.forecast(masked).notes[-1]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_follow_their_lengths(kind):
    def train(longest):
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        layer = kind(64, 128, batch_first=True).cuda()
        x = torch.randn(8, 512, 64, device="cuda", requires_grad=True)
        lengths = torch.full((8,), longest)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        assert packed.data.shape == (8 * longest, 64)
        found, back = pad_packed_sequence(layer(packed)[0], batch_first=True)
        assert found.shape == (8, longest, 128) and back.tolist() == [longest] * 8
        found.square().mean().backward()
        assert x.grad.shape == x.shape

    short, long = tenon.forecast(train, 64), tenon.forecast(train, 512)
    assert short.values == long.values == "fake"  # lengths are known
    assert live(long) > live(short) + 448 * 8 * 128 * 4


def allocations(forecast, path):
    assert forecast.problem is None, forecast.problem
    forecast.recording.save(path)
    rows = csv.DictReader(path.open())
    return [int(row["size"]) for row in rows if row["op"] == "alloc"]


# Sizes that a GPU reported: github.com/pytorch/pytorch, issue 2895.
@pytest.mark.parametrize("kind, reported", [(nn.LSTM, 736_000_000), (nn.GRU, 864_000_000)])
def test_the_reserve_of_recurrent_layers_is_what_a_card_reported(tmp_path, kind, reported):
    def train():
        kind(123, 320, 4).cuda()(torch.empty(1000, 25, 123, device="cuda"))

    found = allocations(tenon.forecast(train), tmp_path / "trace.csv")
    assert sum(reported <= size < reported + 512 for size in found) == 1


def test_dropout_between_recurrent_layers_keeps_a_bit_for_each_number(tmp_path):
    def train(dropout):
        nn.LSTM(64, 128, 2, dropout=dropout).cuda()(torch.empty(100, 32, 64, device="cuda"))

    kept, without = (
        allocations(tenon.forecast(train, dropout), tmp_path / "trace.csv")
        for dropout in (0.5, 0.0)
    )
    reserve = 11 * 100 * 32 * 128 * 4
    assert [size for size in without if reserve <= size < reserve + 512]
    assert [size for size in kept if reserve <= size - 100 * 32 * 128 // 8 < reserve + 512]


@pytest.mark.parametrize("trained", [False, True])
def test_a_recurrent_layer_takes_a_workspace_for_each_call(tmp_path, trained):
    def run():
        layer = nn.LSTM(64, 128).cuda()
        with torch.set_grad_enabled(trained):
            found = layer(torch.empty(100, 32, 64, device="cuda"))[0]
        if trained:
            found.sum().backward()

    gates, matrices, states = 4 * 100 * 32 * 128, 4 * 128 * (64 + 128), 6 * 32 * 128
    workspace = 4 * (gates + matrices + states) + 8 * MIB + 256
    found = allocations(tenon.forecast(run), tmp_path / "trace.csv")
    assert found.count(workspace) == (3 if trained else 1)  # backward: of the input, of the weights


def test_control_flow_by_an_unknown_number():
    def grow():
        weight = torch.ones(4, 4, device="cuda")
        count = int((weight @ weight).sum().long().item())
        torch.empty(count * MIB, dtype=torch.uint8, device="cuda")

    found = tenon.forecast(grow)
    assert found.values == "real" and live(found) // MIB == 96  # 4 × 16, and the workspace


def test_decisions_that_do_not_matter_need_no_values():
    def train():
        layer = nn.Linear(1024, 1024).cuda()
        best = 5.0
        for _ in range(2):
            loss = layer(torch.randn(64, 1024, device="cuda")).square().mean()
            loss.backward()
            if loss.item() / 2 < best:
                best = loss.item()

    found = tenon.forecast(train)
    assert found.values == "fake" and "do not change" in found.notes[-1]


def test_arguments_of_distributions_are_valid():
    def play():
        policy = nn.Linear(4, 2)  # on the host, as where a simulator gives the states
        actions = torch.distributions.Categorical(policy(torch.ones(4)).softmax(-1))
        action = actions.sample()
        assert actions.log_prob(action).numel() == 1
        spread = policy(torch.ones(4)).exp()
        assert torch.distributions.Normal(torch.zeros(2), spread).sample().numel() == 2
        torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")

    found = tenon.forecast(play)
    assert found.problem is None and live(found) == 16 * MIB


def test_lists_of_tensors_make_a_tensor():
    def play():
        returns = torch.tensor([1.0, 2.0]) + torch.tensor([0.5, 0.5])
        found = torch.tensor([[returns[0]], [returns[1]]])
        assert found.shape == (2, 1) and found.dtype is torch.float32
        assert torch.tensor([returns[0].double(), 1]).dtype is torch.float64
        loss = nn.Linear(1, 1).cuda()(torch.ones(1, device="cuda")).sum()
        assert torch.tensor([loss, 1.0], device="cuda").shape == (2,)
        with pytest.raises(ValueError, match="one element"):
            torch.tensor([returns])
        torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")

    assert tenon.forecast(play).problem is None


def test_a_loop_until_convergence():
    def solve():
        kept, x = [], torch.full((64, 1024), 2.0, device="cuda")
        weight = torch.eye(1024, device="cuda") / 2
        while (x @ weight).square().mean().item() > 0.1:
            x = x @ weight
            kept.append(x)
        assert len(kept) == 2  # 2, 1, 1/2

    assert tenon.forecast(solve).values == "real"


def test_a_busy_machine_does_not_change_the_answer(monkeypatch):
    """The run with other values has its limit in processor time, of which waiting takes none."""
    from tenon.forecast import _real

    def train():
        weight = torch.ones(4, 4, device="cuda")
        if (weight @ weight).sum().item() > 1:
            time.sleep(3)
            kept.append(torch.empty(64 * MIB, device="cuda"))

    kept = []
    monkeypatch.setattr(_real, "_ALTERNATIVE_SECONDS", 1)
    found = tenon.forecast(train)
    assert found.values == "assumed" and found.live_peak_bytes == max(found.live_peak_range)


def test_operators_of_the_card_have_values():
    def attend():
        q, k, v = (
            torch.ones(1, 2, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        out.sum().backward()
        assert out.float().mean().item() == 1 and v.grad.float().mean().item() == 1
        layer = nn.LSTM(8, 16).cuda()
        layer(torch.ones(4, 2, 8, device="cuda"))[0].sum().backward()
        assert all(part.grad.abs().sum().item() > 0 for part in layer.parameters())
        for cell in (nn.LSTMCell(8, 16).cuda(), nn.GRUCell(8, 16).cuda()):
            found = cell(torch.ones(4, 8, device="cuda"))
            (found[0] if isinstance(found, tuple) else found).sum().backward()
            assert cell.weight_ih.grad.abs().sum().item() > 0
            assert cell.bias_hh.grad.abs().sum().item() > 0

    found = tenon.forecast(attend, real="always")
    assert found.values == "real" and live(found) > 0
    assert not any("gave zeros" in note for note in found.notes)


def test_two_forecasts_with_values_are_the_same(tmp_path):
    texts = []
    for number in range(2):
        path = tmp_path / f"{number}.csv"
        tenon.forecast(masked).recording.save(path)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


def test_a_script_runs_again_with_its_modules(tmp_path):
    (tmp_path / "own.py").write_text("calls = []\n")
    done = run(
        tmp_path,
        """
        import torch, own
        own.calls.append(1)
        assert len(own.calls) == 1
        x = torch.ones(2048, 2048, device="cuda")
        torch.nonzero(x @ x)
        """,
    )
    assert done.returncode == 0 and "real values" in done.stdout, done.stdout + done.stderr
    assert "nonzero 8,388,608" in done.stdout


def test_counts_and_checks_need_no_values():
    def train():
        layer, right, best = nn.Linear(512, 8).cuda(), 0, 0.0
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        for _ in range(2):
            out = layer(torch.randn(64, 512, device="cuda"))
            right += (out.argmax(1) == torch.zeros(64, device="cuda")).sum().item()
            out.square().mean().backward()
            norm = nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            if not torch.isfinite(norm) or torch.isnan(out).any() or torch.isinf(out).any():
                raise ValueError("not finite")
            optimizer.step()
        if right / 128 > best:
            best = right / 128
        assert best in (0, 2 / 128)

    found = tenon.forecast(train, steps=0)
    assert found.values == "fake" and found.problem is None


def test_the_way_that_gets_through():
    def load():
        layer = nn.Linear(64, 64).cuda()
        if layer(torch.ones(4, 64, device="cuda")).sum().item() <= 0:
            raise ValueError("nothing was saved")

    found = tenon.forecast(load)
    assert found.problem is None and "one way only" in found.notes[-1]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_share_of_a_mask_can_be_given(share):
    least = live(tenon.forecast(masked, real="never"))
    found = tenon.forecast(masked, mask_share=share)
    # The rows that are kept, and a place of 8 bytes for each.
    assert live(found) - least == share * 1024 * (1024 * 4 + 8)
    assert found.values == "assumed" and f"{share:.0%} of each unknown mask" in found.notes[-1]


def test_shares_that_make_no_sense():
    for keywords in ({"mask_share": 1.5}, {"mask_share": -1}, {"mask_share": 1, "real": "always"}):
        with pytest.raises(tenon.forecast.ForecastError, match="mask_share"):
            tenon.forecast(masked, **keywords)


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_fused_sgd_which_has_no_fake(momentum):
    def train(**way):
        model = nn.Linear(256, 512).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, **way)
        for _ in range(3):
            model(torch.randn(64, 256, device="cuda")).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    fused, plain = (
        live(tenon.forecast(train, steps=0, **{way: True})) for way in ("fused", "foreach")
    )
    assert 0 <= plain - fused < 2 * MIB


def test_an_operator_of_the_program_without_a_fake():
    def call(kinds):
        @torch.library.custom_op("tenon_test::twice", mutates_args=(), device_types=kinds)
        def twice(x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x])

        assert twice(torch.randn(MIB, device="cuda")).shape == (2 * MIB,)

    assert live(tenon.forecast(call, None)) == 12 * MIB
    problem = tenon.forecast(call, "cuda").problem
    assert "the operator tenon_test.twice.default has no fake" in problem
