"""The array-API standard (data-apis.org, version 2024.12) over Tenon's tensors.

    xp = x.__array_namespace__()    # this module

Functions have the standard's names, arguments and type promotion: a tensor without dimensions
counts as any other, which is not so in `tenon` itself. The extension `linalg` has the products and
norms; there is no `fft`. Dtypes: no unsigned integer above 8 bits.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from tenon._compiled import require_tensors, tensor_module

if tensor_module is None:
    require_tensors("tenon.array_api")

from tenon import _tensor  # noqa: E402
from tenon._array_api_dtypes import *  # noqa: E402,F401,F403
from tenon._array_api_dtypes import Axis, Number, _promoted, isdtype  # noqa: E402
from tenon._array_api_elementwise import *  # noqa: E402,F401,F403
from tenon._array_api_elementwise import conj  # noqa: E402
from tenon._array_api_sets import *  # noqa: E402,F401,F403
from tenon._array_api_shape import *  # noqa: E402,F401,F403
from tenon._array_api_shape import broadcast_arrays, concat  # noqa: E402
from tenon._tensor import (Tensor, bool, complex64, complex128, dtype, empty_like,  # noqa: E402
                           float32, float64, full_like, int8, int16, int32, int64, ones_like,
                           uint8, zeros_like)

__array_api_version__ = "2024.12"

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

def _namespace(api_version: Optional[str]) -> Any:
    """What Tensor.__array_namespace__ returns."""
    import tenon.array_api as namespace

    known = ("2021.12", "2022.12", "2023.12", "2024.12")
    if api_version is not None and api_version not in known:
        raise ValueError(f"api_version={api_version!r}: there are {', '.join(known)}")
    return namespace


# --- Creation.

asarray, empty, zeros, ones = _tensor.asarray, _tensor.empty, _tensor.zeros, _tensor.ones
full, linspace = _tensor.full, _tensor.linspace
from_dlpack, tril, triu = _tensor.from_dlpack, _tensor.tril, _tensor.triu


def arange(start: Number, /, stop: Optional[Number] = None, step: Number = 1, *,
           dtype: Optional[dtype] = None, device: Optional[str] = None) -> Tensor:
    """start, start + step, ... before stop; none where the step leads away from it."""
    first, last = (0, start) if stop is None else (start, stop)
    if step != 0 and (last - first) / step <= 0:  # type: ignore[operator]
        last = first
    return _tensor.arange(first, last, step, dtype, device)


def eye(n_rows: int, n_cols: Optional[int] = None, /, *, k: int = 0,
        dtype: Optional[dtype] = None, device: Optional[str] = None) -> Tensor:
    """Ones on the k-th diagonal above the main one; none where that is outside, however far."""
    columns = n_rows if n_cols is None else n_cols
    inside = builtins.max(-n_rows, builtins.min(k, columns))
    return _tensor.eye(n_rows, n_cols, k=inside, dtype=dtype, device=device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> List[Tensor]:
    """Coordinates of a grid."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing={indexing!r}: give \"xy\" or \"ij\"")
    count = len(arrays)
    swapped = indexing == "xy" and count > 1
    places = [1, 0, *range(2, count)] if swapped else list(range(count))
    shaped = [x.reshape([-1 if d == places[i] else 1 for d in range(count)])
              for i, x in enumerate(arrays)]
    return broadcast_arrays(*shaped)


# --- Reductions.

def _accumulator(x: Tensor, wanted: Optional[dtype]) -> dtype:
    if wanted is not None:
        return wanted
    return int64 if isdtype(x.dtype, ("integral", "bool")) else x.dtype


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Optional[dtype] = None,
        keepdims: builtins.bool = False) -> Tensor:
    """Sums."""
    return _tensor.sum(x.to(_accumulator(x, dtype)), axis, keepdims).to(_accumulator(x, dtype))


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Optional[dtype] = None,
         keepdims: builtins.bool = False) -> Tensor:
    """Products."""
    return _tensor.prod(x.to(_accumulator(x, dtype)), axis, keepdims).to(_accumulator(x, dtype))


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Means."""
    return _tensor.mean(x, axis, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest elements."""
    return _tensor.amax(x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest elements."""
    return _tensor.amin(x, axis, keepdims)


def _variance(x: Tensor, axis: Axis, correction: float, keepdims: builtins.bool) -> Tensor:
    mean = _tensor.mean(x, axis, True)
    squares = _tensor.sum((x - mean).square(), axis, keepdims)
    kept = _tensor.sum(ones_like(x), axis, keepdims)
    return squares / _tensor.clamp(kept - correction, 0)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0,
        keepdims: builtins.bool = False) -> Tensor:
    """Squared deviations, divided by count - correction."""
    return _variance(x, axis, correction, keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0,
        keepdims: builtins.bool = False) -> Tensor:
    """The square root of var."""
    return _variance(x, axis, correction, keepdims).sqrt()


def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether no element is zero."""
    return _tensor.all(x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether an element is not zero."""
    return _tensor.any(x, axis, keepdims)


def _running(function: Callable[[Tensor, int], Tensor], start: int, x: Tensor, axis: Optional[int],
             dtype: Optional[dtype], include_initial: builtins.bool) -> Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ValueError("give axis: the tensor has more than one dimension")
        axis = 0
    wanted = _accumulator(x, dtype)
    made = function(x.to(wanted), axis).to(wanted)
    if include_initial:
        axis = axis % x.ndim
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1:])
        made = _tensor.cat([_tensor.full(shape, start, dtype=wanted), made], axis)
    return made


def cumulative_sum(x: Tensor, /, *, axis: Optional[int] = None, dtype: Optional[dtype] = None,
                   include_initial: builtins.bool = False) -> Tensor:
    """Sums up to each element."""
    return _running(_tensor.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Tensor, /, *, axis: Optional[int] = None, dtype: Optional[dtype] = None,
                    include_initial: builtins.bool = False) -> Tensor:
    """Products up to each element."""
    return _running(_tensor.cumprod, 1, x, axis, dtype, include_initial)


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Optional[Tensor] = None,
         append: Optional[Tensor] = None) -> Tensor:
    """Differences of neighbours, n times."""
    parts = [part for part in (prepend, x, append) if part is not None]
    made = concat(parts, axis=axis) if len(parts) > 1 else x
    for _ in range(n):
        length = made.shape[axis]
        after = made.narrow(axis, builtins.min(1, length), builtins.max(length - 1, 0))
        before = made.narrow(axis, 0, builtins.max(length - 1, 0))
        made = after != before if made.dtype is bool else after - before
    return made


# --- Products.

def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Matrix product."""
    return _tensor.matmul(*_promoted(x1, x2))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Products of vectors along a dimension, the first conjugated."""
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: axis={axis} of shapes {x1.shape} and {x2.shape}: not alike")
    a, b = _promoted(x1, x2)
    return sum(conj(a) * b, axis=axis, dtype=a.dtype)


def tensordot(x1: Tensor, x2: Tensor, /, *,
              axes: Union[int, Tuple[Sequence[int], Sequence[int]]] = 2) -> Tensor:
    """Products added up over several dimensions."""
    if isinstance(axes, int):
        first = list(range(x1.ndim - axes, x1.ndim))
        second = list(range(axes))
    else:
        first = [one % x1.ndim for one in axes[0]]
        second = [one % x2.ndim for one in axes[1]]
    if [x1.shape[d] for d in first] != [x2.shape[d] for d in second]:
        raise ValueError(f"tensordot: axes {axes} of shapes {x1.shape} and {x2.shape}: not alike")
    a, b = _promoted(x1, x2)
    kept1 = [d for d in range(a.ndim) if d not in first]
    kept2 = [d for d in range(b.ndim) if d not in second]
    inner = math.prod(a.shape[d] for d in first)
    left = a.permute((*kept1, *first)).reshape(math.prod(a.shape[d] for d in kept1), inner)
    right = b.permute((*second, *kept2)).reshape(inner, math.prod(b.shape[d] for d in kept2))
    shape = (*(a.shape[d] for d in kept1), *(b.shape[d] for d in kept2))
    return _tensor.matmul(left, right).reshape(shape)


from tenon import _array_api_linalg as linalg  # noqa: E402,F401
