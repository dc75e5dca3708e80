# mypy: disable-error-code="import-not-found,import-untyped"
"""The kernel that scaled_dot_product_attention takes on the card.

PyTorch decides with the properties of a real device, so the decision is made again here: the
conditions are those of native/transformers/cuda/sdp_utils.cpp as far as they depend on shapes,
types, the mask and the card.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import torch

from tenon.forecast._scratch import Card

_HALF = (torch.float16, torch.bfloat16)


def choose(
    query: Any,
    key: Any,
    value: Any,
    mask: Optional[Any],
    dropout: float,
    causal: bool,
    gqa: bool,
    card: Card,
) -> str:
    """ "cudnn", "flash", "efficient" or "math"."""
    if query.dim() != 4 or any(part.stride(-1) != 1 for part in (query, key, value)):
        return "math"
    backends = torch.backends.cuda
    grad = torch.is_grad_enabled() and any(
        part.requires_grad for part in (query, key, value) + ((mask,) if mask is not None else ())
    )
    head, value_head = query.size(-1), value.size(-1)
    if 0 in query.shape or 0 in key.shape:
        return "math"
    half = query.dtype in _HALF
    cudnn = (
        half
        and card.major >= 8
        and backends.cudnn_sdp_enabled()
        and head % 8 == 0
        and value_head % 8 == 0
        and head <= (256 if card.major >= 9 and not grad else 128)
        and query.size(-2) > 1
        and key.size(-2) > 1
        and not (mask is not None and mask.requires_grad)
    )
    flash = (
        half
        and card.major >= 8
        and backends.flash_sdp_enabled()
        and mask is None
        and head <= 256
        and head == value_head
    )
    efficient = (
        backends.mem_efficient_sdp_enabled()
        and query.dtype in (*_HALF, torch.float32)
        and (not gqa or query.size(1) == key.size(1))
        and (card.major >= 5)
        and _aligned(query, card, head, value_head)
    )
    if cudnn and card.prefers_cudnn_attention:
        return "cudnn"
    if flash:
        return "flash"
    if efficient:
        return "efficient"
    return "cudnn" if cudnn else "math"


def _aligned(query: Any, card: Card, head: int, value_head: int) -> bool:
    """Rows of the memory-efficient kernel are whole vectors of 16 bytes, or 4 where it may be
    unaligned."""
    step = 16 // query.element_size() if card.major >= 8 else 4
    return head % step == 0 and value_head % step == 0


def attend(
    card: Card,
    query: Any,
    key: Any,
    value: Any,
    mask: Optional[Any] = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: Optional[float] = None,
    gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention as transformers/attention.cpp does it on a card."""
    aten = torch.ops.aten
    kind = choose(query, key, value, mask, dropout, causal, gqa, card)
    if kind == "math":
        return aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout, causal, None, scale=scale, enable_gqa=gqa
        )[0]
    grad = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    )
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(
            mask,
            torch.zeros((), dtype=query.dtype, device=mask.device),
            torch.full((), -math.inf, dtype=query.dtype, device=mask.device),
        )
    if kind == "cudnn":
        if mask is not None:
            mask = mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, grad, dropout, causal, False, scale=scale
        )[0]
    if kind == "flash":
        head = query.size(-1)
        padding = -head % 8
        if padding:
            scale = scale if scale is not None else 1 / math.sqrt(head)
            query, key, value = (
                torch.nn.functional.pad(part, (0, padding)) for part in (query, key, value)
            )
        found = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout, causal, False, scale=scale
        )[0]
        return found[..., :head] if padding else found
    if mask is not None:
        mask = _padded_mask(mask, query, key)
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, grad, dropout, causal, scale=scale
    )[0]


def _padded_mask(mask: Any, query: Any, key: Any) -> Any:
    """Rows of the mask padded to whole vectors, then broadcast (preprocess_mask)."""
    step = 16 // mask.element_size() if mask.element_size() else 8
    length = mask.size(-1)
    if length % step and length > 1:
        mask = torch.nn.functional.pad(mask, (0, step - length % step))[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
