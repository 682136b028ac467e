"""Folders around a model: external data that is not there, not right, or not its own."""

from __future__ import annotations

import os
from pathlib import Path

from malformed.faults import FOLDERS, folder, model
from onnx import TensorProto


def external(**entries: object) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, item in entries.items():
        tensor.external_data.add(key=key, value=str(item))
    return tensor


def write(place: Path, *tensors: TensorProto, name: str = "model.onnx") -> Path:
    path = place / name
    path.write_bytes(model(weights=tensors).SerializeToString())
    return path


# What is given is 64 bytes in w.bin.
ENTRIES: dict[str, dict[str, object]] = {
    "no_location": {"offset": 0},
    "empty_location": {"location": ""},
    "missing_file": {"location": "none.bin"},
    "parent": {"location": "../../canary.bin"},
    "parent_within": {"location": "sub/../../../canary.bin"},
    "parent_by_backslash": {"location": "..\\..\\canary.bin"},
    "folder_itself": {"location": "."},
    "trailing_slash": {"location": "w.bin/"},
    "a_folder": {"location": "sub"},
    "absolute": {"location": "/etc/passwd"},
    "absolute_twice": {"location": "//etc/passwd"},
    "drive": {"location": "C:/canary.bin"},
    "url": {"location": "file:///etc/passwd"},
    "home": {"location": "~/.bashrc"},
    "variable": {"location": "$HOME/.bashrc"},
    "proc": {"location": "/proc/self/environ"},
    "device": {"location": "/dev/zero"},
    "memory_address": {"location": "*/_ORT_MEM_ADDR_/*", "offset": 139872348234, "length": 16},
    "nul": {"location": "w.bin\0.txt"},
    "long": {"location": "a" * 5000},
    "many_parts": {"location": "a/" * 20_000 + "w.bin"},
    "newline": {"location": "w.bin\n"},
    "offset_beyond": {"location": "w.bin", "offset": 60},
    "offset_far_beyond": {"location": "w.bin", "offset": 1 << 62},
    "offset_too_large": {"location": "w.bin", "offset": "9" * 10_000},
    "offset_negative": {"location": "w.bin", "offset": -16},
    "offset_fraction": {"location": "w.bin", "offset": "1.5"},
    "offset_hex": {"location": "w.bin", "offset": "0x10"},
    "offset_word": {"location": "w.bin", "offset": "ten"},
    "offset_of_other_digits": {"location": "w.bin", "offset": "\u0661\u0662"},
    "offset_empty": {"location": "w.bin", "offset": ""},
    "length_short": {"location": "w.bin", "length": 15},
    "length_long": {"location": "w.bin", "length": 17},
    "length_negative": {"location": "w.bin", "length": -16},
    "length_zero": {"location": "w.bin", "length": 0},
    "length_huge": {"location": "w.bin", "length": (1 << 63) - 1},
    "expression": {"location": "w.bin", "offset": "__import__('os').getpid()"},
}


def _entries(place: Path, entries: dict[str, object]) -> Path:
    (place / "w.bin").write_bytes(bytes(range(64)))
    (place / "sub").mkdir()
    return write(place, external(**entries))


for _name, _given in ENTRIES.items():
    FOLDERS[f"external_{_name}"] = lambda place, canary, given=_given: _entries(place, given)


def linked(place: Path, target: str) -> Path:
    (place / "w.bin").symlink_to(target)
    return write(place, external(location="w.bin"))


for _name, _target in {
    "canary": "../../canary.bin",
    "etc": "/etc/passwd",
    "itself": "w.bin",
    "nothing": "nowhere.bin",
    "zero": "/dev/zero",
    "stdin": "/dev/stdin",
    "proc": "/proc/self/mem",
    "folder": "..",
}.items():
    FOLDERS[f"link_to_{_name}"] = lambda place, canary, target=_target: linked(place, target)


@folder
def link_of_links(place: Path, canary: Path) -> Path:
    (place / "one").symlink_to("../../canary.bin")
    return linked(place, "one")


@folder
def linked_folder(place: Path, canary: Path) -> Path:
    (place / "sub").symlink_to("../..")
    return write(place, external(location="sub/canary.bin"))


@folder
def hard_link(place: Path, canary: Path) -> Path:
    os.link(canary, place / "w.bin")
    return write(place, external(location="w.bin"))


@folder
def pipe(place: Path, canary: Path) -> Path:
    os.mkfifo(place / "w.bin")
    return write(place, external(location="w.bin"))


@folder
def model_is_a_pipe(place: Path, canary: Path) -> Path:
    os.mkfifo(place / "model.onnx")
    return place / "model.onnx"


@folder
def model_is_a_folder(place: Path, canary: Path) -> Path:
    return place


@folder
def model_is_a_link_to_a_device(place: Path, canary: Path) -> Path:
    (place / "model.onnx").symlink_to("/dev/zero")
    return place / "model.onnx"


@folder
def model_is_the_canary(place: Path, canary: Path) -> Path:
    """A link to a file that is no model: it is read, and nothing of it may show."""
    (place / "model.onnx").symlink_to("/etc/hostname")
    return place / "model.onnx"


@folder
def key_twice(place: Path, canary: Path) -> Path:
    tensor = external(location="w.bin")
    tensor.external_data.add(key="location", value="../../canary.bin")
    (place / "w.bin").write_bytes(bytes(16))
    return write(place, tensor)


@folder
def external_and_raw(place: Path, canary: Path) -> Path:
    tensor = external(location="../../canary.bin")
    tensor.raw_data = bytes(16)
    return write(place, tensor)


@folder
def external_huge_dims(place: Path, canary: Path) -> Path:
    tensor = external(location="w.bin")
    tensor.dims[:] = [1 << 36, 1 << 3]
    (place / "w.bin").write_bytes(bytes(16))
    return write(place, tensor)


@folder
def external_sparse_file(place: Path, canary: Path) -> Path:
    """A terabyte of nothing: it is mapped, and never read."""
    tensor = external(location="w.bin")
    tensor.dims[:] = [1 << 38]
    with open(place / "w.bin", "wb") as file:
        file.truncate(1 << 40)
    return write(place, tensor)
