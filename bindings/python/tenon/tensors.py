"""Tensors: everything that `tenon` has of them, e.g. `tenon.zeros`, `tenon.Tensor`.

Functions and methods have PyTorch's names and NumPy's broadcasting; `tenon.array_api` is the same
by the array-API standard, `tenon.nn` has modules, `tenon.optim` optimisers, `tenon.autograd` what
gradients need besides.
"""

from __future__ import annotations

import builtins
import math
from typing import List, Optional, Sequence

from tenon._compiled import tensor_module

if tensor_module is None:  # pragma: no cover: raises
    from tenon._compiled import require_tensors

    require_tensors()

from tenon._tensor import *  # noqa: E402,F401,F403
from tenon import _tensor  # noqa: E402
from tenon._tensor import Tensor  # noqa: E402
from tenon.autograd import (enable_grad, inference_mode, no_grad,  # noqa: E402,F401
                            set_grad_enabled)

pi: builtins.float = math.pi
e: builtins.float = math.e
inf: builtins.float = math.inf
nan: builtins.float = math.nan
newaxis: None = None

# NumPy's names for the same functions.
absolute = _tensor.abs
negative = _tensor.neg
subtract = _tensor.sub
multiply = _tensor.mul
divide = _tensor.div
true_divide = _tensor.div
power = _tensor.pow
mod = _tensor.remainder
clip = _tensor.clamp
concatenate = _tensor.cat
equal = _tensor.eq
not_equal = _tensor.ne
less = _tensor.lt
less_equal = _tensor.le
greater = _tensor.gt
greater_equal = _tensor.ge
invert = _tensor.bitwise_not
arcsin = _tensor.asin
arccos = _tensor.acos
arctan = _tensor.atan
arctan2 = _tensor.atan2
rint = _tensor.round


def is_tensor(x: object) -> builtins.bool:
    """Whether x is a tensor of Tenon."""
    return isinstance(x, Tensor)


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in another shape: a view where there can be one."""
    return x.reshape(shape)


def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    """A view with the dimensions in another order."""
    return x.permute(dims)


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with two dimensions exchanged."""
    return x.transpose(dim0, dim1)


def squeeze(x: Tensor, dim: Optional[int] = None) -> Tensor:
    """A view without dimensions of one element."""
    return x.squeeze(dim)


def unsqueeze(x: Tensor, dim: builtins.int) -> Tensor:
    """A view with a new dimension of one element."""
    return x.unsqueeze(dim)


def flatten(x: Tensor, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
    """Neighbouring dimensions as one."""
    return x.flatten(start_dim, end_dim)


def split(x: Tensor, split_size: int | Sequence[int], dim: builtins.int = 0) -> List[Tensor]:
    """Pieces of a dimension, as views."""
    return x.split(split_size, dim)


def chunk(x: Tensor, chunks: int, dim: builtins.int = 0) -> List[Tensor]:
    """A number of pieces of a dimension, as views."""
    return x.chunk(chunks, dim)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Diagonals, as a view."""
    return x.diagonal(offset, dim1, dim2)


def clone(x: Tensor) -> Tensor:
    """A copy in memory of its own; gradients flow through."""
    return x.clone()


def allclose(a: Tensor, b: Tensor, rtol: builtins.float = 1e-5, atol: builtins.float = 1e-8,
             equal_nan: builtins.bool = False) -> builtins.bool:
    """Whether all elements are within atol + rtol * |b|."""
    close = (a == b) | ((a - b).abs() <= atol + rtol * b.abs())
    if equal_nan:
        close = close | (a.isnan() & b.isnan())
    return builtins.bool(close.all())


def dropout(x: Tensor, p: builtins.float = 0.5, training: builtins.bool = True) -> Tensor:
    """Each element 0 with probability p, and otherwise divided by 1 - p."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p={p}: give a probability from 0 to 1")
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0
    mask = _tensor.empty_like(x.detach()).bernoulli_(1 - p)
    return x * (mask * (1 / (1 - p)))


def _rebuild(data: bytes, dtype: _tensor.dtype, shape: Sequence[int],
             requires_grad: builtins.bool) -> Tensor:
    """What a pickled tensor names."""
    return _tensor._rebuild(data, dtype, shape, requires_grad)
