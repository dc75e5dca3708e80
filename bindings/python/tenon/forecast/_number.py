"""Numbers that a program reads and that a forecast does not know."""

from __future__ import annotations

import math
from typing import Any, Callable, Tuple


class Number(float):
    """A float that says so when the program decides by it; results of arithmetic do the same."""

    decide: Callable[[bool], bool]

    def __new__(cls, value: float, decide: Callable[[bool], bool]) -> "Number":
        number = super().__new__(cls, value)
        number.decide = decide
        return number

    __hash__ = float.__hash__

    def __reduce__(self) -> Tuple[Any, ...]:
        return float, (float(self),)

    def __round__(self, digits: Any = None) -> Any:
        return super().__round__(digits)

    def __bool__(self) -> bool:
        return self.decide(float.__bool__(self))


def _arithmetic(name: str) -> Callable[..., Any]:
    real = getattr(float, name)

    def method(self: Number, *others: Any) -> Any:
        try:
            result = real(self, *others)
        except ZeroDivisionError:  # an unknown divisor
            result = math.inf
        return Number(result, self.decide) if type(result) is float else result

    return method


def _comparison(name: str) -> Callable[..., Any]:
    real = getattr(float, name)

    def method(self: Number, other: Any) -> Any:
        result = real(self, other)
        infinite = isinstance(other, float) and not math.isfinite(other)
        if result is NotImplemented or other is self or infinite:
            return result
        return self.decide(result)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _side in ("", "r"):
        setattr(Number, f"__{_side}{_name}__", _arithmetic(f"__{_side}{_name}__"))
for _name in ("neg", "pos", "abs"):
    setattr(Number, f"__{_name}__", _arithmetic(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Number, f"__{_name}__", _comparison(f"__{_name}__"))
