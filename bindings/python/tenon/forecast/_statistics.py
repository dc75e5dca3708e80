"""What torch.cuda tells a program of its memory while a forecast runs."""

from __future__ import annotations

from typing import Dict

_BLOCK = 512


class Statistics:
    """Bytes in blocks, as PyTorch counts them, with peaks that the program may reset.

    Reserved is the most that was allocated since the cache was emptied: a card without fragments.
    """

    def __init__(self) -> None:
        self.current = dict.fromkeys(("allocated_bytes", "requested_bytes", "reserved_bytes"), 0)
        self.peaks = dict(self.current)
        self._totals = {"allocated": dict(self.current), "freed": dict(self.current)}

    def allocate(self, size: int) -> None:
        """A block is handed out."""
        self._change("allocated_bytes", _in_blocks(size))
        self._change("requested_bytes", size)
        grown = self.current["allocated_bytes"] - self.current["reserved_bytes"]
        if grown > 0:
            self._change("reserved_bytes", grown)

    def free(self, size: int) -> None:
        """A block is freed."""
        self._change("allocated_bytes", -_in_blocks(size))
        self._change("requested_bytes", -size)

    def empty_cache(self) -> None:
        """What is not allocated goes back to the driver."""
        free = self.current["reserved_bytes"] - self.current["allocated_bytes"]
        self._change("reserved_bytes", -free)

    def reset_peaks(self) -> None:
        """The peaks are what there is."""
        self.peaks = dict(self.current)

    def reset_totals(self) -> None:
        """Sums of allocated and freed bytes start from zero."""
        for totals in self._totals.values():
            totals.update(dict.fromkeys(totals, 0))

    def _change(self, name: str, size: int) -> None:
        self.current[name] += size
        self.peaks[name] = max(self.peaks[name], self.current[name])
        self._totals["allocated" if size > 0 else "freed"][name] += abs(size)

    def all(self) -> Dict[str, int]:
        """torch.cuda.memory_stats(): zero for what is not counted."""
        found = _Zeros(num_ooms=0, num_alloc_retries=0)
        for name, told in (
            ("allocated_bytes", "allocated_bytes"),
            ("allocated_bytes", "active_bytes"),
            ("requested_bytes", "requested_bytes"),
            ("reserved_bytes", "reserved_bytes"),
        ):
            found[f"{told}.all.current"] = self.current[name]
            found[f"{told}.all.peak"] = self.peaks[name]
            for kind, totals in self._totals.items():
                found[f"{told}.all.{kind}"] = totals[name]
        return found


def _in_blocks(size: int) -> int:
    return (size + _BLOCK - 1) // _BLOCK * _BLOCK


class _Zeros(Dict[str, int]):
    def __missing__(self, name: str) -> int:
        return 0

    def get(self, name: str, default: object = None) -> int:
        return self[name]
