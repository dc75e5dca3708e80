"""Modules: parameters by name, and a forward function.

    class Net(tenon.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = tenon.nn.Linear(784, 256)
            self.out = tenon.nn.Linear(256, 10)
        def forward(self, x):
            return self.out(tenon.relu(self.hidden(x)))
"""

from __future__ import annotations

import functools
import math
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple,
                    Union)

from tenon._compiled import require_tensors, tensor_module

if tensor_module is None:
    require_tensors("tenon.nn")

from tenon import _tensor  # noqa: E402
from tenon._arguments import PathLike, path_text  # noqa: E402
from tenon._nn_losses import (BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss,  # noqa: E402
                              L1Loss, MSELoss, NLLLoss)
from tenon._nn_module import Module, Parameter  # noqa: E402
from tenon._tensor import Tensor, kaiming_uniform_, xavier_uniform_  # noqa: E402
from tenon.tensors import dropout as _dropout  # noqa: E402

if TYPE_CHECKING:
    from tenon.optim import Optimizer

Pair = Union[int, Tuple[int, int]]


# --- Layers.


def _weight(*shape: int) -> Parameter:
    return Parameter(kaiming_uniform_(_tensor.empty(shape), math.sqrt(1 / 3)))


def _bias(weight: Tensor, length: int) -> Parameter:
    fan_in = math.prod(weight.shape[1:])
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Parameter(_tensor.empty(length).uniform_(-bound, bound))


class Linear(Module):
    """[..., in] -> [..., out]."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _weight(out_features, in_features)
        self.register_parameter("bias", _bias(self.weight, out_features) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """x weight^T + bias."""
        return _tensor.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


def _pair(size: Pair) -> Tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


class Conv2d(Module):
    """[N, in, H, W] -> [N, out, H', W']."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1,
                 padding: Pair = 0, dilation: Pair = 1, groups: int = 1, bias: bool = True) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups:
            raise ValueError(f"Conv2d: groups={groups} do not divide {in_channels} channels")
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight = _weight(out_channels, in_channels // groups, *_pair(kernel_size))
        self.register_parameter("bias", _bias(self.weight, out_channels) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution."""
        return _tensor.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation,
                              self.groups)

    def extra_repr(self) -> str:
        """The shape of its weight."""
        return f"weight={self.weight.shape}"


class Conv1d(Module):
    """[N, in, L] -> [N, out, L']."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1,
                 padding: int = 0, dilation: int = 1, groups: int = 1, bias: bool = True) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups:
            raise ValueError(f"Conv1d: groups={groups} do not divide {in_channels} channels")
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight = _weight(out_channels, in_channels // groups, kernel_size)
        self.register_parameter("bias", _bias(self.weight, out_channels) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution."""
        return _tensor.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation,
                              self.groups)


class Embedding(Module):
    """Indices of any shape -> [..., width]."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = Parameter(_tensor.randn((num_embeddings, embedding_dim)))

    def forward(self, index: Tensor) -> Tensor:
        """Rows of the weight."""
        return _tensor.embedding(index, self.weight)


class LayerNorm(Module):
    """Over the last dimensions."""

    def __init__(self, normalized_shape: Union[int, Sequence[int]], eps: float = 1e-5,
                 affine: bool = True) -> None:
        super().__init__()
        self.normalized_shape, self.eps = normalized_shape, eps
        self.register_parameter("weight",
                                Parameter(_tensor.ones(normalized_shape)) if affine else None)
        self.register_parameter("bias",
                                Parameter(_tensor.zeros(normalized_shape)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x."""
        return _tensor.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) over the last dimensions."""

    def __init__(self, normalized_shape: Union[int, Sequence[int]], eps: float = 1e-6,
                 affine: bool = True) -> None:
        super().__init__()
        self.normalized_shape, self.eps = normalized_shape, eps
        self.register_parameter("weight",
                                Parameter(_tensor.ones(normalized_shape)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x."""
        return _tensor.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Module):
    """Over groups of channels (dimension 1)."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5,
                 affine: bool = True) -> None:
        super().__init__()
        self.num_groups, self.eps = num_groups, eps
        self.register_parameter("weight", Parameter(_tensor.ones(num_channels)) if affine else None)
        self.register_parameter("bias", Parameter(_tensor.zeros(num_channels)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x."""
        return _tensor.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class BatchNorm(Module):
    """By channel (dimension 1) over the batch and all other dimensions."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1,
                 affine: bool = True) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.register_parameter("weight", Parameter(_tensor.ones(num_features)) if affine else None)
        self.register_parameter("bias", Parameter(_tensor.zeros(num_features)) if affine else None)
        self.register_buffer("running_mean", _tensor.zeros(num_features))
        self.register_buffer("running_var", _tensor.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x; in training the running statistics take their share of the batch's."""
        return _tensor.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                                  self.training, self.momentum, self.eps)


class Dropout(Module):
    """In training, each element is 0 with a probability and otherwise divided by its complement."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p={p}: give a probability from 0 to 1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x with elements left out."""
        return _dropout(x, self.p, self.training)


class Function(Module):
    """Any function of one tensor, for a Sequential."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function's result."""
        return self.function(x)


class ReLU(Module):
    """x above zero, else zero."""

    def forward(self, x: Tensor) -> Tensor:
        """relu(x)."""
        return _tensor.relu(x)


class GELU(Module):
    """x Phi(x)."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """gelu(x)."""
        return _tensor.gelu(x, approximate=self.approximate)


class Flatten(Module):
    """Dimensions from start_dim on as one."""

    def __init__(self, start_dim: int = 1) -> None:
        super().__init__()
        self.start_dim = start_dim

    def forward(self, x: Tensor) -> Tensor:
        """The flattened x."""
        return x.flatten(self.start_dim)


class MaxPool2d(Module):
    """The largest element of each window."""

    def __init__(self, kernel_size: Pair, stride: Optional[Pair] = None, padding: Pair = 0) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """The pooled x."""
        return _tensor.max_pool2d(x, self.kernel_size, self.stride, self.padding)


class Sequential(Module):
    """One module after another, named "0", "1", ..."""

    def __init__(self, *modules: Module, checkpoints: int = 0) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        for number, module in enumerate(modules):
            self.add_module(str(number), module)

    def forward(self, x: Tensor) -> Tensor:
        """Every module on what the one before gave; with checkpoints, in that many segments of
        which only what passes between them is kept for backward."""
        modules: List[Module] = list(self._modules.values())
        if self.checkpoints < 2 or not _tensor.is_grad_enabled():
            return self._run(modules, x)
        length = -(-len(modules) // self.checkpoints)
        for start in range(0, len(modules), length):
            part = modules[start:start + length]
            x = _tensor.checkpoint(functools.partial(self._run, part), x)
        return x

    @staticmethod
    def _run(modules: List[Module], x: Tensor) -> Tensor:
        for module in modules:
            x = module(x)
        return x

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class _Native(Module):
    """A module that C++ runs; its parameters are the C++ module's."""

    def __init__(self, native: _tensor.NativeModule) -> None:
        super().__init__()
        object.__setattr__(self, "_native", native)
        for name, tensor in native.named_parameters().items():
            self._parameters[name] = tensor
        for name, tensor in native.named_buffers().items():
            self._buffers[name] = tensor

    _native: _tensor.NativeModule

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._parameters or name in self._buffers:
            raise AttributeError(f"{name} is C++'s: copy values into it, self.{name}.copy_(...)")
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Runs it in C++."""
        return self._native.forward(x)

    def train(self, mode: bool = True) -> Module:
        """Training or not."""
        self._native.train(mode)
        return super().train(mode)

    def set_path(self, path: str) -> None:
        """What recordings call it."""
        self._native.set_path(path)


class SelfAttention(_Native):
    """Self-attention with several heads: [N, L, width] -> [N, L, width]."""

    def __init__(self, width: int, heads: int = 1, causal: bool = False,
                 dropout: float = 0.0) -> None:
        super().__init__(_tensor._self_attention(width, heads, causal, dropout))


class TransformerBlock(_Native):
    """x + attention(norm(x)), then x + mlp(norm(x)): the pre-norm block of GPT-2."""

    def __init__(self, width: int, heads: int = 1, causal: bool = False,
                 dropout: float = 0.0) -> None:
        super().__init__(_tensor._transformer_block(width, heads, causal, dropout))


class CharGpt(_Native):
    """A GPT over characters: [N, L] of int64 -> logits [N, L, vocabulary]."""

    def __init__(self, vocabulary: int, length: int = 64, layers: int = 4, width: int = 128,
                 heads: int = 4, dropout: float = 0.0, checkpoints: int = 0) -> None:
        super().__init__(_tensor._char_gpt(vocabulary, length, layers, width, heads, dropout,
                                           checkpoints))


# --- Files.


def save_state(path: PathLike, model: Module, optimizer: Optional[Optimizer] = None,
               metadata: Optional[Dict[str, str]] = None) -> None:
    """A safetensors file with all that a resumed run needs; C++ reads it, too.

    An earlier file stays as it was when the disk is full or the program dies.
    """
    _tensor._save_state(path_text(path), dict(model._named("_parameters", "")),
                        dict(model.named_buffers()),
                        None if optimizer is None else optimizer._native, metadata or {})


def load_state(path: PathLike, model: Module,
               optimizer: Optional[Optimizer] = None) -> Dict[str, str]:
    """Fills a model (and an optimiser) made alike, and returns the metadata.

    Raises ParseError, and changes nothing, where something is missing, left over or of another
    shape or dtype.
    """
    return _tensor._load_state(path_text(path), dict(model._named("_parameters", "")),
                               dict(model.named_buffers()),
                               None if optimizer is None else optimizer._native)


__all__ = ["BCEWithLogitsLoss", "BatchNorm", "CharGpt", "Conv1d", "Conv2d", "CrossEntropyLoss",
           "Dropout", "Embedding", "Flatten", "Function", "GELU", "GroupNorm", "HuberLoss",
           "L1Loss", "LayerNorm", "Linear", "MSELoss", "MaxPool2d", "Module", "NLLLoss",
           "Parameter", "RMSNorm", "ReLU", "SelfAttention", "Sequential", "TransformerBlock",
           "kaiming_uniform_", "load_state", "save_state", "xavier_uniform_"]
