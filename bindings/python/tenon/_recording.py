"""Recordings: files that were read, and what a recorder recorded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple

from tenon import _core, _dtypes
from tenon._answers import (Advice, Explanation, PlanAnswer, Progress, Replay, Report, View,
                            _written, advise, replay, report)
from tenon._arguments import (Bytes, Duration, PathLike, Policies, duration_ns, path_text,
                              policy_list, size_bytes)

if TYPE_CHECKING:
    import numpy


class Frame(NamedTuple):
    """A place in a program's text."""

    function: str
    file: str
    line: int


class DeviceRecording:
    """One device's part of a recording."""

    OPS = ("alloc", "free_requested", "free_completed")
    """What `events["op"]` means: 0, 1 and 2."""

    def __init__(self, device: _core.DeviceRecording) -> None:
        self._device = device

    @property
    def name(self) -> str:
        """The recording's name."""
        return self._device.name

    @property
    def index(self) -> int:
        """The device's number in the recorded program."""
        return self._device.index

    @property
    def streams(self) -> List[int]:
        """The recording's own stream values; `events["stream"]` counts in this list."""
        return self._device.streams

    @property
    def warnings(self) -> List[str]:
        """Oddities of the recording, a line each."""
        return self._device.warnings

    @property
    def live_peak_bytes(self) -> int:
        """Most bytes of requested size live at once: no allocator can do better."""
        return self._device.live_peak_bytes()

    @property
    def traced_peak_bytes(self) -> int:
        """The same without what was live before the recording began."""
        return self._device.traced_peak_bytes()

    @property
    def duration_us(self) -> int:
        """Recorded time."""
        return self._device.duration_us()

    @property
    def events(self) -> numpy.ndarray[Any, Any]:
        """Allocations and frees in order, over the recording's own bytes.

        Fields: time_us, size_bytes, block, stream, op (see OPS), site.
        """
        return _dtypes.as_array(self._device.event_rows(), _dtypes.EVENT, "events")

    @property
    def blocks(self) -> numpy.ndarray[Any, Any]:
        """A row for each allocation, in order; `events["block"]` counts in it.

        Fields: size_bytes, address (0: not known), allocated_us, freed_us, allocated_event,
        free_requested_event, freed_event (-1: never), stream, site.
        """
        return _dtypes.as_array(self._device.block_rows(), _dtypes.BLOCK, "blocks")

    @property
    def marks(self) -> numpy.ndarray[Any, Any]:
        """What happened between events: segments that came and went, failures, phases.

        Fields: time_us, address, size_bytes, stream, device_free_bytes, event (how many come before
        it), site, text, kind (`mark_kind` names it).
        """
        return _dtypes.as_array(self._device.mark_rows(), _dtypes.MARK, "marks")

    @staticmethod
    def mark_kind(kind: int) -> str:
        """The name of a kind of mark."""
        return _core.mark_kind(int(kind))

    def mark_text(self, mark: int) -> str:
        """What the program called a mark: a phase's name."""
        return self._device.mark_text(int(mark))

    def stack(self, site: int) -> List[Frame]:
        """The call stack of a site, innermost frame first."""
        return [Frame(*frame) for frame in self._device.stack(int(site))]

    def label(self, site: int) -> str:
        """What lists call a site: its innermost frame, else its tag."""
        return self._device.label(int(site))

    def tag(self, site: int) -> str:
        """What the program called this part of itself."""
        return self._device.tag(int(site))

    def __len__(self) -> int:
        return len(self._device.event_rows())

    def __repr__(self) -> str:
        peak = _core.format_bytes(self.live_peak_bytes)
        return f"<tenon.DeviceRecording {self.name}: {len(self):,} events, live peak {peak}>"


class Recording:
    """A recorded program. `load` reads one; a `Recorder` makes one."""

    def __init__(self, recording: _core.Recording) -> None:
        self._recording = recording
        self._devices = [DeviceRecording(device) for device in _core.devices_of(recording)]

    @property
    def path(self) -> str:
        """The file that it was read from, or its name."""
        return self._recording.path

    @property
    def devices(self) -> Tuple[DeviceRecording, ...]:
        """The devices with events."""
        return tuple(self._devices)

    @property
    def settings(self) -> List[Tuple[str, str]]:
        """The allocator settings that a snapshot tells of."""
        return self._recording.settings

    @property
    def notes(self) -> List[str]:
        """What the reader did not know in the file."""
        return self._recording.notes

    @property
    def segments(self) -> numpy.ndarray[Any, Any]:
        """Memory that PyTorch held when the snapshot was taken.

        Fields: address, size_bytes, stream, device, site, first_block and blocks (in
        `segment_blocks`), small_pool, expandable.
        """
        return _dtypes.as_array(_core.segment_rows(self._recording), _dtypes.SEGMENT, "segments")

    @property
    def segment_blocks(self) -> numpy.ndarray[Any, Any]:
        """The blocks of all segments, in their order.

        Fields: address, size_bytes, requested_bytes, site, state (0 allocated, 1 pending free,
        2 inactive, 3 another).
        """
        return _dtypes.as_array(_core.segment_block_rows(self._recording), _dtypes.SEGMENT_BLOCK,
                                "segment_blocks")

    def explain(self, *, device: Optional[int] = None, replay: bool = True,
                progress: Progress = None) -> Explanation:
        """Say what filled the memory, and why it ran out.

        Args:
            device: which of `devices`; None: all of them.
            replay: where an allocation failed, try other allocators.
            progress: called with None and the step.
        """
        return Explanation(_core.explain(self._recording,
                                         None if device is None else self._number(device), replay,
                                         progress))

    def advise(self, capacity: Optional[Bytes] = None, *, card: Optional[str] = None,
               reserve_for_context: Optional[Bytes] = None, torch: Optional[str] = None,
               device: Optional[int] = None, lag: Duration = "5ms", effort: float = 1,
               threads: int = 0, progress: Progress = None) -> Advice:
        """Search the allocator settings that fit best; the arguments are those of
        `tenon.advise`."""
        return advise(self, capacity, card=card, reserve_for_context=reserve_for_context,
                      torch=torch, device=device, lag=lag, effort=effort, threads=threads,
                      progress=progress)

    def plan(self, capacity: Optional[Bytes] = None, *, device: int = 0, whole: bool = False,
             own_memory: bool = False, progress: Progress = None) -> PlanAnswer:
        """Work out offsets for every allocation in advance.

        Args:
            capacity: say whether the plan fits into this.
            device: which of `devices`.
            whole: plan the whole recording, not one iteration of it.
            own_memory: give each stream memory of its own even where sharing needs less.
        """
        return PlanAnswer(_core.plan(self._recording, self._number(device),
                                     size_bytes(capacity, "capacity"), whole, own_memory, progress))

    def replay(self, policies: Optional[Policies] = None, *, capacity: Optional[Bytes] = None,
               serve_failed: bool = False, find_capacity: bool = False, conf: str = "",
               torch: Optional[str] = None, page: Optional[Bytes] = None,
               plan: Optional[PathLike] = None, device: Optional[int] = None,
               lag: Duration = "5ms", passes: int = 11, threads: int = 0,
               progress: Progress = None) -> Replay:
        """Replay over allocators; the arguments are those of `tenon.replay`."""
        return replay(self, policies, capacity=capacity, serve_failed=serve_failed,
                      find_capacity=find_capacity, conf=conf, torch=torch, page=page, plan=plan,
                      device=device, lag=lag, passes=passes, threads=threads, progress=progress)

    def view(self, policies: Policies = "caching,expandable,stitched,plan", *,
             capacity: Optional[Bytes] = None, conf: str = "", lag: Duration = "5ms",
             device: Optional[int] = None, progress: Progress = None) -> View:
        """Make a page that shows the recording; a notebook shows it by itself.

        Args:
            policies: what to compare; "none" for nothing.
            device: which of `devices`; None: the one with the highest live peak.
        """
        names = [] if policies == "none" else policy_list(policies)
        if device is None:
            if not self._devices:
                raise ValueError(f"{self.path} holds no recorded events")
            device = max(range(len(self._devices)),
                         key=lambda number: self._devices[number].live_peak_bytes)
        return View(_core.view(self._recording, self._number(device), names,
                               size_bytes(capacity, "capacity"), conf, duration_ns(lag, "lag"),
                               progress))

    def report(self, *, capacity: Optional[Bytes] = None, replay: bool = True, advice: bool = True,
               progress: Progress = None) -> Report:
        """One page with the verdict, what fills the peak and what to change; see `tenon.report`,
        which also compares several recordings."""
        return report(self, capacity=capacity, replay=replay, advice=advice, progress=progress)

    def save(self, path: PathLike, *, progress: Progress = None) -> None:
        """Write the recording: .csv, .pickle (PyTorch's snapshot) or .json (Perfetto), with .zst
        behind it compressed."""
        text = path_text(path)
        _written(lambda: _core.save_recording(self._recording, text, progress))

    def _number(self, device: int) -> int:
        if not 0 <= device < len(self._devices):
            raise IndexError(f"device={device}: {self.path} has recordings of "
                             f"{len(self._devices)} devices")
        return device

    def __repr__(self) -> str:
        return f"<tenon.Recording {self.path!r}: {list(self._devices)}>"


def load(path: PathLike, *, progress: Progress = None) -> Recording:
    """Read a PyTorch snapshot, a profile of torch.profiler with profile_memory=True, a trace (CSV)
    or a log of RMM, compressed with zstd or gzip, or not.

    Raises FileNotFoundError and the like for a file that cannot be opened, ParseError for one that
    is none of these.
    """
    text = path_text(path)
    with open(text, "rb"):
        pass  # the system's own complaint, as Python gives it
    if not os.path.isfile(text):
        raise ValueError(f"{text} is no file")
    return Recording(_core.load_recording(text, progress))
