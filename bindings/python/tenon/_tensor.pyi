"""Tenon's compiled tensors; use the package tenon."""

import builtins
import collections.abc
import typing
from collections.abc import Mapping, Sequence
from typing import overload

import tenon._core
import tenon._typing


class dtype:
    """The kind of a tensor's elements: tenon.float32 and the like."""

    @property
    def name(self) -> str:
        """"float32", as NumPy says."""

    @property
    def itemsize(self) -> builtins.int:
        """Bytes of an element."""

    @property
    def is_floating_point(self) -> builtins.bool:
        """Real floating point."""

    @property
    def is_complex(self) -> builtins.bool:
        """Two floating-point numbers."""

    @property
    def is_signed(self) -> builtins.bool:
        """Whether it has negative numbers."""

    def __repr__(self) -> str: ...

    def __reduce__(self) -> str: ...

bool: dtype = ...

uint8: dtype = ...

int8: dtype = ...

int16: dtype = ...

int32: dtype = ...

int64: dtype = ...

float16: dtype = ...

bfloat16: dtype = ...

float32: dtype = ...

float64: dtype = ...

complex64: dtype = ...

complex128: dtype = ...

uint16: dtype = ...

uint32: dtype = ...

uint64: dtype = ...

float8_e4m3fn: dtype = ...

float8_e5m2: dtype = ...

qint8: dtype = ...

class Tensor:
    """
    Elements of one dtype in a box of up to 64 dimensions.

    tenon.tensor, tenon.asarray, tenon.zeros and the like make one. Memory comes from the thread's
    current allocator (tenon.use).
    """

    def __hash__(self, /) -> builtins.int:
        """Return hash(self)."""

    def __lt__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self<value."""

    def __le__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self<=value."""

    def __eq__(self, value: tenon._typing.Operand, /) -> Tensor:  # type: ignore[override]
        """Return self==value."""

    def __ne__(self, value: tenon._typing.Operand, /) -> Tensor:  # type: ignore[override]
        """Return self!=value."""

    def __gt__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self>value."""

    def __ge__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self>=value."""

    def __iter__(self, /) -> collections.abc.Iterator[Tensor]:
        """Implement iter(self)."""

    def __init__(self, data: object, dtype: tenon._typing.DTypeLike | None = None) -> None:
        """
        Of data, as tenon.tensor; of a tensor: its elements, shared, without gradient.
        """

    def __add__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self+value."""

    def __radd__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value+self."""

    def __sub__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self-value."""

    def __rsub__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value-self."""

    def __mul__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self*value."""

    def __rmul__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value*self."""

    def __mod__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self%value."""

    def __rmod__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value%self."""

    def __pow__(self, value: tenon._typing.Operand, mod: None = None, /) -> Tensor:
        """Return pow(self, value, mod)."""

    def __rpow__(self, value: tenon._typing.Operand, mod: None = None, /) -> Tensor:
        """Return pow(value, self, mod)."""

    def __neg__(self, /) -> Tensor:
        """-self"""

    def __pos__(self, /) -> Tensor:
        """+self"""

    def __abs__(self, /) -> Tensor:
        """abs(self)"""

    def __bool__(self, /) -> builtins.bool:
        """True if self else False"""

    def __invert__(self, /) -> Tensor:
        """~self"""

    def __lshift__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self<<value."""

    def __rlshift__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value<<self."""

    def __rshift__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self>>value."""

    def __rrshift__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value>>self."""

    def __and__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self&value."""

    def __rand__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value&self."""

    def __xor__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self^value."""

    def __rxor__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value^self."""

    def __or__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self|value."""

    def __ror__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value|self."""

    def __int__(self, /) -> builtins.int:
        """int(self)"""

    def __float__(self, /) -> builtins.float:
        """float(self)"""

    def __iadd__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self+=value."""

    def __isub__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self-=value."""

    def __imul__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self*=value."""

    def __imod__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self%=value."""

    def __ipow__(self, value: tenon._typing.Operand, /) -> Tensor:  # type: ignore[misc]
        """Return self**=value."""

    def __iand__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self&=value."""

    def __ixor__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self^=value."""

    def __ior__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self|=value."""

    def __floordiv__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self//value."""

    def __rfloordiv__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value//self."""

    def __truediv__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self/value."""

    def __rtruediv__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return value/self."""

    def __ifloordiv__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self//=value."""

    def __itruediv__(self, value: tenon._typing.Operand, /) -> Tensor:
        """Return self/=value."""

    def __index__(self, /) -> builtins.int:
        """
        Return self converted to an integer, if self is suitable for use as an index into a list.
        """

    def __matmul__(self, value: Tensor, /) -> Tensor:
        """Return self@value."""

    def __rmatmul__(self, value: Tensor, /) -> Tensor:
        """Return value@self."""

    def __len__(self, /) -> builtins.int:
        """Return len(self)."""

    def __getitem__(self, key: object, /) -> Tensor:
        """Return self[key]."""

    def __setitem__(self, key: object, value: object, /) -> None:
        """Set self[key] to value."""

    def __delitem__(self, key: object, /) -> None:
        """Delete self[key]."""

    def __contains__(self, key: object, /) -> builtins.bool:
        """Return key in self."""

    __array_priority__: builtins.int = 1000

    __array_ufunc__: None = None

    @property
    def shape(self) -> tuple[builtins.int, ...]:
        """The lengths of the dimensions."""

    @property
    def strides(self) -> tuple[builtins.int, ...]:
        """Bytes from one element to the next, by dimension."""

    def stride(self) -> tuple[builtins.int, ...]:
        """Elements from one to the next, by dimension."""

    @property
    def dtype(self) -> dtype:
        """The kind of element."""

    @property
    def device(self) -> str:
        """Where the elements are: "cpu", "meta", "sim:0"."""

    @property
    def ndim(self) -> builtins.int:
        """The number of dimensions."""

    def dim(self) -> builtins.int:
        """The number of dimensions."""

    @property
    def size(self) -> builtins.int:
        """The number of elements, as in NumPy."""

    def numel(self) -> builtins.int:
        """The number of elements."""

    @property
    def itemsize(self) -> builtins.int:
        """Bytes of an element."""

    @property
    def nbytes(self) -> builtins.int:
        """Bytes of all elements."""

    def storage_offset(self) -> builtins.int:
        """Elements before the first one."""

    def data_ptr(self) -> builtins.int:
        """The address of the first element."""

    def is_contiguous(self) -> builtins.bool:
        """Whether the elements lie one after another, in row-major order."""

    def shares_memory(self, other: Tensor) -> builtins.bool:
        """Whether both are views of the same storage."""

    @property
    def version(self) -> builtins.int:
        """How often the values were changed in place."""

    @property
    def is_sparse(self) -> builtins.bool:
        """Whether only elements that are not zero are stored."""

    def is_floating_point(self) -> builtins.bool:
        """Whether the elements are real floating point."""

    def is_complex(self) -> builtins.bool:
        """Whether the elements are complex."""

    def __repr__(self) -> str: ...

    def __str__(self) -> str: ...

    def view(self, *args: object) -> Tensor:
        """
        The same elements in another shape; ValueError where that needs a copy.
        """

    def reshape(self, *args: object) -> Tensor:
        """
        The same elements in another shape: a view, or a copy where there can be none.
        """

    def permute(self, *args: object) -> Tensor:
        """A view with the dimensions in another order."""

    def expand(self, *args: object) -> Tensor:
        """
        A view in which dimensions of one element are repeated; -1 keeps a length.
        """

    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """A view with two dimensions exchanged."""

    def t(self) -> Tensor:
        """A matrix transposed, as a view."""

    def movedim(self, source: tenon._typing.Shape, destination: tenon._typing.Shape) -> Tensor:
        """A view with dimensions moved elsewhere."""

    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Neighbouring dimensions as one."""

    def unflatten(self, dim: builtins.int, sizes: tenon._typing.Shape) -> Tensor:
        """One dimension as several."""

    def squeeze(self, dim: tenon._typing.Shape | None = None) -> Tensor:
        """A view without dimensions of one element."""

    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """A view with a new dimension of one element."""

    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """Diagonals, as a view."""

    def unfold(self, dim: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """Windows along a dimension, in a new last one, as a view."""

    def narrow(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
        """A range of a dimension, as a view."""

    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        """One place of a dimension, as a view."""

    def split(self, split_size: tenon._typing.Shape, dim: builtins.int = 0) -> list[Tensor]:
        """Pieces of a dimension, as views."""

    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> list[Tensor]:
        """A number of pieces of a dimension, as views."""

    def unbind(self, dim: builtins.int = 0) -> list[Tensor]:
        """The places of a dimension, as views."""

    def as_strided(self, size: tenon._typing.Shape, stride: tenon._typing.Shape, storage_offset: builtins.int | None = None) -> Tensor:
        """A view of the storage with any shape and strides (in elements)."""

    def view_as(self, other: Tensor) -> Tensor:
        """The same elements in another tensor's shape."""

    def view_dtype(self, dtype: tenon._typing.DTypeLike) -> Tensor:
        """The same bytes as another dtype."""

    @property
    def T(self) -> Tensor:
        """A view with all dimensions in reverse order."""

    @property
    def mT(self) -> Tensor:
        """A view with each matrix transposed."""

    @property
    def real(self) -> Tensor:
        """The real parts, as a view; a copy where the tensor requires a gradient."""

    def conj(self) -> Tensor:
        """The conjugate."""

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, as a view; a copy where the tensor requires a gradient."""

    def to(self, *args: object, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, copy: builtins.bool = False) -> Tensor:
        """
        Of another dtype, on another device, or both; the tensor itself where nothing changes.
        """

    def astype(self, dtype: tenon._typing.DTypeLike, copy: builtins.bool = True) -> Tensor:
        """A copy of another dtype, as NumPy has it."""

    def cpu(self) -> Tensor:
        """On the host."""

    def to_device(self, device: str, *, stream: object | None = None) -> Tensor:
        """On another device, as the array API has it."""

    def bool(self) -> Tensor:
        """As bool."""

    def int(self) -> Tensor:
        """As int32."""

    def long(self) -> Tensor:
        """As int64."""

    def half(self) -> Tensor:
        """As float16."""

    def bfloat16(self) -> Tensor:
        """As bfloat16."""

    def float(self) -> Tensor:
        """As float32."""

    def double(self) -> Tensor:
        """As float64."""

    def clone(self) -> Tensor:
        """A copy in memory of its own; gradients flow through."""

    def copy(self) -> Tensor:
        """A copy in memory of its own, as NumPy calls it."""

    def contiguous(self) -> Tensor:
        """In row-major order; the tensor itself where it is."""

    def copy_(self, source: tenon._typing.Operand) -> Tensor:
        """Writes the values of another tensor here, broadcast and converted."""

    def fill_(self, value: builtins.complex) -> Tensor:
        """Every element becomes the value."""

    def zero_(self) -> Tensor:
        """Every element becomes zero."""

    def item(self) -> typing.Any:
        """The only element, as a Python number."""

    def __complex__(self) -> object: ...

    def tolist(self) -> typing.Any:
        """The elements as nested lists of numbers."""

    def numpy(self) -> typing.Any:
        """A NumPy array over the same bytes, which keeps this tensor's memory."""

    def __array__(self, dtype: object | None = None, copy: object | None = None) -> object: ...

    def __dlpack__(self, *, stream: object | None = None, max_version: object | None = None, dl_device: object | None = None, copy: object | None = None) -> object:
        """
        A DLPack capsule over the same bytes: version 1.0 where the consumer reads it.
        """

    def __dlpack_device__(self) -> tuple[Tensor, ...]:
        """The DLPack device: (1, 0), the CPU."""

    def __array_namespace__(self, *, api_version: object | None = None) -> object: ...

    def __reduce_ex__(self, protocol: typing.SupportsIndex) -> tuple[Tensor, ...]: ...

    def __copy__(self) -> Tensor: ...

    def __deepcopy__(self, memo: object) -> Tensor: ...

    def to_dense(self) -> Tensor:
        """A sparse tensor with all its elements."""

    def to_sparse_coo(self) -> Tensor:
        """What is not zero, by coordinates."""

    def to_sparse_csr(self) -> Tensor:
        """What is not zero of a matrix, by compressed rows."""

    def uniform_(self, low: builtins.float = 0.0, high: builtins.float = 1.0) -> Tensor:
        """Uniform numbers in place."""

    def normal_(self, mean: builtins.float = 0.0, std: builtins.float = 1.0) -> Tensor:
        """Normal numbers in place."""

    def bernoulli_(self, p: builtins.float = 0.5) -> Tensor:
        """1 with probability p, else 0, in place."""

    def neg(self) -> Tensor:
        """-x."""

    def neg_(self) -> Tensor:
        """-x. In place."""

    def abs(self) -> Tensor:
        """The absolute value; of a complex number its length."""

    def abs_(self) -> Tensor:
        """The absolute value; of a complex number its length. In place."""

    def sign(self) -> Tensor:
        """-1, 0 or 1; of a complex number z / |z|."""

    def sign_(self) -> Tensor:
        """-1, 0 or 1; of a complex number z / |z|. In place."""

    def square(self) -> Tensor:
        """x * x."""

    def square_(self) -> Tensor:
        """x * x. In place."""

    def sqrt(self) -> Tensor:
        """The square root."""

    def sqrt_(self) -> Tensor:
        """The square root. In place."""

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""

    def rsqrt_(self) -> Tensor:
        """1 / sqrt(x). In place."""

    def reciprocal(self) -> Tensor:
        """1 / x."""

    def reciprocal_(self) -> Tensor:
        """1 / x. In place."""

    def floor(self) -> Tensor:
        """The largest whole number that is not above x."""

    def floor_(self) -> Tensor:
        """The largest whole number that is not above x. In place."""

    def ceil(self) -> Tensor:
        """The smallest whole number that is not below x."""

    def ceil_(self) -> Tensor:
        """The smallest whole number that is not below x. In place."""

    def round(self) -> Tensor:
        """To the nearest whole number, halves to even."""

    def round_(self) -> Tensor:
        """To the nearest whole number, halves to even. In place."""

    def trunc(self) -> Tensor:
        """Towards zero."""

    def trunc_(self) -> Tensor:
        """Towards zero. In place."""

    def logical_not(self) -> Tensor:
        """Whether x is zero."""

    def logical_not_(self) -> Tensor:
        """Whether x is zero. In place."""

    def bitwise_not(self) -> Tensor:
        """Every bit of an integer turned; of bool: not."""

    def bitwise_not_(self) -> Tensor:
        """Every bit of an integer turned; of bool: not. In place."""

    def isnan(self) -> Tensor:
        """Whether x is not a number."""

    def isnan_(self) -> Tensor:
        """Whether x is not a number. In place."""

    def isinf(self) -> Tensor:
        """Whether x is infinite."""

    def isinf_(self) -> Tensor:
        """Whether x is infinite. In place."""

    def isfinite(self) -> Tensor:
        """Whether x is neither infinite nor NaN."""

    def isfinite_(self) -> Tensor:
        """Whether x is neither infinite nor NaN. In place."""

    def exp(self) -> Tensor:
        """e to the power of x."""

    def exp_(self) -> Tensor:
        """e to the power of x. In place."""

    def exp2(self) -> Tensor:
        """2 to the power of x."""

    def exp2_(self) -> Tensor:
        """2 to the power of x. In place."""

    def expm1(self) -> Tensor:
        """exp(x) - 1, exact near 0."""

    def expm1_(self) -> Tensor:
        """exp(x) - 1, exact near 0. In place."""

    def log(self) -> Tensor:
        """The natural logarithm."""

    def log_(self) -> Tensor:
        """The natural logarithm. In place."""

    def log2(self) -> Tensor:
        """The logarithm to base 2."""

    def log2_(self) -> Tensor:
        """The logarithm to base 2. In place."""

    def log10(self) -> Tensor:
        """The logarithm to base 10."""

    def log10_(self) -> Tensor:
        """The logarithm to base 10. In place."""

    def log1p(self) -> Tensor:
        """log(1 + x), exact near 0."""

    def log1p_(self) -> Tensor:
        """log(1 + x), exact near 0. In place."""

    def sin(self) -> Tensor:
        """The sine."""

    def sin_(self) -> Tensor:
        """The sine. In place."""

    def cos(self) -> Tensor:
        """The cosine."""

    def cos_(self) -> Tensor:
        """The cosine. In place."""

    def tan(self) -> Tensor:
        """The tangent."""

    def tan_(self) -> Tensor:
        """The tangent. In place."""

    def asin(self) -> Tensor:
        """The inverse of the sine."""

    def asin_(self) -> Tensor:
        """The inverse of the sine. In place."""

    def acos(self) -> Tensor:
        """The inverse of the cosine."""

    def acos_(self) -> Tensor:
        """The inverse of the cosine. In place."""

    def atan(self) -> Tensor:
        """The inverse of the tangent."""

    def atan_(self) -> Tensor:
        """The inverse of the tangent. In place."""

    def sinh(self) -> Tensor:
        """The hyperbolic sine."""

    def sinh_(self) -> Tensor:
        """The hyperbolic sine. In place."""

    def cosh(self) -> Tensor:
        """The hyperbolic cosine."""

    def cosh_(self) -> Tensor:
        """The hyperbolic cosine. In place."""

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""

    def tanh_(self) -> Tensor:
        """The hyperbolic tangent. In place."""

    def erf(self) -> Tensor:
        """The error function."""

    def erf_(self) -> Tensor:
        """The error function. In place."""

    def erfc(self) -> Tensor:
        """1 - erf(x)."""

    def erfc_(self) -> Tensor:
        """1 - erf(x). In place."""

    def relu(self) -> Tensor:
        """x above zero, else zero."""

    def relu_(self) -> Tensor:
        """x above zero, else zero. In place."""

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))."""

    def sigmoid_(self) -> Tensor:
        """1 / (1 + exp(-x)). In place."""

    def log_sigmoid(self) -> Tensor:
        """The logarithm of sigmoid(x)."""

    def log_sigmoid_(self) -> Tensor:
        """The logarithm of sigmoid(x). In place."""

    def silu(self) -> Tensor:
        """x sigmoid(x)."""

    def silu_(self) -> Tensor:
        """x sigmoid(x). In place."""

    def mish(self) -> Tensor:
        """x tanh(softplus(x))."""

    def mish_(self) -> Tensor:
        """x tanh(softplus(x)). In place."""

    def hardsigmoid(self) -> Tensor:
        """x / 6 + 1 / 2, within 0 and 1."""

    def hardsigmoid_(self) -> Tensor:
        """x / 6 + 1 / 2, within 0 and 1. In place."""

    def hardswish(self) -> Tensor:
        """x hardsigmoid(x)."""

    def hardswish_(self) -> Tensor:
        """x hardsigmoid(x). In place."""

    def softmax(self, dim: builtins.int) -> Tensor:
        """exp(x) / sum(exp(x)) along a dimension."""

    def log_softmax(self, dim: builtins.int) -> Tensor:
        """The logarithm of softmax along a dimension."""

    def add(self, other: tenon._typing.Operand) -> Tensor:
        """x1 + x2."""

    def add_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 + x2. In place."""

    def sub(self, other: tenon._typing.Operand) -> Tensor:
        """x1 - x2."""

    def sub_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 - x2. In place."""

    def mul(self, other: tenon._typing.Operand) -> Tensor:
        """x1 * x2."""

    def mul_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 * x2. In place."""

    def div(self, other: tenon._typing.Operand) -> Tensor:
        """x1 / x2; of integers in floating point."""

    def div_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 / x2; of integers in floating point. In place."""

    def pow(self, other: tenon._typing.Operand) -> Tensor:
        """x1 to the power of x2."""

    def pow_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 to the power of x2. In place."""

    def atan2(self, other: tenon._typing.Operand) -> Tensor:
        """The angle of the point (x2, x1)."""

    def atan2_(self, other: tenon._typing.Operand) -> Tensor:
        """The angle of the point (x2, x1). In place."""

    def fmod(self, other: tenon._typing.Operand) -> Tensor:
        """What division leaves, with the sign of x1."""

    def fmod_(self, other: tenon._typing.Operand) -> Tensor:
        """What division leaves, with the sign of x1. In place."""

    def remainder(self, other: tenon._typing.Operand) -> Tensor:
        """What division leaves, with the sign of x2."""

    def remainder_(self, other: tenon._typing.Operand) -> Tensor:
        """What division leaves, with the sign of x2. In place."""

    def floor_divide(self, other: tenon._typing.Operand) -> Tensor:
        """x1 / x2, rounded down."""

    def floor_divide_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 / x2, rounded down. In place."""

    def maximum(self, other: tenon._typing.Operand) -> Tensor:
        """The larger one; NaN passes on."""

    def maximum_(self, other: tenon._typing.Operand) -> Tensor:
        """The larger one; NaN passes on. In place."""

    def minimum(self, other: tenon._typing.Operand) -> Tensor:
        """The smaller one; NaN passes on."""

    def minimum_(self, other: tenon._typing.Operand) -> Tensor:
        """The smaller one; NaN passes on. In place."""

    def eq(self, other: tenon._typing.Operand) -> Tensor:
        """x1 == x2."""

    def eq_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 == x2. In place."""

    def ne(self, other: tenon._typing.Operand) -> Tensor:
        """x1 != x2."""

    def ne_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 != x2. In place."""

    def lt(self, other: tenon._typing.Operand) -> Tensor:
        """x1 < x2."""

    def lt_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 < x2. In place."""

    def le(self, other: tenon._typing.Operand) -> Tensor:
        """x1 <= x2."""

    def le_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 <= x2. In place."""

    def gt(self, other: tenon._typing.Operand) -> Tensor:
        """x1 > x2."""

    def gt_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 > x2. In place."""

    def ge(self, other: tenon._typing.Operand) -> Tensor:
        """x1 >= x2."""

    def ge_(self, other: tenon._typing.Operand) -> Tensor:
        """x1 >= x2. In place."""

    def bitwise_and(self, other: tenon._typing.Operand) -> Tensor:
        """Bits that both have."""

    def bitwise_and_(self, other: tenon._typing.Operand) -> Tensor:
        """Bits that both have. In place."""

    def bitwise_or(self, other: tenon._typing.Operand) -> Tensor:
        """Bits that either has."""

    def bitwise_or_(self, other: tenon._typing.Operand) -> Tensor:
        """Bits that either has. In place."""

    def bitwise_xor(self, other: tenon._typing.Operand) -> Tensor:
        """Bits that one has."""

    def bitwise_xor_(self, other: tenon._typing.Operand) -> Tensor:
        """Bits that one has. In place."""

    def logical_and(self, other: tenon._typing.Operand) -> Tensor:
        """Whether both are not zero."""

    def logical_and_(self, other: tenon._typing.Operand) -> Tensor:
        """Whether both are not zero. In place."""

    def logical_or(self, other: tenon._typing.Operand) -> Tensor:
        """Whether either is not zero."""

    def logical_or_(self, other: tenon._typing.Operand) -> Tensor:
        """Whether either is not zero. In place."""

    def logical_xor(self, other: tenon._typing.Operand) -> Tensor:
        """Whether one is not zero."""

    def logical_xor_(self, other: tenon._typing.Operand) -> Tensor:
        """Whether one is not zero. In place."""

    def clamp(self, min: builtins.complex | None = None, max: builtins.complex | None = None) -> Tensor:
        """x within bounds, either of which may be absent."""

    def sum(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """Sums over dimensions, or of all elements. Integers add up in int64."""

    def prod(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """Products over dimensions, or of all elements."""

    def mean(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """Means over dimensions, or of all elements."""

    def amax(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """The largest elements; NaN passes on."""

    def amin(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """The smallest elements; NaN passes on."""

    def max(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """The largest elements, as in NumPy: no indices beside them."""

    def min(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """The smallest elements, as in NumPy: no indices beside them."""

    def any(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """Whether an element is not zero."""

    def all(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """Whether no element is zero."""

    def logsumexp(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """The logarithm of the sum of exponentials."""

    def norm(self, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
        """The Euclidean norm."""

    def var(self, dim: tenon._typing.Shape | None = None, *, correction: builtins.int = 1, keepdim: builtins.bool = False) -> Tensor:
        """Squared deviations, divided by count - correction."""

    def std(self, dim: tenon._typing.Shape | None = None, *, correction: builtins.int = 1, keepdim: builtins.bool = False) -> Tensor:
        """The square root of var."""

    def argmax(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Where the first of the largest elements is."""

    def argmin(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Where the first of the smallest elements is."""

    def cumsum(self, dim: builtins.int) -> Tensor:
        """Sums up to each element."""

    def cumprod(self, dim: builtins.int) -> Tensor:
        """Products up to each element."""

    def sort(self, dim: builtins.int = -1, descending: builtins.bool = False) -> tuple[Tensor, ...]:
        """Values in order, and where they were. Stable; NaN counts as largest."""

    def argsort(self, dim: builtins.int = -1, descending: builtins.bool = False) -> Tensor:
        """The places of the elements in order."""

    def topk(self, k: builtins.int, dim: builtins.int = -1, largest: builtins.bool = True) -> tuple[Tensor, ...]:
        """The k largest values, best first, and where they were."""

    def masked_fill(self, mask: Tensor, value: builtins.complex) -> Tensor:
        """A copy with a value where the mask holds."""

    def index_select(self, dim: builtins.int, index: Tensor) -> Tensor:
        """The places of a dimension that an index names."""

    def gather(self, dim: builtins.int, index: Tensor) -> Tensor:
        """out[i][j] = x[i][index[i][j]] for dim 1."""

    def scatter_add(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """A copy with elements added at the index's places."""

    def index_add(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """A copy with slices added at the index's places."""

    def nonzero(self) -> tuple[Tensor, ...]:
        """
        Where x is not zero: a tensor of places for each dimension, as in NumPy.
        """

    def flip(self, dims: tenon._typing.Shape) -> Tensor:
        """A copy with dimensions turned."""

    def roll(self, shifts: tenon._typing.Shape, dims: tenon._typing.Shape | None = None) -> Tensor:
        """What is pushed over one end comes in at the other."""

    def tile(self, repeats: tenon._typing.Shape) -> Tensor:
        """As tiles, side by side."""

    def repeat(self, *args: object) -> Tensor:
        """As tiles, side by side, as in PyTorch."""

    def pad(self, pad: tenon._typing.Shape, value: builtins.complex = 0) -> Tensor:
        """
        More elements around: a pair (before, after) for each dimension, from the last one on.
        """

    def tril(self, k: builtins.int = 0) -> Tensor:
        """What lies below and on a diagonal; zero elsewhere."""

    def triu(self, k: builtins.int = 0) -> Tensor:
        """What lies above and on a diagonal; zero elsewhere."""

    def matmul(self, other: Tensor, *, out: object | None = None) -> Tensor:
        """Matrix product; leading dimensions are a batch."""

    def bmm(self, other: Tensor) -> Tensor:
        """[n, p, k] by [n, k, q]."""

    def outer(self, other: Tensor) -> Tensor:
        """[m] by [n]: [m, n]."""

    @property
    def requires_grad(self) -> builtins.bool:
        """Whether gradients of this tensor are wanted."""

    @requires_grad.setter
    def requires_grad(self, arg: builtins.bool, /) -> None: ...

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward left; None before."""

    @grad.setter
    def grad(self, gradient: Tensor | None, /) -> None: ...

    @property
    def data(self) -> Tensor:
        """The same values, which autograd does not watch."""

    @data.setter
    def data(self, source: Tensor, /) -> None: ...

    @property
    def is_leaf(self) -> builtins.bool:
        """Made by the program rather than by a recorded call."""

    @property
    def retains_grad(self) -> builtins.bool:
        """Whether backward keeps the gradient although this is no leaf."""

    @property
    def grad_fn(self) -> Node | None:
        """The call that made it; None for a leaf."""

    def requires_grad_(self, requires_grad: builtins.bool = True) -> Tensor:
        """Sets requires_grad and returns the tensor."""

    def detach(self) -> Tensor:
        """The same elements, without gradient."""

    def retain_grad(self) -> None:
        """Backward keeps the gradient although this is no leaf."""

    def backward(self, gradient: object | None = None, retain_graph: builtins.bool = False, create_graph: builtins.bool = False) -> None:
        """Adds to the grad of every leaf that this tensor depends on."""

    def register_hook(self, hook: object) -> HookHandle:
        """
        hook(gradient) runs in backward; a tensor that it returns takes its place.
        """

    def register_post_accumulate_grad_hook(self, hook: object) -> HookHandle:
        """hook(leaf) runs after the leaf's grad was added to."""

def _bytes_of(tensor: Tensor) -> bytes: ...

def _rebuild(data: bytes, dtype: tenon._typing.DTypeLike, shape: tenon._typing.Shape, requires_grad: builtins.bool) -> Tensor: ...

def tensor(data: object, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, requires_grad: builtins.bool = False) -> Tensor:
    """
    A tensor with a copy of the data: a number, nested lists, a tensor, a NumPy array.
    """

def asarray(data: object, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, copy: builtins.bool | None = None) -> Tensor:
    """
    A tensor over the data's own memory where that can be shared. copy=False: or ValueError.
    """

def from_dlpack(x: object, *, device: str | None = None, copy: builtins.bool | None = None) -> Tensor:
    """
    A tensor over the memory of another library's array, which it keeps alive.
    """

@overload
def empty(shape: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, requires_grad: builtins.bool = False) -> Tensor:
    """Elements are whatever was there before."""

@overload
def empty(*shape: builtins.int, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, requires_grad: builtins.bool = False) -> Tensor: ...

def _empty_ns(shape: tenon._typing.Shape, count: builtins.int) -> builtins.float: ...

@overload
def zeros(shape: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, requires_grad: builtins.bool = False) -> Tensor:
    """Zeros."""

@overload
def zeros(*shape: builtins.int, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, requires_grad: builtins.bool = False) -> Tensor: ...

@overload
def ones(shape: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, requires_grad: builtins.bool = False) -> Tensor:
    """Ones."""

@overload
def ones(*shape: builtins.int, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, requires_grad: builtins.bool = False) -> Tensor: ...

def empty_like(x: Tensor, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Of another tensor's shape and dtype."""

def zeros_like(x: Tensor, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros of another tensor's shape and dtype."""

def ones_like(x: Tensor, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones of another tensor's shape and dtype."""

def full(shape: tenon._typing.Shape, fill_value: builtins.complex, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """One value everywhere."""

def full_like(x: Tensor, fill_value: builtins.complex, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """One value in another tensor's shape and dtype."""

def empty_strided(size: tenon._typing.Shape, stride: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """With strides (in elements) of one's own."""

def arange(start: builtins.complex, stop: builtins.complex | None = None, step: builtins.complex = 1, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """start, start + step, ... below stop; arange(stop) begins with 0."""

def linspace(start: builtins.float, stop: builtins.float, num: builtins.int, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, endpoint: builtins.bool = True) -> Tensor:
    """`num` values at equal distances."""

def eye(n_rows: builtins.int, n_cols: builtins.int | None = None, *, k: builtins.int = 0, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones on a diagonal."""

@overload
def rand(shape: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, requires_grad: builtins.bool = False) -> Tensor:
    """Uniform in [0, 1)."""

@overload
def rand(*shape: builtins.int, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, requires_grad: builtins.bool = False) -> Tensor: ...

@overload
def randn(shape: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, *, requires_grad: builtins.bool = False) -> Tensor:
    """Normal, of mean 0 and variance 1."""

@overload
def randn(*shape: builtins.int, dtype: tenon._typing.DTypeLike | None = None, device: str | None = None, requires_grad: builtins.bool = False) -> Tensor: ...

def manual_seed(seed: builtins.int) -> None:
    """
    The numbers that follow depend on the seed and on what is asked for alone.
    """

def randint(low: builtins.int, high: builtins.int, shape: tenon._typing.Shape, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """Uniform integers in [low, high)."""

def randperm(n: builtins.int) -> Tensor:
    """0 .. n - 1 in random order."""

def sparse_coo_tensor(indices: Tensor, values: Tensor, shape: tenon._typing.Shape) -> Tensor:
    """Elements by their coordinates."""

def sparse_csr_tensor(crow_indices: Tensor, col_indices: Tensor, values: Tensor, shape: tenon._typing.Shape) -> Tensor:
    """A matrix by compressed rows."""

def get_default_dtype() -> dtype:
    """What plain floating-point numbers become."""

def set_default_dtype(dtype: tenon._typing.DTypeLike) -> None:
    """float16, bfloat16, float32 or float64."""

def promote_types(a: tenon._typing.DTypeLike, b: tenon._typing.DTypeLike) -> dtype:
    """The smallest dtype that both convert to without a change of kind."""

def can_cast(from_: tenon._typing.DTypeLike, to: tenon._typing.DTypeLike) -> builtins.bool:
    """Whether a result of one may be stored in the other."""

def neg(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-x."""

def abs(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The absolute value; of a complex number its length."""

def sign(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-1, 0 or 1; of a complex number z / |z|."""

def square(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * x."""

def sqrt(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The square root."""

def rsqrt(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / sqrt(x)."""

def reciprocal(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / x."""

def floor(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The largest whole number that is not above x."""

def ceil(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smallest whole number that is not below x."""

def round(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """To the nearest whole number, halves to even."""

def trunc(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Towards zero."""

def logical_not(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether x is zero."""

def bitwise_not(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Every bit of an integer turned; of bool: not."""

def isnan(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether x is not a number."""

def isinf(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether x is infinite."""

def isfinite(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether x is neither infinite nor NaN."""

def exp(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """e to the power of x."""

def exp2(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """2 to the power of x."""

def expm1(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x) - 1, exact near 0."""

def log(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The natural logarithm."""

def log2(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 2."""

def log10(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 10."""

def log1p(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(1 + x), exact near 0."""

def sin(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sine."""

def cos(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The cosine."""

def tan(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The tangent."""

def asin(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of the sine."""

def acos(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of the cosine."""

def atan(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of the tangent."""

def sinh(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic sine."""

def cosh(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic cosine."""

def tanh(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent."""

def erf(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function."""

def erfc(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 - erf(x)."""

def relu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x above zero, else zero."""

def sigmoid(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / (1 + exp(-x))."""

def log_sigmoid(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of sigmoid(x)."""

def silu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x sigmoid(x)."""

def mish(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x tanh(softplus(x))."""

def hardsigmoid(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x / 6 + 1 / 2, within 0 and 1."""

def hardswish(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x hardsigmoid(x)."""

def gelu(x: Tensor, *, approximate: str = 'none') -> Tensor:
    """x Phi(x)."""

def leaky_relu(x: Tensor, negative_slope: builtins.float = 0.01) -> Tensor:
    """x above zero, else slope x."""

def elu(x: Tensor, alpha: builtins.float = 1.0) -> Tensor:
    """x above zero, else alpha (exp(x) - 1)."""

def softplus(x: Tensor, beta: builtins.float = 1.0, threshold: builtins.float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta."""

def hardtanh(x: Tensor, min_val: builtins.float = -1.0, max_val: builtins.float = 1.0) -> Tensor:
    """x within two bounds."""

def softmax(x: Tensor, dim: builtins.int) -> Tensor:
    """exp(x) / sum(exp(x)) along a dimension."""

def log_softmax(x: Tensor, dim: builtins.int) -> Tensor:
    """The logarithm of softmax along a dimension."""

def add(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 + x2."""

def sub(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 - x2."""

def mul(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 * x2."""

def div(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 / x2; of integers in floating point."""

def pow(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 to the power of x2."""

def atan2(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """The angle of the point (x2, x1)."""

def fmod(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """What division leaves, with the sign of x1."""

def remainder(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """What division leaves, with the sign of x2."""

def floor_divide(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 / x2, rounded down."""

def maximum(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """The larger one; NaN passes on."""

def minimum(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """The smaller one; NaN passes on."""

def eq(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 == x2."""

def ne(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 != x2."""

def lt(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 < x2."""

def le(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 <= x2."""

def gt(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 > x2."""

def ge(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """x1 >= x2."""

def bitwise_and(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """Bits that both have."""

def bitwise_or(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """Bits that either has."""

def bitwise_xor(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """Bits that one has."""

def logical_and(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether both are not zero."""

def logical_or(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether either is not zero."""

def logical_xor(x1: tenon._typing.Operand, x2: tenon._typing.Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether one is not zero."""

def clamp(x: Tensor, min: builtins.complex | None = None, max: builtins.complex | None = None) -> Tensor:
    """x within bounds, either of which may be absent."""

def sum(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """Sums over dimensions, or of all elements. Integers add up in int64."""

def prod(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """Products over dimensions, or of all elements."""

def mean(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """Means over dimensions, or of all elements."""

def amax(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """The largest elements; NaN passes on."""

def amin(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """The smallest elements; NaN passes on."""

def max(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """The largest elements, as in NumPy: no indices beside them."""

def min(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """The smallest elements, as in NumPy: no indices beside them."""

def any(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """Whether an element is not zero."""

def all(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """Whether no element is zero."""

def logsumexp(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """The logarithm of the sum of exponentials."""

def norm(x: Tensor, dim: tenon._typing.Shape | None = None, keepdim: builtins.bool = False, *, dtype: tenon._typing.DTypeLike | None = None) -> Tensor:
    """The Euclidean norm."""

def var(x: Tensor, dim: tenon._typing.Shape | None = None, *, correction: builtins.int = 1, keepdim: builtins.bool = False) -> Tensor:
    """Squared deviations, divided by count - correction."""

def std(x: Tensor, dim: tenon._typing.Shape | None = None, *, correction: builtins.int = 1, keepdim: builtins.bool = False) -> Tensor:
    """The square root of var."""

def argmax(x: Tensor, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
    """Where the first of the largest elements is."""

def argmin(x: Tensor, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
    """Where the first of the smallest elements is."""

def cumsum(x: Tensor, dim: builtins.int) -> Tensor:
    """Sums up to each element."""

def cumprod(x: Tensor, dim: builtins.int) -> Tensor:
    """Products up to each element."""

def sort(x: Tensor, dim: builtins.int = -1, descending: builtins.bool = False) -> tuple[Tensor, ...]:
    """Values in order, and where they were. Stable; NaN counts as largest."""

def argsort(x: Tensor, dim: builtins.int = -1, descending: builtins.bool = False) -> Tensor:
    """The places of the elements in order."""

def topk(x: Tensor, k: builtins.int, dim: builtins.int = -1, largest: builtins.bool = True) -> tuple[Tensor, ...]:
    """The k largest values, best first, and where they were."""

def where(condition: Tensor, x1: tenon._typing.Operand, x2: tenon._typing.Operand) -> Tensor:
    """x1 where the condition holds, else x2."""

def masked_fill(x: Tensor, mask: Tensor, value: builtins.complex) -> Tensor:
    """A copy with a value where the mask holds."""

def index_select(x: Tensor, dim: builtins.int, index: Tensor) -> Tensor:
    """The places of a dimension that an index names."""

def gather(x: Tensor, dim: builtins.int, index: Tensor) -> Tensor:
    """out[i][j] = x[i][index[i][j]] for dim 1."""

def scatter_add(x: Tensor, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with elements added at the index's places."""

def index_add(x: Tensor, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with slices added at the index's places."""

def nonzero(x: Tensor) -> tuple[Tensor, ...]:
    """
    Where x is not zero: a tensor of places for each dimension, as in NumPy.
    """

def embedding(index: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight in the index's shape."""

def one_hot(index: Tensor, num_classes: builtins.int = -1) -> Tensor:
    """1 at each index of a new last dimension."""

def cat(tensors: Sequence[Tensor], dim: builtins.int = 0) -> Tensor:
    """Side by side along a dimension."""

def stack(tensors: Sequence[Tensor], dim: builtins.int = 0) -> Tensor:
    """Side by side along a new dimension."""

def flip(x: Tensor, dims: tenon._typing.Shape) -> Tensor:
    """A copy with dimensions turned."""

def roll(x: Tensor, shifts: tenon._typing.Shape, dims: tenon._typing.Shape | None = None) -> Tensor:
    """What is pushed over one end comes in at the other."""

def tile(x: Tensor, repeats: tenon._typing.Shape) -> Tensor:
    """As tiles, side by side."""

def pad(x: Tensor, pad: tenon._typing.Shape, value: builtins.complex = 0) -> Tensor:
    """
    More elements around: a pair (before, after) for each dimension, from the last one on.
    """

def tril(x: Tensor, k: builtins.int = 0) -> Tensor:
    """What lies below and on a diagonal; zero elsewhere."""

def triu(x: Tensor, k: builtins.int = 0) -> Tensor:
    """What lies above and on a diagonal; zero elsewhere."""

def broadcast_to(x: Tensor, shape: tenon._typing.Shape) -> Tensor:
    """A view of another shape, dimensions of one element repeated."""

def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of one shape."""

def matmul(x: Tensor, other: Tensor, *, out: object | None = None) -> Tensor:
    """Matrix product; leading dimensions are a batch."""

def bmm(x: Tensor, other: Tensor) -> Tensor:
    """[n, p, k] by [n, k, q]."""

def outer(x: Tensor, other: Tensor) -> Tensor:
    """[m] by [n]: [m, n]."""

def addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """bias + a b."""

def result_type(*args: tenon._typing.Operand) -> dtype:
    """The dtype that an operation on these computes in."""

class Node:
    """A recorded call."""

    @property
    def name(self) -> str:
        """The operator."""

    @property
    def next_functions(self) -> list[Tensor]:
        """Where the gradients go; None where none is needed."""

    def __repr__(self) -> str: ...

class HookHandle:
    """A hook that was registered."""

    def remove(self) -> None:
        """Takes the hook away. Harmless the second time."""

class Guard:
    """A setting of this thread, for a with statement."""

    def __enter__(self) -> object: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> None: ...

def backward(tensors: object, grad_tensors: object | None = None, retain_graph: builtins.bool = False, create_graph: builtins.bool = False) -> None:
    """Adds to the grad of every leaf that they depend on."""

def grad(outputs: object, inputs: object, grad_outputs: object | None = None, retain_graph: builtins.bool = False, create_graph: builtins.bool = False, allow_unused: builtins.bool = False) -> tuple[Tensor, ...]:
    """The gradients of the inputs alone; no grad changes."""

def checkpoint(arg0: object, /, *args: Tensor) -> Tensor:
    """
    f(*inputs) without what its nodes save: backward runs f again. For tensors alone.
    """

def jvp(f: object, inputs: object, tangents: object) -> tuple[Tensor, ...]:
    """f(*inputs) and its derivative along the tangents, by forward mode."""

def gradcheck(f: object, inputs: object, step: builtins.float = 1e-06, atol: builtins.float = 1e-05, rtol: builtins.float = 0.001) -> builtins.bool:
    """
    True where derivatives are those of central differences; else ValueError.
    """

def gradgradcheck(f: object, inputs: object, step: builtins.float = 1e-06, atol: builtins.float = 1e-05, rtol: builtins.float = 0.001) -> builtins.bool:
    """The same for the gradients themselves."""

def _apply(forward: object, derivative: object, *args: object) -> Tensor: ...

def watch_views(base: Tensor) -> None:
    """
    For a tensor without gradient: views that are made afterwards take part when values that need a gradient are written through them, or into the tensor.
    """

def is_grad_enabled() -> builtins.bool:
    """Whether calls on this thread are recorded."""

def is_inference_mode_enabled() -> builtins.bool:
    """Whether inference mode is on."""

def _grad_guard(on: builtins.bool) -> Guard: ...

def _inference_guard(on: builtins.bool) -> Guard: ...

def anomaly_mode(check_forward: builtins.bool = False) -> Guard:
    """The first NaN in a gradient names the call that made it. Slow."""

def recompute_cheap(on: builtins.bool = True) -> Guard:
    """Results of cheap calls are made again instead of being kept."""

def saved_tensors_hooks(pack: object, unpack: object) -> Guard:
    """
    pack(tensor) for each tensor that is kept for backward, unpack(packed) for its values.
    """

def offload_saved(allocator: tenon._core.Allocator, min_bytes: builtins.int = 0) -> Guard:
    """
    What is kept for backward waits in an allocator's memory, which lives as long as the process.
    """

def conv2d(x: Tensor, weight: Tensor, bias: object | None = None, stride: tenon._typing.Shape = 1, padding: tenon._typing.Shape = 0, dilation: tenon._typing.Shape = 1, groups: builtins.int = 1) -> Tensor:
    """[N, C, H, W] by weight [out, C / groups, h, w]."""

def conv1d(x: Tensor, weight: Tensor, bias: object | None = None, stride: tenon._typing.Shape = 1, padding: tenon._typing.Shape = 0, dilation: tenon._typing.Shape = 1, groups: builtins.int = 1) -> Tensor:
    """[N, C, L] by weight [out, C / groups, k]."""

def conv_transpose2d(x: Tensor, weight: Tensor, bias: object | None = None, stride: tenon._typing.Shape = 1, padding: tenon._typing.Shape = 0, output_padding: tenon._typing.Shape = 0, groups: builtins.int = 1, dilation: tenon._typing.Shape = 1) -> Tensor:
    """The transposed operation: weight [C, out / groups, h, w]."""

def linear(x: Tensor, weight: Tensor, bias: object | None = None) -> Tensor:
    """x [..., in] by weight [out, in], transposed, plus bias [out]."""

def max_pool2d(x: Tensor, kernel_size: tenon._typing.Shape, stride: tenon._typing.Shape | None = None, padding: tenon._typing.Shape = 0, count_include_pad: builtins.bool = True) -> Tensor:
    """The largest element of each window."""

def avg_pool2d(x: Tensor, kernel_size: tenon._typing.Shape, stride: tenon._typing.Shape | None = None, padding: tenon._typing.Shape = 0, count_include_pad: builtins.bool = True) -> Tensor:
    """The mean of each window."""

def adaptive_avg_pool2d(x: Tensor, output_size: tenon._typing.Shape) -> Tensor:
    """Means, to a size."""

def layer_norm(x: Tensor, normalized_shape: tenon._typing.Shape, weight: object | None = None, bias: object | None = None, eps: builtins.float = 1e-05) -> Tensor:
    """Over the last dimensions."""

def rms_norm(x: Tensor, normalized_shape: tenon._typing.Shape, weight: object | None = None, eps: builtins.float = 1e-06) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimensions."""

def group_norm(x: Tensor, num_groups: builtins.int, weight: object | None = None, bias: object | None = None, eps: builtins.float = 1e-05) -> Tensor:
    """Over groups of channels (dimension 1)."""

def batch_norm(x: Tensor, running_mean: object | None, running_var: object | None, weight: object | None = None, bias: object | None = None, training: builtins.bool = False, momentum: builtins.float = 0.1, eps: builtins.float = 1e-05) -> Tensor:
    """By channel (dimension 1)."""

def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: object | None = None, is_causal: builtins.bool = False, scale: builtins.float | None = None) -> Tensor:
    """softmax(query key^T * scale + mask) value."""

def cross_entropy(input: Tensor, target: Tensor, reduction: str = 'mean', ignore_index: builtins.int = -100, label_smoothing: builtins.float = 0.0) -> Tensor:
    """Of logits [N, C, ...] and classes [N, ...]."""

def nll_loss(input: Tensor, target: Tensor, reduction: str = 'mean', ignore_index: builtins.int = -100) -> Tensor:
    """Of logarithms of probabilities [N, C, ...] and classes [N, ...]."""

def mse_loss(input: Tensor, target: Tensor, reduction: str = 'mean') -> Tensor:
    """Squared differences."""

def l1_loss(input: Tensor, target: Tensor, reduction: str = 'mean') -> Tensor:
    """Absolute differences."""

def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, reduction: str = 'mean') -> Tensor:
    """Of logits and probabilities."""

def huber_loss(input: Tensor, target: Tensor, reduction: str = 'mean', delta: builtins.float = 1.0) -> Tensor:
    """Squared differences up to delta, absolute ones beyond."""

def kaiming_uniform_(weight: object, gain: builtins.float) -> Tensor:
    """Uniform within gain * sqrt(3 / fan_in), in place."""

def xavier_uniform_(weight: object, gain: builtins.float = 1.0) -> Tensor:
    """Uniform within gain * sqrt(6 / (fan_in + fan_out)), in place."""

class NativeModule:
    """A module written in C++."""

    def forward(self, input: Tensor) -> Tensor:
        """Runs it."""

    def named_parameters(self) -> dict[str, Tensor]:
        """Parameters by name."""

    def named_buffers(self) -> dict[str, Tensor]:
        """Buffers by name."""

    def train(self, mode: builtins.bool = True) -> None:
        """Dropout and batch normalisation behave differently in training."""

    def set_path(self, path: str) -> None:
        """What recordings call it."""

def _self_attention(width: builtins.int, heads: builtins.int, causal: builtins.bool, dropout: builtins.float) -> NativeModule: ...

def _transformer_block(width: builtins.int, heads: builtins.int, causal: builtins.bool, dropout: builtins.float) -> NativeModule: ...

def _char_gpt(vocabulary: builtins.int, length: builtins.int, layers: builtins.int, width: builtins.int, heads: builtins.int, dropout: builtins.float, checkpoints: builtins.int) -> NativeModule: ...

class NativeOptimizer:
    """An optimiser written in C++."""

    def step(self, gradient_scale: builtins.float = 1.0) -> None:
        """Updates every parameter that has a gradient."""

    def zero_grad(self) -> None:
        """Lets every gradient go."""

    @property
    def lr(self) -> builtins.float:
        """The learning rate."""

    @lr.setter
    def lr(self, arg: builtins.float, /) -> None: ...

    def named_state(self) -> dict[str, Tensor]:
        """Its tensors by name."""

    @property
    def updates(self) -> list[builtins.int]:
        """How often each parameter was updated."""

    @updates.setter
    def updates(self, arg: Sequence[builtins.int], /) -> None: ...

    def updates_in_backward(self) -> Guard:
        """
        While it lasts, backward updates each parameter as soon as its gradient is whole.
        """

def _sgd(parameters: dict[str, Tensor], lr: builtins.float, momentum: builtins.float, dampening: builtins.float, weight_decay: builtins.float, nesterov: builtins.bool) -> NativeOptimizer: ...

def _adam(parameters: dict[str, Tensor], lr: builtins.float, beta1: builtins.float, beta2: builtins.float, eps: builtins.float, weight_decay: builtins.float, decoupled: builtins.bool) -> NativeOptimizer: ...

def _gradient_norm(parameters: dict[str, Tensor]) -> builtins.float: ...

def clip_factor(norm: builtins.float, limit: builtins.float) -> builtins.float:
    """
    What gradients must be multiplied with so that their norm is at most the limit.
    """

class Schedule:
    """The factor of the learning rate at a step, counted from 0."""

    def __call__(self, step: builtins.int) -> builtins.float: ...

def constant_schedule() -> Schedule:
    """1 all the time."""

def step_schedule(every: builtins.int, gamma: builtins.float) -> Schedule:
    """Multiplied by gamma after every so many steps."""

def cosine_schedule(steps: builtins.int, floor: builtins.float = 0.0) -> Schedule:
    """Falls from 1 to the floor along half a cosine."""

def linear_schedule(steps: builtins.int, floor: builtins.float = 0.0) -> Schedule:
    """Falls from 1 to the floor along a line."""

def warmup_schedule(warmup: builtins.int, then: Schedule) -> Schedule:
    """Up to 1 along a line, then another schedule."""

def one_cycle_schedule(steps: builtins.int) -> Schedule:
    """Up from 1 / 25, then down to 1e-4 / 25."""

def _save_state(path: str, parameters: dict[str, Tensor], buffers: dict[str, Tensor], optimizer: NativeOptimizer | None, metadata: Mapping[str, str]) -> None: ...

def _load_state(path: str, parameters: dict[str, Tensor], buffers: dict[str, Tensor], optimizer: NativeOptimizer | None) -> dict[str, str]: ...

def load_metadata(path: str) -> dict[str, str]:
    """What a file of save_state says beside its tensors."""

def load_safetensors(path: str) -> tuple[Tensor, ...]:
    """The tensors by name, views of the mapped file, and the metadata."""

def save_safetensors(path: str, tensors: dict[str, Tensor], metadata: Mapping[str, str] = {}) -> None:
    """Named tensors in one file."""

def load_npy(path: str) -> Tensor:
    """NumPy's .npy."""

def save_npy(path: str, tensor: Tensor) -> None:
    """NumPy's .npy."""
