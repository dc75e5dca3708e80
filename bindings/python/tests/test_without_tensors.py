"""The package without its tensor part: all else works, and a tensor's name says what is missing."""

import subprocess
import sys

import pytest

import tenon

WITHOUT = """
import sys
sys.modules["tenon._tensor"] = None  # as where the module is not installed
import tenon
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", WITHOUT + program], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["Tensor", "zeros", "float32", "nn", "optim", "array_api"])
def test_a_tensors_name_says_what_is_missing(name):
    said = run(f"""
try:
    tenon.{name}
except ImportError as error:
    print(error)
""")
    assert "OpenBLAS" in said and "install" in said


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="lod"):
        tenon.lod
    assert "has no attribute 'lod'" in run("""
try:
    tenon.lod
except AttributeError as error:
    print(error)
""")


def test_the_lab_needs_no_blas():
    said = run("""
array = tenon.Allocator("host").empty(8)
print(array.shape, any(b in open("/proc/self/maps").read() for b in ("openblas", "dnnl")))
""")
    assert said == "(8,) False\n"


def test_a_tensor_part_of_another_version_is_refused():
    said = run("""
import types
other = types.ModuleType("tenon._tensor")
other.__version__, other.__file__ = "0.0.1", "/elsewhere/_tensor.so"
sys.modules["tenon._tensor"] = other
try:
    tenon.zeros(2)
except ImportError as error:
    print(error)
""")
    assert "/elsewhere/_tensor.so is of version 0.0.1" in said
    assert tenon.__version__ in said and "install the package again" in said
