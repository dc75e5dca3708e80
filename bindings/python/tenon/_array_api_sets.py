"""Order, search and sets of tenon.array_api."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple, Optional, Tuple

from tenon import _tensor
from tenon._array_api_dtypes import Axis, _promoted
from tenon._tensor import Tensor, bool, int64

__all__ = ["argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort",
           "unique_all", "unique_all_result", "unique_counts", "unique_counts_result",
           "unique_inverse", "unique_inverse_result", "unique_values", "where"]


def sort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False,
         stable: builtins.bool = True) -> Tensor:
    """Values in order."""
    return _tensor.sort(x, axis, descending)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False,
            stable: builtins.bool = True) -> Tensor:
    """The places of the elements in order."""
    return _tensor.argsort(x, axis, descending)


def argmax(x: Tensor, /, *, axis: Optional[int] = None, keepdims: builtins.bool = False) -> Tensor:
    """Where the first of the largest elements is."""
    return _tensor.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: Optional[int] = None, keepdims: builtins.bool = False) -> Tensor:
    """Where the first of the smallest elements is."""
    return _tensor.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements are not zero."""
    return _tensor.sum(x != 0, axis, keepdims)


def nonzero(x: Tensor, /) -> Tuple[Tensor, ...]:
    """Where x is not zero."""
    if x.ndim == 0:
        raise ValueError("nonzero: the tensor has no dimensions")
    return _tensor.nonzero(x)


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left",
                 sorter: Optional[Tensor] = None) -> Tensor:
    """Where elements of x2 belong in the sorted x1."""
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side={side!r}: give \"left\" or \"right\"")
    base = x1 if sorter is None else x1[sorter]
    wanted = x2.reshape(-1)
    # In the stable order of both, what stands before an element of x2 and comes from x1.
    parts = [wanted, base] if side == "left" else [base, wanted]
    both = _tensor.cat(parts, 0)
    order = _tensor.argsort(both, 0)
    first = 0 if side == "left" else base.size
    is_wanted = (order >= first) & (order < first + wanted.size)
    before = _tensor.cumsum((~is_wanted).to(int64), 0)
    found = _tensor.empty(wanted.shape, dtype=int64)
    found[order[is_wanted] - first] = before[is_wanted]
    return found.reshape(x2.shape)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, else x2."""
    return _tensor.where(condition, *_promoted(x1, x2))


class unique_all_result(NamedTuple):
    """Of unique_all."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class unique_counts_result(NamedTuple):
    """Of unique_counts."""

    values: Tensor
    counts: Tensor


class unique_inverse_result(NamedTuple):
    """Of unique_inverse."""

    values: Tensor
    inverse_indices: Tensor


def _order(x: Tensor) -> Tensor:
    """A stable order of a row, complex numbers by real and then imaginary part."""
    if not x.is_complex():
        return _tensor.argsort(x, 0)
    order = _tensor.argsort(x.imag.contiguous(), 0)
    return order[_tensor.argsort(x.real[order], 0)]


def unique_all(x: Tensor, /) -> unique_all_result:
    """Each value once, where it is first, where each element went, and how often it is there."""
    flat = x.reshape(-1)
    order = _order(flat)
    ordered = flat[order]
    new = _tensor.ones(flat.shape, dtype=bool)
    if flat.size:
        new[1:] = ordered[1:] != ordered[:-1]
    places = _tensor.nonzero(new)[0]
    inverse = _tensor.empty(flat.shape, dtype=int64)
    inverse[order] = _tensor.cumsum(new.to(int64), 0) - 1
    ends = _tensor.cat([places, _tensor.asarray([flat.size])], 0)
    return unique_all_result(ordered[new], order[new], inverse.reshape(x.shape),
                             ends[1:] - ends[:-1])


def unique_counts(x: Tensor, /) -> unique_counts_result:
    """Each value once, and how often it is there."""
    found = unique_all(x)
    return unique_counts_result(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> unique_inverse_result:
    """Each value once, and where each element went."""
    found = unique_all(x)
    return unique_inverse_result(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """Each value once."""
    return unique_all(x).values
