"""A module under ``torch.compile``: one whole graph, with its weights as inputs and its native ops in it."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from networks import Cnn, cnn_model
from textmodel import load
from torch._dynamo.backends.common import aot_autograd

import torch_ort_session as tos
from torch_ort_session.ops import native

pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = "g (float[n, 3] x) => (float[n, 2] y, float[n, 3] z) { m = MatMul(x, w) y = Relu(m) z = Identity(x) }"
W = torch.linspace(-1.0, 1.0, 6).reshape(3, 2)
BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def targets(found: list[str]) -> Any:
    """A backend that notes the operators of the graphs that it is given."""

    def compiled(graph: torch.fx.GraphModule, examples: Any) -> Any:
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compiled)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_is_one_graph_for_all_sizes(backend: str) -> None:
    module = load(TEXT, weights={"w": W}).module()
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    for rows in (2, 5, 3):
        x = torch.randn(rows, 3)
        out = compiled(x)
        assert out.keys() == ("y", "z")
        assert torch.allclose(out.y, torch.relu(x @ W))
        assert torch.equal(out["z"], x)
        out.z.zero_()
        assert x.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_module_trains(backend: str) -> None:
    torch.manual_seed(0)
    module = tos.load(cnn_model(Cnn().eval())).module(trainable=True)
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    x = torch.randn(4, 3, 16, 16)
    for _ in range(2):
        module(x).square().mean().backward()
        wanted = {name: value.grad.clone() for name, value in module.named_parameters()}
        module.zero_grad()
        compiled(x).square().mean().backward()
        for name, value in module.named_parameters():
            torch.testing.assert_close(value.grad, wanted[name], atol=1e-5, rtol=1e-4)
        with torch.no_grad():
            for value in module.parameters():
                value.sub_(value.grad, alpha=0.1)
        module.zero_grad()
    torch.testing.assert_close(compiled(x), module(x))


def test_feeds_of_every_form() -> None:
    module = load("g (float[n, 3] x, float[n, 3] z) => (float[n, 3] y) { y = Sub(x, z) }").module()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    for out in (
        compiled(a, b),
        compiled(a, z=b),
        compiled(z=b, x=a),
        compiled({"x": a, "z": b}),
        compiled(a.numpy(), b),
    ):
        assert torch.equal(out, a - b)


@pytest.mark.skipif(not native.load(), reason="the extension is not built")
@pytest.mark.parametrize(
    ("op", "text", "weights", "shape"),
    [
        ("top_k", "v, y = TopK(x, k)", {"k": torch.tensor([3])}, (5, 8)),
        ("skip_rms_norm", "y = RMSNormalization <axis = -1> (x, w)", {"w": torch.ones(8)}, (5, 8)),
        (
            "lstm_layer",
            "y = LSTM <hidden_size = 2> (x, w, r)",
            {"w": torch.ones(1, 8, 3), "r": torch.ones(1, 8, 2)},
            (4, 2, 3),
        ),
    ],
)
def test_native_ops_are_in_the_graph(
    op: str, text: str, weights: dict[str, torch.Tensor], shape: tuple[int, ...]
) -> None:
    kind = "int64" if op == "top_k" else "float"
    dims = ", ".join("abc"[: len(shape)])
    out = "?, ?, ?, ?" if op == "lstm_layer" else "?, ?"
    session = load(f"g (float[{dims}] x) => ({kind}[{out}] y) {{ {text} }}", weights=weights, opset=23)
    module, found = session.module(), []
    compiled = torch.compile(module, backend=targets(found), fullgraph=True)
    x = torch.randn(shape)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    assert f"torch_ort_session.{op}.default" in found


def test_what_was_traced_runs_as_before() -> None:
    module = load(TEXT, weights={"w": W}).module()
    x = torch.randn(2, 3)
    torch.export.export(module, (x,))
    assert torch.allclose(module(x).y, torch.relu(x @ W))
    text = (
        "g (float[n, 8] x) => (float[?, ?] v, int64[?, ?] y) {"
        " k = Constant <value = int64[1] {3}> () v, y = TopK(x, k) }"
    )
    module = load(text).module()
    x = torch.randn(5, 8)
    torch.compile(module, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(module(x).v, x.topk(3).values)


def test_why_a_model_is_not_one_graph(caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "g (float[n] x, bool c) => (float[n] y) { y = If(c) <then_branch = t () => (float[n] a) {"
        " a = Relu(x) }, else_branch = e () => (float[n] b) { b = Neg(x) }> }"
    )
    module = load(text).module()
    x, c = torch.tensor([-1.0, 2.0]), torch.tensor(False)
    with caplog.at_level(logging.WARNING), pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(module, backend="eager", fullgraph=True)(x, c)
    assert "torch.compile cannot trace the model: node 'If_0' (ai.onnx::If)" in caplog.text
    assert torch.compile(module, backend="eager")(x, c).tolist() == [1.0, -2.0]


def test_compilers_keep_no_model() -> None:
    module = load(TEXT, weights={"w": W}).module()
    torch.compile(module, backend="eager", fullgraph=True)(torch.randn(2, 3))
    engine, run = weakref.ref(module._engine), weakref.ref(module)
    del module
    gc.collect()
    assert engine() is None
    assert run() is None


def test_copies_compile_for_themselves() -> None:
    module = load(TEXT, weights={"w": W}).module()
    x = torch.randn(2, 3)
    torch.compile(module, backend="eager", fullgraph=True)(x)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        with torch.no_grad():
            other.get_buffer("w").mul_(2)
        out = torch.compile(other, backend="eager", fullgraph=True)(x)
        assert torch.allclose(out.y, torch.relu(x @ W) * 2)
