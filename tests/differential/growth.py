"""Random graphs, grown node by node: each node is evaluated as it is added, so what grows is a valid model.

A value is *exact* when every runtime computes the same bits for it. Only such values go into ops whose result
jumps (comparisons, roundings, indices), so a difference of a last bit never becomes a difference of a whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
GROWN_SIZE = 3
"""Size of the symbol ``n`` while a graph grows."""

_LARGEST = 600
_EXACT_RANGE = 2.0**9


class Refused(Exception):
    """A choice that does not work out: the graph is left as it was."""


@dataclass(frozen=True)
class Value:
    """A value of a graph, with what it holds for the feed that the graph was grown on."""

    name: str
    data: Any
    exact: bool
    constant: bool = False

    @property
    def kind(self) -> str:
        """The numpy kind: ``f i u b``, ``l`` for a sequence."""
        return "l" if isinstance(self.data, list) else str(self.data.dtype.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)


@dataclass
class Growth:
    """A graph while it grows."""

    rng: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    inputs: dict[str, tuple[Array, tuple[int | str, ...]]] = field(default_factory=dict)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    prefix: str = "v"

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, items: Sequence[Any]) -> Any:
        if not items:
            raise Refused
        return items[int(self.rng.integers(len(items)))]

    def number(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``."""
        return int(self.rng.integers(low, high + 1))

    def need(self, condition: bool) -> None:
        if not condition:
            raise Refused

    def since(self, opset: int) -> None:
        self.need(self.opset >= opset)

    def fresh(self) -> str:
        return f"{self.prefix}{len(self.values)}"

    def pick(
        self, kinds: str = "f", ndim: int | None = None, *, exact: bool = False, least: int = 0
    ) -> Value:
        """A value of the graph; newer ones more often."""
        fitting = [
            v
            for v in self.values.values()
            if v.kind in kinds
            and (v.kind == "l" or ndim is None or v.data.ndim == ndim)
            and (v.kind == "l" or v.data.ndim >= least)
            and (v.exact or not exact)
        ]
        self.need(bool(fitting))
        return fitting[min(int(self.rng.beta(2.5, 1.0) * len(fitting)), len(fitting) - 1)]

    def draw(self, shape: Sequence[int], dtype: Any = np.float32, low: int = -8, high: int = 8) -> Array:
        """Data of few bits, so that sums and products of it are exact."""
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return self.rng.integers(0, 2, shape).astype(bool)
        whole = self.rng.integers(0 if kind.kind == "u" else low, high + 1, shape)
        return np.asarray(whole / 4 if kind.kind == "f" else whole).astype(kind)

    def feed(self, shape: Sequence[int | str], sizes: dict[str, int], dtype: Any) -> Value:
        """Add an input."""
        name = f"x{len(self.inputs)}"
        data = self.draw([sizes[d] if isinstance(d, str) else d for d in shape], dtype)
        self.inputs[name] = (data, tuple(shape))
        self.values[name] = Value(name, data, True)
        return self.values[name]

    def weight(self, data: Any, dtype: Any = None) -> Value:
        """Add a constant: an initializer or a Constant node."""
        array = np.asarray(data, dtype)
        name = self.fresh()
        if self.prefix != "v" or self.chance(0.3):
            self.nodes.append(
                helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
            )
        else:
            self.weights.append(numpy_helper.from_array(array, name))
        self.values[name] = Value(name, array, True, True)
        return self.values[name]

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: int = 1,
        *,
        exact: bool = False,
        **attributes: Any,
    ) -> Value:
        """Add a node; what the reference cannot compute, or what grows too large, is refused."""
        node = helper.make_node(
            op,
            [v.name if v is not None else "" for v in inputs],
            [f"{self.fresh()}_{i}" if outputs > 1 else self.fresh() for i in range(outputs)],
            **attributes,
        )
        results = self.evaluate(node, [v for v in inputs if v is not None])
        made = []
        for name, data in zip(node.output, results, strict=True):
            self.need(data is not None)
            sized = data if isinstance(data, list) else [data]
            self.need(all(item.size <= _LARGEST for item in sized))
            made.append(
                Value(name, data, exact and _exact(data) and all(v is None or v.exact for v in inputs))
            )
        self.nodes.append(node)
        self.values.update({v.name: v for v in made})
        return made[0]

    def evaluate(self, node: onnx.NodeProto, inputs: Sequence[Value]) -> list[Any]:
        """What the reference makes of a node."""
        unique = {v.name: v.data for v in inputs}
        outer = {name: v.data for name, v in self.values.items()}
        names = list(dict.fromkeys([*unique, *(n for n in outer if _reads(node, n))]))
        graph = helper.make_graph(
            [node],
            "one",
            [info(name, outer[name]) for name in names],
            [onnx.ValueInfoProto(name=name) for name in node.output],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return list(ReferenceEvaluator(model).run(None, {name: outer[name] for name in names}))
        except Exception as error:
            raise Refused(f"{node.op_type}: {error}") from error


def _reads(node: onnx.NodeProto, name: str) -> bool:
    if name in node.input:
        return True
    bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return any(_reads(inner, name) for body in bodies for inner in body.node) or any(
        out.name == name for body in bodies for out in body.output
    )


def _exact(data: Any) -> bool:
    if isinstance(data, list):
        return all(_exact(item) for item in data)
    if data.dtype.kind != "f":
        return True
    if data.dtype.itemsize == 2 or not np.isfinite(data).all():
        return False
    return bool((np.abs(data) < _EXACT_RANGE).all() and (data * 64 == np.rint(data * 64)).all())


def info(name: str, data: Any, shape: Sequence[int | str | None] | None = None) -> onnx.ValueInfoProto:
    """The type of a value."""
    if isinstance(data, list):
        element = helper.np_dtype_to_tensor_dtype(data[0].dtype) if data else onnx.TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, element, None)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(data.dtype), shape)


@dataclass(frozen=True)
class Grown:
    """A model, and the feeds it can be run on."""

    seed: int
    model: onnx.ModelProto
    inputs: dict[str, tuple[Array, tuple[int | str, ...]]]

    def feed(self, index: int, size: int) -> dict[str, Array]:
        """Data for every input, the symbol ``n`` being ``size``; that which it was grown on for index 0."""
        if not index:
            return {name: data for name, (data, _) in self.inputs.items()}
        growth = Growth(np.random.default_rng([self.seed, index, size]), 7)
        return {
            name: growth.draw([size if isinstance(d, str) else d for d in shape], data.dtype)
            for name, (data, shape) in self.inputs.items()
        }


Family = Callable[[Growth], object]


def grow(seed: int, families: Sequence[Family], opset: int | None = None) -> Grown:
    """A model of 5 to 40 nodes.

    Args:
        seed: Everything follows from it.
        families: What may be added, each with the same chance.
        opset: Its opset; the seed chooses one when it is None.
    """
    rng = np.random.default_rng(seed)
    version = int(rng.integers(7, onnx.defs.onnx_opset_version() + 1))
    growth = Growth(rng, version if opset is None else opset)
    ranks = [int(r) for r in rng.choice([0, 1, 2, 3, 4], size=3, p=[0.05, 0.15, 0.35, 0.25, 0.2])]
    kinds = [
        np.float32,
        rng.choice([np.float32, np.float32, np.float64, np.int64]),
        rng.choice([np.float32, np.int32, bool]),
    ]
    for rank, kind in zip(ranks, kinds, strict=True):
        fixed = [int(d) for d in rng.choice([1, 2, 3, 4, 5], size=rank, p=[0.2, 0.25, 0.25, 0.2, 0.1])]
        shape: list[int | str] = list(fixed)
        if rank and rng.random() < 0.8:
            shape[0] = "n"
        growth.feed(shape, {"n": GROWN_SIZE}, kind)
    wanted = growth.number(5, 40)
    for _ in range(wanted * 6):
        if len(growth.nodes) >= wanted:
            break
        nodes, values, weights = len(growth.nodes), dict(growth.values), len(growth.weights)
        try:
            growth.one_of(families)(growth)
        except Refused:
            del growth.nodes[nodes:], growth.weights[weights:]
            growth.values = values
    return _finish(growth, seed)


def _finish(growth: Growth, seed: int) -> Grown:
    read = {name for node in growth.nodes for v in growth.values for name in [v] if _reads(node, v)}
    made = [v for v in growth.values.values() if v.name not in growth.inputs and not v.constant]
    outputs = [v for v in made if v.name not in read or growth.chance(0.2)] or made[-1:]
    if growth.chance(0.1):
        outputs.append(next(v for v in growth.values.values() if v.name in growth.inputs))
    if growth.chance(0.1) and growth.weights:
        outputs.append(growth.values[growth.one_of(growth.weights).name])
    graph = helper.make_graph(
        growth.nodes,
        f"seed {seed}",
        [info(name, data, shape) for name, (data, shape) in growth.inputs.items()],
        [info(v.name, v.data) for v in outputs],
        initializer=growth.weights,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", growth.opset)],
        ir_version=8 if growth.opset < 19 else 10,
    )
    return Grown(seed, model, growth.inputs)
