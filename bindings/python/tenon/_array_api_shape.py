"""Shapes of tenon.array_api."""

from __future__ import annotations

import builtins
from typing import List, Optional, Sequence, Tuple, Union

from tenon import _tensor
from tenon._array_api_dtypes import Axis, result_type
from tenon._array_api_sets import searchsorted
from tenon._tensor import Tensor, int64

__all__ = ["broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip",
           "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze",
           "stack", "take", "take_along_axis", "tile", "unstack"]


def broadcast_arrays(*arrays: Tensor) -> List[Tensor]:
    """Views of one shape."""
    return _tensor.broadcast_tensors(list(arrays))


def broadcast_shapes(*shapes: Sequence[int]) -> Tuple[int, ...]:
    """The shape that all broadcast to."""
    metas = [_tensor.empty(tuple(shape), device="meta") for shape in shapes]
    return _tensor.broadcast_tensors(metas)[0].shape if metas else ()


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """A view of another shape."""
    return x.expand(tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: Optional[int] = 0) -> Tensor:
    """Side by side along a dimension."""
    common = result_type(*arrays)
    parts = [x.to(common) for x in arrays]
    if axis is None:
        return _tensor.cat([x.reshape(-1) for x in parts], 0)
    return _tensor.cat(parts, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Side by side along a new dimension."""
    common = result_type(*arrays)
    return _tensor.stack([x.to(common) for x in arrays], axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> Tuple[Tensor, ...]:
    """The places of a dimension."""
    return tuple(x.unbind(axis))


def expand_dims(x: Tensor, /, axis: int) -> Tensor:
    """A view with a new dimension."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(f"expand_dims: axis={axis} for a tensor of {x.ndim} dimensions")
    return x.unsqueeze(axis)


def squeeze(x: Tensor, /, axis: Union[int, Tuple[int, ...]]) -> Tensor:
    """A view without dimensions of one element."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if not -x.ndim <= one < x.ndim or x.shape[one] != 1:
            raise ValueError(f"squeeze: axis={one} of shape {x.shape} has not one element")
    return x.squeeze(axes)


def flip(x: Tensor, /, *, axis: Axis = None) -> Tensor:
    """A copy with dimensions turned."""
    return _tensor.flip(x, tuple(range(x.ndim)) if axis is None else axis)


def moveaxis(x: Tensor, source: Union[int, Tuple[int, ...]],
             destination: Union[int, Tuple[int, ...]], /) -> Tensor:
    """A view with dimensions moved elsewhere."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: Tuple[int, ...]) -> Tensor:
    """A view with the dimensions in another order."""
    return x.permute(tuple(axes))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """A view with each matrix transposed."""
    return x.mT


def reshape(x: Tensor, /, shape: Tuple[int, ...], *, copy: Optional[builtins.bool] = None) -> Tensor:
    """The same elements in another shape."""
    if copy is False:
        return x.view(tuple(shape))
    made = x.reshape(tuple(shape))
    return made.clone() if copy and made.shares_memory(x) else made


def roll(x: Tensor, /, shift: Union[int, Tuple[int, ...]], *, axis: Axis = None) -> Tensor:
    """What is pushed over one end comes in at the other."""
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return _tensor.roll(x, shift, axis)


def repeat(x: Tensor, repeats: Union[int, Tensor], /, *, axis: Optional[int] = None) -> Tensor:
    """Each element several times."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    length = x.shape[axis]
    counts = _tensor.asarray(repeats, dtype=int64).reshape(-1).expand(length)
    ends = _tensor.cumsum(counts, 0)
    total = int(ends[-1]) if length else 0
    places = searchsorted(ends, _tensor.arange(total), side="right")
    return _tensor.index_select(x, axis, places)


def tile(x: Tensor, repetitions: Tuple[int, ...], /) -> Tensor:
    """As tiles, side by side."""
    return _tensor.tile(x, tuple(repetitions))


def take(x: Tensor, indices: Tensor, /, *, axis: Optional[int] = None) -> Tensor:
    """The places of a dimension that indices name."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError("take: give axis: the tensor has not one dimension")
        axis = 0
    axis = axis % x.ndim
    return x[(slice(None),) * axis + (indices,)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """An element for each index, along a dimension."""
    axis = axis % x.ndim
    shape = list(broadcast_shapes((*x.shape[:axis], 1, *x.shape[axis + 1:]),
                                  (*indices.shape[:axis], 1, *indices.shape[axis + 1:])))
    shape[axis] = x.shape[axis]
    source = x.expand(tuple(shape))
    shape[axis] = indices.shape[axis]
    places = indices.to(int64).expand(tuple(shape))
    return _tensor.gather(source, axis, _tensor.where(places < 0, places + x.shape[axis], places))
