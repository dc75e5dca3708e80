#!/usr/bin/env python3
"""header_contracts.py: what the comments of public headers leave out.

Each header of docs/public_headers.txt that declares functions states thread safety, errors and
complexity in its comments, or names the class whose contract it has. Headers of ops/ that take
tensors state shapes and dtypes, too. A public parameter or field that is a limit, a capacity, a
time or a peak has its unit in its name (limit_bytes, lag_ns), or a comment on its line, or the
header's comments explain it (`limit`).
Prints the gaps, one to a line, and then exits with 1.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CALL = re.compile(r"\w\(")
TENSOR_CALL = re.compile(r"^inline Tensor \w+\(|^Tensor \w+\(", re.M)
CONTRACTS = {
    "thread safety": re.compile(
        r"[Tt]hread-safe|[Tt]hread safety|Threads( and| may|:)|\b([Tt]his|[Oo]ne|[Ee]ach|[Aa]ny) thread\b"
        r"|(calling|own) thread\b|several threads|to the thread that"),
    "errors": re.compile(r"\b([Tt]hrows?|[Ff]ailure|[Ee]rrors?|bad_alloc|InvalidArgument|OutOfMemory|\w+Error)\b"),
    "complexity": re.compile(r"\bO\(|[Cc]omplexity:|[Cc]omplexity[^.]* as "),
}
OF_TENSORS = {
    "shapes": re.compile(r"\[[A-Z.\w]+, |[Ss]hapes?\b"),
    "dtypes": re.compile(r"\bdtypes?\b"),
}
QUANTITY = re.compile(r"\b(?:std::u?int(?:32|64)_t|std::size_t|double) (?:\w+_)?"
                      r"((?:capacity|limit|lag|stall|duration|elapsed|interval|timeout|peak)(?:_\w+)?)\b"
                      r"(?= ?[,)=;{])")
UNIT = re.compile(r"_(bytes|ns|us|ms|events|ratio|percent)$")
PRIVATE = re.compile(r"^ private:.*?^};", re.M | re.DOTALL)


def comments_and_code(text):
    comments, code = [], []
    for line in text.splitlines():
        before, mark, after = line.partition("//")
        comments.append(after if mark else "")
        if not before.startswith("#"):
            code.append(before)
    return " ".join(" ".join(comments).split()), "\n".join(code)


def without_units(text):
    """(line number, name) of each public quantity whose unit neither its name nor a comment says."""
    text = PRIVATE.sub(lambda part: "\n" * part[0].count("\n"), text)
    comments, _ = comments_and_code(text)
    for number, line in enumerate(text.splitlines(), 1):
        code, mark, _ = line.partition("//")
        for name in QUANTITY.findall(code):
            if not UNIT.search(name) and not mark and f"`{name}`" not in comments:
                yield number, name


def gaps():
    """One line for each contract that a header misses."""
    found = []
    for name in (ROOT / "docs/public_headers.txt").read_text(encoding="utf-8").split():
        text = (ROOT / "src/tenon" / name).read_text(encoding="utf-8")
        comments, code = comments_and_code(text)
        wanted = dict(CONTRACTS if CALL.search(code) else {})
        if name.startswith("ops/") and TENSOR_CALL.search(code):
            wanted.update(OF_TENSORS)
        missing = [what for what, stated in wanted.items() if not stated.search(comments)]
        if missing:
            found.append(f"src/tenon/{name}:1: no comment states {' and '.join(missing)}")
        found += [f"src/tenon/{name}:{number}: {quantity} has no unit"
                  for number, quantity in without_units(text)]
    return found


if __name__ == "__main__":
    for gap in gaps():
        print(gap)
    sys.exit(1 if gaps() else 0)
