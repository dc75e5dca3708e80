# mypy: disable-error-code="import-not-found"
"""Allocations and frees of a forecast program, kept as a snapshot of PyTorch's keeps them."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any, Collection, Dict, Iterator, List, Tuple

import torch

from tenon.forecast._statistics import Statistics

Frames = Tuple[Tuple[str, str, int], ...]
"""A call stack, innermost frame first: function, file, line."""


LARGEST = 1 << 46
"""No card has as much; a recording's reader takes no more."""


_SETTINGS = {"max_round_threshold": -1} if torch.__version__ >= (2, 13) else {}
"""As PyTorch writes them from 2.13 on; by that, replays follow its rules."""


class Recorder:
    """Events of one device. Times count operators: ten microseconds each."""

    def __init__(self) -> None:
        self.actions: List[Tuple[str, int, int, int, int, int]] = []
        self.time_us = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.statistics = Statistics()
        self._next_address = 1 << 40
        self._stacks: Dict[Frames, int] = {}
        self._blocks: Dict[int, Tuple[int, int, int]] = {}
        self._waiting: List[int] = []

    def tick(self) -> None:
        """An operator begins."""
        self.time_us += 10

    def allocate(self, size: int, stream: int, frames: Frames) -> int:
        """A block of memory; returns its address, which no other block has."""
        if self._waiting:
            self.complete_frees()
        if size > LARGEST:
            raise torch.OutOfMemoryError(f"it asks for {size:,} bytes at once")
        address = self._next_address
        self._next_address += (size + 511) // 512 * 512
        stack = self._stacks.setdefault(frames, len(self._stacks))
        self._blocks[address] = (size, stream, stack)
        self.actions.append(("alloc", address, size, stream, self.time_us, stack))
        self.live_bytes += size
        self.statistics.allocate(size)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return address

    def free(self, address: int, *, wait: bool = False) -> None:
        """Give a block back; with `wait`, when another stream is done with it."""
        size, stream, stack = self._blocks[address]
        self.actions.append(("free_requested", address, size, stream, self.time_us, stack))
        if wait:
            self._waiting.append(address)
        else:
            self._complete(address)

    @contextlib.contextmanager
    def oldest_first(self) -> Iterator[None]:
        """Nothing but frees, whose order PyTorch leaves to the addresses of its objects."""
        start = len(self.actions)
        yield
        self.actions[start:] = sorted(self.actions[start:], key=lambda action: action[1])

    def complete_frees(self) -> None:
        """Other streams are done with what was given back."""
        waiting, self._waiting = self._waiting, []
        for address in waiting:
            self._complete(address)

    def empty_cache(self) -> None:
        """The program gives cached memory back, after what other streams still use is done."""
        self.complete_frees()
        self.statistics.empty_cache()
        if self.actions:
            stack = self._stacks.setdefault((), len(self._stacks))
            self.actions.append(("empty_cache", 0, 0, 0, self.time_us, stack))

    def _complete(self, address: int) -> None:
        size, stream, stack = self._blocks.pop(address)
        self.actions.append(("free_completed", address, size, stream, self.time_us, stack))
        self.live_bytes -= size
        self.statistics.free(size)

    def snapshot(self, phases: List[Tuple[str, int, str]], without: Collection[int] = ()) -> bytes:
        """The events as `torch.cuda.memory._dump_snapshot` would write them; `without`:
        addresses."""
        stacks = [
            [{"filename": file, "line": line, "name": function} for function, file, line in frames]
            for frames in self._stacks
        ]
        trace: List[Dict[str, Any]] = [
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": stream,
                "time_us": time_us,
                "frames": stacks[stack],
            }
            for action, address, size, stream, time_us, stack in self.actions
            if address not in without
        ]
        annotations = [
            {"stage": stage, "name": name, "device": 0, "time_us": time_us}
            for stage, time_us, name in phases
        ]
        return pickle.dumps(
            {
                "segments": [],
                "device_traces": [trace],
                "allocator_settings": _SETTINGS,
                "external_annotations": annotations,
            },
            protocol=4,
        )
