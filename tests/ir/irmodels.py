"""Small models for the loader's tests."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.save import graph_proto

OPSET = 21


def value(name: str, element: int = TensorProto.FLOAT, shape: Sequence[int | str | None] | None = (2,)):
    return helper.make_tensor_value_info(name, element, shape)


def graph_of(nodes, inputs=("x",), outputs=("y",), weights=(), name="g", **more) -> onnx.GraphProto:
    def infos(items):
        return [value(item) if isinstance(item, str) else item for item in items]

    return helper.make_graph(nodes, name, infos(inputs), infos(outputs), list(weights), **more)


def model_of(nodes, *args, opsets=((("", OPSET)),), functions=(), ir_version=10, **kwargs) -> onnx.ModelProto:
    opsets = (*opsets, ("local", 1)) if functions else opsets
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets]
    return helper.make_model(
        graph_of(nodes, *args, **kwargs),
        opset_imports=imports,
        functions=list(functions),
        ir_version=ir_version,
        producer_name="tests",
    )


def with_weight(tensor: onnx.TensorProto) -> onnx.ModelProto:
    """A model whose output is one weight."""
    return model_of([], inputs=[], outputs=[value(tensor.name, tensor.data_type, None)], weights=[tensor])


def external(name: str, location: str, dims=(2,), element=TensorProto.FLOAT, **entries) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=element, dims=dims, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    for key, item in entries.items():
        tensor.external_data.add(key=key, value=str(item))
    return tensor


def write(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def fault(source, **kwargs) -> str:
    """The text of the error that loading gives."""
    try:
        load_model(source, **kwargs)
    except ModelError as error:
        text = str(error)
        assert text.startswith(f"{error.place}: "), (error.place, text)
        return text
    raise AssertionError("the model loads")


def lines(*texts: str) -> str:
    """Messages for pinning, wrapped, one after the other."""
    wrapper = textwrap.TextWrapper(100, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(line for text in texts for line in wrapper.wrap(text))


def rebuilt(source, opset: int = OPSET) -> onnx.ModelProto:
    """The loaded graph as a model without functions, for onnx's reference to run."""
    graph = graph_proto(load_model(source).graph)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def evaluate(model: onnx.ModelProto, **feed: np.ndarray) -> list[np.ndarray]:
    return ReferenceEvaluator(model).run(None, feed)


def floats(name: str, *values: float) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.FLOAT, [len(values)], values)
