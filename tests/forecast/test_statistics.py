"""What a program reads of its memory, and what it decides by, while a forecast runs."""

import torch
from torch import nn

import tenon

MIB = 1 << 20


def seen_in(program):
    """What the program returns."""
    seen = []
    forecast = tenon.forecast(lambda: seen.append(program()))
    assert forecast.problem is None, forecast.problem
    return seen[0]


def test_peaks_are_reset():
    def program():
        kept = torch.empty(1000, device="cuda")
        large = torch.empty(MIB, device="cuda")
        del large
        before = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        reset = torch.cuda.max_memory_allocated()
        small = torch.empty(100, device="cuda")
        return before, reset, torch.cuda.max_memory_allocated(), (kept, small) is None

    # In blocks of 512 bytes, as PyTorch counts.
    assert seen_in(program) == ((4096, 4096 + 4 * MIB), 4096, 4096 + 512, False)


def test_a_peak_that_was_reset_is_in_the_forecast():
    def program():
        torch.empty(MIB, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        torch.empty(100, device="cuda")

    assert tenon.forecast(program).live_peak_bytes == 4 * MIB


def test_replays_empty_the_cache_where_the_program_does():
    def program(empties):
        first = torch.empty(10 * MIB, device="cuda")
        del first
        if empties:
            torch.cuda.empty_cache()
        torch.empty(15 * MIB, device="cuda")

    for empties, reserved in ((False, 100 * MIB), (True, 60 * MIB)):
        figures = tenon.forecast(program, empties).figures()
        assert figures["default"]["reserved_peak_bytes"] == reserved


def test_reserved_stays_until_the_cache_is_emptied():
    def program():
        total = torch.cuda.mem_get_info()[1]
        kept = torch.empty(MIB, device="cuda")
        del kept
        before = torch.cuda.memory_reserved(), total - torch.cuda.mem_get_info()[0]
        torch.cuda.empty_cache()
        after = torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()
        torch.cuda.reset_max_memory_cached()
        free = torch.cuda.mem_get_info()[0]
        return before, after, torch.cuda.max_memory_reserved(), free == total

    assert seen_in(program) == ((4 * MIB, 4 * MIB), (0, 4 * MIB), 0, True)


def test_statistics_have_pytorchs_names():
    def program():
        kept = torch.empty(1001, device="cuda")
        torch.empty(MIB, device="cuda")
        statistics = torch.cuda.memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        later = torch.cuda.memory_stats()
        return statistics, later, kept is None

    statistics, later, _ = seen_in(program)
    assert statistics["allocated_bytes.all.current"] == 4096
    assert statistics["allocated_bytes.all.peak"] == 4096 + 4 * MIB
    assert statistics["requested_bytes.all.current"] == 4004
    assert statistics["allocated_bytes.all.allocated"] == 4096 + 4 * MIB
    assert statistics["allocated_bytes.all.freed"] == 4 * MIB
    assert later["allocated_bytes.all.allocated"] == 0
    assert later["allocated_bytes.all.peak"] == 4096 + 4 * MIB
    assert statistics["num_ooms"] == statistics.get("num_alloc_retries", 5) == 0


def test_autocasts_copies_of_weights_are_weights_and_those_of_activations_are_not():
    def train(amp):
        model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 512, bias=False))
        model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(8192, 1024, device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
                loss = model(x).float().pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def weights(amp):
        found = tenon.forecast(train, amp).recording.explain(replay=False)
        rows = found["devices"][0]["live_at_peak"]["by_category"]
        return next(row["bytes"] for row in rows if row["name"] == "weights")

    assert weights(False) == 6 * MIB
    assert 6 * MIB < weights(True) <= 9 * MIB


def test_lbfgs_fills_its_history():
    def train():
        model = nn.Linear(256, 256).cuda()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, history_size=10)
        x = torch.randn(64, 256, device="cuda")

        def closure():
            optimizer.zero_grad()
            loss = (model(x) - x.sin()).pow(2).mean()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)

    fake, real = (tenon.forecast(train, real=way) for way in ("auto", "always"))
    assert fake.values == "fake" and real.values == "real"
    assert fake.live_peak_bytes == real.live_peak_bytes
    assert any("LBFGS" in note for note in fake.notes)
    assert not any("LBFGS" in note for note in real.notes)
