"""Empty libraries in place of NVIDIA's that a PyTorch wheel is linked with and no test here calls
(cuBLAS, cuDNN, NCCL, ... some 3 GB):

    python3 stub_libraries.py SITE_PACKAGES

Each has the name, and the versions and data that PyTorch's libraries want of it. Functions are left
out: PyTorch is imported with lazy binding, so one that is called ends the process by its name.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

NVIDIAS = re.compile(r"lib(cu|nv|nccl)")


def read(option, library):
    return subprocess.run(["readelf", "-W", option, library], capture_output=True, text=True,
                          check=True).stdout


def main():
    site, = sys.argv[1:]
    folder = os.path.join(site, "torch", "lib")
    there = {os.path.basename(path) for pattern in ("torch/lib/*", "nvidia/*/lib/*")
             for path in glob.glob(os.path.join(site, pattern))}
    wanted = {}  # library -> versions
    data = set()
    for library in glob.glob(os.path.join(folder, "*.so*")):
        for name in re.findall(r"NEEDED.*\[(.*)\]", read("-d", library)):
            if NVIDIAS.match(name) and name not in there:
                wanted.setdefault(name, set())
        file = None
        for line in read("-V", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found[1]
            elif (found := re.search(r"Name: (\S+)", line)) and file in wanted:
                wanted[file].add(found[1])
        for line in read("--dyn-syms", library).splitlines():
            if found := re.search(r"OBJECT\s+GLOBAL\s+DEFAULT\s+UND\s+((?:nv|cu)\w+)@", line):
                data.add(found[1])
    for name, versions in wanted.items():
        with tempfile.TemporaryDirectory() as work:
            source, script = os.path.join(work, "stub.c"), os.path.join(work, "stub.map")
            with open(source, "w") as out:
                out.writelines(f"char {symbol}[4096];\n" for symbol in sorted(data))
            with open(script, "w") as out:
                out.writelines(f"{version} {{ global: *; }};\n" for version in sorted(versions))
            subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o",
                            os.path.join(folder, name), source,
                            *([f"-Wl,--version-script={script}"] if versions else [])], check=True)
    print(f"{len(wanted)} stubs of NVIDIA's libraries in {folder}")


main()
