"""Operators at the sizes that models give them: what `ops.py` times, and why some rows are slow.

A recipe is a node with its feeds and constants. One that takes more than `ops.BOUND` times onnxruntime's time
says why in `reason`; a faster one has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
MICROSOFT, LEARNING = "com.microsoft", "ai.onnx.ml"
OPSETS = {"": 21, LEARNING: 3, MICROSOFT: 1}


@dataclass(frozen=True)
class Constant:
    """An input that the model holds."""

    data: Array


@dataclass(frozen=True)
class Inputs:
    """What a node is given: an array is fed, None is left out."""

    values: Sequence[Array | Constant | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """An operator at one size.

    Attributes:
        op: Operator name.
        sizes: The sizes, for people.
        make: Gives inputs and attributes.
        domain: Operator domain.
        outputs: Number of outputs.
        tolerance: Greatest error in shares of the largest expected magnitude.
        reason: Why it takes longer than the bound allows; empty where it does not.
    """

    op: str
    sizes: str
    make: Callable[[np.random.Generator], Inputs]
    domain: str = ""
    outputs: int = 1
    tolerance: float = 1e-4
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.op} {self.sizes}"

    def model(self, seed: int = 0) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """A model of the one node, and its feed."""
        given = self.make(np.random.default_rng(seed))
        names, ports, held, feed = [], [], [], {}
        for place, value in enumerate(given.values):
            name = "" if value is None else f"x{place}"
            names.append(name)
            if isinstance(value, Constant):
                held.append(numpy_helper.from_array(value.data, name))
            elif value is not None:
                feed[name] = value
                text = value.dtype == object
                kind = TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(value.dtype)
                ports.append(helper.make_tensor_value_info(name, kind, value.shape))
        results = [f"y{place}" for place in range(self.outputs)]
        node = helper.make_node(self.op, names, results, domain=self.domain, **given.attributes)
        ends = [helper.make_empty_tensor_value_info(name) for name in results]
        graph = helper.make_graph([node], "one node", ports, ends, held)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10), feed


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def uniform(rng: np.random.Generator, *shape: int, low: float = 0.0, high: float = 1.0) -> Array:
    return rng.uniform(low, high, shape).astype(np.float32)


def codes(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(0, 256, shape).astype(np.uint8)


def held(values: Any, dtype: Any = np.float32) -> Constant:
    return Constant(np.asarray(values, dtype))


SCALE, MIDDLE = held(0.02), held(128, np.uint8)


def recurrent(gates: int, time: int, batch: int, width: int, *, both: bool = False, **more: Any) -> Any:
    """A layer of `gates` gates over `time` steps, with as many inputs as hidden values."""

    def make(rng: np.random.Generator) -> Inputs:
        ways = 2 if both else 1
        weight, recurrence = (
            Constant(uniform(rng, ways, gates * width, width, low=-0.1, high=0.1)) for _ in range(2)
        )
        bias = Constant(normal(rng, ways, 2 * gates * width))
        direction = "bidirectional" if both else "forward"
        attributes = {"hidden_size": width, "direction": direction, **more}
        return Inputs([normal(rng, time, batch, width), weight, recurrence, bias], attributes)

    return make


def quantized_lstm(rng: np.random.Generator) -> Inputs:
    width = 128
    weight, recurrence = (
        Constant(rng.integers(-127, 128, (1, width, 4 * width)).astype(np.int8)) for _ in range(2)
    )
    scale, zero = held([0.001]), held([0], np.int8)
    bias = Constant(normal(rng, 1, 8 * width))
    values = [normal(rng, 50, 4, width), weight, recurrence, bias, *[None] * 4, scale, zero, scale, zero]
    return Inputs(values, {"hidden_size": width})


def boxes(count: int, classes: int, *, clustered: bool = False, least: float = 0.05) -> Any:
    """Boxes of a detector: spread over the image, or around forty objects."""

    def make(rng: np.random.Generator) -> Inputs:
        if clustered:
            centre = uniform(rng, 40, 2)[rng.integers(0, 40, count)] + 0.01 * normal(rng, count, 2)
            size = 0.1 + 0.01 * normal(rng, count, 2)
        else:
            centre, size = uniform(rng, count, 2), uniform(rng, count, 2, low=0.02, high=0.1)
        corners = np.concatenate([centre - size / 2, centre + size / 2], 1)[None].astype(np.float32)
        limits = held([200], np.int64), held([0.5]), held([least])
        return Inputs([corners, uniform(rng, 1, classes, count), *limits])

    return make


def forest(trees: int, depth: int, rows: int, classes: int = 0) -> Any:
    """Full trees over 20 features; a leaf has one vote, or one for each class."""

    def make(rng: np.random.Generator) -> Inputs:
        size, inner = 2 ** (depth + 1) - 1, 2**depth - 1
        place = np.tile(np.arange(size), trees)
        tree = np.repeat(np.arange(trees), size)
        branch = place < inner
        leaf, votes = np.flatnonzero(~branch), max(classes, 1)
        kind = "class" if classes else "target"
        attributes: dict[str, Any] = {
            "nodes_treeids": tree,
            "nodes_nodeids": place,
            "nodes_featureids": np.where(branch, rng.integers(0, 20, place.size), 0),
            "nodes_values": np.where(branch, rng.uniform(-1, 1, place.size), 0.0),
            "nodes_truenodeids": np.where(branch, 2 * place + 1, 0),
            "nodes_falsenodeids": np.where(branch, 2 * place + 2, 0),
            f"{kind}_treeids": np.repeat(tree[leaf], votes),
            f"{kind}_nodeids": np.repeat(place[leaf], votes),
            f"{kind}_ids": np.tile(np.arange(votes), leaf.size),
            f"{kind}_weights": rng.uniform(-1, 1, leaf.size * votes),
        }
        attributes = {name: values.tolist() for name, values in attributes.items()}
        attributes["nodes_modes"] = np.where(branch, "BRANCH_LEQ", "LEAF").tolist()
        ends = {"classlabels_int64s": list(range(classes)), "post_transform": "SOFTMAX"}
        attributes.update(ends if classes else {"n_targets": 1})
        return Inputs([uniform(rng, rows, 20, low=-1.0)], attributes)

    return make


def of(*values: Callable[[np.random.Generator], Array] | Constant | None, **attributes: Any) -> Any:
    """Inputs that are drawn, held or absent."""

    def make(rng: np.random.Generator) -> Inputs:
        return Inputs([value(rng) if callable(value) else value for value in values], attributes)

    return make


def _n(*shape: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: normal(rng, *shape)


def _u(*shape: int, low: float = 0.0, high: float = 1.0) -> Callable[[np.random.Generator], Array]:
    return lambda rng: uniform(rng, *shape, low=low, high=high)


def _c(*shape: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: codes(rng, *shape)


def _i(*shape: int, high: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.integers(0, high, shape)


def texts(count: int, **attributes: Any) -> Any:
    """Short texts of words."""

    def make(rng: np.random.Generator) -> Inputs:
        words = [f"Hello world {number}" for number in rng.integers(0, 1000, count)]
        return Inputs([np.array(words, object)], attributes)

    return make


def filters(rng: np.random.Generator) -> Inputs:
    """A convolution of a small image by heavy weights."""
    return Inputs(
        [normal(rng, 1, 512, 4, 4), Constant(normal(rng, 256, 512, 4, 4)), Constant(normal(rng, 256))]
    )


def quantized_filters(rng: np.random.Generator) -> Inputs:
    """A quantized convolution of each channel by itself."""
    weight = Constant(rng.integers(-127, 128, (32, 1, 3, 3)).astype(np.int8))
    values = [
        codes(rng, 1, 32, 28, 28),
        SCALE,
        MIDDLE,
        weight,
        held(0.01),
        held(0, np.int8),
        held(0.1),
        MIDDLE,
    ]
    return Inputs(values, {"pads": [1] * 4, "group": 32})


def crops(rng: np.random.Generator) -> Inputs:
    image, regions = normal(rng, 1, 32, 64, 64), uniform(rng, 50, 4)
    return Inputs([image, regions, np.zeros(50, np.int32), held([14, 14], np.int32)])


def mapping(rng: np.random.Generator) -> Inputs:
    keys = list(range(100))
    attributes = {"keys_int64s": keys, "values_floats": [float(key) for key in keys]}
    return Inputs([rng.integers(0, 100, 5000)], attributes)


def weights(*shape: int) -> Constant:
    return Constant(normal(np.random.default_rng(1), *shape))


def nibbles(rng: np.random.Generator) -> Inputs:
    packed, scales = (
        Constant(codes(rng, 1024, 32, 16)),
        Constant(uniform(rng, 1024, 32, low=0.001, high=0.01)),
    )
    return Inputs([normal(rng, 1, 1024), packed, scales], {"K": 1024, "N": 1024, "bits": 4, "block_size": 32})


def levels(rng: np.random.Generator) -> Inputs:
    packed, scales = Constant(codes(rng, 1 << 19)), Constant(uniform(rng, 1 << 14, low=0.1))
    return Inputs(
        [normal(rng, 1, 1024), packed, scales], {"K": 1024, "N": 1024, "block_size": 64, "quant_type": 1}
    )


_TWICE = held([1, 2, 2, 1])

RECIPES: tuple[Recipe, ...] = (
    Recipe("TreeEnsembleRegressor", "100 trees of depth 6, 1 row", forest(100, 6, 1), LEARNING),
    Recipe("TreeEnsembleRegressor", "100 trees of depth 6, 1000 rows", forest(100, 6, 1000), LEARNING),
    Recipe(
        "TreeEnsembleClassifier", "100 trees, 3 votes a leaf, 100 rows", forest(100, 6, 100, 3), LEARNING, 2
    ),
    Recipe("LSTM", "50x1x256, both ways", recurrent(4, 50, 1, 256, both=True), outputs=3),
    Recipe("LSTM", "50x4x128, clipped", recurrent(4, 50, 4, 128, clip=3.0), outputs=3),
    Recipe("GRU", "50x8x128", recurrent(3, 50, 8, 128), outputs=2),
    Recipe(
        "GRU",
        "200x1x128, linear before reset",
        recurrent(3, 200, 1, 128, linear_before_reset=1),
        outputs=2,
    ),
    Recipe("RNN", "200x1x128", recurrent(1, 200, 1, 128), outputs=2),
    Recipe(
        "DynamicQuantizeLSTM",
        "50x4x128",
        quantized_lstm,
        MICROSOFT,
        3,
        reason=(
            "onnxruntime multiplies 8-bit integers; here the state is rounded to 8 bits by a dozen "
            "small calls a step and multiplied as floats."
        ),
    ),
    Recipe("NonMaxSuppression", "8400 boxes", boxes(8400, 1)),
    Recipe("NonMaxSuppression", "8400 boxes around 40 objects", boxes(8400, 1, clustered=True)),
    Recipe("NonMaxSuppression", "8400 boxes, 20 classes", boxes(8400, 20)),
    Recipe("NonMaxSuppression", "25200 boxes, 80 classes, few above 0.98", boxes(25200, 80, least=0.98)),
    Recipe("TopK", "1 of 1000, 64 rows", of(_n(64, 1000), held([1], np.int64)), outputs=2),
    Recipe(
        "TopK", "5 of 1000 along axis 0, 64 columns", of(_n(1000, 64), held([5], np.int64), axis=0), outputs=2
    ),
    Recipe("Resize", "64x64x32 twice, channels last", of(_n(1, 64, 64, 32), None, _TWICE, mode="linear")),
    Recipe(
        "Resize",
        "3x256x256 to 112x112, cubic, antialias",
        of(_n(1, 3, 256, 256), None, None, held([1, 3, 112, 112], np.int64), mode="cubic", antialias=1),
        reason=(
            "the five or more samples under each filter are gathered and weighted in memory; "
            "onnxruntime sums as it reads."
        ),
    ),
    Recipe(
        "Unique",
        "2000 rows of 4",
        of(_i(2000, 4, high=5), axis=0),
        outputs=4,
    ),
    Recipe(
        "CumSum",
        "4096x64 along axis 0",
        of(_n(4096, 64), held(0, np.int64)),
        reason=(
            "torch adds along an axis that is not the last one column at a time, with a line of the "
            "cache for each number."
        ),
    ),
    Recipe("ArgMin", "64x4096 along axis 0", of(_n(64, 4096), axis=0)),
    Recipe(
        "GatherElements",
        "64x4096 along axis 1",
        of(_n(64, 4096), _i(64, 4096, high=4096), axis=1),
        reason=(
            "3 MB of data and indices are copied into the inputs of the capture, and every index is "
            "checked before it is used."
        ),
    ),
    Recipe(
        "Gather",
        "50 of 64x1000x32 along axis 1",
        of(_n(64, 1000, 32), _i(50, high=1000), axis=1),
        reason=(
            "8 MB are copied into the input of the capture to read a twentieth of them; eager reads "
            "them where they lie."
        ),
    ),
    Recipe(
        "Pad",
        "64x56x56 by 1, edge",
        of(_n(1, 64, 56, 56), held([0, 0, 1, 1, 0, 0, 1, 1], np.int64), mode="edge"),
    ),
    Recipe("EyeLike", "512x512", of(_n(512, 512))),
    Recipe("LabelEncoder", "5000 of 100 keys", mapping, LEARNING),
    Recipe("Conv", "4x4, 512 to 256 channels, 4x4 pixels", filters),
    Recipe("QLinearConv", "3x3, 32 groups, 28x28 pixels", quantized_filters, tolerance=0.0),
    Recipe(
        "QLinearAdd",
        "64x4096",
        of(_c(64, 4096), SCALE, MIDDLE, _c(64, 4096), SCALE, MIDDLE, SCALE, MIDDLE),
        MICROSOFT,
    ),
    Recipe(
        "QLinearSigmoid",
        "64x4096",
        of(_c(64, 4096), SCALE, MIDDLE, SCALE, MIDDLE),
        MICROSOFT,
    ),
    Recipe(
        "QLinearConcat",
        "2 x 32x28x28",
        of(SCALE, MIDDLE, _c(1, 32, 28, 28), SCALE, MIDDLE, _c(1, 32, 28, 28), SCALE, MIDDLE, axis=1),
        MICROSOFT,
    ),
    Recipe(
        "NhwcMaxPool",
        "2x2, 56x56x64",
        of(_c(1, 56, 56, 64), kernel_shape=[2, 2], strides=[2, 2]),
        MICROSOFT,
    ),
    Recipe(
        "CropAndResize",
        "50 boxes of 32x64x64 to 14x14",
        crops,
        MICROSOFT,
        reason=(
            "the four pixels of each sample are gathered and blended in passes over memory; "
            "onnxruntime blends as it reads."
        ),
    ),
    Recipe(
        "CDist",
        "100 and 200 rows of 64",
        of(_n(100, 64), _n(200, 64), metric="euclidean"),
        MICROSOFT,
        reason=(
            "distances are summed from differences, so that rows that lie close keep their digits; "
            "onnxruntime takes a matrix product."
        ),
    ),
    Recipe(
        "MaxpoolWithMask",
        "2x2, 32x56x56",
        of(
            _n(1, 32, 56, 56),
            lambda rng: np.ones((1, 32, 56, 56), np.int32),
            kernel_shape=[2, 2],
            strides=[2, 2],
        ),
        MICROSOFT,
    ),
    Recipe("StringSplit", "5000 texts", texts(5000, delimiter=" "), outputs=2),
    Recipe(
        "RegexFullMatch",
        "5000 texts",
        texts(5000, pattern=r"Hello \w+ \d+"),
    ),
    Recipe(
        "IsInf",
        "64x4096",
        of(_n(64, 4096)),
        reason="1 MB is copied into the input of the capture, which takes as long as onnxruntime in all.",
    ),
    Recipe("ReverseSequence", "100x32x64", of(_n(100, 32, 64), _i(32, high=100), time_axis=0, batch_axis=1)),
    Recipe(
        "Col2Im",
        "64x28x28 of 3x3",
        of(_n(1, 576, 784), held([28, 28], np.int64), held([3, 3], np.int64), pads=[1] * 4),
        reason=(
            "1.8 MB are copied into the input of the capture, and torch adds the windows up number by number."
        ),
    ),
    Recipe(
        "Conv",
        "3x3x3, 16 channels, 16x32x32 voxels",
        of(_n(1, 16, 16, 32, 32), weights(16, 16, 3, 3, 3), pads=[1] * 6),
    ),
    Recipe(
        "HannWindow",
        "400",
        of(held(400, np.int64)),
        reason=(
            "a dozen calls on 400 numbers, each of which costs more than its arithmetic; onnxruntime "
            "makes one pass."
        ),
    ),
    Recipe("MatMulNBits", "4 bits, 1x1024 by 1024x1024", nibbles, MICROSOFT),
    Recipe("MatMulBnb4", "1x1024 by 1024x1024", levels, MICROSOFT),
)
