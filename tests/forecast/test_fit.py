"""The search of tenon fit, over programs whose need is a formula."""

import pytest

from tenon.fit import Fit

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
