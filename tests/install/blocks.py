#!/usr/bin/env python3
"""blocks.py [COMPILER]: compiles the C++ of README.md and of pages that show parts of programs.

A block's includes and using directives go to the top of a file, the rest into a function. What a
block takes for granted, the page names right before it: <!-- given: Tensor x; -->. Pages whose
blocks are whole files are tried by pages.sh, those of docs/extend by tests of their own.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/autograd.md", "docs/cuda.md", "docs/explain.md", "docs/tensors.md",
         "docs/training.md"]
BLOCK = re.compile(r"(?:<!-- given: (.*?) -->\n\n?)?```cpp\n(.*?)```", re.DOTALL)
TOP = re.compile(r"^(#include .*|using namespace .*;)\n", re.MULTILINE)


def program(given, code):
    top = "\n".join(TOP.findall(code))
    return f"{top}\nusing namespace tenon;\nvoid block() {{\n{given or ''}\n{TOP.sub('', code)}\n}}\n"


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else "c++"
    count = 0
    for page in PAGES:
        for given, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            made = subprocess.run(
                [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/src", "-x", "c++", "-"],
                input=program(given, code), text=True, capture_output=True, check=False)
            if made.returncode:
                sys.exit(f"{page}: its C++ does not compile\n{made.stderr}")
            count += 1
    print(f"{count} blocks of {len(PAGES)} pages compile")


if __name__ == "__main__":
    main()
