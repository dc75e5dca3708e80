"""Sizes, durations and lists of policies as people write them."""

from __future__ import annotations

import operator
import os
from typing import List, Sequence, Union

from tenon import _core

Bytes = Union[int, str]
"""A size: a number of bytes, or text like "24GiB"."""

Duration = Union[float, str]
"""A duration: seconds, or text like "5ms"."""

Policies = Union[str, Sequence[str]]
"""Names of policies: "caching,stitched", a list of names, or "all"."""

PathLike = Union[str, "os.PathLike[str]"]


def size_bytes(value: Bytes | None, name: str) -> int:
    """Bytes; 0 for None. Raises ValueError for anything else that is no size above 0."""
    if value is None:
        return 0
    try:
        if isinstance(value, bool):
            raise TypeError
        number = _core.parse_bytes(value) if isinstance(value, str) else operator.index(value)
    except TypeError:
        raise TypeError(f'{name}: give bytes or text like "24GiB", '
                        f"not {type(value).__name__}") from None
    if not 0 < number < 2**63:
        raise ValueError(f"{name}={value!r}: give at least one byte and less than 2**63")
    return number


def duration_ns(value: Duration, name: str) -> int:
    """Nanoseconds."""
    if isinstance(value, str):
        return _core.parse_duration_ns(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f'{name}: give seconds or text like "5ms", not {type(value).__name__}')
    if not 0 <= value <= 3600:
        raise ValueError(f"{name}={value!r}: give seconds from 0 to 3600")
    return round(value * 1e9)


def policy_list(value: Policies) -> List[str]:
    """The names as the command takes them."""
    names = [value] if isinstance(value, str) else list(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"policies: give names, not {type(name).__name__}")
    return names


def path_text(path: PathLike) -> str:
    """A path as text."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError("path: give text, not bytes")
    if "\0" in text:
        raise ValueError("path: it has a null character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"path: {text!r} is not in UTF-8: rename it, "
                         "or give a link to it that is") from None
    return text
