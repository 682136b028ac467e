"""Shapes that a model computes, under tracers: they follow the symbols of what is fed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from networks import Transformer, transformer_model
from textmodel import load
from torch.fx.experimental.proxy_tensor import make_fx

import torch_ort_session as tos

pytestmark = pytest.mark.filterwarnings("ignore")

ONE = (
    "<int64[1] one = {1}, int64[1] two = {2}, int64 zero = {0}, int64[1] origin = {0}, int64[1] rest = {-1}>"
)
TEXTS = {
    "Gather, Unsqueeze, Concat": (
        "s = Shape(x) n = Gather(s, zero) m = Unsqueeze(n, origin) t = Concat <axis = 0> (m, rest)"
        " y = Reshape(x, t)"
    ),
    "Slice, Mul": (
        "s = Shape(x) n = Slice(s, origin, one) m = Mul(n, two) t = Concat <axis = 0> (m, rest)"
        " y = Reshape(x, t)"
    ),
    "Shape of a part": "n = Shape <start = 0, end = 1> (x) t = Concat <axis = 0> (n, rest) y = Reshape(x, t)",
    "Size, Div, Cast": (
        "k = Size(x) d = Div(k, two) c = Cast <to = 7> (d) t = Concat <axis = 0> (c, rest) y = Reshape(x, t)"
    ),
    "Add, Sub, Max, Min": (
        "s = Shape <end = 1> (x) a = Add(s, two) b = Sub(a, one) c = Max(b, two) d = Min(c, b)"
        " y = Slice(x, one, d, origin)"
    ),
    "Equal, Where": ("s = Shape(x) e = Equal(s, rest) w = Where(e, one, s) y = Expand(x, w)"),
    "ReduceProd, Squeeze": (
        "s = Shape(x) p = ReduceProd(s) q = Squeeze(p, origin) r = Unsqueeze(q, origin)"
        " t = Concat <axis = 0> (r, one) y = Reshape(x, t)"
    ),
    "Split": "s = Shape(x) a, b = Split <num_outputs = 2> (s) t = Concat <axis = 0> (a, b) y = Reshape(x, t)",
    "ConstantOfShape": "s = Shape(x) o = ConstantOfShape(s) y = Add(x, o)",
    "as data": "s = Shape(x) f = Cast <to = 1> (s) g = ReduceSum(f) y = Mul(x, g)",
    "as a result": "s = Shape(x) i = Identity(s) y = Transpose(i)",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_size_that_is_computed_is_exported_as_a_symbol(name: str) -> None:
    kind = "int64[?]" if name == "as a result" else "float[?, ?]"
    text = f"g (float[n, 4] x) => ({kind} y) {ONE} {{ {TEXTS[name]} }}"
    module = load(text).module()
    exported = torch.export.export(
        module, (torch.randn(6, 4),), dynamic_shapes=(({0: torch.export.Dim("n", min=3)},),)
    ).module()
    for rows in (6, 9, 4):
        x = torch.randn(rows, 4)
        want, got = module(x), exported(x)
        assert want.shape == got.shape
        torch.testing.assert_close(got, want)


def test_a_transformer_is_exported_for_every_batch_and_length() -> None:
    module = tos.load(transformer_model(Transformer().eval())).module()

    def feeds(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randint(0, 20, (batch, length)), torch.zeros(batch, length)

    dims = {0: torch.export.Dim("b"), 1: torch.export.Dim("t", min=2, max=12)}
    exported = torch.export.export(module, feeds(3, 7), dynamic_shapes=((dims, dims),)).module()
    for batch, length in ((3, 7), (2, 12), (5, 3)):
        given = feeds(batch, length)
        torch.testing.assert_close(exported(*given), module(*given))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_transformer_compiles_and_trains(dynamic: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = tos.load(transformer_model(Transformer().eval())).module(trainable=True)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    given = torch.randint(0, 20, (3, 7)), torch.zeros(3, 7)
    grads: list[dict[str, Any]] = []
    for run in (module, compiled):
        module.zero_grad()
        run(*given).square().mean().backward()
        grads.append({name: value.grad for name, value in module.named_parameters()})
    assert grads[0].keys() == grads[1].keys()
    for name, wanted in grads[0].items():
        if wanted is not None:
            torch.testing.assert_close(grads[1][name], wanted, atol=1e-5, rtol=1e-4)
    torch._dynamo.reset()


def test_what_is_fed_is_no_constant() -> None:
    text = (
        "g (float[n] x, int64[1] i) => (float[?] y) <int64[1] one = {1}> { j = Add(i, one) y = Gather(x, j) }"
    )
    module = load(text).module()
    x = torch.arange(5.0)
    traced = torch.fx.experimental.proxy_tensor.make_fx(module)(x, torch.tensor([0]))
    assert traced(x, torch.tensor([2])).tolist() == [3.0]


def test_what_is_compared_stays_a_bool() -> None:
    text = (
        "g (float[n, 3] x) => (bool[2] y, int64[2] c, bool[2] z) <int64[2] k = {2, 3}>"
        "{ s = Shape(x) y = Equal(s, k) c = Cast <to = 7> (y) z = Not(y) }"
    )
    module = load(text).module()
    traced = make_fx(lambda x: tuple(module(x)), tracing_mode="symbolic")(torch.rand(5, 3))
    got = traced(torch.rand(5, 3))
    assert [each.dtype for each in got] == [torch.bool, torch.int64, torch.bool]
    assert [each.tolist() for each in got] == [[False, True], [0, 1], [True, False]]
