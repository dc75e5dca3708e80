"""As much of PyTorch 2.11 as tenon_torch touches, in the same places and shapes, over ctypes: for
tests where there is no PyTorch."""

from . import _C, backends, cuda  # noqa: F401

__version__ = "2.11.0+fake"


class device:
    def __init__(self, text):
        kind, _, index = str(getattr(text, "text", text)).partition(":")
        if kind != "cuda":
            raise RuntimeError(f"no {kind} here")
        self.text, self.type, self.index = str(text), kind, int(index) if index else None
