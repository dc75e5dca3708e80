#!/usr/bin/env python3
"""blocks.py [COMPILER]: compiles the C++ of README.md and of pages that show parts of programs.

A block's includes and using directives go to the top of a file, the rest into a function. What a
block takes for granted, the page names right before it: <!-- given: Tensor x; -->. In docs/extend/,
blocks are files of Tenon's tree, named right before: <!-- file: src/tenon/heap/first_fit_heap.h -->.
Pages whose blocks are whole files of another project are tried by pages.sh.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/autograd.md", "docs/cuda.md", "docs/explain.md", "docs/plan.md",
         "docs/tensors.md", "docs/training.md", "docs/vulkan.md"]
BLOCK = re.compile(r"(?:<!-- given: (.*?) -->\n\n?)?```cpp\n(.*?)```", re.DOTALL)
FILE = re.compile(r"<!-- file: (\S+) -->\n\n```cpp\n(.*?)```", re.DOTALL)
TOP = re.compile(r"^(#include .*|using namespace .*;)\n", re.MULTILINE)


def program(given, code):
    top = "\n".join(TOP.findall(code))
    return f"{top}\nusing namespace tenon;\nvoid block() {{\n{given or ''}\n{TOP.sub('', code)}\n}}\n"


def compile_block(compiler, page, code, folders):
    made = subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in folders), "-x", "c++", "-"],
        input=code, text=True, capture_output=True, check=False)
    if made.returncode:
        sys.exit(f"{page}: its C++ does not compile\n{made.stderr}")


def compile_files(compiler, page):
    """How many files the page has. Each is compiled with the others of the page in the tree."""
    files = FILE.findall(page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        folders = [f"{folder}/src", f"{ROOT}/src", f"{ROOT}/tests"]
        for name, code in files:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, encoding="utf-8")
        for name, code in files:
            compile_block(compiler, page, code.replace("#pragma once\n", ""), folders)
    return len(files)


def untried():
    """Pages with C++ that neither this program nor pages.sh tries: a page of whole files names them."""
    return [page.name for page in sorted((ROOT / "docs").glob("*.md"))
            if f"docs/{page.name}" not in PAGES and "```cpp\n" in page.read_text(encoding="utf-8")
            and "```cpp\n// file: " not in page.read_text(encoding="utf-8")]


def main():
    if untried():
        sys.exit(f"add to PAGES: {', '.join(untried())}")
    compiler = sys.argv[1] if len(sys.argv) > 1 else "c++"
    count = 0
    for page in PAGES:
        for given, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            compile_block(compiler, page, program(given, code), [f"{ROOT}/src"])
            count += 1
    extensions = sorted((ROOT / "docs/extend").glob("*.md"))
    count += sum(compile_files(compiler, page) for page in extensions)
    print(f"{count} blocks of {len(PAGES) + len(extensions)} pages compile")


if __name__ == "__main__":
    main()
