# mypy: disable-error-code="import-not-found,import-untyped"
"""What CUDA kernels and libraries allocate beside their results: one table, with sources.

Each rule names the place in PyTorch's sources that allocates (paths below aten/src/ATen). Sizes
are bytes as asked for. A rule returns a Plan: memory taken before the results, after them, alone
(taken and given back at once), behind each result (the same, just after it), and kept (a workspace
of a library handle).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from tenon.forecast import _cudnn, _recurrent, _reduce, _sparse

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Card:
    """What of a card decides sizes."""

    name: str = "H100"
    major: int = 9
    minor: int = 0
    processors: int = 132
    cudnn: int = 91900

    @property
    def prefers_cudnn_attention(self) -> bool:
        """cuda/sdp_utils.cpp: check_prefer_cudnn_attention."""
        return self.major in (9, 10) and self.minor == 0 and self.cudnn > 91500


@dataclass
class Plan:
    """What one operator takes beside its results."""

    before: Sequence[int] = ()
    after: Sequence[int] = ()
    alone: Sequence[int] = ()
    behind: Sequence[int] = ()
    kept: Sequence[Tuple[str, int]] = ()
    order: Sequence[int] = ()
    holds: int = 0
    """Bytes of the result's storage, where it is larger than the result; 0: it is not."""

    def order_of(self, storage: Any, result: Any) -> int:
        """The place of a result in the kernel's own order of allocation."""
        for place, index in enumerate(self.order):
            part = result[index]
            if isinstance(part, torch.Tensor) and part.untyped_storage() is storage:
                return place
        return len(self.order)


RESIZING = {"aten::resize_", "aten::resize_as_", "aten::set_", "inductor::resize_storage_bytes_"}


Rule = Callable[[Any, Any, Any, Card], Optional[Plan]]


def plan(func: Any, args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """What this call takes beside its results, None for nothing."""
    name = func._schema.name
    rule = _RULES.get(name)
    if rule is None or args and _sparse.is_sparse(args[0]) and name not in _sparse.RULES:
        return None
    return rule(args, kwargs, result, card)


def blas_workspace(card: Card) -> int:
    """cuda/CublasHandlePool.cpp: parseChosenWorkspaceSize.

    CUBLAS_WORKSPACE_CONFIG (":KiB:count", repeated) decides; else 32 MiB from compute capability
    9.0 on, and 8,519,680 bytes before.
    """
    config = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
    parts = [int(part) for part in config.split(":") if part.isdigit()]
    if len(parts) >= 2 and len(parts) % 2 == 0:
        return sum(size * count for size, count in zip(parts[::2], parts[1::2])) * KIB
    return 4096 * 8 * KIB if card.major >= 9 else (4096 * 2 + 16 * 8) * KIB


def _blas(*operands: int) -> Rule:
    """A product of matrices, whose places among the arguments are `operands`: cuBLAS' workspace and
    copies."""

    def rule(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
        if not _on_cuda(result):
            return None
        matrices = [args[place] for place in operands]
        if any(_sparse.is_sparse(part) for part in matrices):
            before, after = _sparse.product(operands[0], args, result)
            return Plan(before=before, after=after)
        if result.dim() > 1:  # copies of results of one dimension are not modelled
            matrices.append(result)
        copies = [_bytes(part) for part in matrices if _copied(part)]
        return Plan(after=copies, kept=[("cublas", blas_workspace(card))])

    return rule


def _copied(matrix: Any) -> bool:
    """Whether cuBLAS, which wants rows or columns of adjacent numbers, gets a contiguous copy.

    native/cuda/cuBlasCommonArgs.h: prepare_matrix_for_cublas; native/cuda/Blas.cpp:
    prepare_batch_matrix_for_cublas. A batch that is expanded needs none.
    """
    if matrix.dim() < 2 or not matrix.numel() or matrix.layout is not torch.strided:
        return False
    rows, columns = matrix.shape[-2:]
    down, across = matrix.stride()[-2:]
    if matrix.is_contiguous() and (matrix.dim() == 2 or down and across):
        return False
    by_columns = down == 1 and across >= max(1, rows)
    by_rows = across == 1 and down >= max(1, columns)
    return not by_columns and not by_rows


def _addmm(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """Where cuBLASLt adds the bias, its workspace comes behind that of cuBLAS, whose handle it
    takes (cuda/CublasHandlePool.cpp: getCUDABlasLtWorkspace)."""
    plan = _blas(1, 2)(args, kwargs, result, card)
    unified = os.environ.get("TORCH_CUBLASLT_UNIFIED_WORKSPACE") == "1"
    if plan is not None and not unified and _takes_lt(args, kwargs, result):
        plan.kept = [*plan.kept, ("cublaslt", lt_workspace())]
    return plan


def lt_workspace() -> int:
    """cuda/CublasHandlePool.cpp: parseCUDABlasLtWorkspaceSize, 1 MiB on every card.

    CUBLASLT_WORKSPACE_SIZE in KiB decides; PyTorch takes what is not a number for not set.
    """
    try:
        return int(os.environ.get("CUBLASLT_WORKSPACE_SIZE", KIB)) * KIB
    except ValueError:
        return MIB


def _takes_lt(args: Any, kwargs: Any, result: Any) -> bool:
    """native/cuda/Blas.cpp: isInputCompliesAddmmCudaLt.

    Matrices of a single row or column go to cuBLAS: a batch of one, a layer with one output.
    """
    bias, first, second = args[:3]
    return bool(
        os.environ.get("DISABLE_ADDMM_CUDA_LT") != "1"
        and kwargs.get("beta", 1) == 1
        and first.layout is torch.strided
        and result.is_contiguous()
        and bias.is_contiguous()
        and bias.squeeze().dim() == 1
        and bias.size(-1) == second.size(1)
        and first.dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
        and min(*first.shape, *second.shape) > 1
    )


def _dropout(args: Any, kwargs: Any, result: Any, card: Card) -> Plan:
    """native/cuda/Dropout.cu: the mask comes first."""
    return Plan(order=(1, 0))


def _reduction(accumulator: int, casts: bool = False) -> Rule:
    """native/cuda/Reduce.cuh; the accumulator's bytes depend on the reduction.

    `casts`: the input is copied where it has another type than the result, unless it is one of
    16 bits that is summed in float (native/ReduceOpsUtils.h: make_reduction).
    """

    def rule(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
        if not _on_cuda(result):
            return None
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        if isinstance(dims, bool) or not isinstance(dims, (int, list, tuple)):
            dims = ()
        source = args[0]
        copy: List[int] = []
        if casts and source.dtype != result.dtype and not (
            source.dtype in (torch.float16, torch.bfloat16) and result.dtype == torch.float32
        ):
            copy = [source.numel() * result.element_size()]
        each = accumulator if source.element_size() < 8 or accumulator > 8 else 8
        found = _reduce.scratch(
            source, (dims,) if isinstance(dims, int) else dims, each, card.processors
        )
        return Plan(after=[*copy, *found]) if copy or found else None

    return rule


def _log_sum_exp(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """native/ReduceOps.cpp: logsumexp_out_impl. The largest values, and all less these."""
    plan = _reduction(4)(args, kwargs, result, card)
    if not _on_cuda(result):
        return None
    return Plan(after=[_bytes(result), _bytes(args[0]), *(plan.after if plan else ())])


def _loss(held: int, before: int = 0, after: int = 0, place: int = 2) -> Rule:
    """A loss that is computed for each element and then reduced, which argument `place` asks for.

    The reduced loss has a storage of `held` times all elements: native/Loss.cpp and
    native/cuda/Loss.cu give the result its first shape, and then a smaller one (resize_). `before`
    and `after` it, as many temporaries.
    """

    def rule(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
        reduction = args[place] if len(args) > place else kwargs.get("reduction", 1)
        if not _on_cuda(result) or reduction == 0:
            return None
        shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
        whole = shape.numel() * result.element_size()
        return Plan(before=[whole] * before, after=[whole] * after, holds=held * whole)

    return rule


def _norm(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    dims = args[2] if len(args) > 2 else kwargs.get("dim")
    if not _on_cuda(result):
        return None
    found = _reduce.scratch(args[0], dims or (), 4, card.processors)
    return Plan(after=found) if found else None


def _convolution(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """native/cudnn/Conv_v8.cpp: the workspace of cuDNN's kernel, as cuDNN says (`_cudnn`).

    Where it cannot be asked, a model: kernels for tensor cores want channels last, and whole
    vectors of 16 bytes of channels in half precision. For tensors in another order cuDNN keeps
    transposed copies of all three operands in its workspace, for other numbers of channels padded
    copies of the input and the weight. A convolution of single points needs none: it is a product
    of matrices in either order.
    """
    source, weight, _, stride, padding, dilation, transposed = args[:7]
    if not _on_cuda(result) or _own_kernel(source, weight, dilation, transposed, args[8]):
        return None
    operands = ("input", result, source) if transposed else ("forward", source, result)
    size = _cudnn.workspace(*operands, weight, padding, stride, dilation, card)
    if size is None:
        size = _workspace(source, weight, result)
    return Plan(alone=[size]) if size else None


def _convolution_backward(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """The same for the gradients of the input and of the weight, each behind its result
    (native/cudnn/ConvShared.cpp: cudnn_convolution_backward)."""
    gradient, source, weight, _, stride, padding, dilation, transposed = args[:8]
    if not _on_cuda(gradient) or _own_kernel(source, weight, dilation, transposed, args[9]):
        return None
    if transposed:
        asked = [("forward", gradient, source), ("weight", gradient, source)]
    else:
        asked = [("input", source, gradient), ("weight", source, gradient)]
    behind = []
    for wanted, operands in zip(args[10], asked):
        if wanted:
            size = _cudnn.workspace(*operands, weight, padding, stride, dilation, card)
            behind.append(_workspace(source, weight, gradient) if size is None else size)
    return Plan(behind=behind) if any(behind) else None


def _own_kernel(source: Any, weight: Any, dilation: Any, transposed: bool, groups: int) -> bool:
    """Whether PyTorch takes a kernel of its own, without a workspace.

    native/Convolution.cpp: is_depthwise, use_cudnn_depthwise; half precision goes to cuDNN for
    shapes in a list, which is not followed.
    """
    return bool(
        not transposed
        and weight.dim() in (4, 5)
        and 1 < groups == source.size(1)
        and source.element_size() != 2
        and not _cudnn.channels_last(source, weight)
    )


def _workspace(source: Any, weight: Any, result: Any) -> int:
    if _cudnn.channels_last(source, weight):
        channels: int = weight.size(1)
        padded = -(-channels // 8) * 8
        if source.element_size() != 2 or padded == channels:
            return 0
        return (_bytes(source) + _bytes(weight)) // channels * padded
    if all(size == 1 for size in weight.shape[2:]):
        return 0
    return _bytes(source) + _bytes(weight) + _bytes(result)


def _batch_norm(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """native/cuda/Normalization.cuh: flexible_launch_configs, for channels last.

    Where several blocks share a channel: staged partial results, four numbers for each channel and
    block, and semaphores.
    """
    return _batch_norm_scratch(args[0], result, 4)


def _batch_norm_backward(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """The same with two numbers; sums of each channel come first, the input's gradient last."""
    found = _batch_norm_scratch(args[1], result, 2)
    if found is not None:
        sums = args[1].size(1) * 4
        found = Plan(before=[sums, sums, *found.after], order=(1, 2, 0))
    return found


def _batch_norm_scratch(source: Any, result: Any, numbers: int) -> Optional[Plan]:
    kind = {4: torch.channels_last, 5: torch.channels_last_3d}.get(source.dim())
    if (
        kind is None
        or not _on_cuda(result)
        or source.is_contiguous()
        or not source.is_contiguous(memory_format=kind)
    ):
        return None
    channels = source.size(1)
    places = source.numel() // max(channels, 1)
    threads, each, tile, most = 512, 16, 32, 128
    width = min(_last_power(channels), tile)
    height = min(_last_power(-(-places // each)), threads // width)
    if width * height != threads:
        width = min(_last_power(channels), threads // height)
    blocks = min(-(-places // (height * each)), most)
    if blocks < 8:
        return None
    return Plan(after=[numbers * channels * blocks * 4, -(-channels // width) * 4])


def _last_power(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


def _to_copy(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """native/cuda/Copy.cu: copy_requires_temporaries.

    Between the host and the card a copy is of contiguous bytes: the card's side goes through a
    contiguous block where the two differ in their order.
    """
    source = args[0]
    if source.device.type == result.device.type or "cuda" not in (
        source.device.type,
        result.device.type,
    ):
        return None
    ours = result if result.device.type == "cuda" else source
    if source.dtype is result.dtype and (
        source.stride() == result.stride() or (source.is_contiguous() and result.is_contiguous())
    ):
        return None
    if ours.is_contiguous():
        return None
    return Plan(alone=[_bytes(ours)])


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _coalesce(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    return Plan(before=_sparse.coalesced(args, result)) if _on_cuda(result) else None


def _index(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """native/IndexingUtils.h: expandTensors makes a mask into places, 8 bytes for each dimension
    (native/cuda/Nonzero.cu), which live as long as the kernel."""
    masks = [part for part in args[1] if part is not None and part.dtype is torch.bool]
    if len(masks) != 1 or not _on_cuda(result):
        return None
    place = next(at for at, part in enumerate(args[1]) if part is not None)
    return Plan(before=[result.size(place) * masks[0].dim() * 8])


def _index_put(args: Any, kwargs: Any, result: Any, card: Card) -> Optional[Plan]:
    """native/cuda/Indexing.cu: index_put_with_sort_kernel, where values are summed. The places as
    one number each, the same sorted, where they stood, and a range of numbers, of 8 bytes each.
    How many places a mask has is not known here."""
    indices = [part for part in args[1] if part is not None]
    summed = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if not summed or any(part.dtype is torch.bool for part in indices) or not _on_cuda(result):
        return None
    return Plan(after=[torch.broadcast_shapes(*(part.shape for part in indices)).numel() * 8] * 4)


def _cudnn_attention(args: Any, kwargs: Any, result: Any, card: Card) -> Plan:
    """native/cudnn/MHA.cpp: seed and offset come first, then the results; a workspace of 256
    bytes."""
    return Plan(order=(6, 7, 0, 1), alone=[256])


def _rnn(args: Any, kwargs: Any, result: Any, card: Card) -> Plan:
    """native/cudnn/RNN.cpp: _cudnn_rnn."""
    return Plan(after=[_recurrent.workspace_bytes(args, result[0])])


def _rnn_backward(args: Any, kwargs: Any, result: Any, card: Card) -> Plan:
    """native/cudnn/RNN.cpp: the gradients of the input, then those of the weights, each with a
    workspace of its own."""
    return Plan(alone=[_recurrent.workspace_bytes(args, args[6])] * 2)


def _on_cuda(result: Any) -> bool:
    while isinstance(result, (list, tuple)) and result:
        result = result[0]
    return isinstance(result, torch.Tensor) and result.device.type == "cuda"


_RULES: Dict[str, Rule] = {
    **{f"aten::{name}": _blas(0, 1) for name in ("mm", "bmm", "mv", "dot", "vdot")},
    **{
        f"aten::{name}": _blas(1, 2)
        for name in ("baddbmm", "addbmm", "addmv", "addmm_", "baddbmm_")
    },
    "aten::addmm": _addmm,
    "aten::_addmm_activation": _addmm,
    "aten::native_dropout": _dropout,
    **{f"aten::{name}": _reduction(4) for name in ("mean", "amax", "amin")},
    **{f"aten::{name}": _reduction(4, casts=True) for name in ("sum", "prod")},
    "aten::logsumexp": _log_sum_exp,
    "aten::mse_loss": _loss(held=1, after=1),
    "aten::smooth_l1_loss": _loss(held=1, after=1),
    "aten::huber_loss": _loss(held=0, before=1),
    "aten::soft_margin_loss": _loss(held=1),
    "aten::binary_cross_entropy": _loss(held=1, place=3),
    "aten::binary_cross_entropy_with_logits": _loss(held=0, before=2, place=4),
    **{f"aten::{name}": _reduction(1) for name in ("any", "all")},
    **{
        f"aten::{name}": _reduction(16)
        for name in ("var", "std", "var_mean", "std_mean", "max", "min", "argmax", "argmin")
    },
    "aten::norm": _norm,
    "aten::linalg_vector_norm": _norm,
    "aten::native_batch_norm": _batch_norm,
    "aten::native_batch_norm_backward": _batch_norm_backward,
    "aten::_to_copy": _to_copy,
    "aten::_coalesce": _coalesce,
    "aten::index": _index,
    **{f"aten::{name}": _index_put for name in ("index_put", "index_put_", "_index_put_impl_")},
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_cudnn_attention": _cudnn_attention,
    "aten::_cudnn_rnn": _rnn,
    "aten::_cudnn_rnn_backward": _rnn_backward,
}
