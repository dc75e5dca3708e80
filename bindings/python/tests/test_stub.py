"""The stubs say what the compiled module has: names, and the parameters of each function."""

import ast
import pathlib
import re

import pytest

from tenon import _core

STUB = ast.parse((pathlib.Path(_core.__file__).parent / "_core.pyi").read_text())
INHERITED = set(dir(object)) | {"__module__", "__doc__", "__weakref__", "__dict__"}


def stubbed(body):
    """Names to what they stand for, private ones left out."""
    names = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = node
    return names


def members(thing):
    """What a class adds, but for what Python or nanobind gives every one."""
    return {name for name in vars(thing) if name not in INHERITED and not name.startswith("__nb")
            and name not in ("__signature__", "__buffer__", "__release_buffer__")}


def parameters(function, bound):
    """Names from nanobind's own signature; None for what it did not make."""
    signatures = getattr(function, "__nb_signature__", None)
    if signatures is None:
        return None
    (signature,) = (re.sub(r"\\\d+", "...", one[0]) for one in signatures)  # defaults
    arguments = ast.parse(signature + ": ...").body[0].args
    return [a.arg for a in arguments.posonlyargs + arguments.args][1 if bound else 0:]


def check_parameters(name, function, node, bound):
    actual = parameters(function, bound)
    if actual is None:
        return
    said = [a.arg for a in node.args.posonlyargs + node.args.args][1 if bound else 0:]
    unnamed = all(each.startswith("arg") for each in actual)
    assert len(said) == len(actual) and (unnamed or said == actual), (name, said, actual)


def test_every_name_is_in_both():
    runtime = {name for name in vars(_core) if not name.startswith("_")}
    assert runtime == set(stubbed(STUB.body))


@pytest.mark.parametrize("name", sorted(stubbed(STUB.body)))
def test_stub_fits(name):
    node, thing = stubbed(STUB.body)[name], getattr(_core, name)
    if isinstance(node, ast.FunctionDef):
        check_parameters(name, thing, node, bound=False)
    elif isinstance(node, ast.ClassDef) and not issubclass(thing, BaseException):
        inside = stubbed(node.body)
        # Constructors that Python code cannot call are in no stub.
        extra = {"__init__", "__new__"} - set(inside)
        assert members(thing) - extra == set(inside) - {"__init__"} | (
            {"__init__"} & members(thing) & set(inside)), name
        for member, declared in inside.items():
            value = vars(thing).get(member)
            if isinstance(declared, ast.FunctionDef) and not declared.decorator_list:
                check_parameters(f"{name}.{member}", value, declared, bound=True)


def test_the_stub_of_tensors_has_every_name():
    tensor = pytest.importorskip("tenon._tensor", reason="the package has no tensors")
    stub = ast.parse((pathlib.Path(tensor.__file__).parent / "_tensor.pyi").read_text())
    said = {name for name in stubbed(stub.body) if not name.startswith("__")}
    assert said == {name for name in vars(tensor) if not name.startswith("__")}
    for name, node in stubbed(stub.body).items():
        if isinstance(node, ast.ClassDef):
            inside = {member for member in vars(getattr(tensor, name)) if member[0] != "_"}
            assert inside == {member for member in stubbed(node.body) if member[0] != "_"}, name
