# mypy: disable-error-code="import-not-found,import-untyped"
"""Files as the program sees them: what it writes, makes and removes lies in a folder of its own.

That folder goes with the forecast; nothing of the user's is changed.
"""

from __future__ import annotations

import builtins
import bz2
import io
import os
import shutil
import sqlite3
import stat
import sys
import tarfile
import tempfile
import urllib.parse
from typing import Any, Callable, Dict, List, Optional, Tuple

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Overlay:
    """Paths and what lies in their place: a path in the folder, or None where it was removed."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._folder = tempfile.TemporaryDirectory(prefix="tenon-forecast-")
        self._places: Dict[str, Optional[str]] = {}
        self._open, self._stat, self._mkdir = builtins.open, os.stat, os.mkdir
        self._listdir, self._scandir, self._remove = os.listdir, os.scandir, os.remove
        self._lstat, self._os_open, self._connect = os.lstat, os.open, sqlite3.connect
        self._access = os.access
        self._count = 0

    def place(self, path: str) -> Optional[str]:
        """Where a path's bytes are; None where the program has removed it."""
        if path in self._places:
            return self._places[path]
        parent = os.path.dirname(path)
        while parent != os.path.dirname(parent):
            if parent in self._places:
                return None if self._places[parent] is None else path
            parent = os.path.dirname(parent)
        return path

    def _fresh(self) -> str:
        self._count += 1
        return os.path.join(self._folder.name, str(self._count))

    def moved(self, path: str) -> str:
        """Where the program writes instead."""
        known = self._places.get(path)
        if known is not None:
            return known
        there = self.place(path)
        copied = there is not None and os.path.isfile(there)
        self._places[path] = fresh = self._fresh()
        if there is not None and copied:
            with self._open(there, "rb") as source, self._open(fresh, "wb") as copy:
                shutil.copyfileobj(source, copy)
        self._note("files that the program writes were left as they are")
        return fresh

    def open(self, file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        if isinstance(file, int) or _temporary() or self._device(path := _absolute(file)):
            return self._open(file, mode, *arguments, **keywords)
        if any(letter in mode for letter in "wax+"):
            if "r" not in mode:
                self._expect_folder(path)
            return self._open(self.moved(path), mode, *arguments, **keywords)
        there = self.place(path)
        if there is None:
            raise FileNotFoundError(2, os.strerror(2), os.fspath(file))
        return self._open(file if there == path else there, mode, *arguments, **keywords)

    def _device(self, path: str) -> bool:
        """Whether it is no file but a device or a pipe, such as /dev/null or /dev/stderr."""
        try:
            return path not in self._places and not _is_file_or_folder(self._stat(path).st_mode)
        except OSError:
            return False

    def _expect_folder(self, path: str) -> None:
        folder = os.path.dirname(path)
        there = self.place(folder)
        if there is None or not os.path.isdir(there):
            raise FileNotFoundError(2, os.strerror(2), path)

    def os_open(self, path: Any, flags: int, *arguments: Any, **keywords: Any) -> Any:
        if flags & _WRITING and not _temporary():
            whole = _absolute(path)
            inside = os.path.dirname(whole) in self._places
            if (inside or _by_program()) and not self._device(whole):
                return self._os_open(self.moved(whole), flags, *arguments, **keywords)
        return self._look(self._os_open, path, (flags, *arguments), keywords)

    def stat(self, path: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._look(self._stat, path, arguments, keywords)

    def lstat(self, path: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._look(self._lstat, path, arguments, keywords)

    def access(self, path: Any, *arguments: Any, **keywords: Any) -> Any:
        try:
            return self._look(self._access, path, arguments, keywords)
        except FileNotFoundError:
            return False

    def _look(self, real: Any, path: Any, arguments: Any, keywords: Any) -> Any:
        if isinstance(path, int) or not self._places:
            return real(path, *arguments, **keywords)
        try:
            there = self.place(_absolute(path))
        except (TypeError, ValueError):
            return real(path, *arguments, **keywords)
        if there is None:
            raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
        return real(there if there != _absolute(path) else path, *arguments, **keywords)

    def mkdir(self, path: Any, *arguments: Any, **keywords: Any) -> None:
        if _temporary():
            return self._mkdir(path, *arguments, **keywords)
        if os.path.lexists(path):
            raise FileExistsError(17, os.strerror(17), os.fspath(path))
        self._expect_folder(_absolute(path))
        self._places[_absolute(path)] = fresh = self._fresh()
        self._mkdir(fresh)
        self._note("folders that the program makes were left out")

    def remove(self, path: Any, *arguments: Any, **keywords: Any) -> None:
        if _temporary() or not isinstance(path, (str, bytes, os.PathLike)):
            return self._remove(path, *arguments, **keywords)
        self.stat(path)
        self._gone(_absolute(path))

    def rmtree(self, path: Any, *_: Any, **__: Any) -> None:
        self._gone(_absolute(path))

    def _gone(self, path: str) -> None:
        for inner in [known for known in self._places if known.startswith(path + os.sep)]:
            del self._places[inner]
        self._places[path] = None
        self._note("files that the program removes were left as they are")

    def rename(self, source: Any, target: Any, *_: Any, **__: Any) -> None:
        self.stat(source)
        first, second = _absolute(source), _absolute(target)
        there = self.place(first)
        if os.path.isdir(there or first):
            inside = [known for known in self._places if known.startswith(first + os.sep)]
            for known in inside:
                self._places[second + known[len(first):]] = self._places.pop(known)
            self._places[second] = there
        else:
            self.moved(first)
            self._places[second] = self._places[first]
        self._places[first] = None

    def listdir(self, path: Any = ".") -> List[str]:
        if isinstance(path, int) or not self._places:
            return self._listdir(path)
        whole = _absolute(path)
        there = self.place(whole)
        if there is None:
            raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
        names = set(self._listdir(there))
        for known, place in self._places.items():
            if os.path.dirname(known) == whole:
                names.add(os.path.basename(known))
                if place is None:
                    names.discard(os.path.basename(known))
        return sorted(names)

    def scandir(self, path: Any = ".") -> Any:
        if isinstance(path, int) or not self._places:
            return self._scandir(path)
        return _Entries(os.fspath(path), self.listdir(path))

    def connect(self, database: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(database, (str, bytes, os.PathLike)):
            path: Optional[str] = os.fsdecode(database)
            if keywords.get("uri") and str(path).startswith("file:"):
                path = _file_of(str(path))
                keywords["uri"] = path is None
            if path not in (None, ":memory:", ""):
                database = self.moved(_absolute(path))
        return self._connect(database, *arguments, **keywords)

    def replacements(self) -> List[Tuple[Any, str, Any]]:
        """What is replaced where: (holder, name, value)."""

        def left_out(name: str) -> Any:
            return lambda *_, **__: self._note(f"os.{name} was left out")

        return [
            (builtins, "open", self.open),
            (io, "open", self.open),
            (os, "open", self.os_open),
            (os, "stat", self.stat),
            (os, "lstat", self.lstat),
            (os, "mkdir", self.mkdir),
            (os, "remove", self.remove),
            (os, "unlink", self.remove),
            (os, "rmdir", self.rmtree),
            (os, "rename", self.rename),
            (os, "replace", self.rename),
            (os, "listdir", self.listdir),
            (os, "scandir", self.scandir),
            (shutil, "rmtree", self.rmtree),
            (os, "access", self.access),
            (sqlite3, "connect", self.connect),
            (sqlite3.dbapi2, "connect", self.connect),
            *self._of_numpy(),
            (tarfile, "bltn_open", self.open),
            (bz2, "_builtin_open", self.open),
            *[(shutil, name, lambda *_, **__: None) for name in ("copystat", "copymode")],
            (os, "utime", lambda *_, **__: None),
            *[(os, name, left_out(name)) for name in ("symlink", "link", "truncate", "chmod")],
        ]

    def _of_numpy(self) -> List[Tuple[Any, str, Any]]:
        """numpy.savetxt keeps the function that opens files without a suffix it knows."""
        source = sys.modules.get("numpy.lib._datasource")
        if source is None:
            return []
        real = source._FileOpeners.__getitem__

        def opener(openers: Any, suffix: Optional[str]) -> Any:
            return self.open if suffix is None else real(openers, suffix)

        return [(source._FileOpeners, "__getitem__", opener)]


class _Entry:
    """One of os.scandir's."""

    def __init__(self, folder: Any, name: str) -> None:
        self.name, self.path = name, os.path.join(os.fsdecode(folder), name)

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path)

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path)


class _Entries:
    """What os.scandir returns: an iterator to be closed."""

    def __init__(self, folder: Any, names: List[str]) -> None:
        self._left = iter([_Entry(folder, name) for name in names])

    def __iter__(self) -> "_Entries":
        return self

    def __next__(self) -> _Entry:
        return next(self._left)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def close(self) -> None:
        pass


def _file_of(uri: str) -> Optional[str]:
    """The file that a data base's address names; None where it lies in memory."""
    parts = urllib.parse.urlsplit(uri)
    if "memory" in urllib.parse.parse_qs(parts.query).get("mode", ()):
        return None
    return urllib.parse.unquote(parts.path)


def _is_file_or_folder(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))


def _temporary() -> bool:
    """Whether Python's tempfile asks, whose files are no one's but the program's."""
    frame = sys._getframe(2)
    for _ in range(3):
        if frame is None:
            return False
        if os.path.basename(frame.f_code.co_filename) == "tempfile.py":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _by_program() -> bool:
    from tenon.forecast import _guard

    return _guard.by_program()
