"""Op test cases: one record a case; every check that a kernel owes is derived from it."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from ortsession import ort_session

from torch_ort_session.ir import schema

_EXTRA = {
    "bfloat16": (ml_dtypes.bfloat16, onnx.TensorProto.BFLOAT16),
    "float8e4m3fn": (ml_dtypes.float8_e4m3fn, onnx.TensorProto.FLOAT8E4M3FN),
    "float8e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, onnx.TensorProto.FLOAT8E4M3FNUZ),
    "float8e5m2": (ml_dtypes.float8_e5m2, onnx.TensorProto.FLOAT8E5M2),
    "float8e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, onnx.TensorProto.FLOAT8E5M2FNUZ),
    "float8e8m0": (ml_dtypes.float8_e8m0fnu, onnx.TensorProto.FLOAT8E8M0),
    "float4e2m1": (ml_dtypes.float4_e2m1fn, onnx.TensorProto.FLOAT4E2M1),
    "int4": (ml_dtypes.int4, onnx.TensorProto.INT4),
    "uint4": (ml_dtypes.uint4, onnx.TensorProto.UINT4),
    "int2": (ml_dtypes.int2, onnx.TensorProto.INT2),
    "uint2": (ml_dtypes.uint2, onnx.TensorProto.UINT2),
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an element type's short name (``float32``, ``bfloat16``, ``int4``, ``string``)."""
    if name == "string":
        return np.dtype(object)
    return np.dtype(_EXTRA[name][0]) if name in _EXTRA else np.dtype(name)


def onnx_type(array: np.ndarray[Any, Any]) -> int:
    """The ONNX element type code of an array."""
    for kind, code in _EXTRA.values():
        if array.dtype == np.dtype(kind):
            return int(code)
    if array.dtype == object:
        return int(onnx.TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


@dataclass(frozen=True)
class Random:
    """An input of random data."""

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0
    dtype: str | None = None

    def make(self, rng: np.random.Generator, dtype: str) -> np.ndarray[Any, Any]:
        name = self.dtype or dtype
        kind = numpy_dtype(name)
        if kind == np.bool_:
            return rng.integers(0, 2, self.shape).astype(bool)
        if name.startswith("complex"):
            real = rng.uniform(self.low, self.high, self.shape)
            return np.asarray(real + 1j * rng.uniform(self.low, self.high, self.shape)).astype(kind)
        if "int" in name:
            low, high = (self.low, self.high) if (self.low, self.high) != (-1.0, 1.0) else (-4, 5)
            if name.startswith("uint"):
                low = max(low, 0)
            bits = int(name.lstrip("uint"))
            if bits < 8:
                low, high = (0, 1 << bits) if name.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
            return rng.integers(int(low), int(high), self.shape).astype(kind)
        return np.asarray(rng.uniform(self.low, self.high, self.shape)).astype(kind)


@dataclass(frozen=True, eq=False)
class Fixed:
    """An input of fixed data; ``dtype`` None means the case's dtype."""

    data: Any
    dtype: str | None

    def make(self, rng: np.random.Generator, dtype: str) -> np.ndarray[Any, Any]:
        return np.asarray(self.data, dtype=numpy_dtype(self.dtype or dtype))


@dataclass(frozen=True)
class Sequence_:
    """A sequence input of several tensors."""

    items: tuple[Random | Fixed, ...]

    def make(self, rng: np.random.Generator, dtype: str) -> list[np.ndarray[Any, Any]]:
        return [item.make(rng, dtype) for item in self.items]


def t(*shape: int, low: float = -1.0, high: float = 1.0, dtype: str | None = None) -> Random:
    """Random data in ``[low, high)`` (integers by default in [-4, 5))."""
    return Random(shape, low, high, dtype)


def const(data: Any, dtype: str | None = None) -> Fixed:
    """The same data at every draw."""
    return Fixed(data, dtype)


def seq(*items: Random | Fixed) -> Sequence_:
    """A sequence of tensors."""
    return Sequence_(items)


Input = Random | Fixed | Sequence_ | None
Oracle = str | Callable[..., Any]
Answer = Callable[[Mapping[str, Any]], list[Any]]


@dataclass(frozen=True, eq=False)
class OpCase:
    """One operator with one choice of inputs and attributes, over dtypes and opsets.

    Attributes:
        op: Operator name.
        inputs: One entry an input; None leaves an optional one out.
        attrs: Attributes.
        dtypes: Dtypes that inputs without a dtype of their own take.
        domain: Operator domain.
        opset: Opset of the domain; None is the newest.
        opsets: Several opsets; overrides ``opset``.
        outputs: Number of outputs; a tuple of bools leaves out those that are False.
        grad: Whether float inputs are checked with gradcheck.
        oracle: ``"reference"`` (onnx's), ``"onnxruntime"``, or a function of numpy inputs and ``**attrs``.
        tol: Relative tolerance; None takes the dtype's.
        id: Text for the test's name.
    """

    op: str
    inputs: Sequence[Input]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Sequence[str] = ("float32",)
    domain: str = ""
    opset: int | None = None
    opsets: Sequence[int] = ()
    outputs: int | Sequence[bool] = 1
    grad: bool = False
    oracle: Oracle = "reference"
    tol: float | None = None
    id: str | None = None

    def variants(self) -> list[tuple[str, int]]:
        """Every (dtype, opset) the case runs at."""
        newest = schema.newest_opset(self.domain) or 1
        opsets = self.opsets or (self.opset or newest,)
        return [(dtype, opset) for opset in opsets for dtype in self.dtypes]

    def feeds(self, dtype: str, draw: int) -> dict[str, Any]:
        """Seeded numpy inputs; another ``draw`` gives other random data of the same shapes."""
        rng = np.random.default_rng([zlib.crc32(self.op.encode()), draw])
        return {f"x{i}": item.make(rng, dtype) for i, item in enumerate(self.inputs) if item is not None}

    def model(self, dtype: str, opset: int) -> onnx.ModelProto:
        """A model of the single node, with graph inputs of unknown dims but known rank."""
        infos = []
        for name, value in self.feeds(dtype, 0).items():
            if isinstance(value, list):
                kind = helper.make_tensor_type_proto(onnx_type(value[0]), None)
                infos.append(helper.make_value_info(name, helper.make_sequence_type_proto(kind)))
            else:
                dims = [f"{name}_{axis}" for axis in range(value.ndim)]
                infos.append(helper.make_tensor_value_info(name, onnx_type(value), dims))
        kept = [True] * self.outputs if isinstance(self.outputs, int) else list(self.outputs)
        names = [f"y{i}" if keep else "" for i, keep in enumerate(kept)]
        node = helper.make_node(
            self.op,
            ["" if item is None else f"x{i}" for i, item in enumerate(self.inputs)],
            names,
            name="case",
            domain=self.domain,
            **self.attrs,
        )
        results = [onnx.ValueInfoProto(name=name) for name in names if name]
        graph = helper.make_graph([node], "case", infos, results)
        opsets = [helper.make_opsetid("", opset if self.domain in ("", "ai.onnx") else 21)]
        if self.domain not in ("", "ai.onnx"):
            opsets.append(helper.make_opsetid(self.domain, opset))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def expected(self, dtype: str, opset: int, feeds: Mapping[str, Any]) -> list[Any]:
        """What the oracle says."""
        return self.ask(dtype, opset)(feeds)

    def ask(self, dtype: str, opset: int) -> Answer:
        """The oracle of the model at a dtype and an opset, made once for feeds of the same shapes."""
        if callable(self.oracle):
            return self._called
        model = self.model(dtype, opset)
        if self.oracle == "onnxruntime":
            return _onnxruntime(model)
        from onnx.reference import ReferenceEvaluator

        reference = ReferenceEvaluator(model)
        return lambda feeds: list(reference.run(None, dict(feeds)))

    def _called(self, feeds: Mapping[str, Any]) -> list[Any]:
        assert callable(self.oracle)
        values = [None if item is None else feeds[f"x{i}"] for i, item in enumerate(self.inputs)]
        result = self.oracle(*values, **self.attrs)
        return list(result) if isinstance(result, tuple) else [result]


def ms(
    op: str,
    inputs: Sequence[Input],
    attrs: Mapping[str, Any] | None = None,
    oracle: Oracle = "onnxruntime",
    **more: Any,
) -> OpCase:
    """A case of an operator of com.microsoft; onnxruntime is asked unless another oracle is named."""
    return OpCase(op, inputs, attrs or {}, domain="com.microsoft", oracle=oracle, **more)


def exact(x: Any) -> torch.Tensor:
    """An array as float64."""
    return torch.from_numpy(np.asarray(x, np.float64))


def _unknown_to_numpy(value: Any) -> bool:
    return any(getattr(value, "dtype", None) == np.dtype(kind) for kind, _ in _EXTRA.values())


def _onnxruntime(model: onnx.ModelProto) -> Answer:
    """What onnxruntime's CPU provider makes of a model of one node."""
    sessions: dict[tuple[tuple[int, ...], ...], Any] = {}

    def answer(feeds: Mapping[str, Any]) -> list[Any]:
        # Types that only onnx and ml_dtypes know cannot be fed.
        fixed = {name: value for name, value in feeds.items() if _unknown_to_numpy(value)}
        shapes = tuple(np.shape(value) for value in feeds.values() if not isinstance(value, list))
        session = None if fixed else sessions.get(shapes)
        if session is None:
            session = sessions[shapes] = _onnxruntime_session(model, feeds, fixed)
        return list(session.run(None, {name: value for name, value in feeds.items() if name not in fixed}))

    return answer


def _onnxruntime_session(model: onnx.ModelProto, feeds: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
    """A session for feeds of these shapes, with the fixed ones as weights."""
    names = [name for name in model.graph.node[0].output if name]
    model = copy.deepcopy(model)
    # Shape inference of some ops insists on dims.
    for info in model.graph.input:
        if info.type.HasField("tensor_type"):
            for dim, size in zip(info.type.tensor_type.shape.dim, feeds[info.name].shape, strict=True):
                dim.dim_value = size
    for name, value in fixed.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    for info in [info for info in model.graph.input if info.name in fixed]:
        model.graph.input.remove(info)
    del model.graph.output[:]
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {info.name: info for info in inferred.graph.value_info}
    for name in names:
        model.graph.output.append(known.get(name, onnx.ValueInfoProto(name=name)))
    return ort_session(model.SerializeToString())


TOLERANCE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}


def assert_matches(got: Any, want: Any, tol: float | None = None) -> None:
    """Compare a result of ours (tensor, tuple, object array, None) with an oracle's (numpy)."""
    if want is None:
        assert got is None
    elif isinstance(want, (list, tuple)):
        assert isinstance(got, tuple), type(got)
        assert len(got) == len(want)
        for ours, theirs in zip(got, want, strict=True):
            assert_matches(ours, theirs, tol)
    elif isinstance(got, np.ndarray):
        assert got.dtype == object
        assert got.shape == np.shape(want)
        assert got.tolist() == np.asarray(want, dtype=object).tolist()
    else:
        _assert_tensor(got, np.asarray(want), tol)


def _assert_tensor(got: torch.Tensor, want: np.ndarray[Any, Any], tol: float | None) -> None:
    assert isinstance(got, torch.Tensor), type(got)
    assert tuple(got.shape) == want.shape, (tuple(got.shape), want.shape)
    assert got.dtype == carrier(want.dtype), (got.dtype, want.dtype)
    if got.is_complex() or got.is_floating_point():
        wide = np.complex128 if got.is_complex() else np.float64
        ours = got.detach().to(torch.complex128 if got.is_complex() else torch.float64).numpy()
        theirs = want.astype(wide)
        finite = np.abs(theirs[np.isfinite(theirs)])
        scale = float(finite.max()) if finite.size else 1.0
        bound = tol if tol is not None else TOLERANCE.get(got.dtype, 0.0)
        np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound * max(scale, 1e-3), equal_nan=True)
    else:
        kind = np.int64 if want.dtype not in (np.dtype(np.uint64), np.dtype(bool)) else want.dtype
        np.testing.assert_array_equal(got.numpy().astype(kind), want.astype(kind))


def carrier(dtype: np.dtype[Any]) -> torch.dtype:
    """The torch dtype that carries a numpy dtype."""
    from torch_ort_session.ir.types import ElementType

    code = onnx_type(np.zeros((), dtype))
    found = ElementType(code).torch_dtype
    assert found is not None
    return found
