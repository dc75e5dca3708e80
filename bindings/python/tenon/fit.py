"""The command `python -m tenon.fit SCRIPT --capacity SIZE --vary NAME -- ARGUMENTS`.

Finds the largest value of a number (a batch's size, a sequence's length) with which a script fits
on a card, by forecasts and replays at that capacity, and says what other changes would save.
The script takes the number where its arguments have `{}`; where none has, through its first line
`NAME = ...`.
"""

from __future__ import annotations

import argparse
import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from tenon import _core
from tenon._arguments import size_bytes
from tenon.forecast import CARDS, Forecast, ForecastError
from tenon.forecast._engine import ProgramFailed

_COSTS = {
    "expandable segments": "nothing: PYTORCH_ALLOC_CONF=expandable_segments:True",
    "bf16 autocast": "less computing; rounding of bf16",
    "checkpoints": "one more forward pass of the layers, about a third more computing",
    "--shard zero1": "updated parameters are sent once a step",
    "--shard zero2": "parameters are gathered once a step, gradients sent in shares",
    "--shard zero3": "parameters are gathered twice a step, gradients sent in shares",
    "half of it, accumulated twice": "two smaller passes in place of one",
    "optimizer state on the host": "the state crosses the bus twice a step",
    "an optimizer without state": "another optimizer: more steps, as a rule",
}


class WhatIf(NamedTuple):
    """One change at one value."""

    name: str
    live_peak_bytes: Optional[int]
    """None where the changed program fails."""
    smallest_card_bytes: Optional[int]
    """The least memory with which the replay completes; None where it is not known."""
    remark: str
    """What the change costs, or why it fails."""


class Fit:
    """A search for the largest value of one number. Values are counted in multiples: 3 is the third
    multiple that is tried."""

    def __init__(
        self,
        script: str,
        arguments: List[str],
        vary: str,
        capacity: int,
        *,
        card: str,
        steps: int,
        expandable: bool,
        ranks: int = 0,
        shard: str = "",
        multiple: int = 1,
    ) -> None:
        self._multiple = multiple
        self._script, self._arguments, self._vary = script, arguments, vary
        self.capacity, self._card, self._steps = capacity, card, steps
        self.expandable, self._ranks, self._shard = expandable, ranks, shard
        self.forecasts: Dict[Tuple[int, str], Forecast] = {}

    def forecast(self, value: int, change: str = "", shard: str = "") -> Forecast:
        """The program at a value, with one change, or sharded in another way."""
        shard = shard or self._shard
        key = (value, change if shard == self._shard else shard)
        if key not in self.forecasts:
            from tenon.forecast._run import run_script

            given = any("{}" in argument for argument in self._arguments)
            number = value * self._multiple

            def last(answer: Callable[[], Forecast]) -> int:
                print(f"tenon.fit: {self._vary}={number}: {_problem(answer)}", file=sys.stderr)
                return 2

            try:
                answer = run_script(
                    self._script,
                    [part.replace("{}", str(number)) for part in self._arguments],
                    steps=self._steps,
                    card=self._card,
                    time_limit=600,
                    values={} if given else {self._vary: number},
                    changes=[part for part in (shard, change) if part],
                    ranks=self._ranks,
                    last=last,
                )
                if answer.problem:
                    raise ProgramFailed(answer.problem)
            except ProgramFailed as error:
                raise ForecastError(
                    str(error) if change or shard != self._shard else
                    f"{self._vary}={number}: {error} (if the script takes only some values, give "
                    "--multiple-of N)"
                ) from None
            self.forecasts[key] = answer
        return self.forecasts[key]

    def fits(self, value: int) -> bool:
        """Whether the replay at the capacity completes."""
        return self.forecast(value).fits(self.capacity, expandable=self.expandable)

    def largest(self) -> int:
        """The largest value that fits where the next one does not; 0: not even 1 does."""
        if not self.fits(1):
            return 0
        low, high = 1, 0  # fits; does not, 0: not known
        guess = 8
        while high != low + 1:
            guess = max(guess, low + 1)
            if high:
                guess = min(guess, high - 1)
            if self.fits(guess):
                if not high and low > 1 and self._same(low, guess):
                    raise ForecastError(
                        f"{self._vary}={low * self._multiple} and {guess * self._multiple} need "
                        "the same memory, which fits: the script's data or a bound of its own hold "
                        "it there"
                    )
                low = guess
            else:
                high = guess
            guess = self._next(low, high)
        return low

    def _same(self, low: int, high: int) -> bool:
        return self.forecast(low).live_peak_bytes == self.forecast(high).live_peak_bytes

    def _needs(self, value: int) -> int:
        """The smallest card at a value."""
        kind = "expandable" if self.expandable else "default"
        forecast = self.forecast(value)
        least = forecast.figures().get(kind, {}).get("min_capacity_bytes")
        return int(least or forecast.live_peak_bytes)

    def _next(self, low: int, high: int) -> int:
        """Where the straight line through two values' needs meets the capacity; each fourth time
        halfway, so that a curve does not take it closer one by one."""
        tried = sorted(value for value, change in self.forecasts if not change)
        if high and len(tried) % 4 == 0:
            return (low + high) // 2
        first = low if high else max(low // 2, tried[0])
        first = max((value for value in tried if value <= first), default=low)
        last = high or low
        least, most = self._needs(first), self._needs(last)
        guess = first + (self.capacity - least) * (last - first) // max(most - least, 1)
        return guess if high else min(max(guess, low * 2), low * 16)

    def what_ifs(self, value: int) -> List[WhatIf]:
        """Changes at a value, the program as it is first."""
        rows = []
        kind = "expandable" if self.expandable else "default"
        policy = "expandable" if self.expandable else "caching"

        def row(name: str, forecast: Forecast, kind: str = kind) -> None:
            figures = forecast.figures()
            least = figures[kind]["min_capacity_bytes"]
            rows.append(WhatIf(name, figures["live_peak_bytes"], least, _COSTS.get(name, "")))

        row("as it is", self.forecast(value))
        if not self.expandable:
            row("expandable segments", self.forecast(value), "expandable")
        for name, change in (("bf16 autocast", "bf16"), ("checkpoints", "checkpoints")):
            try:
                row(name, self.forecast(value, change))
            except ForecastError as error:
                rows.append(WhatIf(name, None, None, str(error)))
        for shard in ("zero1", "zero2", "zero3") if self._shard else ():
            if shard != self._shard:
                row(f"--shard {shard}", self.forecast(value, shard=shard))
        if "batch" in self._vary and value > 1:
            row("half of it, accumulated twice", self.forecast(value // 2))
        moved = self.forecast(value).without_optimizer_state()
        replay = moved.replay(policy, passes=0, find_capacity=True)[policy]
        for name in ("optimizer state on the host", "an optimizer without state"):
            live, least = moved.devices[0].live_peak_bytes, replay["min_capacity_bytes"]
            rows.append(WhatIf(name, live, least, _COSTS[name]))
        return rows


def _problem(answer: Callable[[], Forecast]) -> str:
    try:
        made = answer()
        return made.problem or made.ended
    except ForecastError as error:
        return str(error)


def table(title: str, rows: List[WhatIf]) -> str:
    """The changes with what they save, all figures of a card with the memory of its row."""
    base = rows[0].smallest_card_bytes
    lines = [f"{title:34}{'live peak':>12}{'smallest card':>15}{'saved':>12}"]
    for row in rows:
        least = row.smallest_card_bytes
        saved = base - least if base and least and least < base else None
        sizes = (
            _core.format_bytes(size) if size else "-"
            for size in (row.live_peak_bytes, least, saved)
        )
        live, card, gain = sizes
        lines.append(f"  {row.name:32}{live:>12}{card:>15}{gain:>12}  {row.remark}".rstrip())
    return "\n".join(lines)


def main(arguments: Optional[List[str]] = None) -> int:
    """Exit status: 0; 1 where no value fits; 2 for bad use or a script that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tenon.fit",
        description="The largest batch (or length) with which a PyTorch script fits on a card.",
        epilog="{} in the script's arguments, behind --, is the value.",
    )
    parser.add_argument("script")
    parser.add_argument("--capacity", metavar="SIZE", help="default: that of the card")
    parser.add_argument(
        "--vary",
        default="batch_size",
        metavar="NAME",
        help="what varies; where no argument has {}, the script's global NAME",
    )
    parser.add_argument("--card", default="H100", choices=sorted(CARDS))
    parser.add_argument(
        "--multiple-of",
        type=int,
        default=1,
        metavar="N",
        help="try only multiples of N: batch norm needs two rows, mixing of pictures pairs",
    )
    parser.add_argument("--steps", type=int, default=3, metavar="N")
    parser.add_argument("--expandable", action="store_true", help="under expandable segments")
    parser.add_argument(
        "--ranks", type=int, default=0, metavar="N", help="processes; the answer is for one"
    )
    parser.add_argument(
        "--shard", default="", choices=("ddp", "zero1", "zero2", "zero3"), help="what ranks share"
    )
    given = sys.argv[1:] if arguments is None else list(arguments)
    cut = given.index("--") if "--" in given else len(given)
    options, theirs = parser.parse_args(given[:cut]), given[cut + 1:]
    size = _core.format_bytes
    try:
        try:
            capacity = size_bytes(
                options.capacity or f"{CARDS[options.card]['gib']}GiB", "capacity"
            )
        except (TypeError, ValueError) as error:
            raise ForecastError(str(error)) from None
        assert capacity is not None
        if options.multiple_of < 1:
            raise ForecastError(f"--multiple-of {options.multiple_of}: give 1 or more")
        fit = Fit(
            options.script,
            theirs,
            options.vary,
            capacity,
            card=options.card,
            steps=options.steps,
            expandable=options.expandable,
            ranks=options.ranks,
            shard=options.shard,
            multiple=options.multiple_of,
        )
        found, unit = fit.largest(), options.multiple_of
        if found == 0:
            print(f"{options.vary} = {unit} does not fit on {options.card} with {size(capacity)}")
        else:
            print(
                f"{options.vary} = {found * unit} is the largest "
                f"{f'multiple of {unit} ' if unit > 1 else ''}that fits on {options.card} with "
                f"{size(capacity)}; {(found + 1) * unit} does not"
            )
        rows = fit.what_ifs(max(found, 1))
    except ForecastError as error:
        print(f"tenon.fit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tenon.fit: interrupted, without an answer", file=sys.stderr)
        return 2
    print(f"\n{table(f'at {options.vary} = {max(found, 1) * unit}', rows)}")
    print("\nThe CUDA context and other programs take memory beside it.")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
