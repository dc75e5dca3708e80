# mypy: disable-error-code="import-not-found,import-untyped"
"""LSTM, GRU and plain recurrent layers as cuDNN runs them (native/cudnn/RNN.cpp).

A call allocates the results, a workspace for its own time, and in training the reserve.

cuDNN keeps what backward needs in one block, the reserve, whose size is in no document. The rule
here is what cuDNN 9.19's cudnnGetRNNTempSpaceSizes writes without a GPU, for 400 random layers of
all four kinds. A GPU's figures agree: 23 and 27 values for each step and state of four layers of
LSTM and GRU (github.com/pytorch/pytorch, issue 2895). A step keeps, for each state of a layer:
LSTM four gates and the cell, GRU three gates and three products, a plain layer one value. All
layers except the last keep their results, and a bit for each number that dropout may drop.

Weights are taken to lie flat already, which is what moving a module to a card does.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator, List, Tuple

import torch

_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_GATES = {0: 1, 1: 1, 2: 4, 3: 3}
_KEPT = {0: 1, 1: 1, 2: 5, 3: 6}
"""Values that a step keeps for each state of a layer."""
_STATES = {0: (1, 6), 1: (1, 6), 2: (6, 16), 3: (3, 10)}
"""States of the whole batch that a layer takes of the workspace, with one direction and with two."""
_ROUNDING = 256
_FOR_EACH_LAYER = 8 * 1024 * 1024
"""Bytes of the workspace for each layer and direction."""


def implementations() -> List[Tuple[str, Callable[..., Any]]]:
    """Operators and what stands for them on the card."""
    found: List[Tuple[str, Callable[..., Any]]] = []
    for name, mode in _MODES.items():
        found.append((f"{name}.input", _whole(mode)))
        found.append((f"{name}.data", _packed(mode)))
    found.append(("_pad_packed_sequence", _pad_packed))
    found.append(("_pack_padded_sequence_backward", _pack_backward))
    return found


def _runs(sizes: Any) -> Iterator[Tuple[int, int, int]]:
    """Runs of steps with the same number of sequences: the first step, behind the last, number."""
    step = 0
    for size, group in itertools.groupby(sizes.tolist()):
        behind = step + len(list(group))
        yield step, behind, size
        step = behind


def _pad_packed(
    data: Any, sizes: Any, batch_first: bool, padding: float, total: int
) -> Tuple[Any, Any]:
    """native/PackedSequence.cpp: _pad_packed_sequence, which reads sizes from memory."""
    numbers = sizes.tolist()
    length = max(len(numbers), total)
    output = torch.full(
        (length, numbers[0], *data.shape[1:]), padding, dtype=data.dtype, device=data.device
    )
    at = 0
    for first, behind, size in _runs(sizes):
        count = (behind - first) * size
        part = data[at : at + count].view(behind - first, size, *data.shape[1:])
        output[first:behind, :size].copy_(part)
        at += count
    lengths = torch.tensor([sum(size > place for size in numbers) for place in range(numbers[0])])
    return (output.transpose(0, 1) if batch_first else output), lengths


def _pack_backward(gradient: Any, size: Any, sizes: Any, batch_first: bool) -> Any:
    """native/PackedSequence.cpp: _pack_padded_sequence_backward."""
    shape = list(size)
    if batch_first:
        shape[:2] = reversed(shape[:2])
    found = torch.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    at = 0
    for step, count in enumerate(sizes.tolist()):
        found[step, :count].copy_(gradient[at : at + count])
        at += count
    return found.transpose(0, 1) if batch_first else found


def _whole(mode: int) -> Callable[..., Any]:
    """(input, hidden, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)"""
    return lambda *arguments: _layers(mode, (), *arguments)


def _packed(mode: int) -> Callable[..., Any]:
    """(data, batch_sizes, ...): as above, without batch_first"""
    return lambda data, sizes, *rest: _layers(mode, sizes.tolist(), data, *rest)


def _layers(
    mode: int,
    sizes: Any,
    source: Any,
    hidden: Any,
    params: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_first: bool = False,
) -> Any:
    hx, cx = (hidden[0], hidden[1]) if mode == 2 else (hidden, None)
    width = params[1].size(1)
    projection = params[-1].size(0) if mode == 2 and len(params) % 5 == 0 and biases else 0
    each = len(params) // (layers * (2 if both_ways else 1))
    state = None
    if dropout and train:
        state = torch.empty(0, dtype=torch.uint8, device=source.device)
    found = torch.ops.aten._cudnn_rnn.default(
        source,
        list(params),
        each,
        params[0].detach(),
        hx,
        cx,
        mode,
        width,
        projection,
        layers,
        batch_first,
        float(dropout),
        train,
        both_ways,
        sizes,
        state,
    )
    return (found[0], found[1], found[2]) if mode == 2 else (found[0], found[1])


def reserve_bytes(args: Any, result: Any) -> int:
    """What a training call of _cudnn_rnn keeps for backward."""
    mode, width, projection, layers, _, dropout, train, both_ways = args[6:14]
    if not train:
        return 0
    places = result[0].numel() // result[0].size(-1)  # steps × batch
    ways = 2 if both_ways else 1
    values = layers * _KEPT[mode] + layers - 1
    if projection:
        values += layers  # the results before it
    size = places * ways * (values * width + layers * projection) * result[0].element_size()
    if dropout and layers > 1:
        size += (layers - 1) * places * width * ways * ways // 8
    return int(size + _ROUNDING)


def workspace_bytes(args: Any, output: Any) -> int:
    """What _cudnn_rnn, or its backward, takes for the time of the call.

    From the same answers of cuDNN: the gates of one layer, the matrices of all weights, states,
    and 8 MiB for each layer and direction. For most layers that is the answer, for some it is
    less. No GPU's figure confirms it: a card may change the 8 MiB.
    """
    first = 6 if output is not args[6] else 10  # of what forward and backward have in common
    mode, width, _, layers, _, dropout, _, both_ways = args[first : first + 8]
    places = output.numel() // output.size(-1)
    ways = 2 if both_ways else 1
    values = _GATES[mode] * ways
    if both_ways:
        values += 4
    elif dropout or _GATES[mode] == 1:
        values += 1
    batch = args[4].size(1)
    numbers = places * values + layers * batch * _STATES[mode][ways - 1]
    size = numbers * width * output.element_size() + _ROUNDING
    size += sum(part.numel() * part.element_size() for part in args[1] if part.dim() > 1)
    return int(size + layers * ways * _FOR_EACH_LAYER)


def backward(args: Any) -> Any:
    """_cudnn_rnn_backward: gradients of the input and states, and of the weights in one block."""
    source, weights, hx, cx, output = args[0], args[1], args[4], args[5], args[6]
    block = torch.empty(
        sum(weight.numel() for weight in weights), dtype=source.dtype, device=source.device
    )
    parts, offset = [], 0
    for weight in weights:
        parts.append(block[offset : offset + weight.numel()].view(weight.shape))
        offset += weight.numel()
    nothing = torch.empty(0, dtype=output.dtype, device=output.device)
    return (
        torch.empty_like(source),
        torch.empty_like(hx),
        torch.empty_like(cx) if cx is not None else nothing,
        parts,
    )
