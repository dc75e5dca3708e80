# mypy: disable-error-code="no-untyped-def,no-untyped-call,var-annotated"
"""Asks cuDNN which kernels it takes for convolutions, and with how much workspace: a process.

    python _cudnn_process.py FOLDER...

FOLDER: where libcudnn.so.9 and libcublasLt.so.* lie. No GPU is needed: since 9.8 cuDNN takes a
card's properties as JSON (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), for compilation ahead of time.
Each line of the input is a question, each line of the output its answer, both JSON; the first line
of the output is {"version": ...} or {"error": ...}. A process of its own, since cuDNN may end one,
and loads nothing of PyTorch.
"""

import ctypes
import glob
import json
import os
import sys

_DEVICE, _PLAN, _GRAPH, _HEURISTICS, _TENSOR, _CONVOLUTION = 38, 5, 15, 4, 17, 1
_CONFIG, _ENGINE, _CHOICE = 3, 2, 7
_DATA_TYPE, _INT64, _FLOAT, _MODE, _CONV_MODE, _DESCRIPTOR, _CHAR = 1, 3, 4, 8, 7, 15, 24
_KNOB_TYPE, _NOTE = 9, 11
_OPERATIONS = {  # kind of descriptor; attributes: x, y, w, convolution, alpha, beta
    "forward": (10, 704, 705, 703, 702, 700, 701),
    "weight": (11, 716, 717, 715, 714, 712, 713),
    "input": (12, 710, 711, 709, 708, 706, 707),
}
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
_TENSOR_CORE, _DOWN_CONVERT, _NONDETERMINISTIC = 0, 1, 4  # numerical notes of engines
_INSTANT, _FALLBACK = 0, 2


class Refused(Exception):
    """cuDNN has not done what it was asked for."""


class Library:
    """The calls of cuDNN's backend that are needed; descriptors end with `release`."""

    def __init__(self, path):
        self._calls = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self._calls.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = self._calls.cudnnGetVersion()
        self._made = []

    def _check(self, status):
        if status:
            raise Refused(f"status {status}")

    def make(self, kind):
        made = ctypes.c_void_p()
        self._check(self._calls.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)))
        self._made.append(made)
        return made

    def finalize(self, descriptor):
        self._check(self._calls.cudnnBackendFinalize(descriptor))
        return descriptor

    def set(self, descriptor, name, kind, values, of=ctypes.c_int):
        array = (of * len(values))(*values)
        count = ctypes.c_int64(len(values))
        self._check(self._calls.cudnnBackendSetAttribute(descriptor, name, kind, count, array))

    def get(self, descriptor, name, kind, array):
        """How many values there are; as many as have room are in the array."""
        found = ctypes.c_int64()
        size = ctypes.c_int64(len(array) if array is not None else 0)
        self._check(self._calls.cudnnBackendGetAttribute(
            descriptor, name, kind, size, ctypes.byref(found), array))
        return found.value

    def get_number(self, descriptor, name, kind=_INT64, of=ctypes.c_int64):
        array = (of * 1)()
        self.get(descriptor, name, kind, array)
        return array[0]

    def device(self, properties):
        made = self.make(_DEVICE)
        text = json.dumps(properties).encode()
        self.set(made, 2702, _CHAR, text, ctypes.c_char)
        self.finalize(made)
        self._made.remove(made)  # it stays
        return made

    def release(self):
        while self._made:
            self._calls.cudnnBackendDestroyDescriptor(self._made.pop())


def _tensor(library, name, shape, strides, kind, alignment):
    made = library.make(_TENSOR)
    library.set(made, 901, _DATA_TYPE, [kind])
    for attribute, values in ((902, shape), (903, strides), (906, [ord(name)]), (900, [alignment])):
        library.set(made, attribute, _INT64, values, ctypes.c_int64)
    return library.finalize(made)


def _graph(library, question):
    """PyTorch's native/cudnn/Conv_v8.cpp: build_opgraph."""
    kind, *names, convolution, alpha, beta = _OPERATIONS[question["operation"]]
    data = _TYPES[question["dtype"]]
    plane = library.make(_CONVOLUTION)
    library.set(plane, 100, _DATA_TYPE, [0 if data in (2, 9) else data])
    library.set(plane, 101, _CONV_MODE, [1])  # cross-correlation
    padding = question["padding"]
    for attribute, values in ((106, [len(padding)]), (102, question["dilation"]),
                              (103, question["stride"]), (104, padding), (105, padding)):
        library.set(plane, attribute, _INT64, values, ctypes.c_int64)
    operation = library.make(kind)
    for name, attribute in zip("xyw", names):
        shape, strides = question[name]
        tensor = _tensor(library, name, shape, strides, data, question["alignment"])
        library.set(operation, attribute, _DESCRIPTOR, [tensor.value], ctypes.c_void_p)
    library.finalize(plane)
    library.set(operation, convolution, _DESCRIPTOR, [plane.value], ctypes.c_void_p)
    scalar, of = ((5, ctypes.c_double) if data == 1 else (_FLOAT, ctypes.c_float))
    library.set(operation, alpha, scalar, [1], of)
    library.set(operation, beta, scalar, [0], of)
    library.finalize(operation)
    graph = library.make(_GRAPH)
    library.set(graph, 801, _DESCRIPTOR, [operation.value], ctypes.c_void_p)
    return library.finalize(graph)


def _configurations(library, graph, device, mode):
    """What cuDNN proposes, best first."""
    heuristics = library.make(_HEURISTICS)
    library.set(heuristics, 201, _DESCRIPTOR, [graph.value], ctypes.c_void_p)
    library.set(heuristics, 200, _MODE, [mode])
    library.set(heuristics, 204, _DESCRIPTOR, [device.value], ctypes.c_void_p)
    library.finalize(heuristics)
    count = library.get(heuristics, 202, _DESCRIPTOR, None)
    made = [library.make(_CONFIG) for _ in range(count)]
    array = (ctypes.c_void_p * count)(*[each.value for each in made])
    return made[: library.get(heuristics, 202, _DESCRIPTOR, array)]


def _knobs(library, configuration):
    made = [library.make(_CHOICE) for _ in range(64)]
    array = (ctypes.c_void_p * 64)(*[each.value for each in made])
    count = library.get(configuration, 302, _DESCRIPTOR, array)
    return {
        library.get_number(each, 600, _KNOB_TYPE, ctypes.c_int): library.get_number(each, 601)
        for each in made[:count]
    }


def _answer(library, device, question):
    """The first configuration that PyTorch takes: Conv_v8.cpp, filterEngineConfigs, try_configs."""
    unwanted = {_DOWN_CONVERT}
    if question["deterministic"]:
        unwanted.add(_NONDETERMINISTIC)
    if question["dtype"] == "float32" and not question["tf32"]:
        unwanted.add(_TENSOR_CORE)
    graph = _graph(library, question)
    for mode in (_INSTANT, _FALLBACK):
        for configuration in _configurations(library, graph, device, mode):
            try:
                engine = library.make(_ENGINE)
                array = (ctypes.c_void_p * 1)(engine.value)
                library.get(configuration, 300, _DESCRIPTOR, array)
                notes = (ctypes.c_int * 32)()
                if unwanted & set(notes[: library.get(engine, 1303, _NOTE, notes)]):
                    continue
                plan = library.make(_PLAN)
                library.set(plan, 401, _DESCRIPTOR, [configuration.value], ctypes.c_void_p)
                library.set(plan, 407, _DESCRIPTOR, [device.value], ctypes.c_void_p)
                library.finalize(plan)
                return {
                    "engine": library.get_number(engine, 1301),
                    "bytes": library.get_number(plan, 402),
                    "knobs": _knobs(library, configuration),
                }
            except Refused:
                continue
    return {"error": "no engine"}


def _load(folders):
    """cuDNN ends the process where cuBLASLt is not there: that comes first."""
    for pattern in ("libcublasLt.so.*", "libcudnn.so.9"):
        found = [path for folder in folders for path in glob.glob(os.path.join(folder, pattern))]
        if not found:
            raise OSError(f"no {pattern}")
        if pattern.startswith("libcublasLt"):
            ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL).cublasLtGetVersion
    library = Library(found[0])
    if library.version < 90800:
        raise OSError(f"cuDNN {library.version} is older than 9.8")
    return library


def main():
    try:
        library = _load(sys.argv[1:])
    except (OSError, AttributeError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"version": library.version}), flush=True)
    devices = {}
    for line in sys.stdin:
        question = json.loads(line)
        properties = question["device"]
        try:
            device = devices.get(properties["deviceVer"])
            if device is None:
                device = devices[properties["deviceVer"]] = library.device(properties)
            answer = _answer(library, device, question)
        except Refused as error:
            answer = {"error": str(error)}
        library.release()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
