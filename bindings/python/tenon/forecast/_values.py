# mypy: disable-error-code="import-not-found,import-untyped,misc"
"""Values of fake tensors, as far as they are cheap to know.

A program reads numbers from tensors (`item()`, `if mask.any()`), and some operators' sizes depend
on data (`nonzero`, a boolean index, non-maximum suppression). So small tensors carry their values
along, in memory of the host, from the factory on through every operator whose inputs are all
known. What no value is known of counts as zero where a size or a number is asked for, and is
counted in `assumed`.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

MADE_ELEMENTS = 1 << 14
"""Largest tensor of floating-point numbers whose values are made with it."""
ELEMENTS = 1 << 22
"""Largest result whose values are worked out."""

# Products are too dear, and what they make of is not known anyway.
_DEAR = {
    f"aten::{name}"
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "convolution",
        "cudnn_convolution",
        "_softmax",
        "native_layer_norm",
        "native_batch_norm",
        "cudnn_batch_norm",
        "record_stream",
    )
}

# Of one number each; what is not known is zero, so that a loss is finite.
_COMPARISONS = {
    f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge", "isfinite", "isinf", "isnan")
}


class Values:
    """Values of storages: a tensor of bytes for each."""

    def __init__(self, fake_mode: Any) -> None:
        self.fake_mode = fake_mode
        self.assumed: Dict[str, int] = {}
        self._known: Dict[int, Any] = {}  # a storage's key -> its bytes
        self._watched: Dict[int, Any] = {}

    def watch(self, storage: Any) -> None:
        """Forget the values of a host's storage when it goes."""
        key = int(storage._cdata)
        if key in self._known and key not in self._watched:
            self._watched[key] = weakref.ref(storage, lambda _, key=key: self.forget(key))

    def forget(self, key: int) -> None:
        """A storage has gone."""
        self._known.pop(key, None)
        self._watched.pop(key, None)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator on fakes, and on values where all of them are known."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._number(args[0])
        inputs = _tensors(args, kwargs)
        known = all(_key(tensor) in self._known for tensor in inputs)
        try:
            result = func(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            return self._by_data(func, args, kwargs, inputs)
        mutable = func._schema.is_mutable
        if not mutable and inputs and not known and func._schema.name not in _COMPARISONS:
            return result
        outputs = [part for part in pytree.tree_leaves(result) if isinstance(part, FakeTensor)]
        if (
            not known
            and outputs
            and func._schema.name in _COMPARISONS
            and outputs[0].numel() == 1
            and all(part.numel() == 1 for part in inputs)
        ):
            self._assume(func._schema.name.split("::")[1])
            self._compute(func, args, kwargs, result, assume=True)
        elif known and self._worth(func, inputs, outputs):
            fresh = [part for part in outputs if _key(part) not in self._known]
            if fresh or mutable:
                self._compute(func, args, kwargs, result)
        elif mutable:
            for tensor in outputs or inputs[:1]:
                self._known.pop(_key(tensor), None)
        return result

    def _worth(self, func: Any, inputs: List[Any], outputs: List[Any]) -> bool:
        name = func._schema.name
        if name in _DEAR or "backward" in name or not outputs and not inputs:
            return False
        for part in outputs:
            if part.layout is not torch.strided or part.numel() > ELEMENTS:
                return False
            if not inputs and part.is_floating_point() and part.numel() > MADE_ELEMENTS:
                return False
        return name not in ("aten::empty", "aten::empty_strided") or all(
            part.numel() <= MADE_ELEMENTS for part in outputs
        )

    def _compute(
        self, func: Any, args: Any, kwargs: Any, result: Any, *, assume: bool = False
    ) -> None:
        try:
            with _disable_current_modes(), torch.no_grad():
                values = func(*self._real(args, assume=assume), **self._real(kwargs, assume=assume))
        except (RuntimeError, NotImplementedError, TypeError):  # not for the host: not known
            for part in pytree.tree_leaves(result):
                if isinstance(part, FakeTensor):
                    self._known.pop(_key(part), None)
            return
        self._adopt(result, values)

    def _adopt(self, result: Any, values: Any) -> None:
        """Fresh fake results take the values."""
        for fake, value in zip(pytree.tree_leaves(result), pytree.tree_leaves(values)):
            if not isinstance(fake, FakeTensor) or _key(fake) in self._known:
                continue
            if fake.size() != value.size():
                continue
            with _disable_current_modes():
                storage = torch.empty(fake.untyped_storage().nbytes(), dtype=torch.uint8)
                storage.zero_()
                self._known[_key(fake)] = storage
                if fake.numel():
                    self._view(fake, storage).copy_(value)

    @staticmethod
    def _view(fake: Any, storage: Any) -> Any:
        whole = torch.empty(0, dtype=fake.dtype)
        return whole.set_(
            storage.untyped_storage(),
            fake.storage_offset(),
            tuple(fake.size()),
            tuple(fake.stride()),
        )

    def _real(self, tree: Any, *, assume: bool = False) -> Any:
        def real(leaf: Any) -> Any:
            if isinstance(leaf, FakeTensor):
                storage = self._known.get(_key(leaf))
                if storage is not None:
                    return self._view(leaf, storage)
                if assume:
                    return torch.zeros(tuple(leaf.size()), dtype=leaf.dtype)
                raise RuntimeError("no values")
            if isinstance(leaf, torch.device):
                return torch.device("cpu")
            if isinstance(leaf, torch.Generator):
                return None
            return leaf

        return pytree.tree_map(real, tree)

    def host(self, tensor: Any) -> Any:
        """The values as an array, zeros where they are not known."""
        with _disable_current_modes(), torch.no_grad():
            if _key(tensor) not in self._known:
                self._assume("item")
            return self._real(tensor, assume=True).clone().numpy()

    def _number(self, tensor: Any) -> Any:
        storage = self._known.get(_key(tensor))
        with _disable_current_modes():
            if storage is not None:
                return self._view(tensor, storage).item()
        self._assume("item")
        return _zero(tensor.dtype)

    def _assume(self, name: str) -> None:
        self.assumed[name] = self.assumed.get(name, 0) + 1

    def _by_data(self, func: Any, args: Any, kwargs: Any, inputs: List[Any]) -> Any:
        """An operator whose results' sizes depend on data: done for real."""
        if any(_key(tensor) not in self._known for tensor in inputs):
            self._assume(func._schema.name.split("::")[1])
        device = next((tensor.fake_device for tensor in inputs), torch.device("cpu"))
        with _disable_current_modes(), torch.no_grad():
            values = func(*self._real(args, assume=True), **self._real(kwargs, assume=True))

        def fake(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            with self.fake_mode:
                return torch.empty_strided(
                    leaf.size(), leaf.stride(), dtype=leaf.dtype, device=device
                )

        result = pytree.tree_map(fake, values)
        self._adopt(result, values)
        return result


def _zero(dtype: Any) -> Any:
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0j if dtype.is_complex else 0


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(args: Any, kwargs: Any) -> List[Any]:
    found = []
    for leaf in args if not kwargs else (*args, *kwargs.values()):
        if isinstance(leaf, FakeTensor):
            found.append(leaf)
        elif isinstance(leaf, (list, tuple)):
            found.extend(part for part in leaf if isinstance(part, FakeTensor))
    return found
