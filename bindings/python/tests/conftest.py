"""What the tests have in common: the shipped recordings, and the command written in C++."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SNAPSHOTS = ROOT / "data" / "snapshots"
TRACES = ROOT / "data" / "traces"


@pytest.fixture(scope="session")
def snapshot():
    """A small PyTorch snapshot with call stacks."""
    return str(SNAPSHOTS / "multistream_prefetch.pickle")


@pytest.fixture(scope="session")
def trace():
    """A trace without call stacks."""
    return str(TRACES / "gpt2.csv.zst")


@pytest.fixture(scope="session")
def recording(snapshot):
    import tenon

    return tenon.load(snapshot)


def run_command(*arguments, program=None, **options):
    """The command: the C++ program named by TENON_COMMAND, else the one in the wheel."""
    if program is None:
        program = [os.environ["TENON_COMMAND"]] if "TENON_COMMAND" in os.environ else PYTHON_COMMAND
    return subprocess.run([*program, *map(str, arguments)], capture_output=True, timeout=300,
                          **options)


PYTHON_COMMAND = [sys.executable, "-m", "tenon"]
