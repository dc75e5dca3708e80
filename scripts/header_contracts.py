#!/usr/bin/env python3
"""header_contracts.py: what the comments of public headers leave out.

Each header of docs/public_headers.txt that declares functions states thread safety, errors and
complexity in its comments, or names the class whose contract it has. For each operator of ops/, the
header's first comment, the function's own one, or that of a function which it names, states the
result's shape, dtypes, errors and complexity. So does each class and function of nn/ and autograd/ that
takes or gives tensors; the others there state errors and complexity. Losses, norms, schedules,
optimisers, convolutions and pools have a formula. A public parameter or field that is a limit, a capacity, a
time or a peak has its unit in its name (limit_bytes, lag_ns), or a comment on its line, or the
header's comments explain it (`limit`).
Prints the gaps, one to a line, and then exits with 1.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CALL = re.compile(r"\w\(")
CONTRACTS = {
    "thread safety": re.compile(
        r"[Tt]hread-safe|[Tt]hread safety|Threads( and| may|:)|\b([Tt]his|[Oo]ne|[Ee]ach|[Aa]ny) thread\b"
        r"|(calling|own) thread\b|several threads|to the thread that"),
    "errors": re.compile(r"\b([Tt]hrows?|[Ff]ailure|[Ee]rrors?|bad_alloc|InvalidArgument|OutOfMemory|\w+Error)\b"),
    "complexity": re.compile(r"\bO\(|[Cc]omplexity:|[Cc]omplexity[^.]* as "),
}
OF_OPERATORS = {
    "the result's shape": re.compile(
        r"\[[A-Z.\w]*(?:, [^\]]*)?\]|\b[01]-d\b|[Bb]roadcast|flattened|tensor itself|result has"
        r"|'s (?:size|shape)|\b(?:their|one|given|its|other) (?:shape|dimensions)"
        r"|[Ss]hapes (?:is|are)|size \w+ becomes|size of dimension \w becomes"),
    "dtypes": re.compile(r"\bdtypes?\b|\bint64\b|[Ff]loating[- ]point|\bbool"),
    "errors": CONTRACTS["errors"],
    "complexity": CONTRACTS["complexity"],
}
OPERATOR = re.compile(r"(?:inline )?(?:Tensor|SortResult) (\w+)\(")
NOT_OPERATORS = {"ops/dispatch.h", "ops/elementwise.h"}  # what operators are made of
QUANTITY = re.compile(r"\b(?:std::u?int(?:32|64)_t|std::size_t|double) (?:\w+_)?"
                      r"((?:capacity|limit|lag|stall|duration|elapsed|interval|timeout|peak)(?:_\w+)?)\b"
                      r"(?= ?[,)=;{])")
DECLARED = re.compile(r"(?:inline |template <.*> )*[\w:<>,*& ]+?[ *&](\w+)\(|(?:class|struct) (\w+)[^;]*\{?$")
SHAPE = re.compile(r"\[[\w., *'/]+\]|[Ss]hape|[Ss]izes?\b|0-d\b|one element|any dimensions")
DTYPE = re.compile(r"\bdtypes?\b|\bf(?:32|64)\b|\bfloat|\b[iu]\d+\b|integers|complex|16-bit")
FORMULA = re.compile(r"[\w)\]|] [-+*/=] [\w(|]|-x\[|\w\^\d|'s formula|\bas W'|Adam with|The largest element|^ ?1: ")
WITH_FORMULAS = re.compile(r"ops/(?:loss|conv|pool|normalization)\.h|nn/(?:loss|norms|schedule|optimizer)\.h")
COMPUTES = re.compile(r"^(?!class|struct)|final : public")
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


def operators(text):
    """(line number, name, its own comment) of each function that calls an operator. One without a
    comment shares that of the function right above it."""
    depth, inner, comment, above = 0, 0, [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("//"):
            comment.append(line[2:])
            continue
        if not line:
            above = ""
        if not inner and re.match(r"namespace (op|detail) \{", line):
            inner = depth + 1
        function = OPERATOR.match(line)
        if function and not inner:
            above = " ".join(" ".join(comment).split()) or above
            yield number, function[1], above
        comment = []
        code = line.partition("//")[0]
        depth += code.count("{") - code.count("}")
        if depth < inner:
            inner = 0


def without_contracts(text):
    """(line number, name, what is missing) of each operator whose contract has a gap."""
    first = " ".join(line[2:] for line in text.split("#pragma once")[0].splitlines())
    found = list(operators(text))
    for number, name, own in found:
        stated = first + own + "".join(other for _, named, other in found if re.search(rf"\b{named}\b", own))
        missing = [what for what, states in OF_OPERATORS.items() if not states.search(stated)]
        if missing:
            yield number, name, missing


def declarations(text):
    """(line number, name, comments, code) of each class and function of a namespace, a class with all that
    is public in it. One without a comment shares that of the one right above it."""
    text = PRIVATE.sub(lambda part: "\n" * part[0].count("\n") + "};", text)
    depth, inner, comment, above, open_class = 0, 0, [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        code, _, note = line.partition("//")
        if open_class:
            open_class[2].append(note)
            open_class[3].append(code)
        if line.startswith("//"):
            comment.append(note)
            continue
        if line.startswith("using "):
            continue
        if not line:
            above = ""
        if not inner and re.match(r"namespace (?:[\w:]+::)?(?:op|detail) \{", line):
            inner = depth + 1
        found = DECLARED.match(code)
        if found and not inner and not open_class and not line.startswith((" ", "namespace", "#")):
            above = " ".join(comment) or above
            unit = (number, found[1] or found[2], [above, note], [code])
            if found[2]:
                open_class = unit if not code.rstrip().endswith(";") else None
            else:
                yield number, unit[1], " ".join(" ".join(unit[2]).split()), code
        comment = []
        depth += code.count("{") - code.count("}")
        if depth < inner:
            inner = 0
        if open_class and code.startswith("};"):
            yield open_class[0], open_class[1], " ".join(" ".join(open_class[2]).split()), "\n".join(open_class[3])
            open_class = None


def without_layer_contracts(name, text):
    """(line number, name, what is missing) of each function and class of a header of nn/, autograd/, or
    with formulas."""
    first = " ".join(line[2:] for line in text.split("#pragma once")[0].splitlines())
    for number, what, own, code in declarations(text):
        if "(" not in code:
            continue
        wanted = {}
        if name.startswith(("nn/", "autograd/")):
            wanted = {key: CONTRACTS[key] for key in ("errors", "complexity")}
            if re.search(r"\bTensor\b", code):
                wanted |= {"shapes": SHAPE, "dtypes": DTYPE}
        missing = [key for key, stated in wanted.items() if not stated.search(first + own)]
        if WITH_FORMULAS.match(name) and COMPUTES.search(code) and not FORMULA.search(own):
            missing.append("the formula")
        if missing:
            yield number, what, missing


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
        wanted = CONTRACTS if CALL.search(code) else {}
        missing = [what for what, stated in wanted.items() if not stated.search(comments)]
        if missing:
            found.append(f"src/tenon/{name}:1: no comment states {' and '.join(missing)}")
        if name.startswith("ops/") and name not in NOT_OPERATORS:
            found += [f"src/tenon/{name}:{number}: no comment states {' and '.join(what)} of {function}"
                      for number, function, what in without_contracts(text)]
        found += [f"src/tenon/{name}:{number}: no comment states {' and '.join(what)} of {function}"
                  for number, function, what in without_layer_contracts(name, text)]
        found += [f"src/tenon/{name}:{number}: {quantity} has no unit"
                  for number, quantity in without_units(text)]
    return found


if __name__ == "__main__":
    for gap in gaps():
        print(gap)
    sys.exit(1 if gaps() else 0)
