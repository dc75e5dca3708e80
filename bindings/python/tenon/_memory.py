"""Devices, allocators, scopes and recorders."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

from tenon import _core
from tenon._answers import _written
from tenon._arguments import Bytes, Duration, PathLike, duration_ns, path_text, size_bytes
from tenon._recording import Recording

if TYPE_CHECKING:
    from types import TracebackType

Shape = Union[int, Sequence[int]]
Device = _core.Device


def host_device() -> Device:
    """The machine's own memory."""
    return _core.host_device()


def sim_device(capacity: Optional[Bytes] = None, *, lag: Duration = 0, real_memory: bool = False,
               index: int = 0) -> Device:
    """A simulated device: a GPU's addresses, streams and driver costs, without a GPU.

    Args:
        capacity: its memory; None: more than any program needs.
        lag: a stream's work ends this long after it was queued.
        real_memory: give its addresses bytes, so that arrays can be read and written.
        index: its number: "sim:0".
    """
    if not 0 <= index < 2**15:
        raise ValueError(f"index={index}: give 0 to 32767")
    return _core.sim_device(size_bytes(capacity, "capacity"), duration_ns(lag, "lag"), real_memory,
                            index)


def policies() -> Dict[str, str]:
    """The policies by name, each with a line on what it does."""
    return dict(_core.policies())


def _shape(shape: Shape) -> List[int]:
    try:
        lengths = [operator.index(n) for n in (shape if isinstance(shape, Iterable) else [shape])]
    except TypeError:
        raise TypeError(f"shape={shape!r}: give a whole number, or a sequence of them") from None
    for length in lengths:
        if not -(2**63) <= length < 2**63:
            raise ValueError(f"a dimension of length {length}: give 0 or more, below 2**63")
    return lengths


class Allocator(_core.Allocator):
    """A policy over a device.

    Arrays keep the allocator alive, so the order in which a program drops them does not matter.
    Thread-safe: any thread may allocate, and drop what another one allocated.

    Args:
        policy: see `tenon.policies`.
        device: `host_device()` (the default) or `sim_device(...)`; allocators may share one.
        limit: the allocator's own limit, below the device's.
        conf: PyTorch's allocator settings, "key:value,key:value", for the policies caching,
            expandable and stitched.
        page: page size of the policy stitched.
        plan: a file of `recording.plan().save`, for the policy plan.
    """

    def __init__(self, policy: str = "host", device: Optional[Device] = None, *,
                 limit: Optional[Bytes] = None, conf: str = "", page: Optional[Bytes] = None,
                 plan: Optional[PathLike] = None) -> None:
        super().__init__(host_device() if device is None else device, policy, conf,
                         size_bytes(limit, "limit"), size_bytes(page, "page"),
                         "" if plan is None else path_text(plan))

    def empty(self, shape: Shape, dtype: Any = "float32", *, stream: int = 0) -> _core.Array:
        """An array whose contents are whatever was there before."""
        return self.empty_of(_shape(shape), dtype, stream, False)

    def zeros(self, shape: Shape, dtype: Any = "float32", *, stream: int = 0) -> _core.Array:
        """An array of zeros."""
        return self.empty_of(_shape(shape), dtype, stream, True)

    def __repr__(self) -> str:
        return f"<tenon.Allocator {self.policy} on {self.device.name}>"


class Scope(_core.Scope):
    """Memory that goes when the scope ends, except for arrays that the program still holds.

    with tenon.scope(allocator) as step:
        activations = step.empty((64, 1024))

    Scopes nest. Each ends on the thread that began it.
    """

    def empty(self, shape: Shape, dtype: Any = "float32") -> _core.Array:
        """An array of the scope; its contents are whatever was there before."""
        return self.empty_of(_shape(shape), dtype)


def scope(allocator: Allocator) -> Scope:
    """A scope over an allocator, which keeps its memory for the next one."""
    return Scope(allocator)


class Recorder:
    """Records every allocator of this process from `with` to its end.

    with tenon.Recorder("step") as recorder:
        ...
    recorder.recording().explain()

    Args:
        name: what answers call it.
        events: the newest so many are kept; of those before, what they left live.
        stack_depth: native frames kept of each call stack; 0: none.
        stack_min_bytes: for allocations of at least this size.
        save: write the recording to this file at the end.
    """

    def __init__(self, name: str = "recording", *, events: int = 1 << 20, stack_depth: int = 0,
                 stack_min_bytes: Bytes = 1 << 20, save: Optional[PathLike] = None) -> None:
        if not 1 <= events <= 1 << 32:
            raise ValueError(f"events={events}: give 1 to 2**32")
        if not 0 <= stack_depth <= 256:
            raise ValueError(f"stack_depth={stack_depth}: give 0 to 256")
        self._path = None if save is None else path_text(save)
        if self._path is not None:
            _core.check_trace_path(self._path)
        self._recorder = _core.Recorder(name, events, stack_depth,
                                        size_bytes(stack_min_bytes, "stack_min_bytes"))

    def __enter__(self) -> Recorder:
        self._recorder.start()
        return self

    def __exit__(self, kind: Optional[type], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self._recorder.stop()
        if self._path is not None:
            path = self._path
            recorded = self.recording()
            _written(lambda: recorded.save(path))

    def recording(self) -> Recording:
        """What was recorded so far."""
        return Recording(self._recorder.recording())


def record(path: PathLike, *, events: int = 1 << 20, stack_depth: int = 0) -> Recorder:
    """Record into a file: .csv, .csv.zst, .pickle or .json.

    with tenon.record("step.csv.zst"):
        ...
    """
    return Recorder(path_text(path), events=events, stack_depth=stack_depth, save=path)


def tag(phase: str, call_site: str = "") -> _core.Tag:
    """Name what this thread does, for recordings.

    with tenon.tag("forward"):
        ...
    """
    return _core.Tag(phase, call_site)


def use(allocator: Allocator) -> _core.Use:
    """Tensors of this thread come from an allocator, which their memory keeps alive.

    with tenon.use(allocator):
        x = tenon.zeros((64, 1024))
    """
    return _core.Use(allocator)


__all__: Tuple[str, ...] = ("Allocator", "Device", "Recorder", "Scope", "host_device", "policies",
                            "record", "scope", "sim_device", "tag", "use")
