"""docs/python.md, tried: its Python as one program, its commands from nothing."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()


HAS_TENSORS = importlib.util.find_spec("tenon._tensor") is not None


def blocks(language, page=PAGE):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_pages_python_runs_as_one_program(tmp_path):
    pytest.importorskip("numpy")
    page = PAGE
    if not HAS_TENSORS:
        page = re.sub(r"\n## Tensors in Python.*?\n## ", "\n## ", PAGE, flags=re.DOTALL)
    parts = blocks("python", page)
    assert len(parts) >= (9 if HAS_TENSORS else 6)
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


def documented(module):
    import inspect

    for name in module.__all__:
        thing = getattr(module, name)
        if name == "__version__":
            continue
        assert inspect.getdoc(thing), name
        if not inspect.isclass(thing) or issubclass(thing, BaseException):
            continue
        for member, value in vars(thing).items():
            if member.startswith("_") or not (callable(value) or isinstance(value, property)):
                continue
            assert inspect.getdoc(value), f"{name}.{member}"


def test_every_public_name_is_documented():
    import tenon

    documented(tenon)


@pytest.mark.skipif(not HAS_TENSORS, reason="the package has no tensors")
def test_every_public_name_of_tensors_is_documented():
    import inspect

    import tenon
    from tenon import _tensor

    for module in (tenon.autograd, tenon.nn, tenon.optim):
        documented(module)
    for name, thing in [*vars(_tensor).items(), *vars(tenon.Tensor).items()]:
        if not name.startswith("_") and callable(thing) and not inspect.isclass(thing):
            assert inspect.getdoc(thing), name
