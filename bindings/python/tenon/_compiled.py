"""Whether the package has its tensor part, and what is raised where it does not."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NoReturn, Optional

from tenon import _core

_reason = ""
tensor_module: Optional[ModuleType] = None
try:
    _found = importlib.import_module("tenon._tensor")
    if _found.__version__ == _core.version:
        tensor_module = _found
    else:
        _reason = (f"{_found.__file__} is of version {_found.__version__} and {_core.__file__} of version "
                   f"{_core.version}: install the package again, so that both are of one build")
except ModuleNotFoundError:
    _reason = ("this package was built without them: install Highway, OpenBLAS and oneDNN (on "
               "Debian: libhwy-dev libopenblas-dev libdnnl-dev) and build it again, pip install .")
except ImportError as error:
    _reason = (f"a library is missing ({error}): install OpenBLAS, oneDNN and Highway (on Debian: "
               "libopenblas0 libdnnl2 libhwy1)")


def require_tensors(what: str = "tenon.Tensor") -> NoReturn:
    """Raises ImportError: what is missing, and the remedy."""
    raise ImportError(f"{what}: there are no tensors here: {_reason}")
