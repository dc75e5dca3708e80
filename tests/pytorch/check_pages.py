"""What a page tells PyTorch's users to do, on a machine without a GPU:

    TENON_CUDA_DRIVER=libtenon_cuda_stand_in.so python3 check_pages.py PAGE TENON

The page's Python runs as one program in an empty folder, with a train() that allocates 9 MiB. The
allocator is Tenon's, over the stand-in driver, since PyTorch's own needs a GPU. Then TENON reads what
the program wrote. Of the page's shell blocks those run that start a Python program.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ["TENON_CUDA_STAND_IN"] = f"capacity={16 << 30}"
PAGE = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
TENON = sys.argv[2]
# Once Tenon is enabled, PyTorch does not ask for a GPU.
PRELUDE = """
import ctypes, os, sys
sys.setdlopenflags(os.RTLD_LAZY)  # for stub_libraries.py
import torch, tenon_torch

def enable(enable=tenon_torch.enable, **arguments):
    enable(**arguments)
    torch.cuda._lazy_init = torch.cuda.memory._lazy_init = lambda: None
    torch.cuda.is_initialized = torch.cuda.memory.is_initialized = lambda: True
tenon_torch.enable = enable
"""
ENABLE = "tenon_torch.enable()\n"
TRAIN = """
def train():
    library = ctypes.CDLL(os.path.join(os.path.dirname(tenon_torch.__file__), "libtenon_torch.so"))
    library.tenon_malloc.restype = ctypes.c_void_p
    library.tenon_malloc.argtypes = ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
    blocks = [library.tenon_malloc(3 << 20, 0, None) for _ in range(3)]
    assert all(blocks) and tenon_torch.max_memory_allocated() >= 9 << 20
    if CATCHES:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def run_python(code, folder):
    """Runs the page's program. "..." stands for train(), which fails where the page catches that."""
    code = re.sub(r"^\.\.\.$", "train()", code, flags=re.MULTILINE)
    catches = "except torch.cuda.OutOfMemoryError" in code
    enable = "" if "tenon_torch.enable(" in code else ENABLE
    program = f"{PRELUDE}{enable}CATCHES = {catches}\n{TRAIN}{code}"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, text=True, capture_output=True,
                          timeout=300)
    ended = "OutOfMemoryError: CUDA out of memory" in done.stderr if catches else done.returncode == 0
    assert ended, done.stderr


def run_shell(commands, folder):
    """`make` is what has run before; `build/tenon` and `python` are those at hand."""
    commands = re.sub(r"^make .*$", "", commands, flags=re.MULTILINE)
    (folder / "build").mkdir(exist_ok=True)
    if not (folder / "build/tenon").exists():
        (folder / "build/tenon").symlink_to(TENON)
        (folder / "build/bindings").symlink_to(pathlib.Path(TENON).parent / "bindings")
    (folder / "train.py").write_text(PRELUDE + ENABLE)
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    subprocess.run(["bash", "-euc", commands], cwd=folder, check=True, env={**os.environ, "PATH": path},
                   stdout=subprocess.DEVNULL, timeout=300)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        code = [block for block in blocks("python") if "torch" in block]
        assert code, "the page has no Python for PyTorch"
        run_python("\n".join(code), folder)
        written = [path for path in folder.iterdir() if path.suffix in (".pickle", ".zst")]
        assert written, "the page's program records nothing"
        for path in written:
            text = subprocess.run([TENON, "explain", str(path)], check=True, text=True,
                                  capture_output=True).stdout
            assert "9 MiB" in text, f"{path.name}: train() holds 9 MiB\n{text}"
        shell = [block for block in blocks("sh") if re.search(r"^python3? ", block, re.MULTILINE)]
        for commands in shell:
            run_shell(commands, folder)
        print(f"note: {len(code)} blocks of Python, {len(written)} recordings, {len(shell)} of commands")


if __name__ == "__main__":
    main()
