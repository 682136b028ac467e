"""Random weights for models that are shipped without theirs.

onnx's light models make every weight with ConstantOfShape, all elements equal. Then all channels are equal,
the probabilities are the same for any picture, and a wrong kernel would not show.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


def filled(path: Path) -> bytes:
    """The model with random weights in place of its ConstantOfShape nodes, the same ones each time.

    What goes into a Softmax that makes an output becomes an output too: probabilities hide much of an error.
    """
    model = onnx.load(path)
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made = [node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in shapes]
    for node in made:
        shape = tuple(int(size) for size in shapes[node.input[0]])
        graph.initializer.append(numpy_helper.from_array(_drawn(node.output[0], shape), node.output[0]))
        graph.node.remove(node)
    outputs = {output.name for output in graph.output}
    graph.output.extend(
        helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
        for node in graph.node
        if node.op_type == "Softmax" and outputs & set(node.output)
    )
    # Up to IR version 3 every initializer had to be an input as well.
    model.ir_version = max(model.ir_version, 4)
    return model.SerializeToString()


def _drawn(name: str, shape: tuple[int, ...]) -> Array:
    """Matrices and filters keep the size of what goes through; vectors, maybe variances, stay positive."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))
