"""Python call stacks by number, for the library to note who asks for memory."""

import atexit
import ctypes
import sys

SOURCE = ctypes.CFUNCTYPE(ctypes.c_int)
NO_SOURCE = SOURCE()

_numbers = {}    # (code, instruction) of every frame -> number
_frames = [[]]   # number -> frames in the words of PyTorch's snapshots, innermost first


def frames_of(number):
    """The same list for the same stack, so that a pickle holds it once."""
    return _frames[number]


def _number():
    """The calling thread's stack. ctypes holds Python's lock meanwhile, as PyTorch's own recorder
    does; a thread that Python never started has no frames but this one."""
    try:
        inner = frame = sys._getframe(1)
    except ValueError:
        return 0
    key = []
    while frame is not None:
        key.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    key = tuple(key)
    number = _numbers.get(key)
    if number is None:
        frames = []
        while inner is not None:
            frames.append({"filename": inner.f_code.co_filename, "line": inner.f_lineno or 0,
                           "name": inner.f_code.co_name})
            inner = inner.f_back
        number = len(_frames)
        _frames.append(frames)
        _numbers[key] = number
    return number


_source = SOURCE(_number)


def source(library):
    """For the library; it is taken away before Python ends, for nobody can be asked after that."""
    if library not in _ended:
        _ended.append(library)
        atexit.register(library.tenon_torch_stack_source, NO_SOURCE)
    return _source


_ended = []  # libraries with an end of their source
