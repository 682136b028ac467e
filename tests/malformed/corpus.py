"""A seeded corpus of malformed models: damage done at random, and faults made on purpose.

Run as a script it writes the corpus: ``python tests/malformed/corpus.py FOLDER``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from malformed import faults, folders, wirefaults
from malformed.faults import OPSETS, value

SEED = 20_240_917
# A file beside the folder of every model; nobody may read it.
CANARY = b"CANARY-5a1c9e77"


def small() -> onnx.ModelProto:
    """Weights of several types, a body, a function, a sparse tensor."""
    weights = [
        numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w"),
        helper.make_tensor("axes", TensorProto.INT64, [1], [0]),
        helper.make_tensor("four", TensorProto.INT4, [5], [1, -2, 3, -4, 5]),
        helper.make_tensor("text", TensorProto.STRING, [2], ["a", "b"]),
    ]
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("sparse", TensorProto.FLOAT, [2], [1, 2]),
        helper.make_tensor("where", TensorProto.INT64, [2], [1, 3]),
        [4],
    )
    then_branch = helper.make_graph(
        [helper.make_node("Relu", ["m"], ["t"])], "then", [], [value("t")], [weights[1]]
    )
    else_branch = helper.make_graph([helper.make_node("local.F", ["m"], ["e"])], "else", [], [value("e")])
    else_branch.node[0].op_type, else_branch.node[0].domain = "F", "local"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="matmul"),
        helper.make_node("Add", ["h", "sparse"], ["m"], name="add"),
        helper.make_node("If", ["flag"], ["y"], name="if", then_branch=then_branch, else_branch=else_branch),
        helper.make_node("Softmax", ["y"], ["z"], axis=-1),
    ]
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], OPSETS
    )
    graph = helper.make_graph(
        nodes,
        "small",
        [value("x", shape=["n", 3]), value("flag", TensorProto.BOOL, [])],
        [value("z", shape=["n", 4])],
        weights,
        sparse_initializer=[sparse],
        value_info=[value("h", shape=["n", 4])],
    )
    return helper.make_model(graph, opset_imports=OPSETS, functions=[function], ir_version=10)


def large() -> onnx.ModelProto:
    """Large enough for its weights to be cut out of the message before it is parsed."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((100, 200)).astype(np.float32), f"w{i}") for i in range(4)
    ]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["y"])]
    graph = helper.make_graph(nodes, "large", [value("x", shape=["n", 100])], [value("y")], weights)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


def recurrent() -> onnx.ModelProto:
    """A Loop and a Scan, with many attributes."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "x"], ["w"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v")],
        [value("d", TensorProto.BOOL, []), value("w")],
    )
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["l"], body=body),
        helper.make_node("Reshape", ["l", "shape"], ["r"], allowzero=0),
        helper.make_node("ReduceMean", ["r"], ["y"], keepdims=0),
    ]
    weights = [
        helper.make_tensor("trips", TensorProto.INT64, [], [3]),
        helper.make_tensor("shape", TensorProto.INT64, [2], [1, -1]),
    ]
    graph = helper.make_graph(nodes, "recurrent", [value("x")], [value("y", shape=[])], weights)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def flip_head(data: bytes, rng: random.Random) -> bytes:
    """Damage where a large file keeps its structure."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 2))):
        out[rng.randrange(60)] ^= 1 << rng.randrange(8)
    return bytes(out)


def splice(data: bytes, rng: random.Random) -> bytes:
    """A piece of the file repeated, removed or filled with noise elsewhere in it."""
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randrange(1, 64)]
    at = rng.randrange(len(data))
    kind = rng.randrange(3)
    if kind == 0:
        return data[:at] + piece + data[at:]
    if kind == 1:
        return data[:start] + data[start + len(piece) :]
    return data[:at] + rng.randbytes(len(piece)) + data[at + len(piece) :]


def noise(data: bytes, rng: random.Random) -> bytes:
    return data[:2] + rng.randbytes(rng.randrange(1, 4096))


DAMAGE: tuple[tuple[Callable[[], onnx.ModelProto], Callable[[bytes, random.Random], bytes], int], ...] = (
    (small, truncate, 40),
    (small, flip, 90),
    (small, splice, 50),
    (small, noise, 10),
    (recurrent, truncate, 15),
    (recurrent, flip, 50),
    (recurrent, splice, 20),
    (large, truncate, 15),
    (large, flip, 15),
    (large, flip_head, 40),
    (large, splice, 15),
)


def damaged(seed: int = SEED) -> Iterator[tuple[str, bytes]]:
    """Random damage to three models that load."""
    rng = random.Random(seed)
    for make, harm, count in DAMAGE:
        data = make().SerializeToString()
        for number in range(count):
            yield f"{make.__name__}-{harm.__name__}-{number:02}", harm(data, rng)


def write_corpus(folder: Path, seed: int = SEED) -> list[Path]:
    """Write every model below a folder; the canary lies beside them.

    Returns:
        The paths to load, in a fixed order.
    """
    root = folder / "models"
    root.mkdir(parents=True)
    (folder / "canary.bin").write_bytes(CANARY * 64)
    paths = []
    for name, data in damaged(seed):
        path = root / f"{name}.onnx"
        path.write_bytes(data)
        paths.append(path)
    assert folders.FOLDERS is faults.FOLDERS and wirefaults.MODELS is faults.MODELS
    for name, make in faults.MODELS.items():
        path = root / f"{name}.onnx"
        made = make()
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        paths.append(path)
    for name, build in faults.FOLDERS.items():
        place = root / name
        place.mkdir()
        paths.append(build(place, folder / "canary.bin"))
    return paths


if __name__ == "__main__":
    for written in write_corpus(Path(sys.argv[1])):
        sys.stdout.write(f"{written}\n")
