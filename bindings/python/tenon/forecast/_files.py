# mypy: disable-error-code="import-not-found,import-untyped"
"""torch.save and torch.load for tensors without bytes.

What the program saves is kept without its values, in the folder of moved files, so that it can load
it again; files of its own are read as they are.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tenon.forecast import _host

_MARK = b"tenon forecast\n"


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.layout is torch.strided:  # of the host
            with _host.plainly():
                raw = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            return raw, tuple(value.size()), value.dtype
        if not isinstance(value, FakeTensor):
            return None
        return (
            tuple(value.size()),
            tuple(value.stride()),
            value.dtype,
            str(value.fake_device),
            value.requires_grad,
            bool(getattr(value, "_is_param", False)),
        )


class _Unpickler(pickle.Unpickler):
    where: Any = None

    def persistent_load(self, kept: Any) -> Any:
        if len(kept) == 3:
            raw, size, dtype = kept
            with _host.plainly():
                flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0)
                return flat.to(dtype).view(size)
        size, stride, dtype, device, grad, param = kept
        found = torch.empty_strided(size, stride, dtype=dtype, device=_place(self.where, device))
        return torch.nn.Parameter(found, grad) if param else found.requires_grad_(grad)


def _place(where: Any, device: str) -> Any:
    """torch.load's map_location."""
    if where is None:
        return device
    if isinstance(where, dict):
        return where.get(device, device)
    return "cpu" if callable(where) else where


def replacements(
    note: Callable[[str], None], place: Callable[[str], Optional[str]]
) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value). `place` says where a path's bytes are."""
    real_load = torch.load

    def save(value: Any, file: Any, *_: Any, **__: Any) -> None:
        buffer = io.BytesIO()
        buffer.write(_MARK)
        try:
            _Pickler(buffer, protocol=4).dump(value)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise RuntimeError(f"torch.save: {error}") from None
        if hasattr(file, "write"):
            file.write(buffer.getvalue())
        else:
            with open(file, "wb") as out:
                out.write(buffer.getvalue())
        note("what torch.save saves is kept without its values, for torch.load")

    def load(file: Any, map_location: Any = None, *rest: Any, **keywords: Any) -> Any:
        ours = _ours(file)
        if ours is None:
            return real_load(file, map_location, *rest, **keywords)
        reader = _Unpickler(io.BytesIO(ours))
        reader.where = map_location
        return reader.load()

    real_array = torch.asarray

    def array(value: Any, *arguments: Any, **keywords: Any) -> Any:
        """Of a file's bytes, as safetensors reads them: no fake."""
        if not isinstance(value, torch.UntypedStorage):
            return real_array(value, *arguments, **keywords)
        with _host.plainly():
            return real_array(value, *arguments, **keywords)

    found: List[Tuple[Any, str, Any]] = [
        (torch, "save", save),
        (torch, "load", load),
        (torch, "asarray", array),
    ]
    if importlib.util.find_spec("safetensors"):
        from tenon.forecast import _safetensors

        found += _safetensors.replacements(note, place)
    return found


def _ours(file: Any) -> Any:
    """What save() wrote into a file, None where another one did."""
    if hasattr(file, "read"):
        at = file.tell()
        ours = file.read(len(_MARK)) == _MARK
        if not ours:
            file.seek(at)
        return file.read() if ours else None
    try:
        with open(file, "rb") as source:  # a moved file, where the program has written it
            return source.read() if source.read(len(_MARK)) == _MARK else None
    except OSError:
        return None
