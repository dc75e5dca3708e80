"""The command: `python -m tenon` and the console script `tenon`."""

from __future__ import annotations

import os
import signal
import sys

from tenon import _core


def main() -> int:
    """Run the command with the process's arguments; the exit status is the command's own.

    `fit` and `forecast` are the package's, the others the C++ command's.
    """
    # As in the program written in C++: Ctrl-C and a closed pipe end it.
    for name in ("SIGINT", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    if sys.argv[1:2] == ["fit"]:
        from tenon import fit

        return fit.main(sys.argv[2:])
    if sys.argv[1:2] == ["forecast"]:
        from tenon.forecast import __main__ as forecast

        return forecast.main(sys.argv[2:])
    return _core.run_command([os.fsencode(argument) for argument in sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
