"""Dropout in training mode."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from onnx import helper
from onnx.reference import ReferenceEvaluator

import torch_ort_session


def session(opset: int = 22, inputs: int = 3, **attributes: float) -> torch_ort_session.Session:
    return torch_ort_session.load(model(opset, inputs, **attributes))


def model(opset: int = 22, inputs: int = 3, **attributes: float) -> onnx.ModelProto:
    names = ["x", "ratio", "training"][:inputs]
    node = helper.make_node("Dropout", names, ["y", "mask"], **attributes)
    kinds = {"x": onnx.TensorProto.FLOAT, "ratio": onnx.TensorProto.FLOAT, "training": onnx.TensorProto.BOOL}
    infos = [helper.make_tensor_value_info(n, kinds[n], None if n == "x" else []) for n in names]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=n) for n in ("y", "mask")])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def dropped(made: torch_ort_session.Session, ratio: float = 0.25) -> tuple[torch.Tensor, torch.Tensor]:
    y, mask = made.run(None, {"x": torch.ones(20_000), "ratio": ratio, "training": True})
    return y, mask


def test_about_the_ratio_is_dropped_and_the_rest_scaled() -> None:
    y, mask = dropped(session(seed=7))
    assert mask.dtype is torch.bool
    assert mask.float().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(y, mask / 0.75)


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    assert torch.equal(dropped(session(seed=7))[1], dropped(session(seed=7))[1])
    assert not torch.equal(dropped(session(seed=7))[1], dropped(session(seed=8))[1])
    unseeded = session()
    assert not torch.equal(dropped(unseeded)[1], dropped(unseeded)[1])


@pytest.mark.parametrize("seed", [0, 1, 7, 2**32 - 1])
@pytest.mark.parametrize("shape", [(), (0,), (3, 1, 5), (40, 50)])
def test_a_seed_draws_what_the_reference_draws(seed: int, shape: tuple[int, ...]) -> None:
    proto = model(seed=seed)
    feed = {"x": np.ones(shape, np.float32), "ratio": np.float32(0.3), "training": np.bool_(True)}
    y, mask = ReferenceEvaluator(proto).run(None, feed)
    made = torch_ort_session.load(proto)
    for _ in range(3):
        ours, kept = made.run(None, feed)
        assert kept.tolist() == mask.tolist()
        torch.testing.assert_close(ours, torch.from_numpy(np.asarray(y, np.float32)))


def test_torch_manual_seed_governs_a_node_without_one() -> None:
    made = session()
    torch.manual_seed(3)
    first = dropped(made)[1]
    torch.manual_seed(3)
    assert torch.equal(dropped(made)[1], first)


def test_the_first_revisions_train_unless_told() -> None:
    y, mask = session(opset=6, inputs=1, ratio=0.5).run(None, {"x": torch.ones(2_000)})
    assert mask.dtype is torch.float32
    assert mask.mean().item() == pytest.approx(0.5, abs=0.1)
    torch.testing.assert_close(y, mask * 2)


def test_a_ratio_is_a_probability() -> None:
    with pytest.raises(torch_ort_session.KernelError) as error:
        dropped(session(), 1.5)
    assert_expected_inline(
        str(error.value.__cause__), """The ratio of dropped elements is a probability, not 1.5."""
    )


@pytest.mark.parametrize("biased", [False, True])
def test_the_bits_of_a_mask_are_those_of_what_was_kept(biased: bool) -> None:
    shape = (37, 45)
    given = {"x": np.full(shape, 2.0, np.float32)}
    if biased:
        given |= {"b": np.full(45, 0.5, np.float32), "r": np.full(shape, 0.125, np.float32)}
    given |= {"ratio": np.float32(0.25), "training": np.bool_(True)}
    op = "BitmaskBiasDropout" if biased else "BitmaskDropout"
    node = helper.make_node(op, list(given), ["y", "bits"], domain="com.microsoft", seed=7)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=n) for n in ("y", "bits")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = torch_ort_session.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    y, bits = (value.numpy() for value in made.run(None, given))
    kept = y != (0.125 if biased else 0.0)
    assert 0.7 < kept.mean() < 0.8
    wanted = np.where(kept, 2.5 / 0.75 + 0.125 if biased else 2.0 / 0.75, 0.125 if biased else 0.0)
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
    assert bits.dtype == np.uint32 and bits.shape == (-(-kept.size // 32),)
    unpacked = np.unpackbits(bits.view(np.uint8), bitorder="little")
    assert unpacked[: kept.size].tolist() == kept.reshape(-1).astype(int).tolist()
    assert not unpacked[kept.size :].any()
    again, same = made.run(None, given)
    assert np.array_equal(again, y) and np.array_equal(same, bits)
