#!/usr/bin/env python3
"""header_contracts.py: the public headers that do not say what their functions do under threads or
how they fail.

Each header of docs/public_headers.txt that declares functions states both in its comments, or names
the class whose contract it has. Prints those that do not, one to a line, and then exits with 1.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CALL = re.compile(r"\w\(")
CONTRACTS = {
    "thread safety": re.compile(r"\b[Tt]hreads?\b"),
    "errors": re.compile(r"\b([Tt]hrows?|[Ff]ailure|[Ee]rrors?|bad_alloc|InvalidArgument|OutOfMemory|\w+Error)\b"),
}


def comments_and_code(text):
    comments, code = [], []
    for line in text.splitlines():
        before, mark, after = line.partition("//")
        comments.append(after if mark else "")
        if not before.startswith("#"):
            code.append(before)
    return "\n".join(comments), "\n".join(code)


def gaps():
    """One line for each header that misses a contract."""
    found = []
    for name in (ROOT / "docs/public_headers.txt").read_text(encoding="utf-8").split():
        comments, code = comments_and_code((ROOT / "src/tenon" / name).read_text(encoding="utf-8"))
        missing = [what for what, stated in CONTRACTS.items() if not stated.search(comments)]
        if missing and CALL.search(code):
            found.append(f"src/tenon/{name}:1: no comment states {' and '.join(missing)}")
    return found


if __name__ == "__main__":
    for gap in gaps():
        print(gap)
    sys.exit(1 if gaps() else 0)
