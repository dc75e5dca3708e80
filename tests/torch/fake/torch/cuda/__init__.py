from .. import _C
from . import memory
from .memory import *  # noqa: F401,F403


class CUDAGraph(_C._CUDAGraph):
    pass


def is_initialized():
    return _C.state["initialized"]


def initialize():
    _C.state["initialized"] = True


def current_device():
    return 0


def graph_pool_handle():
    return _C._graph_pool_handle()
