# mypy: disable-error-code="import-not-found,import-untyped,misc"
"""Values of fake tensors, as far as they are cheap to know or asked for.

A program reads numbers from tensors (`item()`, `if mask.any()`), and some operators' sizes depend
on data (`nonzero`, a boolean index, non-maximum suppression). Small tensors carry their values
along, in memory of the host, from the factory on through every operator whose inputs are known.
Where a size or a number depends on values that are not known, `way` decides:

    "least"  zeros: masks are empty. What was assumed is counted.
    "most"   masks are full, whole numbers are 1, comparisons of numbers have the other result.
    "real"   every operator computes its values on the host, so all values are known.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.utils import _pytree as pytree

from tenon.forecast import _host, _lbfgs, _sparse
from tenon.forecast._engine import Ended
from tenon.forecast._number import Number

MADE_ELEMENTS = 1 << 14
"""Largest tensor of floating-point numbers whose values are made with it."""
ELEMENTS = 1 << 22
"""Largest result whose values are worked out where not all of them are wanted."""

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
_COMPARISONS = {f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")}
# A value of one operand that decides the result, whatever the other one is.
_ABSORBING = {
    "aten::bitwise_and": False,
    "aten::logical_and": False,
    "aten::bitwise_or": True,
    "aten::logical_or": True,
}
# The arguments that decide the size of the result; all of them elsewhere.
_DECIDING = {
    "aten::index": (1,),
    "aten::masked_select": (1,),
    "aten::_pack_padded_sequence": (1,),
    "aten::_pad_packed_sequence": (1,),
    "aten::repeat_interleave": (0,),
}
# What takes only the size, kind and device of its operand.
_FILLED = {
    f"aten::{name}"
    for name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
}
# What does not say that a gradient which is not known is not finite.
_KEEPS_VALUES = {"aten::_amp_foreach_non_finite_check_and_unscale_"}


class TooLarge(Ended):
    """The values of all tensors do not fit in the memory that the host has."""


class Values:
    """Values of storages: a tensor of bytes for each."""

    def __init__(
        self,
        fake_mode: Any,
        way: str = "least",
        most_bytes: int = 1 << 62,
        share: Optional[float] = None,
    ) -> None:
        self.fake_mode, self.way, self._most_bytes = fake_mode, way, most_bytes
        self.share = 1.0 if way == "most" else share
        """Of unknown masks and the like, how much is set; None for none of it."""
        self.sizes: Dict[str, int] = {}
        """Operators whose result's size was assumed, and how often."""
        self.numbers = self.integers = self.decisions = 0
        """Numbers read that are not known; integers of them; comparisons with such a number."""
        self.runs_lbfgs = False
        """Whether decisions of torch.optim.LBFGS were taken for it."""
        self.seen: Dict[str, Tuple[int, int]] = {}
        """Operators whose result's size depends on data: its fewest and most elements."""
        self.not_computed: Dict[str, int] = {}
        self._bytes = 0
        self._known: Dict[int, Any] = {}  # a storage's key -> its bytes
        self._guessed: set[int] = set()  # keys of storages whose values follow from an assumption
        self._owners: Dict[int, Any] = {}  # weak: a key is an address, which others may have later

    @property
    def all(self) -> bool:
        """Whether every value is computed."""
        return self.way == "real"

    def forget(self, key: int) -> None:
        """A storage has gone, or what it holds is not known."""
        known = self._known.pop(key, None)
        if known is not None:
            self._bytes -= known.numel()
        self._guessed.discard(key)
        self._owners.pop(key, None)

    def _gone(self, key: int, owner: Any) -> None:
        if self._owners.get(key) is owner:
            self.forget(key)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator on fakes, and on values where all of them are known."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return self.number(args[0])
        name = func._schema.name
        inputs = _tensors(args, kwargs) if name not in _FILLED else []
        if _sparse.concerns(name, inputs):
            return self._of_sparse(func, args, kwargs, inputs)
        known = self.all or all(_key(tensor) in self._known for tensor in inputs)
        try:
            result = func(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            return self._by_data(func, args, kwargs, inputs)
        except UnsupportedOperatorException:
            if not known and not func._schema.returns:  # torch._fused_sgd_ and its like
                return self._lose(func, args)
            return self._by_data(func, args, kwargs, inputs, sized=False)
        except RuntimeError as error:
            if "NVIDIA driver" in str(error):  # what PyTorch calls in place of a fake
                raise UnsupportedOperatorException(func) from None
            if "no fake impl registered" not in str(error):
                raise
            return self._custom(func, args, kwargs, inputs)
        mutable = func._schema.is_mutable
        if func.namespace == "c10d":
            self._collect(name, args)
        elif known:
            outputs = [part for part in pytree.tree_leaves(result) if isinstance(part, FakeTensor)]
            if self._worth(name, inputs, outputs):
                fresh = [part for part in outputs if _key(part) not in self._known]
                if fresh or mutable:
                    self._compute(func, args, kwargs, result, inputs)
            elif mutable:
                self._lose(func, args)
        elif name in ("aten::isnan", "aten::isinf"):
            self._finite(result, False)
        elif name == "aten::_is_all_true":  # distributions ask so whether arguments are valid
            self._finite(result, True)
        elif name in ("aten::eq", "aten::ne") and _asks_whether_finite(args):
            self._finite(result, (args[0] is args[1]) == (name == "aten::eq"))
        elif name in _COMPARISONS and all(part.numel() == 1 for part in inputs):
            self._compute(func, args, kwargs, result, inputs, assume=True)
        elif name in _ABSORBING and self._absorbed(_ABSORBING[name], inputs):
            with _host.plainly():
                value = torch.full(tuple(result.size()), _ABSORBING[name])
                self._adopt(result, value.to(result.dtype))
        elif mutable and name not in _KEEPS_VALUES:
            self._lose(func, args)
        return result

    def _of_sparse(self, func: Any, args: Any, kwargs: Any, inputs: List[Any]) -> Any:
        """An operator of sparse tensors, on their parts."""
        name = func._schema.name
        held: List[Any] = []
        for tensor in inputs:
            held.extend(_sparse.parts(tensor) if _sparse.is_sparse(tensor) else [tensor])
        known = all(_key(part) in self._known for part in held)
        computed = known and all(tensor.numel() <= ELEMENTS for tensor in inputs)
        result = _sparse.of_known_size(func, args, computed)
        mutable = func._schema.is_mutable
        if mutable and result is None:
            raise UnsupportedOperatorException(func)
        if result is not None and not self.all:
            if mutable:
                self.forget(_key(held[1 if _sparse.is_sparse(args[0]) else 0]))
            return result
        missing = self._zeros if self.share is None else _host.filled(name, self.share)
        sure = known and not any(_key(part) in self._guessed for part in held)
        if name in _sparse.SIZED and not sure:
            short = name.split("::")[1]
            self.sizes[short] = self.sizes.get(short, 0) + 1
        device = kwargs.get("device") or inputs[0].fake_device
        call = _sparse.Call(
            lambda part: self._known.get(_key(part)),
            self._view,
            lambda leaf: self._real(leaf, missing),
            device,
        )
        try:
            if mutable:
                call.values(func, args, kwargs)
                return result
            with self.fake_mode:
                result = call.run(func, args, kwargs)
        except (RuntimeError, NotImplementedError):
            raise UnsupportedOperatorException(func) from None
        if name in _sparse.SIZED:
            self._see(name.split("::")[1], [value for _, value in call.made[-1:]])
        if known:
            for part, value in call.made:
                self._adopt(part, value)
                if not sure:
                    self._guessed.add(_key(part))
        return result

    def _custom(self, func: Any, args: Any, kwargs: Any, inputs: List[Any]) -> Any:
        """torch.library.custom_op without register_fake: the program's function on the host says
        what it returns."""
        try:
            return self._by_data(func, args, kwargs, inputs, sized=False)
        except (RuntimeError, NotImplementedError):
            raise UnsupportedOperatorException(func) from None

    def _collect(self, name: str, args: Any) -> None:
        """A collective, as if every rank had what this one has."""
        if name == "c10d::allgather_":
            pairs = [(part, mine) for parts, mine in zip(args[0], args[1]) for part in parts]
        elif name == "c10d::_allgather_base_":
            pairs = [(args[0], args[1])]
        elif name in ("c10d::allreduce_", "c10d::broadcast_", "c10d::reduce_"):
            return
        else:
            pairs = [(part, None) for part in pytree.tree_leaves(args[0])]
        for target, mine in pairs:
            if not isinstance(target, FakeTensor):
                continue
            if not isinstance(mine, FakeTensor) or _key(mine) not in self._known:
                self.forget(_key(target))
                continue
            with _host.plainly():
                value = self._view(mine, self._known[_key(mine)]).reshape(-1)
                value = value.repeat(target.numel() // max(value.numel(), 1))
                if _key(target) not in self._known:
                    self._adopt(target, value.view(tuple(target.size())))
                else:
                    whole = self._view(target, self._known[_key(target)])
                    whole.copy_(value.view(tuple(target.size())))

    def follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """The values of a result that was made elsewhere, where all of them are computed."""
        if self.all:
            self._compute(func, args, kwargs, result, _tensors(args, kwargs))

    def _lose(self, func: Any, args: Any) -> None:
        """What the operator writes is not known."""
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _tensors([value], {}):
                    self.forget(_key(tensor))

    def _absorbed(self, value: bool, inputs: List[Any]) -> bool:
        """Whether all elements of an operand are known and have this value."""
        for tensor in inputs:
            storage = self._known.get(_key(tensor))
            kinds = (torch.bool,) if value else (torch.bool, torch.int32, torch.int64)
            if storage is None or tensor.dtype not in kinds or tensor.numel() > ELEMENTS:
                continue
            with _host.plainly():
                if bool(self._view(tensor, storage).bool().eq(value).all()):
                    return True
        return False

    def _finite(self, result: Any, value: bool) -> None:
        if result.numel() <= ELEMENTS:
            with _host.plainly():
                self._adopt(result, torch.full(tuple(result.size()), value))

    def _worth(self, name: str, inputs: List[Any], outputs: List[Any]) -> bool:
        if self.all:
            return True
        if name in _DEAR or not outputs and not inputs:
            return False
        if "backward" in name and name != "aten::unfold_backward":  # istft sums windows by it
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
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        result: Any,
        inputs: List[Any],
        *,
        assume: bool = False,
    ) -> None:
        guessed = assume or any(_key(part) in self._guessed for part in inputs)
        fakes = [part for part in pytree.tree_leaves(result) if isinstance(part, FakeTensor)]
        sizes_alone = func._schema.name in _FILLED
        missing = self._zeros if assume or self.all or sizes_alone else _unknown
        try:
            with _host.plainly(), torch.no_grad():
                real, named = self._real(args, missing), self._real(kwargs, missing)
                values = _host.run(func, real, named)
                taken = {part.untyped_storage()._cdata for part in _plain((real, named))}
        except (RuntimeError, NotImplementedError, TypeError, ValueError):  # not for the host
            if not self.all:
                for fake in fakes:
                    self.forget(_key(fake))
                return
            name = func._schema.name
            self.not_computed[name] = self.not_computed.get(name, 0) + 1
            for fake in fakes:
                if _key(fake) not in self._known:
                    self._adopt(fake, None)
            return
        self._adopt(result, values, taken)
        if guessed:
            self._guessed.update(_key(fake) for fake in fakes)

    def _adopt(self, result: Any, values: Any, taken: Any = None) -> None:
        """Fresh fake results take the values; zeros where there are none.

        `taken`: storages of the operator's arguments; None where nothing may be taken over.
        """
        found = pytree.tree_leaves(values)
        made = set()
        for place, fake in enumerate(pytree.tree_leaves(result)):
            if not isinstance(fake, FakeTensor) or fake.layout is not torch.strided:
                continue
            key = _key(fake)
            if key in self._known and key not in made:
                continue
            value = found[place] if place < len(found) else None
            if not isinstance(value, torch.Tensor) or fake.size() != value.size():
                if not self.all:
                    continue
                value = None
            if key in made:  # results that share a storage
                if value is not None:
                    with _host.plainly():
                        self._view(fake, self._known[key]).copy_(value)
                continue
            made.add(key)
            with _host.plainly():
                self._known[key] = self._bytes_of(fake, value, taken)
                self._owners[key] = weakref.ref(
                    fake.untyped_storage(), lambda owner, key=key: self._gone(key, owner)
                )
            self._bytes += self._known[key].numel()
            if self._bytes > self._most_bytes:
                raise TooLarge

    def _bytes_of(self, fake: Any, value: Any, taken: Any) -> Any:
        if value is not None and value._is_zerotensor():  # it has no bytes
            value = None
        if value is not None and taken is not None:
            whole = value.untyped_storage()
            if (
                whole._cdata not in taken
                and whole.nbytes() == fake.untyped_storage().nbytes()
                and value.dtype is fake.dtype
                and value.stride() == fake.stride()
                and value.storage_offset() == fake.storage_offset() == 0
                and not (value.is_conj() or value.is_neg())
            ):
                taken.add(whole._cdata)
                return torch.empty(0, dtype=torch.uint8).set_(whole)
        storage = torch.zeros(fake.untyped_storage().nbytes(), dtype=torch.uint8)
        if value is not None and fake.numel():
            self._view(fake, storage).copy_(value)
        return storage

    @staticmethod
    def _view(fake: Any, storage: Any) -> Any:
        whole = torch.empty(0, dtype=fake.dtype)
        whole.set_(
            storage.untyped_storage(),
            fake.storage_offset(),
            tuple(fake.size()),
            tuple(fake.stride()),
        )
        if fake.is_conj():
            whole = torch._conj(whole)
        return torch._neg_view(whole) if fake.is_neg() else whole

    def _real(self, tree: Any, missing: Callable[[Any], Any]) -> Any:
        """Arguments with tensors of the host; `missing` stands in for values that are unknown."""

        def real(leaf: Any) -> Any:
            if isinstance(leaf, FakeTensor):
                storage = self._known.get(_key(leaf))
                return missing(leaf) if storage is None else self._view(leaf, storage)
            if isinstance(leaf, torch.device):
                return torch.device("cpu")
            if isinstance(leaf, torch.Generator):
                return leaf if leaf.device.type == "cpu" else None
            return leaf

        return pytree.tree_map(real, tree)

    @staticmethod
    def _zeros(fake: Any) -> Any:
        return torch.zeros((), dtype=fake.dtype).expand(tuple(fake.size()))

    @staticmethod
    def _whole(fake: Any) -> Any:
        return torch.zeros(tuple(fake.size()), dtype=fake.dtype)

    @staticmethod
    def _ones(fake: Any) -> Any:
        return torch.ones((), dtype=fake.dtype).expand(tuple(fake.size()))

    def host(self, tensor: Any) -> Any:
        """The values as an array, zeros where they are not known."""
        with _host.plainly(), torch.no_grad():
            if _key(tensor) not in self._known:
                self.numbers += 1
                self.integers += not tensor.is_floating_point()
            one = self.way == "most" and not tensor.is_floating_point()
            return self._real(tensor, self._ones if one else self._zeros).clone().numpy()

    def number(self, tensor: Any) -> Any:
        """What item() returns."""
        key, dtype = _key(tensor), tensor.dtype
        storage = self._known.get(key)
        guessed = key in self._guessed
        if storage is not None:
            with _host.plainly():
                value = self._view(tensor, storage).item()
            if not guessed:
                return value
        self.numbers += 1
        if dtype is torch.bool:
            if (chosen := _lbfgs.decision()) is not None:
                self.runs_lbfgs = True
                return chosen
            self.decisions += 1
            return (storage is not None and value) != (self.way == "most")
        if dtype.is_floating_point:
            return Number(value if guessed else 0.0, self._decide)
        self.integers += 1
        if dtype.is_complex:
            return value if guessed else 0j
        return value if guessed else int(self.way == "most")

    def _decide(self, result: bool) -> bool:
        """A comparison with a number that is not known."""
        if (chosen := _lbfgs.decision()) is not None:
            self.runs_lbfgs = True
            return chosen
        self.decisions += 1
        return result != (self.way == "most")

    def _by_data(
        self, func: Any, args: Any, kwargs: Any, inputs: List[Any], *, sized: bool = True
    ) -> Any:
        """An operator without a fake, or (`sized`) whose result's size depends on data: done for
        real."""
        name = func._schema.name
        short = name.split("::")[1]
        deciding = inputs
        if name in _DECIDING and len(args) > max(_DECIDING[name]):
            deciding = _tensors([args[place] for place in _DECIDING[name]], {})
        known = all(_key(tensor) in self._known for tensor in inputs)
        sure = all(
            _key(part) in self._known and _key(part) not in self._guessed for part in deciding
        )
        if sized and not sure:
            self.sizes[short] = self.sizes.get(short, 0) + 1
        device = next((tensor.fake_device for tensor in inputs), torch.device("cpu"))
        missing = self._zeros if self.share is None else _host.filled(name, self.share)
        if func._schema.is_mutable:  # kernels write, and elements of stand-ins lie on each other
            missing = self._whole
        with _host.plainly(), torch.no_grad():
            values = _host.run(func, self._real(args, missing), self._real(kwargs, missing))
        if sized:
            self._see(short, values)

        def fake(place: int, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            where = torch.device("cpu") if place in _host.ON_HOST.get(name, ()) else device
            with self.fake_mode:
                return torch.empty_strided(
                    leaf.size(), leaf.stride(), dtype=leaf.dtype, device=where
                )

        leaves, structure = pytree.tree_flatten(values)
        if any(getattr(leaf, "layout", torch.strided) is not torch.strided for leaf in leaves):
            raise UnsupportedOperatorException(func)  # sparse tensors
        result = pytree.tree_unflatten(
            [fake(place, leaf) for place, leaf in enumerate(leaves)], structure
        )
        if known or deciding is inputs and sized:
            self._adopt(result, values)
            if not (known and sure):
                self._guessed.update(_key(part) for part in _tensors([result], {}))
        elif sure:
            for place in _host.ON_HOST.get(name, ()):
                self._adopt(result[place], values[place])
        return result

    def _see(self, name: str, values: Any) -> None:
        count = max(
            (leaf.numel() for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)),
            default=0,
        )
        least, most = self.seen.get(name, (count, count))
        self.seen[name] = (min(least, count), max(most, count))


def _asks_whether_finite(args: Any) -> bool:
    """isfinite compares a tensor with itself, and its absolute value with infinity."""
    return args[0] is args[1] or isinstance(args[1], float) and math.isinf(args[1])


def _unknown(fake: Any) -> Any:
    raise RuntimeError("no values")


def _key(tensor: Any) -> int:
    """Of a tensor's storage; 0, which no storage has, for sparse ones."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


def _plain(tree: Any) -> List[Any]:
    return [
        leaf
        for leaf in pytree.tree_leaves(tree)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    ]


def _tensors(args: Any, kwargs: Any) -> List[Any]:
    found = []
    for leaf in args if not kwargs else (*args, *kwargs.values()):
        if isinstance(leaf, FakeTensor):
            found.append(leaf)
        elif isinstance(leaf, (list, tuple)):
            found.extend(part for part in leaf if isinstance(part, FakeTensor))
    return found
