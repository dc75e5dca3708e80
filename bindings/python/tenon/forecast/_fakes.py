# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"
"""Shapes of results for operators of the card that PyTorch has no fake for, or too strict a
fake."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import torch


def implementations() -> List[Tuple[str, Callable[..., Any]]]:
    """Operators and the shapes of what they return."""
    return [
        ("_thnn_fused_gru_cell", _gru_cell),
        ("_thnn_fused_gru_cell_backward", _gru_cell_backward),
        ("cudnn_grid_sampler", _sampled),
        ("cudnn_grid_sampler_backward", _sampled_backward),
        ("batch_norm_stats", _stats),
        ("batch_norm_gather_stats", _gathered),
        ("batch_norm_gather_stats_with_counts", _gathered),
        ("batch_norm_elemt", _like_first),
        ("batch_norm_backward_elemt", _like_first),
        ("batch_norm_backward_reduce", _reduced),
    ]


def replacements() -> List[Tuple[Any, str, Any]]:
    """Fakes of PyTorch's that take less than the card's kernels: (holder, name, value)."""
    from torch import _meta_registrations as fakes

    strict = fakes._meta_grouped_mm_common

    def grouped_product(
        first: Any, second: Any, scale_a: Any = None, scale_b: Any = None, **options: Any
    ) -> Any:
        """native/cuda/GroupedBlas.cpp multiplies every kind of float."""
        if scale_a is not None or first.dtype is torch.bfloat16:
            return strict(first, second, scale_a, scale_b, **options)
        return fakes._create_grouped_mm_output_tensor(
            first, second, options["offs"], options["out_dtype"]
        )

    ctc_loss = torch.ctc_loss

    def with_lengths(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        *rest: Any,
        **more: Any,
    ) -> Any:
        """native/LossCTC.cpp makes a tensor of the card from lengths, except from fake ones."""
        lengths = torch.as_tensor(target_lengths, device=log_probs.device)
        inputs = torch.as_tensor(input_lengths)
        return ctc_loss(log_probs, targets, inputs, lengths, *rest, **more)

    return [
        (fakes, "_meta_grouped_mm_common", grouped_product),
        (torch, "ctc_loss", with_lengths),
    ]


def _gru_cell(gates: Any, more: Any, hx: Any, *_: Any) -> Any:
    """native/cuda/RNN.cu: the workspace has five values for each one of the state."""
    return torch.empty_like(hx), hx.new_empty(hx.size(0), 5 * hx.size(1))


def _gru_cell_backward(d_hy: Any, kept: Any, bias: bool) -> Any:
    rows, width = d_hy.shape
    gates = [d_hy.new_empty(rows, 3 * width) for _ in range(2)]
    biases = [d_hy.new_empty(3 * width) for _ in range(2)] if bias else [None, None]
    return (*gates, torch.empty_like(d_hy), *biases)


def _sampled(source: Any, grid: Any) -> Any:
    """native/cudnn/GridSampler.cpp: F.grid_sample with align_corners, without a workspace."""
    return source.new_empty(*source.shape[:2], *grid.shape[1:3])


def _sampled_backward(source: Any, grid: Any, gradient: Any) -> Any:
    return source.new_empty(source.shape), grid.new_empty(grid.shape)


def _of_channels(tensor: Any) -> Any:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.new_empty(tensor.size(1), dtype=torch.float32 if half else tensor.dtype)


def _stats(source: Any, eps: float) -> Any:
    return _of_channels(source), _of_channels(source)


def _gathered(source: Any, *_: Any) -> Any:
    return _of_channels(source), _of_channels(source)


def _like_first(source: Any, *_: Any) -> Any:
    return torch.empty_like(source)


def _reduced(
    gradient: Any,
    source: Any,
    mean: Any,
    deviation: Any,
    weight: Optional[Any],
    of_input: bool,
    of_weight: bool,
    of_bias: bool,
) -> Any:
    wanted = (of_input, of_input, of_weight, of_bias)
    return tuple(_of_channels(source) if part else None for part in wanted)
