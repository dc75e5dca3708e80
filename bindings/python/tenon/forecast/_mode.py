# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"
"""The dispatch mode that turns fake CUDA storages into allocations and frees.

It stands above PyTorch's FakeTensorMode. Each operator's fresh storages are allocations on the
current stream; the end of a storage is its free. What kernels allocate inside comes from
`_scratch`.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode

from tenon.forecast import _recurrent, _scratch, _sparse, _values
from tenon.forecast._engine import Ended
from tenon.forecast._recorder import Frames, Recorder

_HIDDEN = (
    "/tenon/forecast/",
    "/torch/utils/_python_dispatch.py",
    "/torch/_subclasses/",
    "<frozen ",
    "runpy.py",
    "/torch/_ops.py",
    "/torch/_library/",
    "/torch/_compile.py",
    "/torch/_dynamo/",
)
_DEPTH = 48
_CACHED_CAST = (
    "at::autocast::cached_cast(c10::ScalarType, at::Tensor const&, c10::DeviceType)", "??", 0
)
_ENGINE = "_engine_run_backward"
# The engine and its formulas write into an operand where plain tensors are alone on theirs, and
# go out of place for subclasses of tensors: autograd/input_buffer.cpp (can_accumulate_inplace),
# autograd/FunctionsManual.cpp (isTensorSubclassLike).
_IN_PLACE_FOR_THE_ENGINE = {
    torch.ops.aten.add.Tensor,
    torch.ops.aten.index_add.default,
    torch.ops.aten.scatter_add.default,
    torch.ops.aten.scatter.src,
    torch.ops.aten.scatter.value,
}
# Formulas that never write into an operand (scatter_reduce_backward and its like).
_OUT_OF_PLACE = ("Scatter", "IndexReduce")
_UNSHARED, _UNSHARED_STORAGE = 4, 2  # counts seen from here: this call's own references
# The same for the formulas of single nodes, with what counts as unshared: index_backward takes its
# zeros by value.
_IN_PLACE_IN_A_NODE = {
    ("IndexBackward0", torch.ops.aten.index_put.default): _UNSHARED + 1,
    ("BinaryCrossEntropyWithLogitsBackward0", torch.ops.aten.sub.Tensor): _UNSHARED,
    ("BinaryCrossEntropyWithLogitsBackward0", torch.ops.aten.mul.Tensor): _UNSHARED,
}
_IN_NODES = {func for _, func in _IN_PLACE_IN_A_NODE}


class MemoryMode(TorchDispatchMode):
    """Records what operators allocate on one fake device."""

    def __init__(
        self,
        fake_mode: FakeTensorMode,
        recorder: Recorder,
        card: _scratch.Card,
        values: _values.Values,
    ) -> None:
        super().__init__()
        self.recorder = recorder
        self.fake_mode = fake_mode
        self.lock = threading.RLock()
        self._thread, self._streams = threading.get_ident(), threading.local()
        self.in_threads = False
        """Whether a thread that the program started has called an operator."""
        self.on_other_cards = False
        """Whether a tensor lies on another card than the first."""
        self.ended: Any = None
        """What has ended the program."""
        self.over = False
        self.tensor_peak_bytes = self._tensor_bytes = 0
        self.values = values
        self.autocast = torch.is_autocast_enabled("cuda")
        """Whether the program has turned it on."""
        self._card = card
        self._workspaces: Dict[Tuple[Any, ...], int] = {}
        self._live: Dict[int, Tuple[int, int, Any]] = (
            {}
        )  # storage -> address, bytes, weak reference
        self._other_streams: Dict[int, set[int]] = {}
        self._hidden: Dict[str, bool] = {}
        self._plain = (torch.Tensor, torch.nn.Parameter, FakeTensor)

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self.lock:
            if threading.get_ident() != self._thread:
                self.in_threads = True
            return self._dispatch(func, types, args, kwargs)

    @property
    def stream(self) -> int:
        """The current stream, of each thread its own."""
        return int(getattr(self._streams, "number", 0))

    @stream.setter
    def stream(self, number: int) -> None:
        self._streams.number = number

    def _dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        for kind in types:
            if kind not in self._plain and not issubclass(kind, torch.nn.Parameter):
                return NotImplemented  # DTensor and its like: their parts come here
        if self.over:
            raise Ended  # a thread outlives the forecast
        if self.ended is not None:
            raise self.ended  # a handler of the program has swallowed it
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        self.recorder.tick()
        if func is torch.ops.aten.record_stream.default:
            return self._record_stream(args[0], args[1])
        if func is torch.ops.aten._cudnn_rnn_backward.default:
            with self.fake_mode, torch.no_grad():
                result = _recurrent.backward(args)
            self.values.follow(func, args, kwargs, result)
        else:
            result = self.values.run(func, args, kwargs)
        if references := _in_place_for_the_engine(func):
            self._reuse(args, result, references)
        if func is torch.ops.aten._cudnn_rnn.default:
            size = _recurrent.reserve_bytes(args, result)
            with self.fake_mode:
                reserve = torch.empty(size, dtype=torch.uint8, device=result[0].device)
                weights = torch.empty(0, dtype=result[0].dtype, device=result[0].device)
            result = (*result[:3], reserve, weights)
        self._account(func, args, kwargs, result)
        return result

    def _higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """flex_attention and its like: what their fakes allocate, as their compiled kernels do."""
        from torch._higher_order_ops.utils import registered_hop_fake_fns

        fake = registered_hop_fake_fns.get(func)
        if fake is None:
            raise UnsupportedOperatorException(func)
        with self:
            return fake(*args, **kwargs)

    def _account(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        fresh = self._fresh(result)
        if func._schema.name in _scratch.RESIZING:
            self._resized(args[0])
        plan = _scratch.plan(func, args, kwargs, result, self._card)
        if not fresh and plan is None:
            return
        frames = self._frames(func, args, kwargs)
        if plan is None:
            for storage in fresh:
                self._allocate(storage, frames)
            return
        thread = 1 if torch._C._current_graph_task_id() != -1 else 0
        temporary = []
        if plan.order:
            fresh.sort(key=lambda storage: plan.order_of(storage, result))
        for size in filter(None, plan.before):
            temporary.append(self.recorder.allocate(size, self.stream, frames))
        for place, storage in enumerate(fresh):
            self._allocate(storage, frames, plan.holds)
            if place < len(plan.behind):
                self._for_a_moment(plan.behind[place], frames)
        for size in filter(None, plan.after):
            temporary.append(self.recorder.allocate(size, self.stream, frames))
        for name, size in plan.kept:
            key = (name, self.stream, thread)
            if key not in self._workspaces:
                self._workspaces[key] = self.recorder.allocate(size, self.stream, frames)
        for size in plan.alone:
            self._for_a_moment(size, frames)
        for address in reversed(temporary):
            self.recorder.free(address)

    def _for_a_moment(self, size: int, frames: Frames) -> None:
        if size:
            self.recorder.free(self.recorder.allocate(size, self.stream, frames))

    def _fresh(self, result: Any) -> List[Any]:
        """Storages on the fake device that no operator has returned before."""
        found: List[Any] = []
        if isinstance(result, FakeTensor):
            self._look_at(result, found)
        elif isinstance(result, (list, tuple)):
            for part in result:
                if isinstance(part, FakeTensor):
                    self._look_at(part, found)
                elif isinstance(part, (list, tuple)):
                    for inner in part:
                        if isinstance(inner, FakeTensor):
                            self._look_at(inner, found)
        return found

    def _look_at(self, tensor: Any, found: List[Any]) -> None:
        if _sparse.is_sparse(tensor):
            with self.fake_mode:
                for part in _sparse.parts(tensor):
                    self._look_at(part, found)
            return
        if tensor.layout is not torch.strided or tensor.fake_device.type != "cuda":
            return
        if tensor._is_zerotensor():  # of forward differentiation: it has no bytes
            return
        storage = tensor.untyped_storage()
        if storage._cdata not in self._live and all(storage is not other for other in found):
            found.append(storage)
            self.on_other_cards |= bool(tensor.fake_device.index)

    def _allocate(self, storage: Any, frames: Frames, at_least: int = 0) -> None:
        size = max(storage.nbytes(), at_least)
        key = storage._cdata
        address = self.recorder.allocate(size, self.stream, frames) if size else 0
        self._tensor_bytes += size
        self.tensor_peak_bytes = max(self.tensor_peak_bytes, self._tensor_bytes)
        self._live[key] = (address, size, weakref.ref(storage, lambda _, key=key: self._gone(key)))

    def _gone(self, key: int) -> None:
        address, size, _ = self._live.pop(key)
        others = self._other_streams.pop(key, None)
        self._tensor_bytes -= size
        if size:
            self.recorder.free(address, wait=bool(others))

    def blocks_of(self, state: Any) -> set[int]:
        """Addresses of the blocks that an optimizer's state lies in."""
        found = set()
        for values in state.values():
            for value in values.values() if isinstance(values, dict) else ():
                value = getattr(value, "_local_tensor", value)  # of a DTensor
                if isinstance(value, FakeTensor):
                    known = self._live.get(value.untyped_storage()._cdata)
                    if known is not None and known[1]:
                        found.add(known[0])
        return found

    def _reuse(self, args: Any, result: Any, references: int) -> None:
        """The result takes the block of an operand that has no more than so many references."""
        if torch.is_grad_enabled() or not isinstance(result, FakeTensor):
            return
        for operand in args[:2]:
            if not isinstance(operand, FakeTensor) or operand.size() != result.size():
                continue
            storage = operand.untyped_storage()
            known = self._live.get(storage._cdata)
            if (
                known is None
                or known[1] != result.untyped_storage().nbytes()
                or operand._use_count() > references
                or torch._C._storage_Use_Count(storage._cdata) > _UNSHARED_STORAGE
            ):
                continue
            self._live[storage._cdata] = (0, 0, known[2])
            key = result.untyped_storage()._cdata
            self._live[key] = (
                known[0],
                known[1],
                weakref.ref(result.untyped_storage(), lambda _, key=key: self._gone(key)),
            )
            return

    def _resized(self, tensor: Any) -> None:
        if isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda":
            self.resize(tensor.untyped_storage())

    def resize(self, storage: Any) -> None:
        """A storage has another size than it had."""
        known = self._live.get(storage._cdata)
        if known is None or known[1] == storage.nbytes():
            return
        self._tensor_bytes -= known[1]
        if known[1]:
            self.recorder.free(known[0])
        self._allocate(storage, self._frames(None))

    def _record_stream(self, tensor: Any, stream: Any) -> None:
        number = getattr(stream, "number", getattr(stream, "stream_id", 0))
        key = tensor.untyped_storage()._cdata
        if key in self._live:
            self._other_streams.setdefault(key, set()).add(number)

    def _frames(self, func: Any, args: Any = (), kwargs: Any = None) -> Frames:
        """The call stack as PyTorch records it: the operator, then the program's frames.

        Backward's stack ends at the engine, which has a thread of its own on a GPU.
        """
        frames: List[Tuple[str, str, int]] = []
        if func is not None:
            frames.append((f"at::_ops::{func._schema.name.split('::')[1]}::call", "??", 0))
        if func is torch.ops.aten._to_copy.default and self._is_cached_cast(args, kwargs):
            frames.append(_CACHED_CAST)
        node = torch._C._current_autograd_node()
        frame: Optional[Any] = sys._getframe(2)
        while frame is not None and len(frames) < _DEPTH:
            code = frame.f_code
            file = code.co_filename
            hidden = self._hidden.get(file)
            if hidden is None:
                hidden = self._hidden[file] = any(part in file for part in _HIDDEN)
            if not hidden:
                if node is not None and code.co_name == _ENGINE:
                    break
                frames.append((code.co_name, file, frame.f_lineno))
            frame = frame.f_back
        if node is not None:
            frames.append((f"torch::autograd::generated::{node.name()}::apply", "??", 0))
            frames.append(("torch::autograd::Engine::thread_main", "??", 0))
        return tuple(frames)


    def _is_cached_cast(self, args: Any, kwargs: Any) -> bool:
        """Whether autocast keeps the copy (`at::autocast::cached_cast`): of a weight."""
        weight = args[0]
        return (
            self.autocast
            and weight.dtype is torch.float32
            and weight.requires_grad
            and weight.is_leaf
            and kwargs.get("dtype") is torch.get_autocast_dtype("cuda")
        )


def _in_place_for_the_engine(func: Any) -> int:
    """As how many references an operand may have that the operator writes into; 0: into none."""
    if func not in _IN_PLACE_FOR_THE_ENGINE and func not in _IN_NODES or not _called_by_engine():
        return 0
    node = torch._C._current_autograd_node()
    name = node.name() if node is not None else ""
    if func in _IN_PLACE_FOR_THE_ENGINE:
        return 0 if name.startswith(_OUT_OF_PLACE) else _UNSHARED
    return _IN_PLACE_IN_A_NODE.get((name, func), 0)


def _called_by_engine() -> bool:
    """No Python stands between the engine and this operator."""
    if torch._C._current_graph_task_id() == -1:
        return False
    frame: Optional[Any] = sys._getframe(4)  # behind this, its caller, _dispatch and the hook
    while frame is not None and frame.f_code.co_filename.endswith(
        ("/_compile.py", "/eval_frame.py")
    ):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == _ENGINE
