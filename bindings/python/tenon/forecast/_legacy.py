# mypy: disable-error-code="import-not-found,import-untyped"
"""torch.cuda.FloatTensor and its like, which old programs call and convert to."""

from __future__ import annotations

from typing import Any, List, Tuple

import torch


class _Kind(type):
    """The class of these stand-ins: they make tensors and have no objects of their own."""

    dtype: torch.dtype
    is_cuda = True

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is cls.dtype

    def __call__(cls, *given: Any) -> Any:
        """Sizes make a tensor that is not filled, data a tensor of these, a tensor itself."""
        if len(given) == 1 and isinstance(given[0], torch.Tensor):
            return given[0].to("cuda", cls.dtype)
        if len(given) == 1 and not isinstance(given[0], (int, torch.Size)):
            return torch.tensor(given[0], dtype=cls.dtype, device="cuda")
        sizes = given[0] if len(given) == 1 and not isinstance(given[0], int) else given or (0,)
        return torch.empty(sizes, dtype=cls.dtype, device="cuda")


def replacements() -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    names = [name for name in vars(torch.cuda) if name.endswith("Tensor")]
    kinds = {
        name: _Kind(name, (), {"dtype": getattr(torch.cuda, name).dtype, "__module__": "torch.cuda"})
        for name in names
    }
    real_type, real_default = torch.Tensor.type, torch.set_default_tensor_type
    real_new, default = torch.Tensor.__new__, None

    def of_card(kind: Any) -> Any:
        """The kind that text or a type stands for, where it is one of the card's."""
        if isinstance(kind, str) and kind.startswith("torch.cuda."):
            return kinds.get(kind.rpartition(".")[2])
        return kind if getattr(kind, "is_cuda", False) and hasattr(kind, "dtype") else None

    def convert(
        self: Any, dtype: Any = None, non_blocking: bool = False, **options: Any
    ) -> Any:
        kind = of_card(dtype)
        if kind is None:
            return real_type(self, dtype, non_blocking, **options)
        return self.to("cuda", kind.dtype, non_blocking=non_blocking)

    def set_default(kind: Any) -> None:
        nonlocal default
        ours = of_card(kind)
        if ours is None:
            real_default(kind)
        else:
            torch.set_default_dtype(ours.dtype)
        if ours is not default:
            torch.set_default_device("cuda" if ours else None)
        default = ours

    def make(cls: Any, *given: Any, **options: Any) -> Any:
        """torch.Tensor(...), which follows the default type alone."""
        if default is not None and cls is torch.Tensor and not options:
            return default(*given)
        return real_new(cls, *given, **options)

    return [
        *((torch.cuda, name, kind) for name, kind in kinds.items()),
        (torch.Tensor, "type", convert),
        (torch.Tensor, "__new__", make),
        (torch, "set_default_tensor_type", set_default),
    ]
