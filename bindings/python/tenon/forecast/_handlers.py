"""The end of a forecast passes the program's `except:` and `except BaseException:`."""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
from typing import Any, List, Tuple

from tenon.forecast._engine import Ended

_NAME = "__tenon_ended__"


def pass_on(tree: ast.Module) -> None:
    """Each `try` with handlers gets a first one, which raises the end again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers:
            handler = ast.ExceptHandler(ast.Name(_NAME, ast.Load()), None, [ast.Raise(None, None)])
            ast.copy_location(handler, node.handlers[0])
            node.handlers.insert(0, ast.fix_missing_locations(handler))


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
