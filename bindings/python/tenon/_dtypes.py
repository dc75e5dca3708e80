"""NumPy's view of the compiled part's records. NumPy is imported when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Tuple

if TYPE_CHECKING:
    import numpy

    from tenon import _core

_Fields = List[Tuple[str, str, int]]

EVENT: _Fields = [("time_us", "<i8", 0), ("size_bytes", "<u8", 8), ("block", "<u4", 16),
                  ("stream", "<u4", 20), ("op", "u1", 24), ("site", "<u4", 28)]
MARK: _Fields = [("time_us", "<i8", 0), ("address", "<u8", 8), ("size_bytes", "<u8", 16),
                 ("stream", "<u8", 24), ("device_free_bytes", "<u8", 32), ("event", "<u4", 40),
                 ("site", "<u4", 44), ("text", "<u4", 48), ("kind", "u1", 52)]
BLOCK: _Fields = [("size_bytes", "<u8", 0), ("address", "<u8", 8), ("allocated_us", "<i8", 16),
                  ("freed_us", "<i8", 24), ("allocated_event", "<i8", 32),
                  ("free_requested_event", "<i8", 40), ("freed_event", "<i8", 48),
                  ("stream", "<u4", 56), ("site", "<u4", 60)]
SEGMENT: _Fields = [("address", "<u8", 0), ("size_bytes", "<u8", 8), ("stream", "<u8", 16),
                    ("device", "<u4", 24), ("site", "<u4", 28), ("first_block", "<u4", 32),
                    ("blocks", "<u4", 36), ("small_pool", "?", 40), ("expandable", "?", 41)]
SEGMENT_BLOCK: _Fields = [("address", "<u8", 0), ("size_bytes", "<u8", 8),
                          ("requested_bytes", "<u8", 16), ("site", "<u4", 24), ("state", "u1", 28)]

_made: Dict[Tuple[int, int], Any] = {}


def as_array(rows: _core.Rows, fields: _Fields, what: str) -> numpy.ndarray[Any, Any]:
    """The rows as a structured array over the same bytes, which it keeps alive. Read-only."""
    try:
        import numpy
    except ImportError:
        raise ImportError(f"{what} are NumPy arrays: pip install numpy") from None
    key = (id(fields), rows.item_bytes)
    if key not in _made:
        names, formats, offsets = zip(*fields)
        _made[key] = numpy.dtype({"names": names, "formats": formats, "offsets": offsets,
                                  "itemsize": rows.item_bytes})
    return numpy.frombuffer(rows, dtype=_made[key])  # type: ignore[call-overload, no-any-return]
