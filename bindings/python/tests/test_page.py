"""docs/python.md, tried: its Python as one program, its commands from nothing."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_pages_python_runs_as_one_program(tmp_path):
    pytest.importorskip("numpy")
    parts = blocks("python")
    assert len(parts) >= 6
    (tmp_path / "data").symlink_to(ROOT / "data")
    done = subprocess.run([sys.executable, "-c", "\n".join(parts)], cwd=tmp_path, text=True,
                          capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 50_000
    assert "live peak" in done.stdout and "escapes" in done.stdout


@pytest.mark.skipif("TENON_TEST_INSTALL" not in os.environ,
                    reason="builds the package anew: set TENON_TEST_INSTALL=1")
def test_the_pages_commands_install_it_from_nothing(tmp_path):
    (commands,) = blocks("sh")
    assert "pip install ." in commands
    # The environment goes beside the tree, not into it.
    commands = re.sub(r"\benv\b", str(tmp_path / "env"), commands)
    done = subprocess.run(["bash", "-euc", commands], cwd=ROOT, text=True, capture_output=True,
                          timeout=3000)
    assert done.returncode == 0, done.stderr
    assert "live peak" in done.stdout


def test_every_public_name_is_documented():
    import inspect

    import tenon

    for name in tenon.__all__:
        thing = getattr(tenon, name)
        if name == "__version__":
            continue
        assert inspect.getdoc(thing), name
        if not inspect.isclass(thing) or issubclass(thing, BaseException):
            continue
        for member, value in vars(thing).items():
            if member.startswith("_") or not (callable(value) or isinstance(value, property)):
                continue
            assert inspect.getdoc(value), f"{name}.{member}"
