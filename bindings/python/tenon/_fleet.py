"""A folder of recordings in one report: `tenon fleet`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from typing import List, Optional

from tenon._answers import Answer, _check_effort, _name
from tenon._arguments import Bytes, PathLike, path_text, size_bytes

# The command, by this package: the interpreter's own path may lack it.
_COMMAND = ("import sys; sys.path.insert(0, sys.argv.pop(1)); from tenon.__main__ import main; "
            "sys.exit(main())")
_BAD_INPUT = 2


class Fleet(Answer):
    """All recordings of a folder, compared: `tenon fleet`."""

    def __init__(self, json: str, text: str) -> None:
        self._json = json
        self._text = text

    @property
    def json(self) -> str:
        """The JSON that the command prints with --json, to the byte."""
        return self._json

    @property
    def text(self) -> str:
        """The report that the command prints, Markdown, to the byte."""
        return self._text


def fleet(folder: PathLike, *, results: Optional[PathLike] = None, jobs: int = 0,
          memory: Optional[Bytes] = None, time_limit: float = 3600, torch: Optional[str] = None,
          effort: float = 0.1) -> Fleet:
    """Explain and advise every file in a folder, at any depth, and compare them.

    The command does it, in a process of its own, and reads each file in another one: a file that
    takes all memory has a line in the report. It keeps the answers in the folder `results`, so that
    the same call goes on where it was interrupted.

    Args:
        results: the folder of answers; None: NAME.fleet in the current folder, for a `folder` NAME.
        jobs: files at a time; 0: one for each core.
        memory: what one file may take; None: the machine's.
        time_limit: seconds that one file may take; 0: no limit.
        torch: the version of PyTorch, like "2.6"; None: what each file tells.
        effort: of the search for each file's best settings, 0.01 to 100.

    Raises FileNotFoundError and the like for a folder that cannot be read, ValueError for one without
    files.
    """
    os.scandir(path_text(folder)).close()  # the system's own complaint, as Python gives it
    if not 0 <= jobs <= 1024:
        raise ValueError(f"jobs={jobs}: give 0 to 1024")
    if not 0 <= time_limit <= 1e9:
        raise ValueError(f"time_limit={time_limit}: give seconds from 0 to 1e9")
    _check_effort(effort)
    arguments = ["--jobs", str(jobs), "--time-limit", repr(time_limit), "--effort", repr(effort)]
    if results is not None:
        arguments += ["--results", path_text(results)]
    if memory is not None:
        arguments += ["--memory", f"{size_bytes(memory, 'memory')}B"]
    if torch is not None:
        arguments += ["--torch", _name("torch", torch)]
    with tempfile.TemporaryDirectory() as temporary:
        report = os.path.join(temporary, "report.md")
        json = _run([*arguments, "--json", "-o", report, "--", path_text(folder)])
        return Fleet(json, pathlib.Path(report).read_bytes().decode())


def _run(arguments: List[str]) -> str:
    """What the command prints. A file that cannot be read is part of its answer."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([sys.executable, "-c", _COMMAND, package, "fleet", *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode == 0 or done.returncode == _BAD_INPUT and done.stdout:
        return done.stdout.decode()
    message = done.stderr.decode(errors="replace").strip().replace("tenon: ", "", 1)
    if done.returncode == _BAD_INPUT:
        raise ValueError(message)
    raise RuntimeError(message or f"tenon fleet ended with status {done.returncode}")
