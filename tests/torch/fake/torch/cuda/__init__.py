from . import memory

_initialized = False


def is_initialized():
    return _initialized


def initialize():
    global _initialized
    _initialized = True
