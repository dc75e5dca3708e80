# mypy: disable-error-code="import-not-found,import-untyped"
"""A forecast under way: modes entered, PyTorch's functions replaced, and all of it taken back."""

from __future__ import annotations

import contextlib
import copyreg
import gc
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tenon.forecast import (
    _attention,
    _cuda,
    _cudnn,
    _defaults,
    _engine,
    _fakes,
    _graphs,
    _guard,
    _handlers,
    _legacy,
    _mode,
    _pools,
    _ranks,
    _recurrent,
    _scratch,
    _threads,
)
from tenon.forecast._engine import Ended
from tenon.forecast._recorder import Recorder
from tenon.forecast._values import Values

_MISSING = object()


class _Inference:
    """torch.inference_mode() as torch.no_grad(), which allocates the same: below inference mode
    composite operators reach a dispatch mode whole, and their parts do not."""

    active = False

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled(), _Inference.active
        torch._C._set_grad_enabled(not self._enabled)
        _Inference.active = self._enabled

    def __exit__(self, *_: Any) -> None:
        torch._C._set_grad_enabled(self._before[0])
        _Inference.active = self._before[1]


class _NoFake:
    """What libraries find that ask whether a tensor is fake, to go other ways then."""


class Stop(Ended):
    """Ends the program after the steps that were asked for."""


class Session:
    """What a program does on a fake card."""

    def __init__(
        self,
        card: _scratch.Card,
        capacity: int,
        steps: int,
        way: str = "least",
        host_bytes: int = 1 << 62,
        ranks: int = 0,
        share: Optional[float] = None,
    ) -> None:
        self.card, self.capacity, self.ranks = card, capacity, ranks
        self.devices = max(ranks, 1)
        self.group_of = 0  # processes in the group that the program made
        self.real_init: Any = None
        self.recorder = Recorder()
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self.values = Values(self.fake_mode, way, host_bytes, share)
        self.mode = _mode.MemoryMode(self.fake_mode, self.recorder, card, self.values)
        self.steps_wanted = steps
        self.steps = 0
        self.end_soon: Callable[[], Any] = lambda: None  # where the program swallows the stop
        self._steps_of: Dict[int, int] = {}
        self.state_blocks: set[int] = set()
        self._notes: List[str] = []
        self._replaced: List[Tuple[Any, str, Any]] = []
        self.phases: List[Tuple[str, int, str]] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The program's code runs inside of this."""
        _engine.prepare()
        multithreaded = (
            torch.autograd.is_multithreading_enabled()
            if hasattr(torch.autograd, "is_multithreading_enabled")
            else True
        )
        library = torch.library.Library("aten", "IMPL")
        collecting = gc.isenabled()
        restore_defaults = _defaults.begin()
        gc.collect()
        gc.disable()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                library.impl("scaled_dot_product_attention", self._attend, "AutogradCUDA")
                library.impl("scaled_dot_product_attention", self._attend, "CUDA")
                library.impl("cudnn_is_acceptable", lambda tensor: False, "AutogradCUDA")
                library.impl("cudnn_is_acceptable", lambda tensor: False, "CUDA")
                for name, function in _fakes.implementations():
                    library.impl(name, function, "Meta")
                for name in ("view", "_reshape_alias"):  # else plain meta tensors, of fake ones
                    library.impl(name, torch.library.fallthrough_kernel, "ZeroTensor")
                for name, function in _recurrent.implementations():
                    library.impl(name, function, "AutogradCUDA")
                    library.impl(name, function, "CUDA")
            for holder, name, value in self._replacements():
                self.replace(holder, name, value)
            torch.autograd.set_multithreading_enabled(False)
            types = self._optimizer_types()
            for known in types:
                known.append(FakeTensor)
            hook = self._watch_optimizers()
            try:
                with _ranks.environment(self.ranks), self.fake_mode, self.mode:
                    yield
            finally:
                self.mode.over = True
                _ranks.destroy()
                hook()
                for known in types:
                    known.remove(FakeTensor)
        finally:
            torch.autograd.set_multithreading_enabled(multithreaded)
            library._destroy()
            restore_defaults()
            self.conclude()
            if collecting:
                gc.enable()

    def conclude(self) -> None:
        """What was replaced is taken back, and the recording is whole."""
        while self._replaced:
            holder, name, value = self._replaced.pop()
            if value is _MISSING:
                delattr(holder, name)
            else:
                setattr(holder, name, value)
        self.recorder.complete_frees()

    def replace(self, holder: Any, name: str, value: Any) -> None:
        """Another value of an attribute, until the program has ended."""
        self._replaced.append((holder, name, vars(holder).get(name, _MISSING)))
        setattr(holder, name, value)

    def note(self, text: str) -> None:
        """Something that the answer says, once."""
        if text not in self._notes:
            self._notes.append(text)

    def notes(self) -> List[str]:
        """What was left out, a line each."""
        threads = ["threads of the program used the card: the order of their allocations may differ"]
        cards = ["tensors of all cards count as ones of the first: the figures are their sum"]
        model = ["cuDNN 9.8 or later could not be asked: workspaces of convolutions are by a model"]
        return (
            self._notes
            + (threads if self.mode.in_threads else [])
            + (cards if self.mode.on_other_cards else [])
            + (model if _cudnn.LIBRARY.missing else [])
        )

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> Any:
        return _attention.attend(
            self.card, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        )

    def _replacements(self) -> List[Tuple[Any, str, Any]]:
        found = _cuda.replacements(self)
        resize = torch.UntypedStorage.resize_
        mode = self.mode

        def resized(storage: Any, size: int) -> Any:
            result = resize(storage, size)
            mode.resize(storage)
            return result

        def left_aligned(*_: Any) -> bool:
            """Whether nn.TransformerEncoder may make its padded batch a nested tensor."""
            self.note(
                "nn.TransformerEncoder kept its padding, which it leaves out on a card when it "
                "evaluates: there it may take less"
            )
            return False

        from torch._subclasses import fake_tensor

        found += _guard.replacements(self.note)
        found += _handlers.replacements()
        found += _graphs.replacements(self.note)
        found += _fakes.replacements()
        found += _legacy.replacements()
        found += _pools.replacements(self.note)
        found += _threads.replacements(self)
        found += _ranks.replacements(self)

        found += [
            (torch.UntypedStorage, "resize_", resized),
            (FakeTensor, "data", property(_data, _set_data)),
            # TensorImpl's own answer is wrong for sparse ones
            (FakeTensor, "is_cuda", property(lambda tensor: tensor.fake_device.type == "cuda")),
            (FakeTensorMode, "avoid_device_init", True),
            (torch, "_nested_tensor_from_mask_left_aligned", left_aligned),
            (torch.utils, "swap_tensors", _swap_tensors),
            (torch._C, "_InferenceMode", _Inference),
            (torch, "is_inference_mode_enabled", lambda: _Inference.active),
            (torch._C, "_select_conv_backend", _conv_backend),
            (torch._C, "_conv_determine_backend_memory_format", _conv_format),
            (torch._subclasses, "FakeTensor", _NoFake),
            (fake_tensor, "init_gpu_context", lambda device: None),
            (fake_tensor.log, "disabled", True),  # the answer has the error
            *[
                (kind, "__torch_dispatch__", getattr(wrapped, "__wrapped__", wrapped))
                for kind, wrapped in (
                    (kind, vars(kind)["__torch_dispatch__"])
                    for kind in (FakeTensorMode, _mode.MemoryMode)
                )
            ],
        ]
        return found

    @staticmethod
    def _optimizer_types() -> List[List[Any]]:
        from torch.optim import optimizer
        from torch.utils import _foreach_utils

        return [optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types]

    def _watch_optimizers(self) -> Callable[[], None]:
        """Count steps, mark them as PyTorch's profiler does; returns what takes the hooks back."""
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            self.phases.append(("START", self.recorder.time_us, _step_name(optimizer)))

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            self.phases.append(("END", self.recorder.time_us, _step_name(optimizer)))
            self._steps_of[id(optimizer)] = self._steps_of.get(id(optimizer), 0) + 1
            self.steps = max(self._steps_of.values())
            self.state_blocks |= self.mode.blocks_of(optimizer.state)
            if self.steps_wanted and self.steps >= self.steps_wanted:
                self.mode.ended = Stop
                self.end_soon()
                self.note(
                    "what the program does after these steps (validation, saving) is not in the "
                    "figures: with steps 0 it runs to its end"
                )
                raise Stop

        handles = [
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(after),
        ]

        def remove() -> None:
            for handle in handles:
                handle.remove()

        return remove


def _step_name(optimizer: Any) -> str:
    return f"Optimizer.step#{type(optimizer).__name__}.step"


def _data(tensor: Any) -> Any:
    return torch._C.TensorBase.data.__get__(tensor)


def _set_data(tensor: Any, value: Any) -> None:
    """Another storage, also on another device."""
    torch._C.TensorBase.data.__set__(tensor, value)
    if isinstance(value, FakeTensor):
        tensor.fake_device = value.fake_device


def _swap_tensors(first: Any, second: Any) -> None:
    """torch.utils.swap_tensors without its check for weak references, which fake tensors always
    have."""
    slots = copyreg._slotnames(type(first))  # type: ignore[attr-defined]
    for name in ("__class__", "__dict__", *slots):
        value = getattr(first, name)
        setattr(first, name, getattr(second, name))
        setattr(second, name, value)
    torch._C._swap_tensor_impl(first, second)


def _conv_backend(input: Any, weight: Any, *_: Any, **__: Any) -> Any:
    """native/Convolution.cpp: cuDNN for what is on the card, so that its libraries are not
    asked."""
    kinds = torch._C._ConvBackend
    return kinds.Cudnn if input.device.type == "cuda" else kinds.Overrideable


def _conv_format(input: Any, weight: Any, backend: Any) -> Any:
    if not _cudnn.channels_last(input, weight):
        return torch.contiguous_format
    return torch.channels_last_3d if weight.dim() == 5 else torch.channels_last
