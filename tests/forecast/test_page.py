"""docs/forecast.md, tried: its commands and its Python, with a small train.py. What a command prints
is compared with what the page shows, figures aside."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs/forecast.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TRAIN = '''
import argparse
import torch
from torch import nn
import torch.distributed as dist

batch_size = 2

def train(batch):
    model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(4))).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(torch.randn(32768 * batch, 4096, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=batch_size)
    options = parser.parse_args()
    if DISTRIBUTED:
        dist.init_process_group("nccl")
    train(options.batch_size)
'''


def commands():
    """Each command of the page with the output that is shown right behind its block."""
    found = BLOCK.findall(PAGE)
    for at, (language, text) in enumerate(found):
        lines = re.findall(r"^python -m (tenon\..*?)(?:\s{2,}#.*)?$", text, re.MULTILINE)
        shown = found[at + 1][1] if language == "sh" and found[at + 1][0] == "" else ""
        for line in lines:
            yield line, shown if len(lines) == 1 else ""


def without_figures(line):
    return re.sub(r"-?[\d.]*\d(?: [KMG]iB)?|(?<= )-(?= )", "#", " ".join(line.split()) + " ").rstrip()


def is_printed(shown, printed):
    """Whether a printed line is the shown one, with any figures; "..." ends a line early."""
    wanted = without_figures(shown.split("...")[0])
    return any(without_figures(line).startswith(wanted) for line in printed.splitlines())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(f"DISTRIBUTED = False\n{TRAIN}")
    (tmp_path / "train_ddp.py").write_text(f"DISTRIBUTED = True\n{TRAIN}")
    return tmp_path


@pytest.mark.parametrize("command, shown", list(commands()))
def test_the_pages_command(command, shown, folder):
    done = subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=folder, text=True,
                          capture_output=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    for line in shown.splitlines():
        assert is_printed(line, done.stdout), f"not printed: {line}\n{done.stdout}"


def test_the_pages_python(folder):
    (code,) = [text for language, text in BLOCK.findall(PAGE) if language == "python"]
    done = subprocess.run([sys.executable, "-c", f"from train import train\n{code}"], cwd=folder,
                          text=True, capture_output=True, timeout=1800,
                          env={**os.environ, "PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stderr
    assert "live peak" in done.stdout
