# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return"
"""Workspaces of cuDNN's convolutions: cuDNN's own answer, where its library is there.

PyTorch takes the first kernel that cuDNN's heuristics propose, and allocates the workspace that
its plan asks for. Both need no GPU since cuDNN 9.8: `_cudnn_process` asks in a process of its own.

Some kernels for Hopper in float32 divide the products of the last wave among multiprocessors that
would idle, and keep their partial sums in the workspace. How many there are the library reads from
a GPU; without one it counts 18. `_partial_sums` counts those of the card instead (CUTLASS's
tile_scheduler_params.h: stream-K, min_iters_per_sk_unit_).
"""

from __future__ import annotations

import atexit
import glob
import json
import os
import select
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

_TILES = {
    0: (128, 128),
    1: (128, 64),
    3: (256, 128),
    4: (256, 64),
    5: (64, 64),
    6: (128, 256),
    7: (64, 128),
    9: (64, 256),
}
"""Rows and columns of a kernel's tile, by cuDNN's knob for its size."""
_TILE, _NOT_DIVIDED, _CLUSTER_ROWS, _CLUSTER_COLUMNS = "2", "25", "27", "28"  # knobs
_WITHOUT_GPU = 18  # multiprocessors
_STEP, _LEAST_STEPS = 32, 8  # of the inner dimension, in float32
_PATIENCE = 60  # seconds for one answer
_SHARED = {7: 98304, 8: 166912, 9: 232448, 10: 232448}


class _Process(subprocess.Popen):  # type: ignore[type-arg]
    """A forecast replaces Popen.__init__ to refuse the program's processes; this is not one."""

    __init__ = subprocess.Popen.__init__


class Library:
    """cuDNN in a process of its own, which starts at the first question."""

    def __init__(self) -> None:
        self._process: Optional[_Process] = None
        self._known: Dict[str, Optional[Dict[str, Any]]] = {}
        self.missing = False
        """Whether there is no library to ask, or it has ended."""

    def ask(self, question: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """The engine, its knobs and its bytes; None where cuDNN has no answer."""
        text = json.dumps(question)
        if text not in self._known:
            self._known[text] = self._answer(text)
        return self._known[text]

    def _answer(self, text: str) -> Optional[Dict[str, Any]]:
        if self.missing:
            return None
        try:
            if self._process is None:
                self._process = _start()
                self._read()
            assert self._process.stdin is not None
            self._process.stdin.write(f"{text}\n".encode())
            found = self._read()
        except BaseException as error:
            self._end()  # an answer that still comes would be taken for that of the next question
            if not isinstance(error, (OSError, ValueError)):
                raise
            self.missing = True
            return None
        return None if "error" in found else found

    def close(self) -> None:
        """The process ends, and what it took counts as this process' own."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.close()

    def _read(self) -> Dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
            raise OSError(f"no answer within {_PATIENCE} s")
        found: Dict[str, Any] = json.loads(self._process.stdout.readline())
        if "version" not in found and not self._known and "error" in found:
            raise OSError(found["error"])
        return found


def _start() -> _Process:
    site = os.path.dirname(os.path.dirname(torch.__file__))
    places = [os.path.join(site, "nvidia", "*", "lib"), os.path.join(site, "torch", "lib")]
    return _Process(
        [
            sys.executable,
            "-I",
            "-S",
            os.path.join(os.path.dirname(__file__), "_cudnn_process.py"),
            *[folder for place in places for folder in sorted(glob.glob(place))],
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )


LIBRARY = Library()
atexit.register(LIBRARY.close)


def workspace(
    operation: str,
    x: Any,
    y: Any,
    w: Any,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    card: Any,
) -> Optional[int]:
    """Bytes for one kernel; None where cuDNN cannot be asked.

    `operation`: "forward", "input" or "weight" (their gradients). `x`, `y`, `w`: tensors with the
    shapes of the input, the result and the weight.
    """
    if w.dim() not in (3, 4, 5) or str(x.dtype) not in _TYPES:
        return None
    last = channels_last(x, w)
    if not last and _is_product(w, padding, stride):
        return 0
    shapes = [_plane(tensor.shape) for tensor in (x, y, w)]
    flat = w.dim() == 3
    question = {
        "operation": operation,
        "dtype": _TYPES[str(x.dtype)],
        **{name: (shape, _strides(shape, last)) for name, shape in zip("xyw", shapes)},
        "padding": [0] * flat + list(padding),
        "stride": [1] * flat + list(stride),
        "dilation": [1] * flat + list(dilation),
        "alignment": min(_alignment(tensor) for tensor in (x, y, w)),
        "deterministic": torch.backends.cudnn.deterministic
        or torch.are_deterministic_algorithms_enabled(),
        "tf32": torch.backends.cudnn.allow_tf32,
        "device": _device(card),
    }
    found = LIBRARY.ask(question)
    if found is None:
        return None
    if card.major == 9 and question["dtype"] == "float32" and found["knobs"].get(_NOT_DIVIDED) == 0:
        return _as_on(card, found, operation, shapes, last)
    return int(found["bytes"])


_TYPES = {f"torch.{name}": name for name in ("float32", "float64", "float16", "bfloat16")}


def channels_last(source: Any, weight: Any) -> bool:
    """native/ConvUtils.h: cudnn_conv_suggest_memory_format."""
    kind = {4: torch.channels_last, 5: torch.channels_last_3d}.get(weight.dim())
    return kind is not None and any(
        tensor.dim() == weight.dim()
        and tensor.is_contiguous(memory_format=kind)
        and not tensor.is_contiguous()
        for tensor in (source, weight)
    )


def _is_product(w: Any, padding: Sequence[int], stride: Sequence[int]) -> bool:
    """Single points at every place: a product of matrices as they lie. Recordings show no workspace
    for it; without a GPU cuDNN proposes kernels that need one."""
    return _product(w.shape[2:]) == 1 and not any(padding) and all(step == 1 for step in stride)


def _plane(shape: Sequence[int]) -> List[int]:
    """native/Convolution.cpp: view4d, for rows."""
    return [*shape[:2], 1, *shape[2:]] if len(shape) == 3 else list(shape)


def _strides(shape: Sequence[int], last: bool) -> List[int]:
    """Of a contiguous tensor, channels last or not."""
    strides = [1] * len(shape)
    order = [1, *range(len(shape) - 1, 1, -1), 0] if last else range(len(shape) - 1, -1, -1)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= shape[dimension]
    return strides


def _alignment(tensor: Any) -> int:
    """native/cudnn/Conv_v8.cpp: getAlignment, of a block that begins at a multiple of 512."""
    offset = tensor.storage_offset() * tensor.element_size()
    return min(32, offset & -offset) if offset else 32


def _device(card: Any) -> Dict[str, Any]:
    """What cuDNN wants to know of a card; compute capability decides."""
    consumer = (card.major, card.minor) in ((8, 6), (8, 9))
    shared = 65536 if (card.major, card.minor) == (7, 5) else _SHARED[card.major]
    return {
        "deviceVer": card.major * 100 + card.minor * 10,
        "multiProcessorCount": card.processors,
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 49152,
        "maxSharedMemoryPerBlockOptin": 101376 if consumer else shared,
        "reservedSharedMemoryPerBlock": 1024,
        "maxRegistersPerSM": 65536,
        "maxCtasPerSM": 16 if consumer or shared == 65536 else 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": 1024 if shared == 65536 else 1536 if consumer else 2048,
        "regsPerBlock": 65536,
        "totalGlobalMem": 1 << 36,
        "smClockRateKHz": 1_700_000,
        "memClockRateKHz": 2_600_000,
        "l2CacheSize": 50 << 20,
        "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "supportCoopLaunch": 1,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "cudaDeviceId": 0,
        "driverVer": 13000,
        "deviceName": card.name,
    }


def _as_on(
    card: Any, found: Dict[str, Any], operation: str, shapes: Sequence[Sequence[int]], last: bool
) -> int:
    """The bytes with the partial sums of the card in place of those that are counted without."""
    counted = int(found["bytes"])
    operands = 0 if last else transposed_bytes(shapes)
    without = counted - _partial_sums(_WITHOUT_GPU, found["knobs"], operation, shapes)
    least = operands if counted >= operands else 0
    return max(without, least) + _partial_sums(card.processors, found["knobs"], operation, shapes)


def transposed_bytes(shapes: Sequence[Sequence[int]]) -> int:
    """Of input, result and weight in float32; a weight of single points has one order only."""
    points = _product(shapes[2][2:])
    return 4 * sum(_product(shape) for shape in (shapes if points > 1 else shapes[:2]))


def _partial_sums(
    processors: int, knobs: Dict[str, int], operation: str, shapes: Sequence[Sequence[int]]
) -> int:
    """Bytes of the partial sums of the last wave's tiles."""
    if knobs.get(_TILE) not in _TILES:
        return 0
    rows, columns = _TILES[knobs[_TILE]]
    cluster = knobs[_CLUSTER_ROWS], knobs[_CLUSTER_COLUMNS]
    tiles, steps = _tiles(operation, shapes, (rows, columns), cluster)
    size = cluster[0] * cluster[1]
    rest = tiles % (processors // size * size) if processors >= size else 0
    if not rest:
        return 0
    parts = min(processors // size * size // rest, steps // _LEAST_STEPS)
    return rest * parts * rows * columns * 4 if parts > 1 else 0


def _tiles(
    operation: str,
    shapes: Sequence[Sequence[int]],
    tile: Tuple[int, int],
    cluster: Tuple[int, int],
) -> Tuple[int, int]:
    """How many tiles the product has, in whole clusters, and how many steps each takes."""
    x, y, w = shapes
    points = _product(w[2:])
    if operation == "weight":
        rows, columns, inner = w[0], w[1], y[0] * _product(y[2:])
        across, steps = points * _up(columns, tile[1]), _up(inner, _STEP)
    else:
        of, columns, inner = (y, w[0], w[1]) if operation == "forward" else (x, w[1], w[0])
        rows = of[0] * _product(of[2:])
        across, steps = _up(columns, tile[1]), points * _up(inner, _STEP)
    down = _up(_up(rows, tile[0]), cluster[0]) * cluster[0]
    return down * _up(across, cluster[1]) * cluster[1], steps


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


def _up(number: int, step: int) -> int:
    return -(-number // step)
