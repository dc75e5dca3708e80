"""What a forecast says."""

from __future__ import annotations

import json
import os
import re
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

from tenon import _core
from tenon._recording import Recording

CARDS: Dict[str, Dict[str, int]] = {
    "V100": {"major": 7, "minor": 0, "processors": 80, "gib": 16},
    "T4": {"major": 7, "minor": 5, "processors": 40, "gib": 16},
    "A100": {"major": 8, "minor": 0, "processors": 108, "gib": 80},
    "A10": {"major": 8, "minor": 6, "processors": 72, "gib": 24},
    "RTX3090": {"major": 8, "minor": 6, "processors": 82, "gib": 24},
    "L4": {"major": 8, "minor": 9, "processors": 58, "gib": 24},
    "RTX4090": {"major": 8, "minor": 9, "processors": 128, "gib": 24},
    "H100": {"major": 9, "minor": 0, "processors": 132, "gib": 80},
    "H200": {"major": 9, "minor": 0, "processors": 132, "gib": 141},
    "B200": {"major": 10, "minor": 0, "processors": 148, "gib": 180},
}
"""Cards by name: compute capability, multiprocessors, memory."""


class Forecast:
    """A forecast program: its recording, and how far it was followed."""

    def __init__(
        self,
        name: str,
        snapshot: bytes,
        *,
        card: str,
        steps: int,
        ended: str,
        problem: Optional[str],
        notes: List[str],
        tensor_peak_bytes: int,
        offloaded: Callable[[], bytes],
        values: str = "fake",
        live_peak_range: Optional[Tuple[int, int]] = None,
    ) -> None:
        self.name, self.card, self.steps = name, card, steps
        self.ended = ended
        """Why the program was not followed further."""
        self.problem = problem
        """What stopped it, with the script's line; None where nothing did."""
        self.notes = notes
        """What was assumed, a line each."""
        self.values = values
        """ "fake"; "real" where it ran with values on the host; "assumed" where sizes that depend
        on data were not followed."""
        self.live_peak_range = live_peak_range
        """With "assumed": the live peak with empty masks and with full ones, where it is known."""
        self.tensor_peak_bytes = tensor_peak_bytes
        """The peak of tensors alone: without workspaces and kernels' scratch."""
        self.recording: Recording = _loaded(snapshot, name)
        self._offloaded = offloaded
        self._figures: Optional[Dict[str, Any]] = None

    @property
    def live_peak_bytes(self) -> int:
        """Most bytes of requested size live at once."""
        devices = self.recording.devices
        return devices[0].live_peak_bytes if devices else 0

    def without_optimizer_state(self) -> Recording:
        """The same events with the optimizer's state elsewhere."""
        return _loaded(self._offloaded(), self.name)

    def figures(self) -> Dict[str, Any]:
        """Live peak, reserved and the smallest card, under default and expandable settings."""
        if self._figures is None:
            found: Dict[str, Any] = {
                "live_peak_bytes": self.live_peak_bytes,
                "tensor_peak_bytes": self.tensor_peak_bytes,
            }
            if self.recording.devices:
                replay = self.recording.replay("caching,expandable", passes=0, find_capacity=True)
                for policy, name in (("caching", "default"), ("expandable", "expandable")):
                    found[name] = {
                        key: None if replay[policy].get("out_of_memory") else replay[policy][key]
                        for key in ("reserved_peak_bytes", "min_capacity_bytes")
                    }
            self._figures = found
        return self._figures

    def fits(self, capacity: int, *, expandable: bool = False) -> bool:
        """Whether the replay runs through on a card of this capacity."""
        if not self.recording.devices:
            return True
        policy = "expandable" if expandable else "caching"
        answer = self.recording.replay(policy, capacity=capacity, passes=0)
        return not answer[policy].get("out_of_memory", False)

    @property
    def json(self) -> str:
        """The figures and what stands around them."""
        return json.dumps(
            {
                "name": self.name,
                "card": self.card,
                "steps": self.steps,
                "ended": self.ended,
                "problem": self.problem,
                "notes": self.notes,
                "values": self.values,
                "live_peak_range": self.live_peak_range,
                **self.figures(),
            },
            indent=2,
        )

    @property
    def text(self) -> str:
        """For a person to read."""
        figures = self.figures()
        size = _core.format_bytes
        lines = [f"{self.name} on {self.card}, forecast without a GPU: {self.ended}"]
        if self.problem:
            lines.append(f"  stopped: {self.problem}")
            lines.append("  The figures below are those of the part that ran.")
        lines.append(f"  live peak            {size(figures['live_peak_bytes'])}")
        for name, label in (
            ("default", "reserved, default"),
            ("expandable", "reserved, expandable"),
        ):
            if name in figures:
                reserved, smallest = (
                    size(found) if found is not None else "not found"
                    for found in figures[name].values()
                )
                lines.append(
                    f"  {label:20s} {reserved} without a limit; smallest card {smallest}"
                )
        card = CARDS[self.card]["gib"] << 30
        least = [figures[name]["min_capacity_bytes"] for name in ("default", "expandable")
                 if figures.get(name, {}).get("min_capacity_bytes")]
        if least and least[0] > card:
            settings = "expandable_segments:True" if least[-1] <= card else "any setting"
            verb = "fits only with" if least[-1] <= card else "does not fit with"
            lines.append(f"  On {self.card} ({size(card)}) it {verb} {settings}.")
        lines.append("  The CUDA context and other programs take memory beside it.")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    def __repr__(self) -> str:
        return f"<tenon.forecast.Forecast {self.name}: {_core.format_bytes(self.live_peak_bytes)}>"


def _loaded(snapshot: bytes, name: str) -> Recording:
    """The recording, whose devices have the program's name."""
    stem = re.sub(r"[^\w.-]", "_", os.path.splitext(name)[0])[:99]
    folder = tempfile.mkdtemp(prefix="tenon-forecast-")
    path = os.path.join(folder, f"{stem}.pickle")
    try:
        with open(path, "wb") as out:
            out.write(snapshot)
        return Recording(_core.load_recording(path, None, name))
    finally:
        os.unlink(path)
        os.rmdir(folder)
