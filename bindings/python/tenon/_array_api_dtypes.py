"""Dtypes of tenon.array_api: kinds, limits, promotion, and what the namespace has."""

from __future__ import annotations

import builtins
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from tenon import _tensor
from tenon._tensor import (Tensor, bool, complex64, complex128, dtype, float32, float64, int8,
                           int16, int32, int64, uint8)

__all__ = ["Axis", "Number", "__array_namespace_info__", "astype", "can_cast", "finfo",
           "finfo_object", "iinfo", "iinfo_object", "isdtype", "result_type"]


Number = Union[builtins.bool, int, float, complex]
Axis = Optional[Union[int, Tuple[int, ...]]]

_KINDS: Dict[str, Tuple[dtype, ...]] = {
    "bool": (bool,), "signed integer": (int8, int16, int32, int64), "unsigned integer": (uint8,),
    "real floating": (float32, float64), "complex floating": (complex64, complex128)}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


def isdtype(dtype: dtype, kind: Union[str, dtype, Tuple[Union[str, Any], ...]]) -> builtins.bool:
    """Whether a dtype is of a kind, or of one of several."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"kind {kind!r}: there are {', '.join(_KINDS)}")
        return dtype in _KINDS[kind]
    return dtype is kind


def _is_float(x: Tensor) -> builtins.bool:
    return x.dtype.is_floating_point


def astype(x: Tensor, dtype: dtype, /, *, copy: builtins.bool = True,
           device: Optional[str] = None) -> Tensor:
    """In another dtype."""
    made = x.astype(dtype, copy=copy)
    return made if device is None else made.to_device(device)


def can_cast(from_: Union[dtype, Tensor], to: dtype, /) -> builtins.bool:
    """Whether promotion may turn one dtype into the other."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    return _tensor.promote_types(source, to) is to


class finfo_object(NamedTuple):
    """Limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype


class iinfo_object(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: dtype


def finfo(type: Union[dtype, Tensor], /) -> finfo_object:
    """Limits of a floating-point dtype, or of a complex one's parts."""
    of = type.dtype if isinstance(type, Tensor) else type
    parts = {complex64: float32, complex128: float64}.get(of, of)
    limits = {float32: (32, 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-126),
              float64: (64, 2.0**-52, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022),
              _tensor.float16: (16, 2.0**-10, 65504.0, 2.0**-14),
              _tensor.bfloat16: (16, 2.0**-7, (2 - 2.0**-7) * 2.0**127, 2.0**-126)}
    if parts not in limits:
        raise TypeError(f"finfo: {of} is not floating point")
    bits, eps, largest, smallest = limits[parts]
    return finfo_object(bits, eps, largest, -largest, smallest, parts)


def iinfo(type: Union[dtype, Tensor], /) -> iinfo_object:
    """Limits of an integer dtype."""
    of = type.dtype if isinstance(type, Tensor) else type
    if of not in _KINDS["integral"]:
        raise TypeError(f"iinfo: {of} is no integer")
    bits = 8 * of.itemsize
    if of is uint8:
        return iinfo_object(bits, 255, 0, of)
    return iinfo_object(bits, 2**(bits - 1) - 1, -2**(bits - 1), of)


def result_type(*arrays_and_dtypes: Union[Tensor, dtype, Number]) -> dtype:
    """The dtype that an operation on these computes in."""
    dtypes: List[dtype] = []
    for one in arrays_and_dtypes:
        if isinstance(one, Tensor):
            dtypes.append(one.dtype)
        elif isinstance(one, dtype):
            dtypes.append(one)
    if not dtypes:
        raise ValueError("result_type: give at least one array or dtype")
    found = dtypes[0]
    for other in dtypes[1:]:
        found = _tensor.promote_types(found, other)
    for one in arrays_and_dtypes:
        if isinstance(one, (builtins.bool, int, float, complex)):
            found = _tensor.result_type(_tensor.empty(1, dtype=found), one)
    return found


class __array_namespace_info__:
    """What this namespace has."""

    def capabilities(self) -> Dict[str, Any]:
        """Indexing by masks, shapes that depend on data, dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Where tensors are made."""
        return "cpu"

    def default_dtypes(self, *, device: Optional[str] = None) -> Dict[str, dtype]:
        """What numbers become."""
        real = _tensor.get_default_dtype()
        return {"real floating": real, "integral": int64, "indexing": int64,
                "complex floating": complex128 if real is float64 else complex64}

    def devices(self) -> List[str]:
        """The devices."""
        return ["cpu", "meta"]

    def dtypes(self, *, device: Optional[str] = None,
               kind: Optional[Union[str, Tuple[str, ...]]] = None) -> Dict[str, dtype]:
        """The dtypes of a kind, by name."""
        every = _KINDS["bool"] + _KINDS["numeric"]
        return {one.name: one for one in every if kind is None or isdtype(one, kind)}


def _promoted(x1: Any, x2: Any) -> Tuple[Tensor, Tensor]:
    """Both in the standard's result type."""
    if not isinstance(x1, Tensor):
        if not isinstance(x2, Tensor):
            raise TypeError("give at least one tensor")
        x1 = _tensor.asarray(x1, dtype=result_type(x2, x1))
    if not isinstance(x2, Tensor):
        x2 = _tensor.asarray(x2, dtype=result_type(x1, x2))
    common = _tensor.promote_types(x1.dtype, x2.dtype)
    return x1.to(common), x2.to(common)
