# mypy: disable-error-code="import-not-found,import-untyped"
"""What a forecast does where sizes depend on data: the program runs with real values on the host.

Where that is too dear, the answer is a range: with empty masks and with full ones.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from tenon import _core

if TYPE_CHECKING:
    from tenon.forecast._run import Outcome

_SAME = 0.01  # peaks that differ by less are the same
_NOT_ENDED = "the run with fake tensors did not end"
_ALTERNATIVE_SECONDS = 10  # of a processor: how busy the machine is does not change the answer


@dataclasses.dataclass
class Answer:
    """The run that is the forecast, and what it is worth."""

    outcome: Outcome
    values: str
    notes: List[str]
    live_peak_range: Optional[Tuple[int, int]] = None


def settle(
    least: Outcome, once: Callable[..., Outcome], seconds: float, run_for_real: bool
) -> Answer:
    """Choose the run that is the answer, from one with fakes on."""
    values = least.session.values
    if not (values.sizes or values.integers or values.decisions):
        return Answer(least, "fake", assumed_notes(least))
    if not least.complete:
        return _bounds(least, _NOT_ENDED, None)
    if not run_for_real:
        return Answer(least, "assumed", [_once_only(values)])
    enough = _ALTERNATIVE_SECONDS + 3 * least.processor_seconds
    most = once("most", seconds, processor_limit=enough)
    if most.complete and _same(least, most):
        return Answer(least, "fake", assumed_notes(least))
    peaks = sorted(_peak(outcome) for outcome in (least, most))
    if most.complete and not values.sizes and not values.integers:
        return _either(least, most)
    bounded = most.complete and not most.problem and not values.integers
    found, why_not = (
        (None, "it was interrupted")
        if most.interrupted
        else _for_real(least, once, seconds - most.seconds)
    )
    if found is not None:
        return Answer(found, "real", real_notes(found))
    return _bounds(least, why_not, (peaks[0], peaks[1]) if bounded else None)


def cut_off(least: Optional[Outcome], outcome: Outcome) -> Answer:
    """The answer where a run is in a call that nothing ends: `least` came before it, with fakes."""
    values = outcome.session.values
    if least is not None:
        return _bounds(least, f"in another run: {outcome.problem or outcome.ended}", None)
    if values.way == "real":
        return Answer(outcome, "real", real_notes(outcome))
    if values.sizes or values.integers or values.decisions:
        return _bounds(outcome, _NOT_ENDED, None)
    return Answer(outcome, "fake", assumed_notes(outcome))


def _bounds(least: Outcome, why_not: str, bounds: Optional[Tuple[int, int]]) -> Answer:
    size = _core.format_bytes
    span = (
        f"between {size(bounds[0])} (empty masks, as above) and {size(bounds[1])} (full ones)"
        if bounds
        else f"at least {size(_peak(least))}"
    )
    what = ", ".join(sorted(least.session.values.sizes)) or "numbers that it reads"
    note = (
        f"sizes depend on data ({what}) and were not followed with real values ({why_not}): the "
        f"live peak is {span}"
    )
    return Answer(least, "assumed", [note], bounds)


def _once_only(values: Any) -> str:
    if not values.sizes and not values.integers:
        return (
            "decisions of the program were taken as if unknown numbers were 0: "
            f"{values.decisions}"
        )
    what = ", ".join(sorted(values.sizes)) or "numbers that it reads"
    if values.share is not None:
        return (
            f"memory depends on data ({what}): the figures hold where {values.share:.0%} of each "
            "unknown mask is set, as asked; unknown numbers count as zero"
        )
    return (
        f"memory depends on data ({what}), which counts as zero: masks are empty; it may need much "
        "more (real auto looks, a mask share says how full they are)"
    )


def _either(least: Outcome, most: Outcome) -> Answer:
    """Only decisions are unknown: the way that gets through, or the one that takes more."""
    size = _core.format_bytes
    count = least.session.values.decisions
    head = f"decisions of the program depend on numbers that are not known ({count}): "
    if least.problem and not most.problem:
        return Answer(most, "assumed", [head + "it gets through in one way only, which is this one"])
    if most.problem and not least.problem:
        return Answer(least, "assumed", [head + "the other way it fails"])
    peaks = sorted(_peak(outcome) for outcome in (least, most))
    text = (
        f"the live peak is {size(peaks[0])} or {size(peaks[1])}, and the figures are those of the "
        "larger one"
    )
    return Answer(max(least, most, key=_peak), "assumed", [head + text], (peaks[0], peaks[1]))


def _for_real(
    least: Outcome, once: Callable[..., Outcome], seconds: float
) -> Tuple[Optional[Outcome], str]:
    """The run with real values, or why there is none."""
    room = host_bytes()
    need = least.session.mode.tensor_peak_bytes
    size = _core.format_bytes
    if need > room:
        return None, f"they take {size(need)} or more, and the host has {size(room)}"
    if seconds <= 1:
        return None, "no time is left: give a longer time limit"
    found = once("real", seconds, room)
    if not found.complete:
        return None, found.problem or ""
    if found.problem and not least.problem:
        return None, f"with them it fails: {found.problem}"
    return found, ""


def host_bytes() -> int:
    """What the values of tensors may take of the host's memory."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024 * 3 // 4
    except OSError:
        pass
    return 8 << 30


def real_notes(outcome: Outcome) -> List[str]:
    """How sure a run with real values is."""
    values = outcome.session.values
    seen = ", ".join(
        f"{name} {least:,}" + (f" to {most:,}" if most != least else "")
        for name, (least, most) in sorted(values.seen.items())
    )
    notes = [
        "sizes depend on data: it ran on the CPU with real values and fixed seeds"
        + (f" (elements: {seen})" if seen else "")
        + "; other data and weights give other sizes"
    ]
    notes += _without_kernel(values.not_computed)
    return notes


def _without_kernel(names: Dict[str, int]) -> List[str]:
    if not names:
        return []
    listed = ", ".join(sorted(name.split("::")[1] for name in names))
    return [f"operators without a kernel for the host gave zeros: {listed}"]


def assumed_notes(outcome: Outcome) -> List[str]:
    """What a run with fakes took for granted."""
    values = outcome.session.values
    if values.sizes:
        return [f"sizes depend on data ({', '.join(sorted(values.sizes))}) and do not change the "
                "peak, whether masks are empty or full"]
    if values.decisions:
        return [
            "decisions of the program on numbers that are not known do not change its peak: "
            f"{values.decisions}"
        ]
    if values.numbers:
        return [f"numbers that the program read from tensors were taken as 0: {values.numbers}"]
    return []


def _peak(outcome: Outcome) -> int:
    return int(outcome.session.recorder.peak_bytes)


def _same(first: Outcome, second: Any) -> bool:
    return (
        second.complete
        and second.problem == first.problem
        and abs(_peak(first) - _peak(second)) <= _SAME * _peak(first)
    )
