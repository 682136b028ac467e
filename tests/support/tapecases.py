"""Bodies that a naive recording gets wrong, each with what must come of it.

``right``: it replays right with other data. Else it is refused while recording, or diverges at a replay.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tapelab import Body, data

RIGHT = "right"
CASES: dict[str, tuple[Body, str]] = {}


def case(name: str, expected: str, body: Body) -> None:
    assert name not in CASES
    CASES[name] = (body, expected)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


W, B = random(8, 8), random(8)
KERNEL, TRIPLES = random(3, 2, 3, 3), random(4, 2, 3)
STATE = random(4, 8)
FIRST = data(0)
LSTM = [random(32, 8), random(32, 8), random(32), random(32)]
GRU = [random(24, 8), random(24, 8), random(24), random(24)]
OPS: Any = torch.ops.provoking
MKLDNN: Any = torch.ops.mkldnn


def normed(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Normalised, and the running statistics as they are afterwards."""
    y = F.batch_norm(x, mean, variance, training=True)
    return torch.cat([y.flatten(), mean, variance])


def moved(x: torch.Tensor) -> torch.Tensor:
    """Zeros while recording, and positive at every replay."""
    return (x - FIRST).abs()


def places(x: torch.Tensor) -> torch.Tensor:
    return (x.abs() * 3).long().clamp(0, 7)


def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    larger = F.interpolate(x, scale_factor=2, mode="bilinear").sum((1, 2))
    return larger + F.grid_sample(x, grid, align_corners=False).sum()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def attention(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask, is_causal=mask is None)


def states(count: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros(1, 1, 8) for _ in range(count))


def autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ W).float()


def quantized(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates them
        return torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)


@functools.cache
def packed() -> Any:
    """A weight within a script object."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weight = torch.quantize_per_tensor(W, 0.05, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(weight, B)


@functools.cache
def reordered() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Opaque weights of a linear layer, a convolution and an int8 linear layer."""
    linear = torch.ops.mkldnn._reorder_linear_weight(W, 4)
    sizes = ([1, 1], [1, 1], [1, 1], 1, [1, 2, 4, 4])
    convolution = torch.ops.mkldnn._reorder_convolution_weight(KERNEL, *sizes)
    int8 = (W * 20).to(torch.int8).t().contiguous().t()
    return linear, convolution, torch.ops.onednn.qlinear_prepack(int8, [4, 8])


def int8_linear(x: torch.Tensor) -> torch.Tensor:
    scales, zeros = torch.full((8,), 0.1), torch.zeros(8, dtype=torch.int64)
    activation = (x.clamp(-3, 3) * 20 + 100).to(torch.uint8)
    return torch.ops.onednn.qlinear_pointwise(
        activation, 0.05, 100, reordered()[2], scales, zeros, B, 1.0, 0, torch.float32, "none", [], ""
    )


def fused_convolution(x: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
    where = ([1, 1], [1, 1], [1, 1], 1)
    if total is None:
        return MKLDNN._convolution_pointwise(image(x), reordered()[1], None, *where, "relu", [], "")
    return MKLDNN._convolution_pointwise_(
        total, image(x), reordered()[1], None, *where, "add", None, None, [], ""
    )


def swapped(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    x.data = other
    return x + 1


def image(x: torch.Tensor) -> torch.Tensor:
    return x.view(1, 2, 4, 4)


def then(value: Any, result: Any) -> Any:
    """`result`, after `value` was evaluated for its effect."""
    return result


# Plain calls, views and in-place writes.
case("functional chain", RIGHT, lambda x: torch.relu(x @ W) + 1)
case("in place on a fresh tensor", RIGHT, lambda x: (x * 2).add_(1).relu_())
case("in place on a view", RIGHT, lambda x: (lambda y: then(y[:, :4].mul_(3), y + 0))(x * 2))
case(
    "write through one view, read through another",
    RIGHT,
    lambda x: (lambda y: then(y.t()[1:3].zero_(), y.view(-1)[::2].sum(0)))(x + 1),
)
case("as_strided", RIGHT, lambda x: (x * 1).as_strided((3, 3), (8, 2), 1) + 1)
case("index_put_", RIGHT, lambda x: (x * 1).index_put_((torch.tensor([0, 1]), torch.tensor([2, 3])), B[:2]))
case(
    "index_put_ that accumulates",
    RIGHT,
    lambda x: (x * 1).index_put_((torch.tensor([0, 0]),), x[:1], accumulate=True),
)
case("number put where a mask is set", RIGHT, lambda x: (lambda y: then(y.__setitem__(y > 0, 0.0), y))(x * 1))
case(
    "split, chunk, unbind", RIGHT, lambda x: x.mul(2).chunk(2, 1)[0].sum(1) + torch.stack(x.unbind(0)).sum(1)
)
case("cat, topk, sort", RIGHT, lambda x: torch.cat([torch.topk(x, 2)[0], torch.sort(x)[0]], 1))
case("several results", RIGHT, lambda x: x.max(1)[0] + F.layer_norm(x, (8,))[:, 0])
case("state written twice", RIGHT, lambda x: then(STATE.copy_(x).add_(1), STATE * 2))
case("a view of the feed", RIGHT, lambda x: x.view(-1))
case("expand, contiguous", RIGHT, lambda x: x[:1].expand(4, 8).contiguous() + x.contiguous())
case("constant from Python", RIGHT, lambda x: x + torch.tensor([1.0] * 8))
case("factories", RIGHT, lambda x: x + torch.arange(8) + torch.full((8,), 2.0) + torch.zeros(4, 1))
case("empty, then filled", RIGHT, lambda x: torch.empty(4, 8).copy_(x).mul_(2) + torch.empty_like(x).fill_(1))
case(
    "empty, then filled in parts",
    RIGHT,
    lambda x: (
        torch.empty(4, 8).index_copy_(0, torch.arange(4), x)
        + torch.empty_like(x).scatter(1, torch.arange(8).expand(4, 8), x)
        + torch.add(x, 1, out=torch.empty(4, 8))
        + torch.zeros_like(torch.empty(4, 8))
        + torch.empty(4, 0).sum()
    ),
)
case("cumsum, scatter, gather", RIGHT, lambda x: x.cumsum(0).scatter(1, places(x), x).gather(1, places(x)))
case("embedding_bag", RIGHT, lambda x: F.embedding_bag(places(x), W))
case("embedding", RIGHT, lambda x: F.embedding(places(x), W).sum(1))
case(
    "batch norm",
    RIGHT,
    lambda x: F.batch_norm(image(x), B[:2], B[4:6].abs() + 1, B[2:4], B[3:5], training=False),
)
case("batch norm that keeps statistics", RIGHT, lambda x: normed(image(x), torch.zeros(2), torch.ones(2)))
case("group norm", RIGHT, lambda x: F.group_norm(image(x), 2))
case("pooling", RIGHT, lambda x: F.max_pool2d(image(x), 2) + F.avg_pool2d(image(x), 2))
case(
    "transposed convolution", RIGHT, lambda x: F.conv_transpose2d(image(x), KERNEL.transpose(0, 1), stride=2)
)
case("grouped convolution", RIGHT, lambda x: F.conv1d(x.view(1, 4, 8), TRIPLES, groups=2, padding=1))
case(
    "gru",
    RIGHT,
    lambda x: torch.gru(x.view(4, 1, 8), states(1)[0], GRU, True, 1, 0.0, False, False, False)[0],
)
case("einsum", RIGHT, lambda x: torch.einsum("ij,kj->ik", x, W))
case("where, masked_fill", RIGHT, lambda x: torch.where(x > 0, x, -x).masked_fill(x > 1, 2.0))
case("half precision", RIGHT, lambda x: (x.half() @ W.half()).float() + x.bfloat16().softmax(-1).float())
case("integers that wrap", RIGHT, lambda x: (x * 1000).int() * 1_000_003)
case("empty tensors", RIGHT, lambda x: torch.cat([x[:0] * 2, x[:, :0].sum(1, keepdim=True).expand(4, 8)]))
case("pad, roll, flip", RIGHT, lambda x: F.pad(x.roll(1, 0).flip(1), (1, 2), value=3.0))
case("interpolate, grid_sample", RIGHT, lambda x: sampled(image(x), torch.tanh(x.view(1, 4, 4, 2))))
case("convolution in channels_last", RIGHT, lambda x: F.conv2d(channels_last(image(x)), KERNEL, None, 1, 1))
case(
    "channels_last and back", RIGHT, lambda x: channels_last(image(x)).permute(0, 2, 3, 1).reshape(4, -1) + 1
)
case("complex fft", RIGHT, lambda x: torch.fft.rfft(x).abs())
case(
    "write through view_as_real",
    RIGHT,
    lambda x: (lambda z: then(torch.view_as_real(z).mul_(2), z.real + z.imag))(torch.complex(x, x)),
)
case(
    "lazy conj", RIGHT, lambda x: (torch.complex(x, x * 2).conj() * 1j).imag + torch.complex(x, x).conj().imag
)
case("clone of a lazy conj", RIGHT, lambda x: torch.complex(x, x * 2).conj().clone().imag + 0)
case(
    "attention with a mask", RIGHT, lambda x: attention(x.view(1, 1, 4, 8), x.view(1, 1, 4, 8)[..., :4] > -1)
)
case("attention, causal", RIGHT, lambda x: attention(x.view(1, 1, 4, 8), None))
case(
    "lstm",
    RIGHT,
    lambda x: torch.lstm(x.view(4, 1, 8), states(2), LSTM, True, 1, 0.0, False, False, False)[0],
)
case("python branch on a shape", RIGHT, lambda x: x + 1 if x.shape[0] > 3 else x)
case("autocast within the body", RIGHT, lambda x: autocast(x))
case("int8 matmul", RIGHT, lambda x: torch._int_mm((x * 10).to(torch.int8), (W * 10).to(torch.int8)).float())
case("int8 weights", RIGHT, lambda x: torch._weight_int8pack_mm(x, (W * 40).to(torch.int8), B))
case("drop-out that drops nothing", RIGHT, lambda x: F.dropout(x, 0.5, training=False) + 1)

case("script object as argument", RIGHT, lambda x: torch.ops.quantized.linear_dynamic(x, packed()))
case(
    "opaque weight",
    RIGHT,
    lambda x: MKLDNN._linear_pointwise(x, reordered()[0], B, "relu", [], "") + 1,
)
case(
    "opaque weight, fused with an addition",
    RIGHT,
    lambda x: MKLDNN._linear_pointwise(x, x + 1, reordered()[0], B, "add"),
)
case("fused convolution", RIGHT, lambda x: fused_convolution(x) + 1)
case("fused convolution that adds in place", RIGHT, lambda x: fused_convolution(x, torch.ones(1, 3, 4, 4)))
case("fused int8 linear", RIGHT, int8_linear)

# Data that would be read on the host, or decide a shape.
SHAPE = "its result's shape or value on the host depends on data"
HOST = "it gives data to the host"
SCALAR = f"refused: aten._local_scalar_dense.default: {SHAPE}"
case(
    "mask as index",
    "refused: aten.index.Tensor: its result's shape depends on a mask",
    lambda x: x[x > 0].sum(),
)
case("masked_select", f"refused: aten.masked_select.default: {SHAPE}", lambda x: x.masked_select(x > 0).sum())
case("nonzero", f"refused: aten.nonzero.default: {SHAPE}", lambda x: torch.nonzero(x > 0).float().sum())
case("where of one", f"refused: aten.nonzero.default: {SHAPE}", lambda x: torch.where(x > 0)[0].float().sum())
case("unique", f"refused: aten._unique2.default: {SHAPE}", lambda x: torch.unique(x.round()).sum())
case(
    "repeat_interleave",
    f"refused: aten.repeat_interleave.Tensor: {SHAPE}",
    lambda x: x.flatten().repeat_interleave((x.flatten() > 0).long() + 1).sum(),
)
case("bincount", f"refused: aten.bincount.default: {SHAPE}", lambda x: torch.bincount(places(x).flatten()))
BLANK = "it reads memory that no recorded call wrote"
case("sizes as data", f"refused: aten.mul.Tensor: {BLANK}", lambda x: torch._shape_as_tensor(x) * 2)
case("sizes, updated", f"refused: aten.add_.Tensor: {BLANK}", lambda x: torch._shape_as_tensor(x).add_(1))
case("sizes, viewed", f"refused: aten.neg.default: {BLANK}", lambda x: -torch._shape_as_tensor(x)[1:])
case(
    "sizes within a list",
    f"refused: aten.cat.default: {BLANK}",
    lambda x: torch.cat([torch._shape_as_tensor(x)]),
)
case(
    "legacy constructor",
    "refused: Tensor.__index__: it reads data on the host",
    lambda x: torch.Tensor([x[0, 0], x[1, 1]]) + 1,
)
case("branch on item", "refused: Tensor.item: it reads data on the host", lambda x: x + x.sum().item())
case(
    "branch on bool",
    "refused: Tensor.__bool__: it reads data on the host",
    lambda x: x + 1 if x.sum() > 0 else x - 1,
)
case("branch on equal", f"refused: aten.equal.default: {SHAPE}", lambda x: x + torch.equal(x, x.abs()))
case(
    "branch on allclose", f"refused: aten.allclose.default: {SHAPE}", lambda x: x + torch.allclose(x, x.abs())
)
case("numpy", "refused: Tensor.numpy: it reads data on the host", lambda x: x + x.numpy().sum())
case("asarray", "refused: Tensor.__array__: it reads data on the host", lambda x: x + np.asarray(x).sum())
case("dlpack", "refused: Tensor.__dlpack__: it reads data on the host", lambda x: x + np.from_dlpack(x).sum())
case("tolist", "refused: Tensor.tolist: it reads data on the host", lambda x: x + x.flatten().tolist()[0])
case(
    "int",
    "refused: Tensor.__int__: it reads data on the host",
    lambda x: x[: int(x.abs().max() * 2) % 4 + 1].sum(),
)
case("as an index", SCALAR, lambda x: x[: places(x)[0, 0]].sum())
case("as a size", SCALAR, lambda x: torch.ones(places(x)[0, 0]).sum())
case("as a number", SCALAR, lambda x: torch.full((2,), x.sum()))
case("arange to a tensor", SCALAR, lambda x: torch.arange(x.abs().max() * 4).sum())
case("data_ptr", "refused: Tensor.data_ptr: it reads data on the host", lambda x: x + x.data_ptr() % 2)
case(
    "tensors within a list",
    "refused: torch.tensor: it reads the tensors in a list on the host",
    lambda x: torch.tensor([x.sum(), 1.0]),
)
case(
    "tensor_split at a tensor",
    "refused: torch.tensor_split: it reads a tensor on the host",
    lambda x: torch.tensor_split(x, torch.tensor([1, 2]))[0].sum(),
)
case(
    "packed lstm",
    "refused: torch.lstm: it reads a tensor on the host",
    lambda x: torch.lstm(x, torch.tensor([1, 1, 1, 1]), states(2), LSTM, True, 1, 0.0, False, False)[0],
)

# Random numbers.
DRAWS = "it draws random numbers"
case("drop-out", f"refused: aten.bernoulli_.float: {DRAWS}", lambda x: F.dropout(x, 0.5, True))
case("rand_like", f"refused: aten.rand_like.default: {DRAWS}", lambda x: x + torch.rand_like(x))
case("normal_", f"refused: aten.normal_.default: {DRAWS}", lambda x: (x * 1).normal_())
case("randperm", f"refused: aten.randperm.default: {DRAWS}", lambda x: x[torch.randperm(4)])
case(
    "multinomial",
    f"refused: aten.multinomial.default: {DRAWS}",
    lambda x: torch.multinomial(torch.softmax(x, -1), 8).float(),
)

# Shapes and storages that change after they were made, and tensors that are more than their bytes.
INPLACE = "it changes a tensor's shape in place"
RESIZED = "refused: a storage was resized after it was made"
case(
    "as_strided_",
    f"refused: aten.as_strided_.default: {INPLACE}",
    lambda x: (x * 1).as_strided_((3, 3), (8, 2)),
)
case("transpose_", f"refused: aten.unsqueeze_.default: {INPLACE}", lambda x: (x * 1).unsqueeze_(0) + 1)
case("resize_", f"refused: aten.resize_.default: {INPLACE}", lambda x: (x * 2).resize_(2, 8) + 1)
case("set_", f"refused: aten.set_.source_Tensor: {INPLACE}", lambda x: torch.empty(0).set_(x * 2) + 1)
case("out= that grows", RESIZED, lambda x: torch.add(x, 1, out=torch.empty(0)))
case("data swapped", "refused: Tensor.data: it changes a tensor's storage", lambda x: swapped(x * 1, x + 1))
case(
    "opaque",
    "refused: aten.to_mkldnn.default: its result is opaque",
    lambda x: x.to_mkldnn().relu().to_dense(),
)
case(
    "quantized tensor",
    "refused: aten.quantize_per_tensor.default: its result is not a plain tensor on the CPU",
    lambda x: quantized(x).dequantize() + 1,
)
case(
    "meta tensor",
    "refused: aten._to_copy.default: its result is not a plain tensor on the CPU",
    lambda x: x.to("meta"),
)

# Ops of others, which keep or break their schema.
case("fresh", RIGHT, lambda x: OPS.plain(x) + 1)
case(
    "alias that the schema hides",
    "refused: provoking.hidden_alias.default: its result aliases an input, which its schema does not say",
    lambda x: OPS.hidden_alias(x) + 1,
)
case("sometimes an alias", RIGHT, lambda x: OPS.sometimes_alias(x * 1, 0) + OPS.sometimes_alias(x, 1))
case("declared write", RIGHT, lambda x: (lambda y: then(OPS.add_into(y, x), y))(x * 1))
case("hidden write", RIGHT, lambda x: (lambda y: then(OPS.hidden_write(y), y))(x * 1))
case(
    "hidden write that gives its argument",
    "refused: provoking.hidden_write_and_alias.default: "
    "its result aliases an input, which its schema does not say",
    lambda x: OPS.hidden_write_and_alias(x * 1) + 1,
)
case("out=", RIGHT, lambda x: OPS.twice(x, out=torch.empty(4, 8)) + 1)
case("read within a composite", SCALAR, lambda x: OPS.hidden_read(x))
KEEPS = "it keeps its result's memory, or shares it with others"
case("own workspace", f"refused: provoking.workspace.default: {KEEPS}", lambda x: OPS.workspace(x) + 1)
case(
    "own workspace given twice",
    f"refused: provoking.workspace.default: {KEEPS}",
    lambda x: OPS.workspace(x) + OPS.workspace(x * 2),
)
case("two results in one storage", RIGHT, lambda x: (lambda t: t[0] + t[1])(OPS.two_of_one(x)))
case(
    "optional, string, floats",
    RIGHT,
    lambda x: OPS.many_kinds(x, None, "relu", [0.5]) + OPS.many_kinds(x, B, "", [1.0]),
)
case("alias at a replay only", "diverged: who owns the bytes", lambda x: OPS.late_alias(moved(x), x * 2))
case("length that follows data", "diverged: the shape", lambda x: OPS.hidden_length(moved(x)))
case("undefined result", RIGHT, lambda x: OPS.maybe_undefined(x)[0] * 2)
case("writes, and makes results", RIGHT, lambda x: OPS.writes_and_makes(x * 1, x))
