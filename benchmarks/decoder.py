"""A small decoder whose cache feeds grow, written the way torch's exporters write one.

Embedding, RMSNorm from primitive operators, rotary embedding from tables, grouped queries, a causal and
padding mask from Shape, Range and Where, and caches that come in as inputs and go out one longer. Every shape
is read back from a tensor and put together again, as exported models do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Size:
    """How large the decoder is."""

    layers: int = 2
    heads: int = 4
    groups: int = 2
    width: int = 8
    words: int = 50
    longest: int = 512

    @property
    def hidden(self) -> int:
        return self.heads * self.width


class Builder:
    """Nodes and constants so far."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.generator = torch.Generator().manual_seed(seed)

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        output = name or f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, inputs, [output], name=f"{op}_{len(self.nodes)}", **attributes)
        )
        return output

    def ints(self, *numbers: int) -> str:
        return self._constant(f"ints_{'_'.join(map(str, numbers))}", np.array(numbers, np.int64))

    def int(self, number: int) -> str:
        return self._constant(f"int_{number}", np.array(number, np.int64))

    def float(self, number: float) -> str:
        return self._constant(f"float_{number}", np.array(number, np.float32))

    def weight(self, name: str, *shape: int) -> str:
        drawn = torch.randn(*shape, generator=self.generator) / shape[0] ** 0.5
        return self._constant(name, drawn.numpy())

    def _constant(self, name: str, array: np.ndarray[Any, Any]) -> str:
        self.constants[name] = array
        return name

    def dim(self, x: str, axis: int) -> str:
        """One dim of a value, 0-d."""
        return self.add("Gather", self.add("Shape", x), self.int(axis), axis=0)

    def pack(self, *dims: str) -> str:
        """0-d numbers as one list."""
        return self.add("Concat", *(self.add("Unsqueeze", dim, self.ints(0)) for dim in dims), axis=0)

    def expand(self, x: str, dims: str, rank: int) -> str:
        """Expand as exporters write it: -1 in the list keeps the dim."""
        ones = self.add("ConstantOfShape", self.ints(rank), value=helper.make_tensor("v", 7, [1], [1]))
        minus = self.add("Mul", ones, self.int(-1))
        wanted = self.add("Where", self.add("Equal", dims, minus), ones, dims)
        return self.add("Expand", x, wanted)


def make_decoder(size: Size = Size(), seed: int = 0) -> onnx.ModelProto:
    """The decoder: ids, mask, positions and caches in; logits and longer caches out."""
    b = Builder(seed)
    past = b.dim("past.0.key", 2)
    length = b.dim("input_ids", 1)
    total = b.add("Add", past, length)
    places = b.add("Range", past, total, b.int(1))
    x = b.add("Gather", b.weight("embed", size.words, size.hidden), "input_ids", axis=0)
    mask = _mask(b, x, places, length, total)
    angles = np.outer(np.arange(size.longest), 1e4 ** -(np.arange(0, size.width, 2) / size.width))
    table = np.concatenate([angles, angles], axis=1).astype(np.float32)
    cos = b.add("Unsqueeze", b.add("Gather", b._constant("cos", np.cos(table)), "position_ids"), b.ints(1))
    sin = b.add("Unsqueeze", b.add("Gather", b._constant("sin", np.sin(table)), "position_ids"), b.ints(1))
    for layer in range(size.layers):
        x = _layer(b, size, layer, x, mask, (cos, sin))
    b.add("MatMul", _norm(b, size, "norm", x), b.weight("head", size.hidden, size.words), name="logits")
    return _model(b, size)


def _mask(b: Builder, x: str, places: str, length: str, total: str) -> str:
    """Added to the scores: 0 where a query may look, the lowest number elsewhere."""
    low = float(np.finfo(np.float32).min)
    full = b.add(
        "ConstantOfShape", b.pack(length, total), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [low])
    )
    full = b.add("Trilu", full, b.int(1), upper=1)
    columns = b.add("Range", b.int(0), total, b.int(1))
    later = b.add("Greater", columns, b.add("Reshape", places, b.ints(-1, 1)))
    full = b.add("Mul", full, b.add("Cast", later, to=TensorProto.FLOAT))
    full = b.add("Unsqueeze", b.add("Unsqueeze", full, b.ints(0)), b.ints(0))
    full = b.expand(full, b.pack(b.dim(x, 0), b.int(1), b.int(-1), b.int(-1)), 4)
    wide = b.add("Unsqueeze", b.dim("attention_mask", 1), b.ints(0))
    part = b.add("Slice", full, b.ints(0), wide, b.ints(3), b.ints(1))
    padding = b.add("Unsqueeze", b.add("Unsqueeze", "attention_mask", b.ints(1)), b.ints(2))
    padding = b.add("Add", part, b.add("Cast", padding, to=TensorProto.FLOAT))
    return b.add("Where", b.add("Equal", padding, b.float(0.0)), b.float(low), part)


def _norm(b: Builder, size: Size, name: str, x: str) -> str:
    mean = b.add("ReduceMean", b.add("Pow", x, b.float(2.0)), b.ints(-1), keepdims=1)
    root = b.add("Sqrt", b.add("Add", mean, b.float(1e-5)))
    scaled = b.add("Mul", x, b.add("Div", b.float(1.0), root))
    return b.add("Mul", b._constant(name, np.ones(size.hidden, np.float32)), scaled)


def _turned(b: Builder, size: Size, x: str, tables: tuple[str, str]) -> str:
    """Rotary embedding; the halves are cut at what Shape says."""
    half = b.add("Unsqueeze", b.add("Div", b.dim(x, 3), b.int(2)), b.ints(0))
    left = b.add("Slice", x, b.ints(0), half, b.ints(3), b.ints(1))
    right = b.add("Slice", x, half, b.ints(np.iinfo(np.int64).max), b.ints(3), b.ints(1))
    crossed = b.add("Concat", b.add("Neg", right), left, axis=-1)
    return b.add("Add", b.add("Mul", x, tables[0]), b.add("Mul", crossed, tables[1]))


def _repeated(b: Builder, size: Size, x: str) -> str:
    """Keys or values once for each query head."""
    batch, groups, length, width = (b.dim(x, axis) for axis in range(4))
    each = size.heads // size.groups
    wide = b.expand(b.add("Unsqueeze", x, b.ints(2)), b.pack(batch, groups, b.int(each), length, width), 5)
    merged = b.add("Mul", groups, b.int(each))
    return b.add("Reshape", wide, b.pack(batch, merged, length, width))


def _layer(b: Builder, size: Size, layer: int, x: str, mask: str, tables: tuple[str, str]) -> str:
    name = f"layers.{layer}."
    normed = _norm(b, size, name + "norm1", x)
    batch, length = b.dim(normed, 0), b.dim(normed, 1)
    parts = []
    for part, heads in (("q", size.heads), ("k", size.groups), ("v", size.groups)):
        made = b.add("MatMul", normed, b.weight(name + part, size.hidden, heads * size.width))
        dims = b.pack(batch, length, b.int(heads), b.int(size.width))
        parts.append(b.add("Transpose", b.add("Reshape", made, dims), perm=[0, 2, 1, 3]))
    query, key = _turned(b, size, parts[0], tables), _turned(b, size, parts[1], tables)
    key = b.add("Concat", f"past.{layer}.key", key, axis=-2, name=f"present.{layer}.key")
    value = b.add("Concat", f"past.{layer}.value", parts[2], axis=-2, name=f"present.{layer}.value")
    keys, values = _repeated(b, size, key), _repeated(b, size, value)
    scores = b.add("MatMul", query, b.add("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = b.add("Div", scores, b.float(float(size.width**0.5)))
    end = b.add("Unsqueeze", b.dim(keys, 2), b.ints(0))
    scores = b.add("Add", scores, b.add("Slice", mask, b.ints(0), end, b.ints(3), b.ints(1)))
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), values)
    mixed = b.add("Reshape", b.add("Transpose", mixed, perm=[0, 2, 1, 3]), b.pack(batch, length, b.int(-1)))
    x = b.add("Add", x, b.add("MatMul", mixed, b.weight(name + "o", size.hidden, size.hidden)))
    normed = _norm(b, size, name + "norm2", x)
    gate = b.add("MatMul", normed, b.weight(name + "gate", size.hidden, 2 * size.hidden))
    gate = b.add("Mul", gate, b.add("Sigmoid", gate))
    up = b.add("MatMul", normed, b.weight(name + "up", size.hidden, 2 * size.hidden))
    down = b.add("MatMul", b.add("Mul", gate, up), b.weight(name + "down", 2 * size.hidden, size.hidden))
    return b.add("Add", x, down)


def _model(b: Builder, size: Size) -> onnx.ModelProto:
    def info(name: str, kind: int, *dims: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [
        info("input_ids", TensorProto.INT64, "batch", "length"),
        info("attention_mask", TensorProto.INT64, "batch", "total"),
        info("position_ids", TensorProto.INT64, "batch", "length"),
    ]
    outputs = [info("logits", TensorProto.FLOAT, "batch", "length", size.words)]
    for layer in range(size.layers):
        for part in ("key", "value"):
            kind, place = TensorProto.FLOAT, f"{layer}.{part}"
            inputs.append(info(f"past.{place}", kind, "batch", size.groups, "past", size.width))
            outputs.append(info(f"present.{place}", kind, "batch", size.groups, "total", size.width))
    constants = [numpy_helper.from_array(array, name) for name, array in b.constants.items()]
    graph = helper.make_graph(b.nodes, "decoder", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def first_feed(size: Size, batch: int = 1, past: int = 0, seed: int = 0) -> dict[str, torch.Tensor]:
    """One token for each row, behind a cache of some length."""
    generator = torch.Generator().manual_seed(seed)
    feed = {
        "input_ids": torch.randint(size.words, (batch, 1), generator=generator),
        "attention_mask": torch.ones(batch, past + 1, dtype=torch.int64),
        "position_ids": torch.full((batch, 1), past),
    }
    for layer in range(size.layers):
        for part in ("key", "value"):
            shape = (batch, size.groups, past, size.width)
            feed[f"past.{layer}.{part}"] = torch.randn(shape, generator=generator)
    return feed


def next_feed(
    feed: Mapping[str, torch.Tensor], results: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The most likely token behind the cache that the run before gave."""
    mask = feed["attention_mask"]
    following = {
        "input_ids": results["logits"][:, -1:].argmax(-1),
        "attention_mask": torch.nn.functional.pad(mask, (0, 1), value=1),
        "position_ids": feed["position_ids"][:, -1:] + 1,
    }
    return following | {
        name.replace("present", "past"): value for name, value in results.items() if name != "logits"
    }


class TorchDecoder:
    """The same network written for torch, as model code does, on the weights of the ONNX one."""

    def __init__(self, size: Size, model: onnx.ModelProto, device: torch.device | str = "cpu") -> None:
        self.size = size
        self.weights = {
            tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()).to(device)
            for tensor in model.graph.initializer
        }

    def run(self, feed: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Logits and longer caches, in the order of the model's outputs."""
        with torch.inference_mode():
            return self._run(feed)

    def _run(self, feed: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        w, size = self.weights, self.size
        ids, positions = feed["input_ids"], feed["position_ids"]
        x = torch.nn.functional.embedding(ids, w["embed"])
        batch, length = ids.shape
        total = feed["past.0.key"].shape[2] + length
        low = torch.finfo(x.dtype).min
        mask = torch.full((length, total), low, device=x.device).triu(total - length + 1)
        mask = mask[None, None].expand(batch, 1, -1, -1)
        mask = mask.masked_fill(feed["attention_mask"][:, None, None, :] == 0, low)
        tables = w["cos"][positions][:, None], w["sin"][positions][:, None]
        caches: list[torch.Tensor] = []
        for layer in range(size.layers):
            name = f"layers.{layer}."
            normed = self._norm(name + "norm1", x)
            query, key, value = (
                torch.matmul(normed, w[name + part]).view(batch, length, heads, size.width).transpose(1, 2)
                for part, heads in (("q", size.heads), ("k", size.groups), ("v", size.groups))
            )
            key = torch.cat([feed[f"past.{layer}.key"], self._turned(key, tables)], 2)
            value = torch.cat([feed[f"past.{layer}.value"], value], 2)
            caches += [key, value]
            keys, values = self._repeated(key), self._repeated(value)
            scores = torch.matmul(self._turned(query, tables), keys.transpose(2, 3)) / size.width**0.5
            mixed = torch.matmul(torch.softmax(scores + mask, -1), values)
            mixed = mixed.transpose(1, 2).reshape(batch, length, size.hidden)
            x = x + torch.matmul(mixed, w[name + "o"])
            normed = self._norm(name + "norm2", x)
            gate = torch.nn.functional.silu(torch.matmul(normed, w[name + "gate"]))
            x = x + torch.matmul(gate * torch.matmul(normed, w[name + "up"]), w[name + "down"])
        return [torch.matmul(self._norm("norm", x), w["head"]), *caches]

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self.weights[name] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def _turned(self, x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        return x * tables[0] + torch.cat((-right, left), -1) * tables[1]

    def _repeated(self, x: torch.Tensor) -> torch.Tensor:
        batch, groups, length, width = x.shape
        each = self.size.heads // groups
        wide = x[:, :, None].expand(batch, groups, each, length, width)
        return wide.reshape(batch, groups * each, length, width)
