from .. import _C


class _Property:
    """Keeps the functions that it was made with."""

    def __init__(self, getter, setter):
        self.getter, self.setter = getter, setter

    def __get__(self, *_):
        return self.getter()

    def __set__(self, _, value):
        self.setter(value)


class _Cudnn:
    benchmark = _Property(_C._get_cudnn_benchmark, _C._set_cudnn_benchmark)


cudnn = _Cudnn()
