"""The search of tenon fit, over programs whose need is a formula, and what it prints."""

import pytest
from torch import nn

from tenon import _core
from tenon.fit import Fit, main, table
from tenon.forecast import ForecastError
from tenon.forecast._changes import layers
from tenon.forecast._engine import ProgramFailed

GIB = 1 << 30


class Answer:
    """A forecast of a program that needs so many bytes, live peak below that."""

    def __init__(self, need):
        self.need, self.live_peak_bytes = need, need * 93 // 100

    def figures(self):
        return {"default": {"min_capacity_bytes": self.need}}

    def fits(self, capacity, expandable=False):
        return self.need <= capacity


class Simulated(Fit):
    """The search, with `need` bytes for each value."""

    need = staticmethod(lambda value: 0)

    def forecast(self, value, change="", shard=""):
        return self.forecasts.setdefault((value, ""), Answer(int(self.need(value))))


NEEDS = {
    "straight": lambda value: GIB + value * 2345678,
    "steep": lambda value: GIB + value * 900 * 2**20,
    "square": lambda value: GIB + value * 1e5 + value * value * 7,
    "steps": lambda value: (GIB + value * 2345678) // (20 << 20) * (20 << 20),
    "root": lambda value: GIB + value**0.5 * 1e8,
}


@pytest.mark.parametrize("capacity", [8 * GIB, 80 * GIB])
@pytest.mark.parametrize("name", NEEDS)
def test_the_search_takes_few_forecasts(name, capacity):
    fit = Simulated("", [], "n", capacity, card="H100", steps=3, expandable=False)
    fit.need = NEEDS[name]
    found = fit.largest()
    assert NEEDS[name](found) <= capacity < NEEDS[name](found + 1)
    assert {(found, ""), (found + 1, "")} <= set(fit.forecasts) and len(fit.forecasts) <= 20


class Reserving(Answer):
    """A forecast that reserves half as much again where nothing limits it."""

    def figures(self):
        found = {"min_capacity_bytes": self.need, "reserved_peak_bytes": self.need * 3 // 2}
        return {"live_peak_bytes": self.live_peak_bytes, "default": found,
                "expandable": {**found, "min_capacity_bytes": self.need - GIB}}

    def without_optimizer_state(self):
        return self

    @property
    def devices(self):
        return [self]

    def replay(self, policy, passes, find_capacity=False):
        return {policy: self.figures()["default"]}


class Printed(Fit):
    """Needs a GiB for each value; autocast fails."""

    def forecast(self, value, change="", shard=""):
        if change == "bf16":
            raise ForecastError("batch=6: no bf16 here")
        return Reserving(value * GIB)


def test_what_is_printed_beside_a_capacity_is_of_that_condition(monkeypatch, capsys):
    monkeypatch.setattr("tenon.fit.Fit", Printed)
    assert main(["train.py", "--capacity", "6GiB", "--vary", "batch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "batch = 6 is the largest that fits on H100 with 6 GiB; 7 does not"
    assert "smallest card" in lines[2] and "reserved" not in lines[2]
    rows = {line[:34].strip(): line[34:].split() for line in lines[3:10]}
    assert rows["as it is"] == ["5.58", "GiB", "6", "GiB", "-"]
    assert rows["expandable segments"][2:6] == ["5", "GiB", "1", "GiB"]
    assert rows["half of it, accumulated twice"][2:6] == ["3", "GiB", "3", "GiB"]


def test_a_change_with_which_the_program_fails_saves_nothing():
    rows = Printed("", [], "batch", 6 * GIB, card="H100", steps=3, expandable=False).what_ifs(6)
    (failed,) = [line for line in table("", rows).splitlines() if "bf16" in line]
    assert failed.split()[2:5] == ["-", "-", "-"] and failed.endswith("batch=6: no bf16 here")
    assert not any(line.endswith(" ") for line in table("", rows).splitlines())
    assert _core.format_bytes(0) not in table("", rows)


@pytest.mark.parametrize("change, hint", [("", True), ("bf16", False)])
def test_only_a_value_that_fails_is_told_of_multiples(monkeypatch, change, hint):
    def fails(*_, **__):
        raise ProgramFailed("no bfloat16 here")

    monkeypatch.setattr("tenon.forecast._run.run_script", fails)
    fit = Fit("train.py", [], "batch", GIB, card="T4", steps=3, expandable=False)
    with pytest.raises(ForecastError) as raised:
        fit.forecast(8, change)
    assert ("--multiple-of" in str(raised.value)) == hint and "no bfloat16" in str(raised.value)


def test_layers_between_others_are_checkpointed():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

    blocks = [Block() for _ in range(3)]
    stages = [nn.Sequential(*[Block() for _ in range(2)]) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(8, 8), *blocks, *stages, nn.Linear(8, 8))
    assert layers(model) == [*blocks, *stages[0], *stages[1]]
    assert layers(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))) == []
    assert layers(nn.ModuleList(stages)) == [*stages, *stages[0], *stages[1]]
