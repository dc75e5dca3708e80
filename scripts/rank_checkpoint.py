"""scripts/rank_checkpoint.py: reads what tenon train saves, without Tenon."""
import array
import json
import os
import struct

INDEX = "model.safetensors.index.json"


def read_index(folder):
    try:
        with open(os.path.join(folder, INDEX), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def step_of(folder):
    """The step of the checkpoint; 0 without one."""
    index = read_index(folder)
    return int(index["metadata"]["step"]) if index is not None else 0


def read_header(file):
    """A safetensors file's entries by name, and where their bytes begin."""
    length, = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def is_whole(folder):
    """Whether the files of the checkpoint hold every tensor that its index names, and all of it."""
    index = read_index(folder)
    if index is None:
        return True
    names = {**index["weight_map"], **index["optimiser_map"]}
    held = {}
    for name in set(names.values()):
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                header, begin = read_header(file)
        except (OSError, struct.error, ValueError):
            return False
        held.update(dict.fromkeys(header, name))
        end = max(tensor["data_offsets"][1] for tensor in header.values())
        if os.path.getsize(path) != begin + end:
            return False
    return held == names


def tensors_of(path):
    """Elements of a file's f32 tensors by name."""
    with open(path, "rb") as file:
        header, begin = read_header(file)
        for name, tensor in header.items():
            first, end = tensor["data_offsets"]
            file.seek(begin + first)
            elements = array.array("f")
            elements.frombytes(file.read(end - first))
            yield name, elements


def weights_of(path):
    """The weights of a file, which also has the optimiser's state, or of a folder."""
    if not os.path.isdir(path):
        return {name.removeprefix("model."): elements for name, elements in tensors_of(path)
                if name.startswith("model.")}
    index = read_index(path)
    return {name: elements for file in set(index["weight_map"].values())
            for name, elements in tensors_of(os.path.join(path, file))}
