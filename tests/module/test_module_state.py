"""The state of a module: names, what is learnt, what travels, and what it refuses."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from networks import Cnn, Transformer, cnn_model, transformer_model
from onnx import TensorProto, helper, numpy_helper
from plan.onmeta import META, OneSide
from textmodel import load, message, wrapped

import torch_ort_session as tos


def sum_of(*names: str) -> tos.Session:
    """A model that adds up weights of the given names."""
    nodes, last = [], "x"
    for number, name in enumerate(names):
        nodes.append(helper.make_node("Add", [last, name], [f"/sum_{number}"]))
        last = f"/sum_{number}"
    weights = [numpy_helper.from_array(np.float32([2**i]), name) for i, name in enumerate(names)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "sum", infos[:1], infos[1:], weights)
    return tos.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


NAMES = {
    "nested": (["a.weight", "a.bias", "b.0.weight"], ["a.weight", "a.bias", "b.0.weight"]),
    "a leaf and a scope, leaf first": (["a", "a.b"], ["a", "a_.b"]),
    "a leaf and a scope, scope first": (["a.b", "a"], ["a.b", "a_"]),
    "attributes of every module": (
        ["training", "forward", "weight.T", "_modules", "_parameters.a"],
        ["training_", "forward_", "weight.T", "_modules_", "_parameters_.a"],
    ),
    "attributes of this module": (
        ["_engine", "_paths.b", "_run"],
        ["_engine_", "_paths_.b", "_run_"],
    ),
    "empty parts": (["a..b", ".c", "d."], ["a._.b", "_.c", "d._"]),
    "the same after it is changed": (["a..b", "a._.b"], ["a._.b", "a._.b_"]),
    "slashes and colons": (["/layer.0/W:0", "while/body/b"], ["/layer.0/W:0", "while/body/b"]),
    "a dot alone": (["."], ["_._"]),
    "not a word": (["0", "1.2", "naïve", "with space.x"], ["0", "1.2", "naïve", "with space.x"]),
}


@pytest.mark.parametrize("case", NAMES)
def test_names(case: str) -> None:
    names, expected = NAMES[case]
    session = sum_of(*names)
    module = session.module(trainable=True)
    assert sorted(name for name, _ in module.named_parameters()) == sorted(expected)
    x = torch.tensor([0.5])
    assert module(x).item() == 0.5 + 2 ** len(names) - 1
    for number, name in enumerate(expected):
        assert module.get_parameter(name).item() == 2**number
    module(x).backward()
    assert all(value.grad == 1 for value in module.parameters())
    # The names are those of the state whatever is done with it.
    again = session.module(trainable=True)
    again.load_state_dict({key: value + 1 for key, value in module.state_dict().items()})
    assert again(x).item() == 0.5 + 2 ** len(names) - 1 + len(names)


def test_the_state_has_the_names_of_the_source() -> None:
    cnn, transformer = Cnn().eval(), Transformer().eval()
    for source, proto in ((cnn, cnn_model(cnn)), (transformer, transformer_model(transformer))):
        wanted = {k: v for k, v in source.state_dict().items() if "num_batches_tracked" not in k}
        module = tos.load(proto).module(trainable=True)
        assert module.state_dict().keys() == wanted.keys()
        for name, value in module.state_dict().items():
            assert torch.equal(value, wanted[name])
        assert dict(module.named_parameters()).keys() == dict(source.named_parameters()).keys()
        other = tos.load(proto).module(trainable=True)
        changed = {name: value + 0.01 for name, value in wanted.items()}
        other.load_state_dict(changed)
        source.load_state_dict(changed, strict=False)
    feed = torch.randint(0, 20, (2, 5)), torch.zeros(2, 5)
    torch.testing.assert_close(other(*feed), transformer(*feed))


def test_what_is_learnt_and_what_is_not() -> None:
    text = (
        "g (float[n, 2] x, int64[k] i) => (float[?, ?] y, float[n, 2] z, uint8[n, 2] q) <int64[2] shape"
        " = {2, -1},"
        " float16[2] half = {1, 2}, double[2] wide = {1, 2}, int64[1] axis = {1}, float low = {-1},"
        " float scale = {0.5}, uint8 zero = {3}, float[2] unused = {0, 0}, bool[2] flags = {1, 0}> {"
        " g0 = Gather(x, i) y = Reshape(g0, shape) c = Constant <value = float[2] {3, 4}> () a = Mul(x, c)"
        " h = Cast <to = 1> (half) w = Cast <to = 1> (wide) b = Add(a, h) d = Add(b, w) e = Clip(d, low)"
        " f = Cast <to = 1> (flags) z = Mul(e, f) q = QuantizeLinear(z, scale, zero) }"
    )
    module = load(text).module(trainable=True)
    assert_expected_inline(
        "\n".join(
            f"{name} {'learnt' if value.requires_grad else '-'}"
            for name, value in module.state_dict(keep_vars=True).items()
        ),
        """\
half_ learnt
wide learnt
unused learnt
shape -
axis -
low -
scale -
zero -
flags -""",
    )
    frozen = load(text).module()
    assert not list(frozen.parameters())
    assert frozen.state_dict().keys() == module.state_dict().keys()


def test_an_exporter_that_writes_weights_as_constants() -> None:
    text = (
        "g (float[n, 2] x) => (float[?, ?] y) <int64[2] shape = {2, -1}> { w = Constant <value ="
        " float[2] {3, 4}> ()"
        " k = Constant <value = float {2}> () a = Mul(x, w) b = Mul(a, k) y = Reshape(b, shape) }"
    )
    module = load(text).module(trainable=True)
    assert [name for name, _ in module.named_parameters()] == ["w"]
    assert list(module.state_dict()) == ["w", "shape"]
    module(torch.ones(1, 2)).sum().backward()
    assert module.get_parameter("w").grad.tolist() == [2, 2]


def test_what_decides_shapes_cannot_be_changed() -> None:
    text = "g (float[6] x) => (float[?, ?] y) <int64[2] shape = {2, 3}> { y = Reshape(x, shape) }"
    module = load(text).module()
    module.load_state_dict(module.state_dict())
    state = {"shape": torch.tensor([3, 2])}
    assert_expected_inline(
        message(tos.ModelError, lambda: module.load_state_dict(state)),
        """\
weight 'shape': the state changes it, and it is a part of the program: it decides shapes or
indices; load a model that has the other value""",
    )


def test_train_mode() -> None:
    plain = load("g (float[n] x) => (float[n] y) <float[1] w = {2}> { y = Mul(x, w) }").module(trainable=True)
    assert plain.training is False
    assert plain.train().training is True
    assert plain.eval().training is False
    text = (
        "g (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1, 1}, float[2] b = {0, 0},"
        " float[2] m = {0, 0}, float[2] v = {1, 1}> { [norm] n = BatchNormalization(x, w, b, m, v)"
        " [drop] d = Dropout(n) [again] y = Dropout(d) }"
    )
    module = load(text).module(trainable=True)
    assert module.eval() is module
    assert_expected_inline(
        message(tos.UnsupportedOpError, module.train),
        """\
train mode is not supported for operators that behave differently in it:
  ai.onnx::BatchNormalization revision 15: nodes 'norm'
  ai.onnx::Dropout revision 13: nodes 'drop', 'again'
Stay in eval mode: gradients flow there too, with the stored statistics and without dropout.""",
    )
    assert module.training is False
    x = torch.ones(3, 2)
    module(x).sum().backward()
    assert module.get_parameter("w").grad is not None
    outer = torch.nn.Sequential(module)
    with pytest.raises(NotImplementedError):
        outer.train()


def test_another_dtype() -> None:
    module = tos.load(cnn_model(Cnn().eval())).module(trainable=True)
    assert_expected_inline(
        message(TypeError, module.double),
        """\
the weights cannot become torch.float64: the model declares torch.float32 for them, its inputs
and its casts; convert the ONNX model and load that""",
    )
    for change in (
        module.half,
        module.bfloat16,
        lambda: module.to(torch.float64),
        lambda: module.to("cpu", torch.half),
    ):
        with pytest.raises(TypeError):
            change()
    assert {value.dtype for value in module.parameters()} == {torch.float32}
    assert module.float() is module
    assert module.to("cpu") is module
    module(torch.ones(1, 3, 16, 16))


def test_moving_to_another_device() -> None:
    module = tos.load(transformer_model(Transformer().eval())).module(trainable=True)
    feed = torch.randint(0, 20, (2, 5)), torch.zeros(2, 5)
    shape = module(*feed).shape
    module.to(META)
    with OneSide() as mode, torch.no_grad():
        result = module(*(item.to(META) for item in feed))
    assert (result.shape, result.device, mode.mixed) == (shape, META, [])


def test_copies() -> None:
    torch.manual_seed(0)
    module = tos.load(cnn_model(Cnn().eval())).module(trainable=True)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        module.get_parameter("head.bias").add_(1)
    expected = module(x)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    copies = [
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(buffer, weights_only=False),
    ]
    for other in copies:
        assert torch.equal(other(x), expected)
        assert {p.data_ptr() for p in other.parameters()}.isdisjoint(
            p.data_ptr() for p in module.parameters()
        )
        assert all(p.requires_grad for p in other.parameters())
        other(x).sum().backward()
        with torch.no_grad():
            other.get_parameter("head.bias").zero_()
        assert torch.equal(module(x), expected)
        assert not torch.equal(other(x), expected)
    assert all(p.grad is None for p in module.parameters())


def test_weights_can_be_tied_and_replaced() -> None:
    module = sum_of("a.w", "b.w").module(trainable=True)
    x = torch.tensor([0.0])
    module.get_submodule("b").w = module.get_submodule("a").w
    assert module(x).item() == 2
    module(x).backward()
    assert module.get_parameter("a.w").grad.item() == 2
    module.get_submodule("a").w = torch.nn.Parameter(torch.tensor([5.0]))
    assert module(x).item() == 6
    called = torch.func.functional_call(module, {"a.w": torch.tensor([7.0])}, (x,))
    assert called.item() == 8
    assert module(x).item() == 6


def test_ways_to_call() -> None:
    session = load(
        "g (float a, float b) => (float y, float z) <float w = {2}> { y = Sub(a, b) z = Mul(y, w) }"
    )
    module = session.module()
    for out in (module(3.0, 1.0), module(3.0, b=1.0), module(b=1.0, a=3.0), module({"a": 3.0, "b": 1.0})):
        assert (out.y.item(), out["z"].item()) == (2, 4)
    assert_expected_inline(
        message(tos.InputError, lambda: module(3.0)), """required input(s) 'b' are missing; 'a' was fed"""
    )
    with pytest.raises(tos.KernelError):
        load("g (float[a] x, float[b] z) => (float[a] y) { y = Add(x, z) }").module()(
            [1.0, 2.0], [1.0, 2.0, 3.0]
        )


def test_results_are_not_the_weights() -> None:
    module = load("g (float[1] x) => (float[2] w, float[1] y) <float[2] w = {1, 2}> { y = Neg(x) }").module()
    out = module([1.0])
    out.w.zero_()
    assert module([1.0]).w.tolist() == [1, 2]
    learnt = load("g (float[1] x) => (float[2] y) <float[2] w = {1, 2}> { y = Identity(w) }").module(
        trainable=True
    )
    result = learnt([1.0])
    assert result.requires_grad
    assert not result.is_leaf
    with torch.no_grad():
        result.zero_()
    assert learnt([1.0]).tolist() == [1, 2]


def test_an_initializer_that_is_an_input() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {10, 20}> { y = Mul(x, w) }"
    module = load(text, ir=3).module(trainable=True)
    assert module([1.0, 1.0]).tolist() == [10, 20]
    assert module([1.0, 1.0], w=[2.0, 3.0]).tolist() == [2, 3]
    module([1.0, 1.0]).sum().backward()
    assert module.get_parameter("w").grad.tolist() == [1, 1]


def test_repr() -> None:
    module = sum_of("a.w", "b.0.w").module(trainable=True)
    assert_expected_inline(
        wrapped(repr(module)),
        """\
SessionModule(
  '<proto>'
  (a): Module()
  (b): Module(
    (0): Module()
  )
)""",
    )
