"""Losses of tenon.nn, as modules."""

from __future__ import annotations

from typing import Any, Callable

from tenon import _tensor
from tenon._nn_module import Module
from tenon._tensor import Tensor


class _Loss(Module):
    """A loss; reduction is "mean", "sum" or "none"."""

    def __init__(self, reduction: str = "mean", **options: Any) -> None:
        super().__init__()
        self.reduction, self.options = reduction, options

    _function: Callable[..., Tensor]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return type(self)._function(input, target, reduction=self.reduction, **self.options)


class CrossEntropyLoss(_Loss):
    """Of logits [N, C, ...] and classes [N, ...]; options ignore_index, label_smoothing."""

    _function = staticmethod(_tensor.cross_entropy)


class NLLLoss(_Loss):
    """Of logarithms of probabilities and classes; option ignore_index."""

    _function = staticmethod(_tensor.nll_loss)


class MSELoss(_Loss):
    """Squared differences."""

    _function = staticmethod(_tensor.mse_loss)


class L1Loss(_Loss):
    """Absolute differences."""

    _function = staticmethod(_tensor.l1_loss)


class HuberLoss(_Loss):
    """Squared differences up to delta, absolute ones beyond; option delta."""

    _function = staticmethod(_tensor.huber_loss)


class BCEWithLogitsLoss(_Loss):
    """Of logits and probabilities."""

    _function = staticmethod(_tensor.binary_cross_entropy_with_logits)
