"""Networks in torch, and the same networks as ONNX models over the same weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn


class Cnn(nn.Module):
    """Convolutions, grouped too, with batch norm, pooling, a residual, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.ModuleDict(
            {
                "deep": nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
                "point": nn.Conv2d(8, 8, 1),
                "norm": nn.BatchNorm2d(8),
            }
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        y = self.block["norm"](self.block["point"](self.block["deep"](x)))
        x = nn.functional.max_pool2d(torch.nn.functional.hardswish(x + y), 2)
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """Embedding, pre-norm self-attention with a mask, feed-forward with GELU, and a head."""

    def __init__(self, layers: int = 2, width: int = 16, heads: int = 4, words: int = 20) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.randn(12, width) / 4)
        self.layers = nn.ModuleList(_Layer(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.position[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask, self.heads)
        return self.head(self.norm(x))


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        # A bias of the keys changes nothing, so that its gradient would be rounding noise.
        self.key = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, heads: int) -> torch.Tensor:
        batch, length, width = x.shape
        normed = self.norm1(x)
        q, k, v = (
            part(normed).reshape(batch, length, heads, width // heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(2, 3) / (width // heads) ** 0.5 + mask[:, None, None]
        joined = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(joined)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class _Writer:
    """Nodes and weights of a model while it is written."""

    def __init__(self, source: nn.Module) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights = {name: value.detach().numpy().copy() for name, value in source.state_dict().items()}
        self.count = 0

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        name = f"/{op}_{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_output_0"], name=name, **attributes))
        return f"{name}_output_0"

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return self("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def shape_of(self, value: str, *dims: int) -> list[str]:
        """Dims of a value as tensors of one element, as an exporter writes them."""
        shape, axes = self("Shape", value), self.constant([0])
        return [self("Unsqueeze", self("Gather", shape, self.constant(dim)), axes) for dim in dims]

    def linear(self, x: str, name: str) -> str:
        """A linear layer on more than two dims: a weight that is transposed in the graph."""
        weight = self("Transpose", f"{name}.weight", perm=[1, 0])
        product = self("MatMul", x, weight)
        return self("Add", product, f"{name}.bias") if f"{name}.bias" in self.weights else product

    def model(self, inputs: Iterable[Any], result: str, shape: list[Any], opset: int = 20) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], ["y"], name="/last"))
        used = {name for node in self.nodes for name in node.input}
        weights = [numpy_helper.from_array(v, k) for k, v in self.weights.items() if k in used]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "network", list(inputs), [output], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def cnn_model(source: Cnn) -> onnx.ModelProto:
    """A :class:`Cnn` as its exporter would write it."""
    w = _Writer(source)

    def norm(x: str, name: str) -> str:
        parts = [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        return w("BatchNormalization", x, *parts, epsilon=1e-5)

    x = w("Conv", "x", "stem.weight", "stem.bias", strides=[2, 2], pads=[1, 1, 1, 1])
    x = w("Relu", norm(x, "norm"))
    y = w("Conv", x, "block.deep.weight", pads=[1, 1, 1, 1], group=8)
    y = w("Conv", y, "block.point.weight", "block.point.bias")
    x = w("HardSwish", w("Add", x, norm(y, "block.norm")))
    x = w("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = w("Flatten", w("GlobalAveragePool", x))
    y = w("Gemm", x, "head.weight", "head.bias", transB=1)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "h", "w"])
    return w.model([image], y, ["batch", 5])


def transformer_model(source: Transformer) -> onnx.ModelProto:
    """A :class:`Transformer` with the shape arithmetic that exporters write."""
    w = _Writer(source)
    heads, width = source.heads, source.position.shape[1]
    batch, length = w.shape_of("ids", 0, 1)
    zero, minus = w.constant([0]), w.constant([-1])
    split = w("Concat", batch, length, w.constant([heads]), w.constant([width // heads]), axis=0)
    joined = w("Concat", batch, length, minus, axis=0)
    position = w("Slice", "position", zero, length, zero)
    x = w("Add", w("Gather", "embed.weight", "ids"), position)
    mask = w("Unsqueeze", "mask", w.constant([1, 2]))
    scale = w("Sqrt", w("Cast", w.constant(width // heads), to=TensorProto.FLOAT))

    def norm(x: str, name: str) -> str:
        return w("LayerNormalization", x, f"{name}.weight", f"{name}.bias", axis=-1, epsilon=1e-5)

    for number in range(len(source.layers)):
        layer = f"layers.{number}"
        normed = norm(x, f"{layer}.norm1")
        q, k, v = (
            w("Reshape", w.linear(normed, f"{layer}.{part}"), split) for part in ("query", "key", "value")
        )
        q, v = (w("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        k = w("Transpose", k, perm=[0, 2, 3, 1])
        scores = w("Add", w("Div", w("MatMul", q, k), scale), mask)
        mixed = w("Transpose", w("MatMul", w("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = w("Add", x, w.linear(w("Reshape", mixed, joined), f"{layer}.out"))
        up = w("Gelu", w.linear(norm(x, f"{layer}.norm2"), f"{layer}.up"))
        x = w("Add", x, w.linear(up, f"{layer}.down"))
    y = w.linear(norm(x, "norm"), "head")
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"]),
        helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "length"]),
    ]
    return w.model(inputs, y, ["batch", "length", source.embed.num_embeddings])
