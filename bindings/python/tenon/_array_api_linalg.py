"""The extension linalg of the array-API standard: products and norms. There are no decompositions."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple, Union

from tenon import _tensor
from tenon import array_api as xp
from tenon._array_api_dtypes import _promoted
from tenon._tensor import Tensor
from tenon.array_api import matmul, matrix_transpose, tensordot, vecdot

Axis = Optional[Union[int, Tuple[int, ...]]]


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """[m] by [n]: [m, n]."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer: shapes {x1.shape} and {x2.shape}: give vectors")
    return xp.multiply(x1.unsqueeze(1), x2.unsqueeze(0))


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Diagonals of matrices."""
    return x.diagonal(offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals."""
    return xp.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of three."""
    a, b = xp.broadcast_arrays(*_promoted(x1, x2))
    if a.shape[axis] != 3:
        raise ValueError(f"cross: axis={axis} of shape {a.shape} has not three elements")
    u, v = a.unbind(axis), b.unbind(axis)
    parts = [u[(i + 1) % 3] * v[(i + 2) % 3] - u[(i + 2) % 3] * v[(i + 1) % 3] for i in range(3)]
    return _tensor.stack(parts, axis)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Products of a matrix with itself; n is not negative, since there is no inverse."""
    if n < 0:
        raise NotImplementedError("matrix_power: n is negative, and there is no inverse")
    made = _tensor.eye(x.shape[-1], dtype=x.dtype).expand(x.shape)
    while n:
        if n & 1:
            made = made @ x
        n >>= 1
        if n:
            x = x @ x
    return made


def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False,
                ord: Union[int, float] = 2) -> Tensor:
    """Norms of vectors."""
    size = x.abs()
    if ord == math.inf:
        return xp.max(size, axis=axis, keepdims=keepdims)
    if ord == -math.inf:
        return xp.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return xp.sum((size != 0).to(size.dtype), axis=axis, keepdims=keepdims)
    if ord == 2:
        return xp.sum(size * size, axis=axis, keepdims=keepdims).sqrt()
    return xp.sum(size**ord, axis=axis, keepdims=keepdims)**(1 / ord)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices: "fro", 1, -1, inf, -inf. The others need singular values."""
    size = x.abs()
    if ord == "fro":
        return xp.sum(size * size, axis=(-2, -1), keepdims=keepdims).sqrt()
    if ord not in (1, -1, math.inf, -math.inf):
        raise NotImplementedError(f"matrix_norm: ord={ord!r} needs singular values")
    sums = xp.sum(size, axis=-2 if abs(ord) == 1 else -1, keepdims=True)
    made = (xp.max if ord > 0 else xp.min)(sums, axis=(-2, -1), keepdims=True)
    return made if keepdims else made.squeeze((-2, -1))


__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose",
           "outer", "tensordot", "trace", "vecdot", "vector_norm"]
