# mypy: disable-error-code="import-not-found,import-untyped"
"""Operators of the card, computed on the host for their values."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, Tuple

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

ON_HOST: Dict[str, Tuple[int, ...]] = {"aten::_pack_padded_sequence": (1,)}
"""Results that lie in the host's memory wherever the input lies."""
_EMPTY = {f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty")}
_OF_NONZERO = ("aten::nonzero", "aten::masked_select", "aten::_to_sparse")
_HALF = (torch.float16, torch.bfloat16)


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Plain tensors of the host: no dispatch mode, and none of the program's modes for functions,
    of which torch.set_default_device is one."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """The operator on tensors of the host; in float32 where it has no kernel for half precision."""
    special = _SPECIAL.get(func._schema.name)
    if special is not None:
        return special(*args, **kwargs)
    try:
        found = func(*args, **kwargs)
        return found.zero_() if func._schema.name in _EMPTY else found  # the same every time
    except RuntimeError:
        halves = [part for part in pytree.tree_leaves((args, kwargs)) if _half(part)]
        if not halves or func._schema.is_mutable:
            raise
        wide = pytree.tree_map(lambda part: part.float() if _half(part) else part, (args, kwargs))
        return pytree.tree_map(
            lambda part: part.to(halves[0].dtype)
            if isinstance(part, torch.Tensor) and part.dtype is torch.float32
            else part,
            func(*wide[0], **wide[1]),
        )


@contextlib.contextmanager
def _differentiable() -> Iterator[None]:
    """Autograd again, below whose keys the dispatcher is while an operator's kernel runs."""
    key = torch._C.DispatchKey.AutogradFunctionality
    with torch._C._SetExcludeDispatchKeyGuard(key, False), torch.enable_grad():
        yield


def _half(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype in _HALF


def filled(name: str, share: float) -> Callable[[Any], Any]:
    """Stand-ins for unknown values with which an operator's result has this share (0 to 1) of the
    largest size that it can have."""

    def values(fake: Any) -> Any:
        size = tuple(fake.size())
        if "nms" in name and len(size) == 2:
            kept = max(round(share * size[0]), 1)
            corners = 2 * torch.arange(size[0], dtype=torch.float32)[:, None].clamp(max=kept - 1)
            return torch.cat([corners, corners, corners + 1, corners + 1], 1).to(fake.dtype)
        if "unique" in name:
            kept = max(round(share * fake.numel()), 1)
            return torch.arange(fake.numel()).clamp(max=kept - 1).reshape(size).to(fake.dtype)
        if name in _OF_NONZERO or fake.dtype is torch.bool:
            if share == 1:
                return torch.ones((), dtype=fake.dtype).expand(size)
            flat = torch.zeros(fake.numel(), dtype=fake.dtype)
            flat[: round(share * fake.numel())] = 1
            return flat.reshape(size)
        return torch.zeros((), dtype=fake.dtype).expand(size)

    return values


def _attention(query: Any, key: Any, value: Any, bias: Any, causal: bool, scale: Any) -> Any:
    wide = [part.float() for part in (query, key, value)]
    if bias is not None:
        bias = bias.to(torch.float32) if bias.dtype is not torch.bool else bias
    return torch.ops.aten._scaled_dot_product_attention_math(
        *wide, bias, 0.0, causal, None, scale=scale, enable_gqa=query.size(1) != key.size(1)
    )[0].to(query.dtype)


def _with_bias(q: Any, k: Any, v: Any, bias: Any, lse: Any, dropout: float = 0.0,
               causal: bool = False, *_: Any, scale: Any = None) -> Any:
    return (_attention(q, k, v, bias, causal, scale),)


def _flash(q: Any, k: Any, v: Any, dropout: float = 0.0, causal: bool = False, *_: Any,
           scale: Any = None) -> Any:
    return (_attention(q, k, v, None, causal, scale),)


def _gradients(out: Any, q: Any, k: Any, v: Any, bias: Any, causal: bool, scale: Any) -> Any:
    """The gradients of query, key, value (and bias), by differentiating the formula."""
    with _differentiable():
        parts = [part.detach().requires_grad_() for part in (q, k, v)]
        if bias is not None:
            bias = bias.detach()
        found = _attention(parts[0], parts[1], parts[2], bias, causal, scale)
        return torch.autograd.grad(found, parts, out)


def _flash_backward(out: Any, q: Any, k: Any, v: Any, result: Any, lse: Any, cq: Any, ck: Any,
                    mq: int, mk: int, dropout: float, causal: bool, *_: Any,
                    scale: Any = None) -> Any:
    return _gradients(out, q, k, v, None, causal, scale)


def _efficient_backward(out: Any, q: Any, k: Any, v: Any, bias: Any, result: Any, lse: Any,
                        seed: Any, offset: Any, dropout: float, mask: Any, causal: bool = False,
                        *_: Any, scale: Any = None) -> Any:
    return _gradients(out, q, k, v, bias, causal, scale)


def _cudnn_backward(out: Any, q: Any, k: Any, v: Any, result: Any, lse: Any, seed: Any, offset: Any,
                    bias: Any, cq: Any, ck: Any, mq: int, mk: int, dropout: float, causal: bool,
                    *_: Any, scale: Any = None) -> Any:
    return _gradients(out, q, k, v, bias, causal, scale)


def _recurrent(source: Any, weights: Any, each: int, flat: Any, hx: Any, cx: Any, mode: int,
               width: int, projection: int, layers: int, batch_first: bool, dropout: float,
               train: bool, both: bool, sizes: Any, state: Any) -> Any:
    kind = (torch.rnn_relu, torch.rnn_tanh, torch.lstm, torch.gru)[mode]
    hidden = (hx, cx) if mode == 2 else hx
    biases = len(weights) // (layers * (2 if both else 1)) > 2
    ends: Tuple[Any, ...] = (layers, 0.0, train, both)
    if len(sizes):
        found = kind(source, torch.tensor(sizes), hidden, weights, biases, *ends)
    else:
        found = kind(source, hidden, weights, biases, *ends, batch_first)
    return found if mode == 2 else (*found, torch.empty(0, dtype=source.dtype))


def _recurrent_backward(source: Any, weights: Any, each: int, flat: Any, hx: Any, cx: Any,
                        output: Any, d_output: Any, d_hx: Any, d_cx: Any, *rest: Any) -> Any:
    with _differentiable():
        states = [part.detach().requires_grad_() for part in (hx, cx) if part is not None]
        inputs = [source.detach().requires_grad_(), *states]
        parts = [weight.detach().requires_grad_() for weight in weights]
        cell = states[1] if len(states) > 1 else None
        given: Tuple[Any, ...] = (inputs[0], parts, each, flat, states[0], cell, *rest[:9], None)
        found = _recurrent(*given)
        pairs = [(value, gradient) for value, gradient in zip(found, (d_output, d_hx, d_cx))
                 if gradient is not None and value.requires_grad]
        grads = torch.autograd.grad([value for value, _ in pairs], [*inputs, *parts],
                                    [gradient for _, gradient in pairs], allow_unused=True)
    first = list(grads[: len(inputs)]) + [None] * (3 - len(inputs))
    return (*first, list(grads[len(inputs):]))


def _lstm_cell(gates: Any, more: Any, cx: Any, bias: Any = None, bias_too: Any = None) -> Any:
    whole = gates + more
    if bias is not None:
        whole = whole + bias + bias_too
    enter, forget, new, out = whole.chunk(4, 1)
    enter, forget, new, out = enter.sigmoid(), forget.sigmoid(), new.tanh(), out.sigmoid()
    cell = forget * cx + enter * new
    return out * cell.tanh(), cell, torch.cat([enter, forget, new, out], 1)


def _lstm_cell_backward(d_hy: Any, d_cy: Any, cx: Any, cy: Any, gates: Any, bias: bool) -> Any:
    enter, forget, new, out = gates.chunk(4, 1)
    d_hy = torch.zeros_like(cy) if d_hy is None else d_hy
    d_cell = d_hy * out * (1 - cy.tanh() ** 2) + (0 if d_cy is None else d_cy)
    grads = torch.cat(
        [
            d_cell * new * enter * (1 - enter),
            d_cell * cx * forget * (1 - forget),
            d_cell * enter * (1 - new**2),
            d_hy * cy.tanh() * out * (1 - out),
        ],
        1,
    )
    return grads, d_cell * forget, grads.sum(0)


def _gru_cell(gates: Any, more: Any, hx: Any, bias: Any = None, bias_too: Any = None) -> Any:
    if bias is not None:
        gates, more = gates + bias, more + bias_too
    reset, update, new = gates.chunk(3, 1)
    reset_too, update_too, hidden = more.chunk(3, 1)
    reset, update = (reset + reset_too).sigmoid(), (update + update_too).sigmoid()
    new = (new + reset * hidden).tanh()
    return new + update * (hx - new), torch.cat([reset, update, new, hx, hidden], 1)


def _gru_cell_backward(d_hy: Any, kept: Any, bias: bool) -> Any:
    reset, update, new, hx, hidden = kept.chunk(5, 1)
    d_new = d_hy * (1 - update) * (1 - new**2)
    d_update = d_hy * (hx - new) * (1 - update) * update
    d_reset = d_new * hidden * (1 - reset) * reset
    first = torch.cat([d_reset, d_update, d_new], 1)
    second = torch.cat([d_reset, d_update, d_new * reset], 1)
    ends = (first.sum(0), second.sum(0)) if bias else (None, None)
    return first, second, d_hy * update, *ends


def _batch_norm(source: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
                momentum: float, eps: float) -> Any:
    return torch.ops.aten.native_batch_norm(
        source, weight, bias, mean, var, training, momentum, eps
    )


def _batch_norm_backward(source: Any, gradient: Any, weight: Any, mean: Any, var: Any,
                         save_mean: Any, save_var: Any, eps: float, *_: Any) -> Any:
    return torch.ops.aten.native_batch_norm_backward(
        gradient, source, weight, mean, var, save_mean, save_var, True, eps, [True] * 3
    )


def _sampled(source: Any, grid: Any) -> Any:
    return torch.ops.aten.grid_sampler_2d(source, grid, 0, 0, True)


def _sampled_backward(source: Any, grid: Any, gradient: Any) -> Any:
    return torch.ops.aten.grid_sampler_2d_backward(
        gradient, source, grid, 0, 0, True, [True, True]
    )


_SPECIAL: Dict[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_cudnn_attention": _with_bias,
    "aten::_scaled_dot_product_efficient_attention": _with_bias,
    "aten::_scaled_dot_product_flash_attention": _flash,
    "aten::_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::cudnn_batch_norm_backward": _batch_norm_backward,
    "aten::cudnn_grid_sampler": _sampled,
    "aten::cudnn_grid_sampler_backward": _sampled_backward,
    "aten::_cudnn_rnn": _recurrent,
    "aten::_cudnn_rnn_backward": _recurrent_backward,
    "aten::_thnn_fused_lstm_cell": _lstm_cell,
    "aten::_thnn_fused_gru_cell": _gru_cell,
    "aten::_thnn_fused_gru_cell_backward": _gru_cell_backward,
    **{f"aten::_use_{name}_ctc_loss": lambda *_, **__: False for name in ("cudnn", "miopen")},
    "aten::_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
}
