"""The command: `python -m tenon` and the console script `tenon`."""

from __future__ import annotations

import signal
import sys

from tenon import _core


def main() -> int:
    """Run the command with the process's arguments; the exit status is the command's own."""
    # As in the program written in C++: Ctrl-C and a closed pipe end it.
    for name in ("SIGINT", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    return _core.run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
