# mypy: disable-error-code="import-not-found,import-untyped"
"""Running a program under a forecast: a function, or a user's script as Python itself would run
it."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import math
import os
import re
import subprocess
import sys
import time
import traceback
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from tenon.forecast import _engine, _handlers
from tenon.forecast._answer import CARDS, Forecast
from tenon.forecast._engine import ForecastError
from tenon.forecast._limits import Cut, Interrupted, OverTime, limited

REAL = ("auto", "never", "always")
"""When a program runs with real values, on the host."""


_LONGER = "give a longer time limit"

Last = Callable[[Callable[[], Forecast]], int]
"""For a process that a program has for itself: prints the answer that it is given the maker of, and
returns the exit status. Where nothing else ends the program, the process ends with that."""


@dataclasses.dataclass
class Outcome:
    """One run of a program: how far it came."""

    session: Any
    ended: str
    problem: Optional[str]
    complete: bool
    """False where the time or the host's memory ended it."""
    seconds: float = 0
    processor_seconds: float = 0
    interrupted: bool = False


def run_function(
    program: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Dict[str, Any],
    *,
    steps: int,
    card: str,
    time_limit: float,
    real: str = "auto",
    ranks: int = 0,
    changes: Sequence[str] = (),
    mask_share: Optional[float] = None,
) -> Forecast:
    """A function of the caller's program."""
    name = getattr(program, "__name__", "program")
    code = getattr(program, "__code__", None)
    file = code.co_filename if code is not None else None

    def call() -> None:
        from tenon.forecast import _caller

        with _caller.as_before():
            given, named = _caller.copied(arguments, keywords)
            program(*given, **named)

    return _run(
        name,
        call,
        file,
        steps,
        card,
        time_limit,
        changes,
        real=real,
        ranks=ranks,
        mask_share=mask_share,
    )


def run_script(
    script: str,
    arguments: Sequence[str],
    *,
    steps: int,
    card: str,
    time_limit: float,
    values: Optional[Dict[str, int]] = None,
    changes: Sequence[str] = (),
    real: str = "auto",
    ranks: int = 0,
    mask_share: Optional[float] = None,
    last: Optional[Last] = None,
) -> Forecast:
    """A script; the interpreter's state that it sees is taken back behind it."""
    try:
        with open(script, "rb") as source:
            text = source.read()
    except OSError as error:
        raise ForecastError(f"{script}: {error.strerror}") from None
    try:
        tree = ast.parse(text, script)
        for name, value in (values or {}).items():
            _assign(tree, script, name, value)
        _handlers.pass_on(tree)
        code = compile(tree, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ForecastError(f"{script}:{line}: {error}") from None

    def program() -> None:
        module = types.ModuleType("__main__")
        module.__file__ = script
        module.__builtins__ = __builtins__  # type: ignore[attr-defined]
        kept = sys.argv, sys.path[:], sys.modules["__main__"]
        sys.argv = [script, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
        sys.modules["__main__"] = module
        try:
            exec(code, module.__dict__)
        except KeyboardInterrupt as error:
            raise Interrupted().with_traceback(error.__traceback__) from None
        finally:
            sys.argv, sys.path[:], sys.modules["__main__"] = kept

    return _run(
        os.path.basename(script), program, script, steps, card, time_limit, changes, real, ranks,
        mask_share, last,
    )


def _run(
    name: str,
    program: Callable[[], Any],
    file: Optional[str],
    steps: int,
    card: str,
    time_limit: float,
    changes: Sequence[str] = (),
    real: str = "auto",
    ranks: int = 0,
    mask_share: Optional[float] = None,
    last: Optional[Last] = None,
) -> Forecast:
    """The program under fakes; where sizes depend on data, again with values."""
    if card not in CARDS:
        raise ForecastError(f"card={card!r}: give one of {', '.join(CARDS)}")
    if steps < 0:
        raise ForecastError(f"steps={steps}: give 0 (to the program's end) or more")
    if ranks < 0:
        raise ForecastError(f"ranks={ranks}: give the number of processes, one for each card")
    if any(change.startswith(("zero", "ddp")) for change in changes) and ranks < 2:
        raise ForecastError("shard needs ranks: give the number of processes, one for each card")
    if real not in REAL:
        raise ForecastError(f"real={real!r}: give one of {', '.join(REAL)}")
    if mask_share is not None and not 0 <= mask_share <= 1:
        raise ForecastError(f"mask_share={mask_share}: give a number from 0 to 1")
    if mask_share is not None and real == "always":
        raise ForecastError("mask_share: with real=\"always\" the values of masks are known")
    if not time_limit >= 0:
        raise ForecastError(f"time_limit={time_limit}: give seconds, or 0 for no limit")
    _engine.torch_version()
    from tenon.forecast import _real

    start = time.monotonic()
    whole = time_limit or math.inf
    first: List[Outcome] = []

    def cut(outcome: Outcome) -> int:
        answer = _real.cut_off(first[0] if first else None, outcome)
        return last(lambda: _forecast(name, card, answer)) if last else 0

    def once(
        way: str, limit: float, host_bytes: int = 1 << 62, processor_limit: float = math.inf
    ) -> Outcome:
        limits = limit, processor_limit
        ended = cut if last else None
        return _once(
            program, file, steps, card, limits, changes, way, host_bytes, ranks, mask_share, ended
        )

    if real == "always":
        outcome = once("real", whole)
        answer = _real.Answer(outcome, "real", _real.real_notes(outcome))
    else:
        first.append(once("least", whole))
        left = max(whole - (time.monotonic() - start), 1e-3)
        answer = _real.settle(first[0], once, left, real == "auto" and mask_share is None)
    return _forecast(name, card, answer)


def _forecast(name: str, card: str, answer: Any) -> Forecast:
    """What the run that was chosen says."""
    from tenon.forecast import _lbfgs

    outcome = answer.outcome
    session = outcome.session
    if not session.recorder.actions:
        if outcome.problem:
            raise _engine.ProgramFailed(outcome.problem)
        raise ForecastError(f"{name} allocates nothing on a CUDA card: {outcome.ended}")
    return Forecast(
        name,
        session.recorder.snapshot(session.phases),
        offloaded=lambda: session.recorder.snapshot(session.phases, session.state_blocks),
        card=card,
        steps=session.steps,
        ended=outcome.ended,
        problem=outcome.problem,
        notes=session.notes() + answer.notes + ([_lbfgs.NOTE] if session.values.runs_lbfgs else []),
        tensor_peak_bytes=session.mode.tensor_peak_bytes,
        values=answer.values,
        live_peak_range=answer.live_peak_range,
    )


def _once(
    program: Callable[[], Any],
    file: Optional[str],
    steps: int,
    card: str,
    time_limits: Tuple[float, float],
    changes: Sequence[str],
    way: str,
    host_bytes: int,
    ranks: int,
    mask_share: Optional[float],
    ended: Optional[Callable[[Outcome], int]],
) -> Outcome:
    from tenon.forecast import _changes, _guard, _scratch, _session, _values

    values = dict(CARDS[card])
    capacity = values.pop("gib") << 30
    session = _session.Session(
        _scratch.Card(card, **values),
        capacity,
        steps,
        way=way,
        host_bytes=host_bytes,
        ranks=ranks,
        share=mask_share,
    )
    problem: Optional[str] = None
    complete, interrupted = True, False
    start, processor_start = time.monotonic(), time.process_time()
    limit = f"{round(time_limits[0], 1):g} s"

    def cut(asked: bool, frame: types.FrameType) -> int:
        return ended(_in_call(session, file, limit, asked, frame)) if ended else 0

    try:
        with (
            _modules_as_they_are(),
            session.running(),
            contextlib.redirect_stdout(sys.stderr),
            _changes.applied(changes, session),
            _handlers.functions_pass_on(),
            limited(*time_limits, cut if ended else None) as session.end_soon,
        ):
            program()
        how = f"it ran to its end, {_count(session.steps)}"
    except (OverTime if session.mode.ended is None else ()) as error:
        how = f"stopped after {limit} and {_count(session.steps)}"
        problem = f"{_place(error, file)}: it did not end within {limit}: {_LONGER}"
        complete = False
    except (_session.Stop, OverTime):  # the time limit, where the program swallows the stop
        how = f"stopped after {_count(session.steps)}, as asked"
    except _values.TooLarge:
        how = f"stopped where the host has no memory left, {_count(session.steps)}"
        problem = "the values of its tensors do not fit in the memory that the host has"
        complete = False
    except (SystemExit, _guard.Exited) as error:
        how = f"the program exited, {_count(session.steps)}"
        if error.code not in (None, 0):
            problem = f"{_place(error, file)}: it exited with {error.code!r}"
    except Interrupted as error:
        how = f"interrupted, {_count(session.steps)}"
        problem = f"{_place(error, file)}: it was interrupted"
        complete, interrupted = False, True
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the program's own; the part that ran is the answer
        how = f"it failed, {_count(session.steps)}"
        problem = f"{_place(error, file)}: {_complaint(error)}"
    seconds, processor_seconds = (
        time.monotonic() - start,
        time.process_time() - processor_start,
    )
    return Outcome(session, how, problem, complete, seconds, processor_seconds, interrupted)


def _in_call(
    session: Any, file: Optional[str], limit: str, asked: bool, frame: types.FrameType
) -> Outcome:
    """A run that is in a call which nothing ends."""
    session.conclude()
    steps = _count(session.steps)
    place = _innermost(traceback.extract_stack(frame), file)
    what = "in a call that Python cannot end"
    if asked:
        problem = f"{place}: it was interrupted {what}"
        return Outcome(session, f"interrupted, {steps}", problem, False, interrupted=True)
    if session.mode.ended is not None:
        return Outcome(session, f"stopped after {steps}, as asked", None, True)
    problem = f"{place}: it did not end within {limit} and is {what}: {_LONGER}"
    return Outcome(session, f"stopped after {limit} and {steps}", problem, False)


@contextlib.contextmanager
def _modules_as_they_are() -> Iterator[None]:
    """Modules of the program's own are imported afresh the next time."""
    from tenon.forecast import _guard

    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not _guard.of_library(file):
                del sys.modules[name]


def _count(steps: int) -> str:
    return f"{steps} step{'' if steps == 1 else 's'} of an optimizer"


def _place(error: BaseException, file: Optional[str]) -> str:
    """The innermost line of the script on the error's way."""
    return _innermost(traceback.extract_tb(error.__traceback__), file)


def _innermost(frames: Sequence[traceback.FrameSummary], file: Optional[str]) -> str:
    own = [frame for frame in frames if file is not None and frame.filename == file]
    if not own:
        own = [frame for frame in frames if f"{os.sep}tenon{os.sep}forecast" not in frame.filename]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else (file or "the program")


def _in_file(error: BaseException, file: str) -> bool:
    return any(frame.filename == file for frame in traceback.extract_tb(error.__traceback__))


def _complaint(error: BaseException) -> str:
    import torch
    from torch._subclasses import fake_tensor

    unsupported = (
        fake_tensor.UnsupportedOperatorException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.DataDependentOutputException,
    )
    if isinstance(error, unsupported):
        return f"the operator {getattr(error, 'func', error)} has no fake for such tensors"
    lines = str(error).strip().split("\n")
    first = lines[-1] if "TorchScript interpreter" in lines[0] else lines[0]
    if isinstance(error, FileNotFoundError) and _in_file(error, subprocess.__file__):
        return f"{first} (a library starts a process where the forecast has left out a folder)"
    if isinstance(error, FileNotFoundError):
        return f"{first} (a forecast reads the same data as the program does)"
    if isinstance(error, ForecastError):
        return first
    if missing := re.match(r"Could not run '(aten::\w+)' with arguments from", first):
        return f"the operator {missing[1]} has no fake for such tensors"
    nested = f"{os.sep}torch{os.sep}nested{os.sep}"
    if "NestedTensorImpl" in first or any(
        nested in frame.filename for frame in traceback.extract_tb(error.__traceback__)
    ):
        return f"nested tensors have no fakes: {first}"
    if isinstance(error, getattr(torch, "AcceleratorError", ())) or "NVIDIA driver" in first:
        return f"it asked for CUDA itself, past the stand-ins: {first}"
    return f"{type(error).__name__}: {first}"


def _assign(tree: ast.Module, script: str, name: str, value: int) -> None:
    """Give the script's first assignment to a global name this value."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in node.targets
        ):
            node.value = ast.copy_location(ast.Constant(value), node.value)
            return
    raise ForecastError(
        f"{script}: it has no line `{name} = ...` to vary: put {{}} where its arguments take the"
        " value"
    )
