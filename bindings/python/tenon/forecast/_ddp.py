# mypy: disable-error-code="import-not-found,import-untyped"
"""DistributedDataParallel's reducer: its buckets, as torch/csrc/distributed/c10d allocates them.

PyTorch's own is C++ that times itself with CUDA events, so it needs a GPU. This one follows
reducer.cpp and comm.cpp where they allocate; nothing is sent.
"""

from __future__ import annotations

import collections
import types
from typing import Any, Deque, List, Tuple

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

_IN_FLIGHT = 2  # comm.cpp: max_in_flight


class Reducer:
    """Copies gradients into buckets as they come, and back when all have come."""

    def __init__(
        self,
        params: List[Any],
        bucket_indices: List[List[int]],
        limits: List[int],
        group: Any,
        sparse: List[bool],
        cap: int,
        find_unused: bool,
        as_view: bool,
        names: Any = None,
        first_cap: int = 1 << 20,
        *rest: Any,
    ) -> None:
        self._params, self._group, self._sparse = list(params), group, sparse
        self._cap, self._first_cap = cap, first_cap
        self._find_unused, self._as_view = find_unused, as_view
        self._limits = list(rest[2]) if len(rest) > 2 and rest[2] else [first_cap, cap]
        self._static = self._rebuilt = self._expecting = False
        self._order: List[int] = []
        self._hook: Any = None
        if find_unused:  # local_used_map_dev_
            self._used = torch.empty(
                len(self._params), dtype=torch.int32, device=self._params[0].device
            )
        self._make_buckets(bucket_indices)
        self._handles = [
            param.register_post_accumulate_grad_hook(lambda _, index=index: self._ready(index))
            for index, param in enumerate(self._params)
        ]

    def _make_buckets(self, indices: List[List[int]]) -> None:
        """Reducer::initialize_buckets."""
        self._buckets: List[Any] = []
        self._views: List[Any] = [None] * len(self._params)
        for bucket in indices:
            parts = [self._params[index] for index in bucket]
            if self._sparse and self._sparse[bucket[0]]:
                self._buckets.append(None)
                continue
            flat = torch.empty(
                sum(part.numel() for part in parts), dtype=parts[0].dtype, device=parts[0].device
            )
            self._buckets.append(flat)
            offset = 0
            for index, part in zip(bucket, parts):
                self._views[index] = _like(flat[offset : offset + part.numel()], part)
                offset += part.numel()
                if self._as_view and part.grad is not None:
                    self._views[index].copy_(part.grad)
                    part.grad = self._views[index]
        self._indices = indices

    def _rebuild_buckets(self) -> bool:
        """After the first iteration: buckets in the order in which gradients came."""
        if self._rebuilt or not self._order or (self._find_unused and not self._static):
            return False
        order, self._order = self._order, []
        tensors = [self._params[index] for index in order]
        found, _ = dist._compute_bucket_assignment_by_size(
            tensors, self._limits, [self._sparse[index] for index in order], order
        )
        self._make_buckets(found)
        self._rebuilt = True
        return True

    def prepare_for_backward(self, outputs: Any) -> None:
        self._expecting = True
        self._seen: set[int] = set()
        self._queued = False

    def _ready(self, index: int) -> None:
        """Reducer::mark_variable_ready_dense."""
        if not self._expecting:
            return
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._seen.add(index)
        if not self._rebuilt:
            self._order.append(index)
        param, view = self._params[index], self._views[index]
        if view is None or param.grad is None:
            return
        with torch.no_grad():
            if not self._as_view:
                view.copy_(param.grad)
            elif param.grad.untyped_storage()._cdata != view.untyped_storage()._cdata:
                view.copy_(param.grad)
                param.grad = view
        for place, bucket in enumerate(self._indices):
            if index in bucket and self._seen.issuperset(bucket):
                self._reduce(place)

    def _reduce(self, place: int) -> None:
        if self._hook is None or self._buckets[place] is None:
            return  # all-reduce in place
        state, hook = self._hook
        found = hook(state, _Bucket(self, place))
        found = found.value() if hasattr(found, "value") else found
        if isinstance(found, (list, tuple)):
            found = found[0]
        if isinstance(found, torch.Tensor) and found is not self._buckets[place]:
            with torch.no_grad():
                self._buckets[place].copy_(found)

    def _finish(self) -> None:
        """Reducer::finalize_backward: gradients take what was reduced."""
        self._expecting = False
        if self._as_view:
            return
        with torch.no_grad():
            for index in self._seen:
                param, view = self._params[index], self._views[index]
                if view is not None and param.grad is not None:
                    param.grad.copy_(view)

    def _set_static_graph(self) -> None:
        self._static = True

    def _remove_autograd_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __getattr__(self, name: str) -> Any:
        """Logging, joins and statistics, which take no memory."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class _Bucket:
    """What a communication hook is given."""

    def __init__(self, reducer: Any, place: int) -> None:
        self._reducer, self._place = reducer, place

    def index(self) -> int:
        return self._place

    def buffer(self) -> Any:
        return self._reducer._buckets[self._place]

    def set_buffer(self, buffer: Any) -> None:
        self._reducer._buckets[self._place] = buffer

    def gradients(self) -> List[Any]:
        return [self._reducer._views[index] for index in self._reducer._indices[self._place]]

    def parameters(self) -> List[Any]:
        return [self._reducer._params[index] for index in self._reducer._indices[self._place]]

    def is_last(self) -> bool:
        return bool(self._place == len(self._reducer._buckets) - 1)


class Logger:
    """Logs nothing."""

    def __init__(self, reducer: Any) -> None:
        pass

    def _get_ddp_logging_data(self) -> Any:
        return types.SimpleNamespace(strs_map={}, ints_map={})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def broadcast_coalesced(group: Any, tensors: List[Any], size: int, source: int = 0) -> None:
    """comm.cpp: flat copies of up to `size` bytes, two at a time."""
    found, _ = dist._compute_bucket_assignment_by_size(list(tensors), [size])
    flying: Deque[Tuple[List[Any], Any]] = collections.deque()

    def finish() -> None:
        parts, flat = flying.popleft()
        for part, value in zip(parts, _unflatten_dense_tensors(flat, parts)):
            part.copy_(value)

    with torch.no_grad():
        for bucket in found:
            if len(flying) >= _IN_FLIGHT:
                finish()
            parts = [tensors[index] for index in bucket]
            flying.append((parts, _flatten_dense_tensors(parts)))
        while flying:
            finish()


def register_comm_hook(reducer: Reducer, state: Any, hook: Any) -> None:
    reducer._hook = (state, hook)


def register_builtin_comm_hook(reducer: Reducer, kind: Any) -> None:
    """default_comm_hooks.cpp: FP16_COMPRESS reduces a copy in half precision."""
    if "FP16" in str(kind):
        reducer._hook = (None, lambda state, bucket: bucket.buffer().to(torch.float16))


def _like(flat: Any, param: Any) -> Any:
    """A view with the parameter's strides, where it is dense (initialize_bucket_views)."""
    if param.is_contiguous():
        return flat.view(param.shape)
    return flat.as_strided(param.shape, param.stride(), flat.storage_offset())


def replacements() -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    from torch.distributed import utils
    from torch.nn.parallel import distributed

    nothing = lambda *_, **__: None  # noqa: E731
    found: List[Tuple[Any, str, Any]] = [
        (dist, "Reducer", Reducer),
        (dist, "Logger", Logger),
        (dist, "_broadcast_coalesced", broadcast_coalesced),
        (dist, "_verify_params_across_processes", nothing),
        (dist, "_register_comm_hook", register_comm_hook),
        (dist, "_register_builtin_comm_hook", register_builtin_comm_hook),
    ]
    for module in (utils, distributed):
        for holder, name, value in found[:]:
            if holder is dist and vars(module).get(name) is vars(dist)[name]:
                found.append((module, name, value))
    return found
