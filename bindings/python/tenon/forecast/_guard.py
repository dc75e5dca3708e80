# mypy: disable-error-code="import-not-found,import-untyped"
"""What a forecast keeps a program from: writing over files, starting processes."""

from __future__ import annotations

import builtins
import io
import multiprocessing.process
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, List, Tuple

import torch

from tenon.forecast._engine import ForecastError


def replacements(notes: List[str]) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    real_open = builtins.open
    folder = tempfile.TemporaryDirectory(prefix="tenon-forecast-")
    written: dict[str, str] = {}

    def note(text: str) -> None:
        if text not in notes:
            notes.append(text)

    def moved(file: Any) -> str:
        """Where the program's writing goes instead."""
        path = os.path.abspath(os.fsdecode(file))
        if path not in written:
            written[path] = os.path.join(folder.name, str(len(written)))
            if os.path.isfile(path):
                with real_open(path, "rb") as source, real_open(written[path], "wb") as copy:
                    shutil.copyfileobj(source, copy)
            note("files that the program writes were left as they are")
        return written[path]

    def guarded_open(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        if isinstance(file, int) or os.fspath(file) == os.devnull:
            return real_open(file, mode, *arguments, **keywords)
        path = os.path.abspath(os.fsdecode(file))
        if any(letter in mode for letter in "wax+"):
            file = moved(file)
        elif path in written:
            file = written[path]
        return real_open(file, mode, *arguments, **keywords)

    def no_process(self: Any) -> None:
        raise ForecastError("it starts a process, and a forecast follows one only")

    def guarded(real: Any, what: str, allowed: Any = None) -> Any:
        """Refuses the call where the program makes it; its libraries' own calls go on."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            if not _by_program():
                return real(*arguments, **keywords)
            if allowed is not None:
                return allowed(*arguments, **keywords)
            raise ForecastError(f"{what}, and a forecast follows one process only")

        return call

    def os_open(path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            path = moved(path)
        return real_os_open(path, flags, *arguments, **keywords)

    real_os_open = os.open
    real_popen = subprocess.Popen.__init__

    def no_fork() -> int:
        raise ForecastError("it forks, and a forecast follows one process only")

    def nothing(name: str) -> Any:
        def left_out(*_: Any, **__: Any) -> None:
            note(f"{name} was left out: nothing of the program's files is changed")

        return left_out

    loader = torch.utils.data.DataLoader
    real_init = loader.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        if keywords.get("num_workers"):
            note("data loaders ran in the program's own process, without workers")
            keywords["num_workers"] = 0
            for name in (
                "prefetch_factor",
                "persistent_workers",
                "multiprocessing_context",
                "timeout",
            ):
                keywords.pop(name, None)
        real_init(self, *arguments, **keywords)

    found: List[Tuple[Any, str, Any]] = [
        (builtins, "open", guarded_open),
        (io, "open", guarded_open),
        (multiprocessing.process.BaseProcess, "start", no_process),
        (os, "fork", no_fork),
        (loader, "__init__", init),
        (torch, "save", nothing("torch.save")),
        (torch.jit, "save", nothing("torch.jit.save")),
        (os, "open", guarded(real_os_open, "os.open", os_open)),
        (subprocess.Popen, "__init__", guarded(real_popen, "it starts a process")),
        (os, "system", guarded(os.system, "it starts a process")),
        (os, "posix_spawn", guarded(os.posix_spawn, "it starts a process")),
    ]
    found += [
        (os, name, guarded(getattr(os, name), name, nothing(f"os.{name}")))
        for name in ("mkdir", "makedirs", "removedirs", "symlink", "link")
    ]
    found += [
        (os, name, nothing(f"os.{name}"))
        for name in ("remove", "unlink", "rename", "replace", "rmdir", "truncate")
    ]
    found.append((shutil, "rmtree", nothing("shutil.rmtree")))
    found.append((_Keeper, "folder", folder))
    return found


_LIBRARIES = tuple(
    path for path in sysconfig.get_paths().values() if path.endswith(("site-packages", "python"))
) + (os.path.dirname(os.__file__),)


def _by_program() -> bool:
    """Whether the program's own code asks, also by way of the standard library."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if os.path.basename(file) == "tempfile.py" or "site-packages" in file:
            return False
        if not file.startswith(_LIBRARIES) and not file.startswith("<frozen"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class _Keeper:
    """Holds the folder of moved files for as long as the replacements stand."""

    folder: Any = None
