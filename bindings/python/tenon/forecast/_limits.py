"""What ends a program from outside: its time limit, Control-C and SIGTERM.

Python runs a signal's handler between two of its own instructions only. While the program is in a
call in C that no signal ends (a product of NumPy, a lock of a library), a thread makes the answer
and ends the process. That thread needs the interpreter's lock: where the call keeps it, the process
ends without an answer, and prints the stack of every thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
import types
from typing import Any, Callable, Iterator, List, Optional

from tenon.forecast._engine import Ended

GRACE = 2  # seconds that a program has for its own `finally:`, and a signal for its handler

_TIMERS = [(signal.SIGALRM, signal.ITIMER_REAL), (signal.SIGPROF, signal.ITIMER_PROF)]
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_LONGEST = 1e9  # seconds that a wait may take
_exit = os._exit  # a forecast replaces it

Cut = Callable[[bool, types.FrameType], int]
"""Prints the answer of the part that ran, given whether a person asked for the end, and where the
program is; returns the exit status."""


class OverTime(Ended):
    """The time limit."""


class Interrupted(Ended):
    """Control-C while a script runs: the answer is for the part that ran."""


@contextlib.contextmanager
def limited(
    seconds: float, processor_seconds: float, cut: Optional[Cut]
) -> Iterator[Callable[[], Any]]:
    """Ends the program after so long, infinity: never. Gives a function that ends it soon. With
    `cut`, the process is the program's alone, and ends where nothing else ends the program."""
    if threading.current_thread() is not threading.main_thread():
        with _in_thread(seconds) as end_soon:
            yield end_soon
        return
    watch = _Watch(seconds, cut)

    def end(*_: Any) -> None:
        watch.heard()
        raise OverTime

    before = [signal.signal(number, end) for number, _ in _TIMERS]
    for (_, timer), limit in zip(_TIMERS, (seconds, processor_seconds)):
        if limit < _LONGEST:
            signal.setitimer(timer, limit, 1)  # again where it was swallowed
    try:
        with watch.running():
            yield lambda: signal.setitimer(signal.ITIMER_REAL, GRACE, 1)
    finally:
        for (number, timer), handler in zip(_TIMERS, before):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@contextlib.contextmanager
def _in_thread(seconds: float) -> Iterator[Callable[[], Any]]:
    """The same for a program on another thread, which gets no signals."""
    changed = threading.Condition()
    ends = [time.monotonic() + seconds]
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    ident = ctypes.c_ulong(threading.get_ident())

    def set_end(when: float) -> None:
        with changed:
            ends[0] = when
            changed.notify()

    def wait() -> None:
        with changed:
            while ends[0]:  # 0: over
                left = ends[0] - time.monotonic()
                if left <= 0:
                    raise_in(ident, ctypes.py_object(OverTime))
                changed.wait(1 if left <= 0 else min(left, _LONGEST))

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    try:
        yield lambda: set_end(time.monotonic() + GRACE)
    finally:
        set_end(0)
        waiter.join()
        raise_in(ident, None)  # what it has not seen yet


class _Watch:
    """Sees a signal when it arrives, and whether its handler runs."""

    def __init__(self, seconds: float, cut: Optional[Cut]) -> None:
        self._deadline = time.monotonic() + seconds
        self._seconds, self._cut = seconds, cut
        self._heard_at = -math.inf
        self._lock = threading.Lock()  # of the next two; no handler takes it
        self._over, self._taken = threading.Event(), False
        self._main = threading.get_ident()

    def heard(self) -> None:
        """A handler runs. Where the thread makes the answer already, the program stays here."""
        while self._taken:
            time.sleep(1)
        self._heard_at = time.monotonic()
        self._end_without_python()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The program runs inside of this."""
        ours, theirs = os.pipe()
        thread = threading.Thread(target=self._watch, args=(ours,), daemon=True)
        thread.start()
        try:
            with self._signals(theirs) if self._cut else contextlib.nullcontext():
                yield
        finally:
            with self._lock:
                if not self._taken:
                    self._over.set()
            while self._taken:
                time.sleep(1)
            os.write(theirs, b"\0")
            thread.join()
            os.close(ours)
            os.close(theirs)

    @contextlib.contextmanager
    def _signals(self, pipe: int) -> Iterator[None]:
        """The process's signals are seen here, until the program has ended."""
        os.set_blocking(pipe, False)
        kept = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
        handlers = {number: signal.getsignal(number) for number in _INTERRUPTS}
        for number, handler in handlers.items():
            if handler is signal.default_int_handler:
                signal.signal(number, self._interrupt)
        self._end_without_python()
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            for number, handler in handlers.items():
                if signal.getsignal(number) == self._interrupt:
                    signal.signal(number, handler)
            signal.set_wakeup_fd(kept)

    def _interrupt(self, number: int, frame: Optional[types.FrameType]) -> None:
        self.heard()
        signal.default_int_handler(number, frame)

    def _end_without_python(self) -> None:
        """A thread in C ends the process some time after the limit."""
        left = max(self._deadline - time.monotonic(), 0) + 3 * GRACE
        if self._cut and left < _LONGEST and sys.__stderr__ is not None:
            faulthandler.dump_traceback_later(left, exit=True, file=sys.__stderr__)

    def _watch(self, pipe: int) -> None:
        while not self._over.is_set():
            left = max(self._deadline - time.monotonic(), 0)
            ready: List[Any] = select.select([pipe], [], [], left if left < _LONGEST else None)[0]
            number = os.read(pipe, 1)[0] if ready else signal.SIGALRM
            asked = number in _INTERRUPTS and signal.getsignal(number) == self._interrupt
            if not asked and number not in (signal.SIGALRM, signal.SIGPROF):
                continue  # also where the program has a handler of its own
            if self._over.wait(GRACE):
                return
            with self._lock:
                if self._over.is_set() or time.monotonic() - self._heard_at < 2 * GRACE:
                    continue
                self._taken = self._cut is not None
            self._cut_off(asked, sys._current_frames()[self._main])
            return

    def _cut_off(self, asked: bool, frame: types.FrameType) -> None:
        if self._cut:
            faulthandler.cancel_dump_traceback_later()
            try:
                status = self._cut(asked, frame)
            except BaseException:
                traceback.print_exc()
                status = 2
            _exit(status)
        print(
            f"tenon.forecast: the limit of {self._seconds:g} s has passed; the program is in a "
            "call that Python cannot end, and the answer comes when that returns",
            file=sys.stderr,
        )
