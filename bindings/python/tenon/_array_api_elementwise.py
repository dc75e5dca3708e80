"""Element-wise functions of tenon.array_api."""

from __future__ import annotations

import builtins
import operator
from typing import Any, Callable

from tenon import _tensor
from tenon._array_api_dtypes import _is_float, _promoted, iinfo
from tenon._array_api_math import (_acosh, _asinh, _atanh, _copysign, _expm1, _hypot, _log1p,
                                   _logaddexp, _nextafter, _signbit)
from tenon._tensor import Tensor, complex64, complex128, float32, zeros_like

__all__ = ["abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
           "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
           "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos", "cosh", "divide", "equal",
           "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag",
           "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2",
           "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum",
           "minimum", "multiply", "negative", "nextafter", "not_equal", "positive", "pow", "real",
           "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square",
           "subtract", "tan", "tanh", "trunc"]


def _one(function: Callable[[Tensor], Tensor], name: str) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor, /) -> Tensor:
        return function(x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__ or f"{name}(x)."
    return call


def _two(function: Callable[[Tensor, Tensor], Tensor],
         name: str) -> Callable[[Tensor, Tensor], Tensor]:
    def call(x1: Tensor, x2: Tensor, /) -> Tensor:
        return function(*_promoted(x1, x2))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__ or f"{name}(x1, x2)."
    return call


abs = _one(_tensor.abs, "abs")
acos = _one(_tensor.acos, "acos")
asin = _one(_tensor.asin, "asin")
atan = _one(_tensor.atan, "atan")
cos = _one(_tensor.cos, "cos")
cosh = _one(_tensor.cosh, "cosh")
sin = _one(_tensor.sin, "sin")
sinh = _one(_tensor.sinh, "sinh")
tan = _one(_tensor.tan, "tan")
tanh = _one(_tensor.tanh, "tanh")
exp = _one(_tensor.exp, "exp")
expm1 = _one(_expm1, "expm1")
log = _one(_tensor.log, "log")
log1p = _one(_log1p, "log1p")
log2 = _one(_tensor.log2, "log2")
log10 = _one(_tensor.log10, "log10")
sqrt = _one(_tensor.sqrt, "sqrt")
square = _one(_tensor.square, "square")
reciprocal = _one(_tensor.reciprocal, "reciprocal")
negative = _one(_tensor.neg, "negative")
floor = _one(_tensor.floor, "floor")
ceil = _one(_tensor.ceil, "ceil")
trunc = _one(_tensor.trunc, "trunc")
isnan = _one(_tensor.isnan, "isnan")
isinf = _one(_tensor.isinf, "isinf")
isfinite = _one(_tensor.isfinite, "isfinite")
logical_not = _one(_tensor.logical_not, "logical_not")
bitwise_invert = _one(_tensor.bitwise_not, "bitwise_invert")
acosh, asinh, atanh = _one(_acosh, "acosh"), _one(_asinh, "asinh"), _one(_atanh, "atanh")
signbit = _one(_signbit, "signbit")

add = _two(_tensor.add, "add")
subtract = _two(_tensor.sub, "subtract")
multiply = _two(_tensor.mul, "multiply")
divide = _two(_tensor.div, "divide")
pow = _two(_tensor.pow, "pow")
atan2 = _two(_tensor.atan2, "atan2")
remainder = _two(_tensor.remainder, "remainder")
floor_divide = _two(_tensor.floor_divide, "floor_divide")
maximum = _two(_tensor.maximum, "maximum")
minimum = _two(_tensor.minimum, "minimum")
equal = _two(_tensor.eq, "equal")
not_equal = _two(_tensor.ne, "not_equal")
less = _two(_tensor.lt, "less")
less_equal = _two(_tensor.le, "less_equal")
greater = _two(_tensor.gt, "greater")
greater_equal = _two(_tensor.ge, "greater_equal")
bitwise_and = _two(_tensor.bitwise_and, "bitwise_and")
bitwise_or = _two(_tensor.bitwise_or, "bitwise_or")
bitwise_xor = _two(_tensor.bitwise_xor, "bitwise_xor")
bitwise_left_shift = _two(operator.lshift, "bitwise_left_shift")
bitwise_right_shift = _two(operator.rshift, "bitwise_right_shift")
logical_and = _two(_tensor.logical_and, "logical_and")
logical_or = _two(_tensor.logical_or, "logical_or")
logical_xor = _two(_tensor.logical_xor, "logical_xor")
copysign, hypot = _two(_copysign, "copysign"), _two(_hypot, "hypot")
logaddexp, nextafter = _two(_logaddexp, "logaddexp"), _two(_nextafter, "nextafter")


def _complex_of(real: Tensor, imag: Tensor) -> Tensor:
    of = complex64 if real.dtype is float32 else complex128
    made = _tensor.empty(real.shape, dtype=of)
    made.real.copy_(real)
    made.imag.copy_(imag)
    return made


def round(x: Tensor, /) -> Tensor:
    """To the nearest whole number, halves to even."""
    if x.is_complex():
        return _complex_of(_tensor.round(x.real), _tensor.round(x.imag))
    return _tensor.round(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0, 1 or NaN; of a complex number z / |z|."""
    found = _tensor.sign(x)
    return _tensor.where(x == x, found, x) if _is_float(x) else found


def positive(x: Tensor, /) -> Tensor:
    """+x."""
    return x.clone()


def conj(x: Tensor, /) -> Tensor:
    """The conjugate."""
    return x.conj() if x.is_complex() else x


def real(x: Tensor, /) -> Tensor:
    """The real parts."""
    return x.real


def imag(x: Tensor, /) -> Tensor:
    """The imaginary parts."""
    return x.imag if x.is_complex() else zeros_like(x)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """x within bounds, in x's dtype."""
    made = x.clone()
    for bound, function in ((min, _tensor.maximum), (max, _tensor.minimum)):
        if bound is None:
            continue
        if not isinstance(bound, Tensor):
            if not _is_float(x):  # a bound beyond the dtype bounds nothing
                limits = iinfo(x.dtype)
                bound = builtins.max(limits.min, builtins.min(limits.max, bound))
            bound = _tensor.asarray(bound, dtype=x.dtype)
        made = function(made, bound.to(made.dtype))
    return made
