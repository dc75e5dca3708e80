"""As much of PyTorch as tenon_torch touches, over ctypes: for tests where there is no PyTorch."""

from . import cuda

__version__ = "2.11.0+fake"
