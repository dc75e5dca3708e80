"""What tensor functions take, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence, Union

if TYPE_CHECKING:
    from tenon._tensor import Tensor, dtype

Operand = Union["Tensor", bool, int, float, complex]
"""A tensor, or a number that counts as a plain one in type promotion."""

Shape = Union[int, Sequence[int]]
"""A length, or lengths."""

DTypeLike = Union["dtype", str, type, Any]
"""tenon.float32, "float32", float, or a dtype of NumPy or PyTorch."""
