"""Makes tenon/_tensor.pyi from the installed module: python bindings/python/stub.py

nanobind's own stub, with types where it has none: for slots, for parameters that Tensor's methods
`bool`, `int` and `float` would hide, and for what containers hold.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# With the bound functions in place of those that stand before them (tensor/creation.cc).
STUBGEN = """
import sys
from nanobind import stubgen
from tenon import _tensor
vars(_tensor).update(vars(_tensor).pop("__overloads__"))
stubgen.main(sys.argv[1:])
"""
OPERAND = "tenon._typing.Operand"
TYPES = {"__hash__": "int", "__iter__": "collections.abc.Iterator[Tensor]", "__bool__": "bool",
         "__int__": "int", "__float__": "float", "__index__": "int", "__len__": "int",
         "__setitem__": "None", "__delitem__": "None", "__contains__": "bool"}


def typed_slot(match):
    indent, name, parameters = match.groups()
    result = TYPES.get(name, "Tensor")
    parameters = parameters.replace("mod=None", "mod: None = None")
    kind = "Tensor" if "matmul" in name else OPERAND
    if name in ("__getitem__", "__setitem__", "__delitem__", "__contains__"):
        kind = "object"
    parameters = re.sub(r"\b(value|key)\b", rf"\1: {kind}", parameters)
    line = f"{indent}def {name}({parameters}) -> {result}:"
    if name in ("__eq__", "__ne__"):
        line += "  # type: ignore[override]"
    if name == "__ipow__":
        line += "  # type: ignore[misc]"
    return line


def typed(stub):
    stub = re.sub(r"^( *)def (__\w+__)\((self[^:)]*)\):$", typed_slot, stub, flags=re.MULTILINE)
    lines = []
    for line in stub.split("\n"):
        if re.match(r" *def ", line):
            line = line.replace("def _apply(forward: object, derivative: object, *args) -> object",
                                "def _apply(forward: object, derivative: object, *args) -> Tensor")
            line = line.replace("*args)", "*args: object)").replace("*args,", "*args: object,")
            line = re.sub(r"(-> |: )dict\b(?!\[)", r"\1dict[str, Tensor]", line)
            line = re.sub(r"(-> |: )tuple\b(?!\[)", r"\1tuple[Tensor, ...]", line)
            line = re.sub(r"(-> |: )list\b(?!\[)", r"\1list[Tensor]", line)
            hidden = r"(?<!def )(?<![.\w])(bool|int|float|complex)\b(?!\()"
            line = re.sub(hidden, r"builtins.\1", line)
        line = re.sub(r": int = 1000", ": builtins.int = 1000", line)
        line = line.replace("def checkpoint(arg0: object, /, *args: object) -> object",
                            "def checkpoint(arg0: object, /, *args: Tensor) -> Tensor")
        line = re.sub(r"^(    def (item|tolist|numpy)\(self\)) -> object", r"\1 -> typing.Any",
                      line)
        line = line.replace("__reduce_ex__(self, protocol: builtins.int)",
                            "__reduce_ex__(self, protocol: typing.SupportsIndex)")
        lines.append(line.rstrip())
    imports = ["import builtins", "import collections.abc", "import typing"]
    return "\n".join(lines[:2] + imports + lines[2:])


def main():
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "_tensor.pyi"
        subprocess.run([sys.executable, "-c", STUBGEN, "-q", "-P", "-m", "tenon._tensor",
                        "-o", str(made)], check=True, cwd=folder)  # not the tree
        stub = typed(made.read_text())
    pathlib.Path(__file__).with_name("tenon").joinpath("_tensor.pyi").write_text(stub)


if __name__ == "__main__":
    main()
