# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"
"""Operators of sparse tensors (COO), for which PyTorch has few fakes.

A sparse fake tensor consists of two strided ones, its indices and its values, which hold its
memory. An operator runs on the host, on a sparse tensor of their values; its result's parts become
fakes again. Where indices are not known, the operator takes them as all different.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from tenon.forecast import _host

_MAKES = {"aten::_to_sparse"}
SIZED = {*_MAKES, "aten::_coalesce", "aten::_sparse_sparse_matmul"}
"""The size of their result depends on data."""
# Their sizes follow from those of the operands, so nothing is computed: left, right operand.
_PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::_sparse_addmm": (1, 2)}
RULES = {*_PRODUCTS, "aten::_coalesce"}
"""What takes memory beside a result."""
# They change values in place, or what is known of indices.
_SCALES = {"aten::mul_", "aten::div_", "aten::neg_"}
_NATIVE = {"aten::_coalesced_"}


def is_sparse(tensor: Any) -> bool:
    """Whether this is a fake tensor in layout COO."""
    return isinstance(tensor, FakeTensor) and tensor.layout is torch.sparse_coo


def concerns(name: str, inputs: List[Any]) -> bool:
    """Whether an operator takes or makes a sparse tensor that PyTorch has no fake for."""
    return name in _MAKES or any(tensor.layout is torch.sparse_coo for tensor in inputs)


def parts(tensor: Any) -> Tuple[Any, Any]:
    """The indices and the values, which lie in the tensor's own storages."""
    return tensor._indices(), tensor._values()


def of_known_size(func: Any, args: Any, computed: bool) -> Optional[Any]:
    """The result of an operator whose result's size does not depend on values; else None, and
    where its values are cheap and `computed`."""
    name = func._schema.name
    if name in _NATIVE:
        return func(*args)
    if name in _SCALES and is_sparse(args[0]):
        return args[0]
    if name == "aten::add_" and not is_sparse(args[0]):
        return args[0]
    if name == "aten::_to_dense" and not computed:
        return parts(args[0])[1].new_empty(args[0].size())
    if name in _PRODUCTS:
        left, right = (args[place] for place in _PRODUCTS[name])
        if not is_sparse(right):
            return right.new_empty(left.size(0), right.size(1))
        if not is_sparse(left):
            return left.new_empty(right.size(1), left.size(0)).t()
    return None


class Call:
    """One operator on the host. An object, since closures that call themselves would be a cycle,
    which keeps tensors until a collection."""

    def __init__(self, known: Callable[[Any], Any], view: Callable[[Any, Any], Any],
                 dense: Callable[[Any], Any], device: Any) -> None:
        """
        known:  the bytes of a strided fake's storage, None where they are not known
        view:   a tensor of the host that lies in these bytes as a fake does in its storage
        dense:  an argument that is not sparse, with tensors of the host
        device: where results lie
        """
        self._known, self._view, self._dense, self._device = known, view, dense, device
        self._owners: Dict[int, Any] = {}  # a storage of the host -> the part that it stands for
        self.made: List[Tuple[Any, Any]] = []
        """The strided parts of the result that are new: fake and value."""

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result, as fakes."""
        if func is torch.ops.aten._coalesce.default and self._known(parts(args[0])[0]) is None:
            indices, values = (part.clone() for part in parts(args[0]))
            return _assembled(indices, values, args[0].size(), True)
        results, structure = pytree.tree_flatten(self.values(func, args, kwargs))
        return pytree.tree_unflatten([self._fake(leaf) for leaf in results], structure)

    def values(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result on the host, whose tensors lie in the bytes of what the operator changes."""
        leaves, structure = pytree.tree_flatten((args, kwargs))
        given = [self._parts_of(leaf) for leaf in leaves]
        with _host.plainly(), torch.no_grad():
            real = [self._real(*pair) for pair in given]
            args, kwargs = pytree.tree_unflatten(real, structure)
            return func(*args, **kwargs)

    @staticmethod
    def _parts_of(leaf: Any) -> Tuple[Any, Any]:
        return leaf, parts(leaf) if is_sparse(leaf) else None

    def _real(self, leaf: Any, halves: Any) -> Any:
        if halves is None:
            return self._dense(leaf)
        pair = []
        for half in halves:
            held = self._known(half)
            if held is None:
                held = torch.zeros(half.untyped_storage().nbytes(), dtype=torch.uint8)
            pair.append(self._view(half, held))
            self._owners[pair[-1].untyped_storage()._cdata] = half
        return _assembled(pair[0], pair[1], leaf.size(), leaf.is_coalesced())

    def _fake(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.layout is torch.strided:
            return self._strided(leaf)
        if leaf.layout is not torch.sparse_coo:
            raise NotImplementedError(f"layout {leaf.layout}")
        with _host.plainly():
            (indices, values), coalesced = parts(leaf), leaf.is_coalesced()
        return _assembled(self._strided(indices), self._strided(values), leaf.size(), coalesced)

    def _strided(self, leaf: Any) -> Any:
        where = leaf.size(), leaf.stride(), leaf.storage_offset()
        owner = self._owners.get(leaf.untyped_storage()._cdata)
        if owner is not None:
            return owner.as_strided(*where)
        result = torch.empty_strided(*where[:2], dtype=leaf.dtype, device=self._device)
        self.made.append((result, leaf))
        return result


def product(place: int, args: Any, result: Any) -> Tuple[List[int], List[int]]:
    """What a product of a sparse matrix, args[place], and a strided one takes beside its result:
    bytes before it and after it.

    native/sparse/SparseTensorMath.cpp: _sparse_mm has zeros for a summand. native/sparse/cuda/
    SparseCUDATensorMath.cu, SparseBlasLegacy.cpp: rows and columns of 32 bits, a copy of the result
    by columns, of the strided matrix where its rows are not adjacent, and of a sparse matrix that
    is not coalesced. cuSPARSE's own workspace is not known.
    """
    left, right = args[place : place + 2]
    if not is_sparse(left):
        left, right = right, left.t()
    size = result.numel() * result.element_size()
    found = []
    count = left._nnz()
    if not left.is_coalesced():
        found += [part.numel() * part.element_size() for part in parts(left)]
    found += [4 * (left.size(0) + 1), 4 * count]
    if result.numel() > 1:
        found.append(size)
    if count and not (right.is_contiguous() or 1 in right.stride()):
        found.append(right.numel() * right.element_size())
    return [] if place else [size], found


def coalesced(args: Any, result: Any) -> List[int]:
    """native/sparse/cuda/SparseCUDATensor.cu: places as one number, their order, and where each
    different one begins; the first is the result's where there is one sparse dimension."""
    size = 8 * args[0]._nnz()
    return [size] * (3 if args[0].sparse_dim() > 1 else 2)


def _assembled(indices: Any, values: Any, size: Any, coalesced: bool) -> Any:
    return torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
        indices.size(0), values.dim() - 1, size, indices, values, dtype=values.dtype,
        layout=torch.sparse_coo, device=values.device, is_coalesced=coalesced,
    )
