# mypy: disable-error-code="import-not-found,import-untyped"
"""safetensors for tensors without bytes.

A file that the program writes holds zeros: a header, and a hole of the tensors' size behind it.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Callable, Dict, List, Optional, Tuple

import safetensors.torch


def replacements(
    note: Callable[[str], None], place: Callable[[str], Optional[str]]
) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value). `place` says where a path's bytes are."""
    real_open = safetensors.safe_open
    names = {dtype: name for name, dtype in safetensors.torch._TYPES.items()}

    def specified(tensors: Dict[str, Any], *_: Any) -> Dict[str, Any]:
        return {
            name: (names[part.dtype], part.shape, part.nbytes) for name, part in tensors.items()
        }

    def serialize_file(specs: Dict[str, Any], file: Any, metadata: Any = None) -> None:
        header: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        end = 0
        for name, (dtype, shape, size) in specs.items():
            header[name] = {
                "dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]
            }
            end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + end)
        note("files that safetensors writes hold zeros, for the program to load again")

    def safe_open(
        file: Any, framework: Any = "pt", device: Any = "cpu", *arguments: Any, **keywords: Any
    ) -> Any:
        there = place(os.path.abspath(os.fsdecode(file)))
        opened = real_open(
            file if there is None else there, framework, "cpu", *arguments, **keywords
        )
        return opened if str(device) == "cpu" else _Opened(opened, device)

    found: List[Tuple[Any, str, Any]] = [
        (safetensors, "safe_open", safe_open),
        (safetensors.torch, "safe_open", safe_open),
        (safetensors.torch, "serialize_file", serialize_file),
        (safetensors.torch, "serialize", lambda *_, **__: b""),
        (safetensors.torch, "_flatten", specified),
        (safetensors.torch, "_flatten_as_ptr", specified),
    ]
    return [part for part in found if hasattr(part[0], part[1])]


class _Moved:
    """Tensors that are read to the host and copied to the card, which has no addresses here."""

    def __init__(self, real: Any, device: Any) -> None:
        self._real = real
        self._device = f"cuda:{device}" if isinstance(device, int) else device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Slice(_Moved):
    def __getitem__(self, place: Any) -> Any:
        return self._real[place].to(self._device)


class _Opened(_Moved):
    def __enter__(self) -> "_Opened":
        self._real.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._real.__exit__(*error)

    def get_tensor(self, name: str) -> Any:
        return self._real.get_tensor(name).to(self._device)

    def get_tensors(self) -> Dict[str, Any]:
        return {name: self.get_tensor(name) for name in self._real.keys()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._real.get_slice(name), self._device)
