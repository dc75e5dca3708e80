#!/usr/bin/env python3
"""header_contracts.py: the public headers that do not state thread safety, errors or complexity.

Each header of docs/public_headers.txt that declares functions states thread safety and errors in
its comments, or names the class whose contract it has. Each one of heap/, memory/ and lab/ that
defines an allocator, an adaptor, a heap, an index, a pool, an arena or a buffer, or declares a
search or a replay, also states complexity. Prints the gaps, one to a line, and then exits with 1.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CALL = re.compile(r"\w\(")
COSTLY = re.compile(
    r"class \w*(Allocator|Adaptor|Heap|Index|Pool|Arena|Buffer)\b[^;(]*\{"
    r"|^\S.*\b(find|search|plan|pack|fit|replay|survey|advise|explain|validate)\w*\(", re.M)
COSTLY_LAYERS = ("heap/", "memory/", "lab/")
COMPLEXITY = re.compile(r"O\(|[Cc]omplexity:")
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
        missing = [what for what, stated in CONTRACTS.items()
                   if CALL.search(code) and not stated.search(comments)]
        if (name.startswith(COSTLY_LAYERS) and COSTLY.search(code) and
                not COMPLEXITY.search(comments)):
            missing.append("complexity")
        if missing:
            found.append(f"src/tenon/{name}:1: no comment states {' and '.join(missing)}")
    return found


if __name__ == "__main__":
    for gap in gaps():
        print(gap)
    sys.exit(1 if gaps() else 0)
