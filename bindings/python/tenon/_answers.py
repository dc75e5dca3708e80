"""What the lab says of a recording: mappings with the command's JSON, and the command's text."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Union, overload

from tenon import _core
from tenon._arguments import (Bytes, Duration, PathLike, Policies, duration_ns, path_text,
                              policy_list, size_bytes)

if TYPE_CHECKING:
    from tenon._recording import Recording

Progress = Optional[Callable[[Optional[float], str], object]]
"""Called with how far the work is (0 to 1, or None where it is not known) and what is being done.
An exception in it ends the work."""


class _Parsed:
    """JSON that is read once, when a field is asked for."""

    _data: Any = None

    @property
    def json(self) -> str:
        """The JSON that the command prints with --json, to the byte."""
        raise NotImplementedError

    def _parsed(self) -> Any:
        if self._data is None:
            self._data = json.loads(self.json)
        return self._data


class _Fields(_Parsed, Mapping[str, Any]):
    """A mapping: the fields of the JSON."""

    def to_dict(self) -> Dict[str, Any]:
        """A dict of one's own."""
        copied: Dict[str, Any] = json.loads(self.json)
        return copied

    def __getitem__(self, key: str) -> Any:
        return self._parsed()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())


class _Told(_Parsed):
    """An answer as JSON and as text."""

    def __init__(self, answer: _core.Answer) -> None:
        self._answer = answer

    @property
    def json(self) -> str:
        """The JSON that the command prints with --json, to the byte."""
        return self._answer.json

    @property
    def text(self) -> str:
        """The text that the command prints, to the byte."""
        return self._answer.text(self._rows)

    _rows = 10

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class Answer(_Told, _Fields):
    """A mapping: the fields of the command's JSON. Printed, it is the command's text."""


class Explanation(Answer):
    """What filled the memory, and why it ran out: `tenon explain`."""

    def to_text(self, rows: int = 10) -> str:
        """The text with lists of at most so many lines."""
        return self._answer.text(_rows(rows))


class Advice(Answer):
    """Which allocator settings to run with: `tenon advise`."""


class PlanAnswer(Answer):
    """Offsets for every allocation: `tenon plan`."""

    def save(self, path: PathLike) -> None:
        """Write the plan, for the policy "plan". ".zst" compresses."""
        _written(lambda: self._answer.save(path_text(path)))


class Diff(_Told, Sequence[Dict[str, Any]]):
    """What changed from one recording to another, device by device: `tenon diff`."""

    _rows = 20

    def to_text(self, rows: int = 20) -> str:
        """The text with lists of at most so many lines."""
        return self._answer.text(_rows(rows))

    @overload
    def __getitem__(self, index: int) -> Dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> List[Dict[str, Any]]: ...
    def __getitem__(self, index: Union[int, slice]) -> Any:
        return self._parsed()[index]

    def __len__(self) -> int:
        return len(self._parsed())


class Replay(Diff):
    """What each policy would have needed, a dict for each: `tenon replay`."""

    def __getitem__(self, index: Any) -> Any:
        """By number, or by the policy's name: of the first recording that it was tried on."""
        if not isinstance(index, str):
            return super().__getitem__(index)
        for result in self._parsed():
            if result["policy"] == index:
                return result
        raise KeyError(index)


class _Shown(_Fields):
    """A web page, and a mapping of its figures."""

    _sandbox = "allow-downloads"

    def __init__(self, page: _core.Page) -> None:
        self._page = page

    @property
    def html(self) -> str:
        """The page, all in one piece."""
        return self._page.html

    @property
    def json(self) -> str:
        """The figures that the command prints with --json, to the byte."""
        return self._page.figures

    def save(self, path: PathLike) -> None:
        """Write the page."""
        _written(lambda: _core.write_file(path_text(path), self._page.html))

    def __repr__(self) -> str:
        size = _core.format_bytes(len(self._page.html))
        return f"<tenon.{type(self).__name__}: a page of {size}; save(path) writes it>"

    def _repr_html_(self) -> str:
        return (f'<iframe style="width:100%;height:720px;border:0" sandbox="{self._sandbox}" '
                f'srcdoc="{html.escape(self._page.html, quote=True)}"></iframe>')


class View(_Shown):
    """A page to look at: `tenon view`. A notebook shows it."""

    _sandbox = "allow-scripts allow-downloads"


class Report(_Shown):
    """The verdict on one recording, or on those of a job's ranks, on a page without scripts:
    `tenon report`. A notebook shows it."""


def _rows(rows: int) -> int:
    if not 1 <= rows <= 100_000:
        raise ValueError(f"rows={rows}: give 1 to 100000")
    return rows


def _written(write: Callable[[], None]) -> None:
    try:
        write()
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise OSError(str(error)) from None


def advise(recordings: Union[Recording, Sequence[Recording]], capacity: Optional[Bytes] = None, *,
           card: Optional[str] = None, reserve_for_context: Optional[Bytes] = None,
           torch: Optional[str] = None, device: Optional[int] = None, lag: Duration = "5ms",
           effort: float = 1, threads: int = 0, progress: Progress = None) -> Advice:
    """Search the allocator settings that fit best: one setting for all recordings.

    Args:
        recordings: one, or one for each rank of a job.
        capacity: the card's memory.
        card: "rtx3090", "rtx6000ada" or "other": its memory and its CUDA context.
        reserve_for_context: the card's memory for the CUDA context, NCCL and other processes;
            None: what is known of them.
        torch: the version of PyTorch that will run, like "2.6": its settings, and the rules that
            replays follow; None: what the recording says.
        device: which of each recording's `devices`; None: all of them, each on a card of its own.
        lag: how long the device's work runs behind the host.
        effort: how many settings to try, 0.01 to 100.
        threads: 0: one for each core. The answer does not depend on it.
        progress: called with None and the step.
    """
    several = _recordings("advise", recordings, device)
    _check_effort(effort)
    options = _core.AdviceOptions()
    options.capacity_bytes = size_bytes(capacity, "capacity")
    options.lag_ns = duration_ns(lag, "lag")
    options.effort = effort
    options.threads = _threads(threads)
    reserve = reserve_for_context
    if reserve is not None and (reserve != 0 or isinstance(reserve, bool)):
        reserve = size_bytes(reserve, "reserve_for_context")
    return Advice(_core.advise(several, device, options, _name("card", card), reserve,
                               _name("torch", torch), progress))


def replay(recordings: Union[Recording, Sequence[Recording]],
           policies: Optional[Policies] = None, *, capacity: Optional[Bytes] = None,
           serve_failed: bool = False, find_capacity: bool = False, conf: str = "",
           torch: Optional[str] = None, page: Optional[Bytes] = None,
           plan: Optional[PathLike] = None, device: Optional[int] = None, lag: Duration = "5ms",
           passes: int = 11, threads: int = 0, progress: Progress = None) -> Replay:
    """Replay recordings over allocation policies on a simulated device.

    Args:
        recordings: one, or several side by side.
        policies: names, comma-separated or in a list, or "all" (see `tenon.policies`); None: the
            settings that PyTorch can run, or the policy of `plan` or `page`.
        capacity: also replay on a device of this size, and say whether it fits.
        serve_failed: serve requests that failed in the recording, and free them immediately.
        find_capacity: search the smallest device for each policy.
        conf: PyTorch's allocator settings, "key:value,key:value".
        torch: the version of PyTorch whose rules caching follows, like "2.13"; None: what the
            recording says, else "2.11".
        page: page size of the policy stitched.
        plan: a file of `recording.plan().save`, for the policy plan.
        device: which of each recording's `devices`; None: all of them.
        lag: how long a stream's work runs behind the host.
        passes: timed replays for ns_per_event; 0 leaves timing out.
        threads: for what is not timed; 0: one for each core.
        progress: called with the share done and the step.
    """
    several = _recordings("replay", recordings, device)
    options = _core.SurveyOptions()
    options.conf = conf
    options.capacity_bytes = size_bytes(capacity, "capacity")
    options.find_capacity = find_capacity
    options.page_bytes = size_bytes(page, "page")
    options.lag_ns = duration_ns(lag, "lag")
    if not 0 <= passes <= 100_000:
        raise ValueError(f"passes={passes}: give 0 to 100000")
    options.passes = passes
    options.threads = _threads(threads)
    plan_file = "" if plan is None else path_text(plan)
    names = [] if policies is None else policy_list(policies)
    if policies is not None and not names:
        raise ValueError("policies: give one name at least, or None")
    return Replay(_core.replay(several, names, options, plan_file, device, serve_failed,
                               _name("torch", torch), progress))


def diff(before: Recording, after: Recording, *, ignore_lines: bool = False,
         progress: Progress = None) -> Diff:
    """What grew and what is new from one recording to another.

    Args:
        ignore_lines: call sites are the same though their line numbers differ.
    """
    first, second = _recordings("diff", [before, after])
    return Diff(_core.diff(first, second, ignore_lines, progress))


def report(recordings: Union[Recording, Sequence[Recording]], *, capacity: Optional[Bytes] = None,
           replay: bool = True, advice: bool = True, progress: Progress = None) -> Report:
    """One page: the verdict, what fills the peak, what to change; of several recordings, which are
    the ranks of one job, also how they compare.

    Args:
        recordings: one, or one for each rank.
        capacity: of the device: drawn as a line.
        replay: where an allocation failed, try other allocators.
        advice: settings for the rank that needs most.
        progress: called with None and the step.
    """
    several = _recordings("report", recordings)
    return Report(_core.report(several, replay, advice, size_bytes(capacity, "capacity"),
                               progress))


def _recordings(caller: str, recordings: Union[Recording, Sequence[Recording]],
                device: Optional[int] = None) -> List[_core.Recording]:
    from tenon._recording import Recording

    several = list(recordings) if isinstance(recordings, Iterable) else [recordings]
    for one in several:
        if not isinstance(one, Recording):
            raise TypeError(f"{caller}: give recordings, not {type(one).__name__}")
        if device is not None:
            one._number(device)
    if not several:
        raise ValueError(f"{caller}: give one recording at least")
    return [one._recording for one in several]


def _check_effort(effort: float) -> None:
    if not 0.01 <= effort <= 100:
        raise ValueError(f"effort={effort}: give 0.01 to 100")


def _threads(threads: int) -> int:
    if not 0 <= threads <= 256:
        raise ValueError(f"threads={threads}: give 0 to 256")
    return threads


def _name(argument: str, value: Optional[str]) -> str:
    """An argument that is text; "" for None."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: give text, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{argument}: it is empty; give a value, or None")
    return value
