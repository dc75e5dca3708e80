"""The end of a forecast passes the program's `except:` and `except BaseException:`."""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib.machinery
import linecache
import os
import types
from typing import Any, Dict, Iterator, List, Tuple

from tenon.forecast._engine import Ended

_NAME = "__tenon_ended__"


def pass_on(tree: ast.Module) -> None:
    """Each `try` with handlers gets a first one, which raises the end again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers:
            handler = ast.ExceptHandler(ast.Name(_NAME, ast.Load()), None, [ast.Raise(None, None)])
            ast.copy_location(handler, node.handlers[0])
            node.handlers.insert(0, ast.fix_missing_locations(handler))


@contextlib.contextmanager
def functions_pass_on() -> Iterator[None]:
    """Functions of the program that exist already run with such handlers, until it has ended."""
    files: Dict[str, Dict[Tuple[str, int], types.CodeType]] = {}
    changed = []
    for function in gc.get_objects():
        if type(function) is not types.FunctionType:
            continue
        code = function.__code__
        if code.co_filename not in files:
            files[code.co_filename] = dict(_codes_of(code.co_filename))
        fresh = files[code.co_filename].get((code.co_name, code.co_firstlineno))
        if fresh is not None and _variables(fresh) == _variables(code):
            changed.append((function, code))
            function.__code__ = fresh
    try:
        yield
    finally:
        for function, code in changed:
            function.__code__ = code


def _codes_of(file: str) -> Iterator[Tuple[Tuple[str, int], types.CodeType]]:
    """The functions of one of the program's files, with the handlers, by name and line."""
    from tenon.forecast import _guard

    if _guard.of_library(file) or file.startswith(os.path.dirname(__file__)):
        return
    try:
        tree = ast.parse("".join(linecache.getlines(file)), file)
        pass_on(tree)
        left = [compile(tree, file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return
    while left:
        code = left.pop()
        left += [part for part in code.co_consts if isinstance(part, types.CodeType)]
        if not code.co_name.startswith("<"):
            yield (code.co_name, code.co_firstlineno), code


def _variables(code: types.CodeType) -> Tuple[Any, ...]:
    """What differs where a file is no longer what was imported."""
    return code.co_argcount, code.co_varnames, code.co_freevars, code.co_cellvars


def replacements() -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value). Modules of the program's own are compiled
    afresh, and no compiled code of them is kept."""
    from tenon.forecast import _guard

    loader = importlib.machinery.SourceFileLoader
    real = loader.get_code

    def get_code(self: Any, name: str) -> Any:
        path = self.get_filename(name)
        if _guard.of_library(path):
            return real(self, name)
        tree = ast.parse(self.get_data(path), path)
        pass_on(tree)
        return compile(tree, path, "exec", dont_inherit=True)

    return [(builtins, _NAME, Ended), (loader, "get_code", get_code)]
