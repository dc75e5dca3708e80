#!/usr/bin/env python3
"""docs.py [FOLDER]: the reference of the public headers and of the Python package, as HTML in FOLDER
(build/docs).

docs/public_headers.txt lists the headers. Fails, and names the place, for a public class, function,
type or macro without a comment, in Python too, and for whatever else Doxygen finds wrong in one. Fields and
enumerators may go without, and so may what is defaulted, deleted or overrides. A class's comment
describes its constructors, too. Fails as well for a header that leaves out its thread safety, errors,
complexity or units (header_contracts.py).
"""
import os
import re
import shutil
import subprocess
import sys

import header_contracts
import python_reference
from comment_filter import filtered

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def filtered_headers(folder):
    """Writes the public headers, as Doxygen reads them, into a folder."""
    with open(f"{ROOT}/docs/public_headers.txt", encoding="utf-8") as file:
        sources = [(f"{ROOT}/src/tenon/{name}", f"{folder}/tenon/{name}") for name in file.read().split()]
    sources.append((f"{ROOT}/bindings/c/include/tenon/tenon.h", f"{folder}/tenon/tenon.h"))
    for source, target in sources:
        if not os.path.exists(source):
            sys.exit(f"docs/public_headers.txt: there is no {os.path.relpath(source, ROOT)}")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, encoding="utf-8") as file:
            lines = filtered(file.read().split("\n"))
        with open(target, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


def unlisted_headers():
    """Headers that pages and examples include and the list has not."""
    with open(f"{ROOT}/docs/public_headers.txt", encoding="utf-8") as file:
        listed = set(file.read().split()) | {"tenon.h"}
    missing = {}
    for folder in ("docs", "examples", "tests/install"):
        for path, _, names in os.walk(f"{ROOT}/{folder}"):
            for name in names:
                if not name.endswith((".md", ".cc", ".h", ".c")) or "extend" in path:
                    continue  # docs/extend/ makes headers of its own, inside Tenon
                with open(f"{path}/{name}", encoding="utf-8") as file:
                    for header in re.findall(r'#include ["<]tenon/([^">]+)[">]', file.read()):
                        if header not in listed:
                            missing[header] = os.path.relpath(f"{path}/{name}", ROOT)
    return [f"{where} includes tenon/{header}, which docs/public_headers.txt does not list"
            for header, where in sorted(missing.items())]


def needs_comment(warning):
    if "scope for class std::hash<" in warning:  # a specialisation, which Doxygen cannot place
        return False
    if "is not documented" not in warning:
        return True  # another fault
    if re.search(r"\((variable|enumvalue)\)|= ?(default|delete)\b|\b(override|final)\b|std::hash<", warning):
        return False
    function = re.search(r"Member ~?(\w+)\(.*\(function\) of (?:class|struct) ([\w:]+)", warning)
    return not (function and function[2].split("::")[-1] == function[1])


def main():
    out = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/docs")
    headers = f"{out}/headers"
    shutil.rmtree(headers, ignore_errors=True)
    filtered_headers(headers)
    with open(f"{ROOT}/docs/Doxyfile", encoding="utf-8") as file:
        settings = file.read() + f"""
OUTPUT_DIRECTORY = "{out}"
INPUT = "{headers}" "{ROOT}/docs/reference.dox"
STRIP_FROM_PATH = "{headers}"
STRIP_FROM_INC_PATH = "{headers}"
"""
    run = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True, check=False)
    warnings = [line.replace(headers, "src") for line in run.stderr.splitlines() if line.strip()]
    gaps = (python_reference.write(ROOT, out) + unlisted_headers() + header_contracts.gaps() +
            sorted({line for line in warnings if needs_comment(line)}))
    for line in gaps:
        print(line, file=sys.stderr)
    if gaps or run.returncode:
        sys.exit(f"docs: {len(gaps)} gaps: write a comment above each name, list each header")
    print(f"{out}/cpp/index.html\n{out}/python.html")


if __name__ == "__main__":
    main()
