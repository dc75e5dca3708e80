# mypy: disable-error-code="import-not-found,import-untyped"
"""Running a program under a forecast: a function, or a user's script as Python itself would run
it."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import sys
import threading
import traceback
import types
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from tenon.forecast import _engine
from tenon.forecast._answer import CARDS, Forecast
from tenon.forecast._engine import ForecastError


class _OverTime(BaseException):
    """The time limit."""


def run_function(
    program: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Dict[str, Any],
    *,
    steps: int,
    card: str,
    time_limit: float,
) -> Forecast:
    """A function of the caller's program."""
    name = getattr(program, "__name__", "program")
    code = getattr(program, "__code__", None)
    file = code.co_filename if code is not None else None
    return _run(name, lambda: program(*arguments, **keywords), file, steps, card, time_limit)


def run_script(
    script: str,
    arguments: Sequence[str],
    *,
    steps: int,
    card: str,
    time_limit: float,
    values: Optional[Dict[str, int]] = None,
    changes: Sequence[str] = (),
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
        code = compile(tree, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ForecastError(f"{script}:{getattr(error, 'lineno', 0)}: {error}") from None

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
        finally:
            sys.argv, sys.path[:], sys.modules["__main__"] = kept

    return _run(os.path.basename(script), program, script, steps, card, time_limit, changes)


def _run(
    name: str,
    program: Callable[[], Any],
    file: Optional[str],
    steps: int,
    card: str,
    time_limit: float,
    changes: Sequence[str] = (),
) -> Forecast:
    if card not in CARDS:
        raise ForecastError(f"card={card!r}: give one of {', '.join(CARDS)}")
    if steps < 0:
        raise ForecastError(f"steps={steps}: give 0 (to the program's end) or more")
    _engine.torch_version()
    from tenon.forecast import _changes, _scratch, _session

    values = dict(CARDS[card])
    capacity = values.pop("gib") << 30
    session = _session.Session(_scratch.Card(card, **values), capacity, steps)
    problem: Optional[str] = None
    ended = ""
    try:
        with (
            session.running(),
            _time_limit(time_limit),
            contextlib.redirect_stdout(sys.stderr),
            _changes.applied(changes),
        ):
            program()
        ended = f"it ran to its end, {_count(session.steps)}"
    except _session.Stop:
        ended = f"stopped after {_count(session.steps)}, as asked"
    except _OverTime:
        ended = f"stopped after {time_limit:g} s and {_count(session.steps)}"
        problem = f"it did not end within {time_limit:g} s; --time-limit gives it more"
    except SystemExit as error:
        ended = f"the program exited, {_count(session.steps)}"
        if error.code not in (None, 0):
            problem = f"{_place(error, file)}: it exited with {error.code!r}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the program's own; the part that ran is the answer
        ended = f"it failed, {_count(session.steps)}"
        problem = f"{_place(error, file)}: {_complaint(error)}"
    if not session.recorder.actions:
        raise ForecastError(problem or f"{name} allocates nothing on a CUDA card: {ended}")
    return Forecast(
        name,
        session.recorder.snapshot(session.phases),
        offloaded=lambda: session.recorder.snapshot(session.phases, session.state_blocks),
        card=card,
        steps=session.steps,
        ended=ended,
        problem=problem,
        notes=session.notes(),
        tensor_peak_bytes=session.mode.tensor_peak_bytes,
    )


def _count(steps: int) -> str:
    return f"{steps} step{'' if steps == 1 else 's'} of an optimizer"


def _place(error: BaseException, file: Optional[str]) -> str:
    """The innermost line of the script on the error's way."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if file is not None and frame.filename == file]
    if not own:
        own = [frame for frame in frames if f"{os.sep}tenon{os.sep}forecast" not in frame.filename]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else (file or "the program")


def _complaint(error: BaseException) -> str:
    import torch
    from torch._subclasses import fake_tensor

    unsupported = (
        fake_tensor.UnsupportedOperatorException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.DataDependentOutputException,
    )
    if isinstance(error, unsupported):
        return f"the operator {getattr(error, 'func', error)} has no fake"
    first = str(error).strip().split("\n")[0]
    if isinstance(error, FileNotFoundError):
        return f"{first} (a forecast reads the same data as the program does)"
    if isinstance(error, ForecastError):
        return first
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return f"it asked for CUDA itself, past the stand-ins: {first}"
    return f"{type(error).__name__}: {first}"


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or seconds <= 0:
        yield
        return

    def end(*_: Any) -> None:
        raise _OverTime

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
