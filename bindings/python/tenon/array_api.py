"""The array-API standard (data-apis.org, version 2024.12) over Tenon's tensors.

    xp = x.__array_namespace__()    # this module

Functions have the standard's names, arguments and type promotion: a tensor without dimensions
counts as any other, which is not so in `tenon` itself. The extension `linalg` has the products and
norms; there is no `fft`. Dtypes: no unsigned integer above 8 bits.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from tenon._compiled import require_tensors, tensor_module

if tensor_module is None:
    require_tensors("tenon.array_api")

from tenon import _tensor  # noqa: E402
from tenon._array_api_math import (_acosh, _asinh, _atanh, _copysign, _hypot,  # noqa: E402
                                   _expm1, _log1p, _logaddexp, _nextafter, _signbit)
from tenon._tensor import (Tensor, bool, complex64, complex128, dtype, empty_like,  # noqa: E402
                           float32, float64, full_like, int8, int16, int32, int64, ones_like,
                           uint8, zeros_like)

__array_api_version__ = "2024.12"

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

Number = Union[builtins.bool, int, float, complex]
Axis = Optional[Union[int, Tuple[int, ...]]]


def _namespace(api_version: Optional[str]) -> Any:
    """What Tensor.__array_namespace__ returns."""
    import tenon.array_api as namespace

    known = ("2021.12", "2022.12", "2023.12", "2024.12")
    if api_version is not None and api_version not in known:
        raise ValueError(f"api_version={api_version!r}: there are {', '.join(known)}")
    return namespace


# --- Dtypes.

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


# --- Creation.

asarray, empty, zeros, ones = _tensor.asarray, _tensor.empty, _tensor.zeros, _tensor.ones
full, linspace, eye = _tensor.full, _tensor.linspace, _tensor.eye
from_dlpack, tril, triu = _tensor.from_dlpack, _tensor.tril, _tensor.triu


def arange(start: Number, /, stop: Optional[Number] = None, step: Number = 1, *,
           dtype: Optional[dtype] = None, device: Optional[str] = None) -> Tensor:
    """start, start + step, ... before stop; none where the step leads away from it."""
    first, last = (0, start) if stop is None else (start, stop)
    if step != 0 and (last - first) / step <= 0:  # type: ignore[operator]
        last = first
    return _tensor.arange(first, last, step, dtype, device)


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


# --- Element-wise functions.


def _one(function: Callable[[Tensor], Tensor], name: str) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor, /) -> Tensor:
        return function(x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__ or f"{name}(x)."
    return call


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


# --- Order, search, sets.


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


# --- Shape.


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
