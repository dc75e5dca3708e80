"""The command `python -m tenon.forecast SCRIPT -- ARGUMENTS`."""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
from typing import Callable, List, Optional, TextIO

from tenon.forecast import CARDS, Forecast, ForecastError
from tenon.forecast._run import run_script


def main(arguments: Optional[List[str]] = None) -> int:
    """Forecast a script. Exit status: 0; 1 where the script did not get through; 2 for bad use."""
    parser = argparse.ArgumentParser(
        prog="python -m tenon.forecast",
        description="The GPU memory of a PyTorch script, without a GPU and without its memory.",
        epilog="What comes after -- is the script's.",
    )
    parser.add_argument("script")
    parser.add_argument(
        "--steps",
        type=int,
        default=3,
        metavar="N",
        help="stop after N optimizer.step() (default 3: memory repeats; 0: at its end)",
    )
    parser.add_argument("--card", default="H100", choices=sorted(CARDS))
    parser.add_argument("--time-limit", type=float, default=600, metavar="SECONDS")
    parser.add_argument(
        "--real",
        default="auto",
        choices=("auto", "never", "always"),
        help="run with real values on the CPU: where sizes depend on data (default), or not",
    )
    parser.add_argument(
        "--mask-share",
        type=float,
        metavar="S",
        help="how much of masks with unknown values is set, 0 to 1; the program runs once, with"
        " fakes",
    )
    parser.add_argument(
        "--ranks", type=int, default=0, metavar="N", help="processes, as torchrun starts them"
    )
    parser.add_argument(
        "--shard",
        default="",
        choices=("ddp", "zero1", "zero2", "zero3"),
        help="what the ranks share of a program of one process",
    )
    parser.add_argument(
        "--save", metavar="FILE", help="the trace: .csv, .pickle or .json, also .zst"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--explain", action="store_true", help="say what fills the memory")
    given = sys.argv[1:] if arguments is None else list(arguments)
    cut = given.index("--") if "--" in given else len(given)
    faulthandler.enable()  # where a library of the script's ends the process: the line
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # keeps the answer like Control-C
    options, theirs = parser.parse_args(given[:cut]), given[cut + 1:]
    changes = [options.shard] if options.shard else []
    out = sys.stdout  # the script's output goes elsewhere

    def printed(answer: Callable[[], Forecast]) -> int:
        return _printed(answer, options, out)

    return printed(
        lambda: run_script(
            options.script,
            theirs,
            steps=options.steps,
            card=options.card,
            time_limit=options.time_limit,
            real=options.real,
            mask_share=options.mask_share,
            ranks=options.ranks,
            changes=changes,
            last=printed,
        )
    )


def _printed(forecast: Callable[[], Forecast], options: argparse.Namespace, out: TextIO) -> int:
    """Prints what was asked for; returns the exit status."""
    try:
        answer = forecast()
        print(answer.json if options.json else answer.text.rstrip("\n"), file=out, flush=True)
        if options.save:
            answer.recording.save(options.save)
        if options.explain:
            _, _, text = str(answer.recording.explain()).partition("\n")  # the first line is a file
            print(text, file=out, flush=True)
    except (ForecastError, OSError) as error:
        print(f"tenon.forecast: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while the script did not run
        print("tenon.forecast: interrupted, without an answer", file=sys.stderr)
        return 1
    return 1 if answer.problem else 0


if __name__ == "__main__":
    sys.exit(main())
