"""Functions of the array-API standard that are put together from Tenon's operators."""

from __future__ import annotations

import math

from tenon import _tensor
from tenon._tensor import Tensor

_BITS = {_tensor.float16: _tensor.int16, _tensor.bfloat16: _tensor.int16,
         _tensor.float32: _tensor.int32, _tensor.float64: _tensor.int64}


def _expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, exact near 0 where x is real."""
    return _tensor.exp(x) - 1 if x.is_complex() else _tensor.expm1(x)


def _log1p(x: Tensor) -> Tensor:
    """log(1 + x), exact near 0 where x is real."""
    return _tensor.log(1 + x) if x.is_complex() else _tensor.log1p(x)


def _signbit(x: Tensor) -> Tensor:
    """Whether the sign's bit is set, also of zero and NaN."""
    if x.dtype not in _BITS:
        return x < 0
    return x.contiguous().unsqueeze(-1).view_dtype(_BITS[x.dtype]).squeeze(-1) < 0


def _copysign(x1: Tensor, x2: Tensor) -> Tensor:
    """|x1| with the sign of x2."""
    size = x1.abs()
    return _tensor.where(_signbit(x2), -size, size)


def _hypot(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(x1^2 + x2^2) without overflow."""
    a, b = x1.abs(), x2.abs()
    large, small = _tensor.maximum(a, b), _tensor.minimum(a, b)
    ratio = _tensor.where(large == 0, 0, small / large)
    found = large * (1 + ratio * ratio).sqrt()
    return _tensor.where(a.isinf() | b.isinf(), math.inf, found).to(x1.dtype)


def _logaddexp(x1: Tensor, x2: Tensor) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow."""
    found = _tensor.maximum(x1, x2) + (-(x1 - x2).abs()).exp().log1p()
    return _tensor.where(x1 == x2, x1 + math.log(2), found).to(x1.dtype)


def _nextafter(x1: Tensor, x2: Tensor) -> Tensor:
    """The next number from x1 in the direction of x2."""
    a, b = _tensor.broadcast_tensors([x1, x2])
    a = a.contiguous()
    whole = _BITS[a.dtype]
    bits = a.unsqueeze(-1).view_dtype(whole).squeeze(-1)
    away = (b > a) == (a > 0)  # from zero
    stepped = _tensor.where(away, bits + 1, bits - 1)
    found = stepped.contiguous().unsqueeze(-1).view_dtype(a.dtype).squeeze(-1)
    tiny = _tensor.ones((1,), dtype=whole).view_dtype(a.dtype).squeeze(0)
    found = _tensor.where(a == 0, _copysign(tiny, b), found)
    found = _tensor.where(a == b, b, found)
    return _tensor.where(a.isnan() | b.isnan(), math.nan, found)


def _asinh(x: Tensor) -> Tensor:
    """The inverse of sinh."""
    if x.is_complex():
        return _tensor.log(x + _tensor.sqrt(x * x + 1))
    if not x.is_floating_point():
        x = x.to(_tensor.get_default_dtype())
    size = x.abs()
    near = _tensor.log1p(size + size * size / (1 + (1 + size * size).sqrt()))
    far = size.log() + math.log(2)
    return _copysign(_tensor.where(size > 1e8, far, near), x).to(x.dtype)


def _acosh(x: Tensor) -> Tensor:
    """The inverse of cosh."""
    if x.is_complex():
        return _tensor.log(x + _tensor.sqrt(x - 1) * _tensor.sqrt(x + 1))
    if not x.is_floating_point():
        x = x.to(_tensor.get_default_dtype())
    above = x - 1
    near = _tensor.log1p(above + (above * (x + 1)).sqrt())
    found = _tensor.where(x > 1e8, x.log() + math.log(2), near)
    return _tensor.where(x < 1, math.nan, found).to(x.dtype)


def _atanh(x: Tensor) -> Tensor:
    """The inverse of tanh."""
    if x.is_complex():
        return (_tensor.log(1 + x) - _tensor.log(1 - x)) / 2
    if not x.is_floating_point():
        x = x.to(_tensor.get_default_dtype())
    size = x.abs()
    return _copysign(_tensor.log1p(2 * size / (1 - size)) / 2, x).to(x.dtype)
