# mypy: disable-error-code="import-not-found,import-untyped"
"""The scratch of reductions: what native/cuda/Reduce.cuh allocates where blocks share an output.

setReduceConfig splits the input of one output over several blocks where there are few outputs. The
blocks then leave partial results in a buffer (global_memory_size) and count themselves in
semaphores.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

WARP = 32
MAX_THREADS = 512  # MAX_NUM_THREADS
MIN_VALUES, MAX_VALUES = 16, 256  # per thread


def scratch(
    tensor: Any,
    dims: Sequence[int],
    accumulator: int,
    processors: int,
    threads_of_processor: int = 2048,
) -> List[int]:
    """Bytes of the buffer and of the semaphores for a reduction of `tensor` over `dims`; or
    nothing."""
    item = tensor.element_size()
    rank = tensor.dim()
    dims = [dim % rank for dim in dims] if dims else list(range(rank))
    reduced = _merge([(tensor.stride(dim) * item, tensor.size(dim)) for dim in dims])
    others = _merge(
        [(tensor.stride(dim) * item, tensor.size(dim)) for dim in range(rank) if dim not in dims]
    )
    inputs, outputs = _product(reduced), _product(others)
    if inputs * outputs <= 1:
        return []
    total = len(reduced) + len(others)
    along_fastest = not others or (bool(reduced) and reduced[0][0] < others[0][0])
    fastest = reduced[0][0] if along_fastest else others[0][0]
    first, second = (inputs, outputs) if along_fastest else (outputs, inputs)
    vector = 1
    if fastest == item:
        if along_fastest and first > 128 and total == 1:
            first //= 4
        elif not along_fastest:
            vector = _output_vector(tensor, item, reduced, others)
            first //= vector
    width, height = _block(first, second, MAX_THREADS // vector)
    step_in, step_out = 1, 1
    if along_fastest:
        step_in *= width
    else:
        step_out *= width
    across_warps = _divide(inputs, step_in) >= min(height * 16, MAX_VALUES)
    if across_warps:
        step_in *= height
    else:
        step_out *= height
    grid = _divide(outputs // vector, step_out)
    target = processors * (threads_of_processor // (width * height))
    values = _divide(inputs, step_in)
    if not across_warps or values < MAX_VALUES or grid > target:
        return []
    blocks = max(
        min(_divide(target, grid), _divide(values, MIN_VALUES)), _divide(values, MAX_VALUES)
    )
    if blocks <= 1:
        return []
    size = accumulator * outputs * blocks
    if not along_fastest:
        size *= width * vector
    return [size, 4 * grid]


def _merge(dims: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Strides and sizes, fastest first, as TensorIterator coalesces them."""
    merged: List[Tuple[int, int]] = []
    for stride, size in sorted(dim for dim in dims if dim[1] != 1):
        if merged and merged[-1][0] * merged[-1][1] == stride:
            merged[-1] = (merged[-1][0], merged[-1][1] * size)
        else:
            merged.append((stride, size))
    return merged


def _output_vector(
    tensor: Any, item: int, reduced: List[Tuple[int, int]], others: List[Tuple[int, int]]
) -> int:
    """get_output_vec_size: 4, halved until bases, sizes and strides are whole vectors."""
    vector = 4
    bases = [tensor.storage_offset(), others[0][1]]
    strides = [stride // item for stride, _ in reduced + others[1:]]
    while vector > 1 and any(part % vector for part in bases + strides):
        vector //= 2
    return vector


def _block(first: int, second: int, threads: int) -> Tuple[int, int]:
    """ReduceConfig::set_block_dimension."""
    first = _last_power(first) if first < threads else threads
    second = _last_power(second) if second < threads else threads
    width = min(first, WARP)
    height = min(second, threads // width)
    return min(first, threads // height), height


def _last_power(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


def _divide(number: int, by: int) -> int:
    return -(-number // by)


def _product(dims: List[Tuple[int, int]]) -> int:
    product = 1
    for _, size in dims:
        product *= size
    return product
