#!/usr/bin/env python3
"""library_size.py LIBRARY: the bytes of each folder's functions and tables in a library that is not
stripped, by the folder that defines the class or function. Templates of other libraries count for
themselves, wherever they are used."""
import collections
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src/tenon"
TYPE = re.compile(r"^\s*(?:class|struct|union|enum class)\s+(?:\[\[.*?\]\]\s*)?(\w+)\b(?!.*;\s*$)", re.M)
FUNCTION = re.compile(r"^[\w\[][^\n;=#/]*?\b(\w+)\(", re.M)


def folders(pattern):
    """Where each name is defined: a layer of tenon::memory, or a folder in it."""
    found = {}
    for ending in (".h", ".cc"):
        for layer in ("base", "device", "heap", "memory"):
            for path in sorted((SOURCE / layer).rglob("*" + ending)):
                for name in pattern.findall(path.read_text(encoding="utf-8")):
                    found.setdefault(name, str(path.parent.relative_to(SOURCE)))
    return found


def parts_of(name):
    """Of its qualified name, without template arguments, parameters and what nm says of the kind."""
    name = re.sub(r"^decltype \(.*?\.\w+\)\(\)\) ", "", name)
    name = re.sub(r"\(anonymous namespace\)", "anonymous", name)
    name = re.sub(r"^(?:[\w-]+ )+for ", "", name)
    name = name.replace("operator()", "operator").replace("[abi:cxx11]", "")
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return name.split("(")[0].split(" ")[-1].split("::")


def folder_of(name, types, functions):
    parts = parts_of(name)
    if parts[0] in ("std", "fmt", "__gnu_cxx"):
        return "std, fmt"
    if parts[0] != "tenon":
        return "libbacktrace, C"
    found = [types[part] for part in parts if part in types]
    found += [functions[part] for part in reversed(parts) if part in functions]
    return found[0] if found else "other"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    listing = subprocess.run(["nm", "-S", "-C", "--defined-only", sys.argv[1]], check=True,
                             capture_output=True, text=True).stdout
    types, functions = folders(TYPE), folders(FUNCTION)
    symbols = {}  # one for each address: constructors have two names
    for line in listing.splitlines():
        if match := re.match(r"(\w{16}) (\w{16}) [tTwWvVrRdDu] (.*)", line):
            symbols.setdefault(match[1], (int(match[2], 16), match[3]))
    if not symbols:
        sys.exit(f"{sys.argv[1]} has no symbols with sizes: give the library before it is stripped")
    size, count = collections.Counter(), collections.Counter()
    for size_bytes, name in symbols.values():
        folder = folder_of(name, types, functions)
        size[folder] += size_bytes
        count[folder] += 1
    print(f"{'functions and tables of':24}{'bytes':>8}{'symbols':>9}")
    for folder, size_bytes in size.most_common():
        print(f"{folder:24}{size_bytes:>8}{count[folder]:>9}")


if __name__ == "__main__":
    main()
