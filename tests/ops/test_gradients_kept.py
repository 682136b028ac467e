"""No kernel loses a gradient on the way without a word: a tensor seen as another type, say, has none."""

from __future__ import annotations

from collections import defaultdict

import torch
from opcase import OpCase
from opgroups import CASES, fed

import torch_ort_session as tos

REAL = ("float64", "float32", "float16", "bfloat16")


def lost(case: OpCase, dtype: str, opset: int) -> set[str]:
    """The inputs of floats to which no gradient of any result comes."""
    session = tos.load(case.model(dtype, opset), options=tos.Options(capture="off"))
    feeds = {name: fed(name, value) for name, value in case.feeds(dtype, 0).items()}
    floats = {
        name: value.requires_grad_()
        for name, value in feeds.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype.itemsize > 1
        if value.numel()
    }
    tensors = [r for r in session.run(None, feeds) if isinstance(r, torch.Tensor)]
    results = [r for r in tensors if r.is_floating_point() and r.numel()]
    for number, result in enumerate(results):
        if result.requires_grad:
            result.float().sum().backward(retain_graph=number + 1 < len(results))
    return {name for name, value in floats.items() if value.grad is None} if results else set()


def found() -> dict[str, str]:
    missing: dict[str, set[str]] = defaultdict(set)
    for op, cases in CASES.items():
        for case in cases:
            dtype, opset = next((v for v in case.variants() if v[0] in REAL), (None, 0))
            if dtype is not None:
                missing[op] |= lost(case, dtype, opset)
    return {op: " ".join(sorted(names)) for op, names in missing.items() if names}


WITHOUT = {
    "ai.onnx.ml::Binarizer": "x0",
    "ai.onnx.ml::LabelEncoder": "x0",
    "ai.onnx.ml::OneHotEncoder": "x0",
    "ai.onnx.ml::SVMRegressor": "x0",
    "ai.onnx.ml::TreeEnsemble": "x0",
    "ai.onnx.ml::TreeEnsembleClassifier": "x0",
    "ai.onnx.ml::TreeEnsembleRegressor": "x0",
    "ai.onnx.preview.training::Gradient": "x0 x1",
    "ai.onnx::BatchNormalization": "x3 x4",
    "ai.onnx::Bernoulli": "x0",
    "ai.onnx::BitCast": "x0",
    "ai.onnx::Cast": "x0",
    "ai.onnx::CastLike": "x0 x1",
    "ai.onnx::Dropout": "x1",
    "ai.onnx::DynamicQuantizeLinear": "x0",
    "ai.onnx::EyeLike": "x0",
    "ai.onnx::GridSample": "x1",
    "ai.onnx::Hardmax": "x0",
    "ai.onnx::MaxRoiPool": "x1",
    "ai.onnx::MelWeightMatrix": "x3 x4",
    "ai.onnx::OneHot": "x0 x1",
    "ai.onnx::Pad": "x2",
    "ai.onnx::RandomNormalLike": "x0",
    "ai.onnx::RandomUniformLike": "x0",
    "ai.onnx::Range": "x0 x1 x2",
    "ai.onnx::Resize": "x1 x2",
    "ai.onnx::Split": "x1",
    "ai.onnx::Tile": "x1 x2",
    "ai.onnx::Upsample": "x1",
    "com.microsoft::BeamSearch": "x5",
    "com.microsoft::BiasDropout": "x3",
    "com.microsoft::BitmaskDropout": "x1",
    "com.microsoft::CropAndResize": "x1",
    "com.microsoft::DecoderAttention": "x1 x3",
    "com.microsoft::DynamicQuantizeLSTM": "x0 x5",
    "com.microsoft::DynamicQuantizeMatMul": "x0",
    "com.microsoft::GroupQueryAttention": "x1 x2",
    "com.microsoft::MatMulNBits": "x0",
    "com.microsoft::MatMulNBitsQLoRA": "x4 x6",
    "com.microsoft::MoEGroupRouter": "x1",
    "com.microsoft::Pad": "x2",
    "com.microsoft::QMoE": "x1",
    "com.microsoft::Range": "x0 x1 x2",
    "com.microsoft::WhisperBeamSearch": "x5",
}
"""Inputs without a gradient in some case: what is rounded, compared or counted, what only chooses, sizes and
seeds that are floats, what a case does not read, and what is drawn at random."""


def test_gradients_come_to_every_input_that_has_one() -> None:
    assert found() == WITHOUT


def test_a_result_that_does_not_depend_on_an_input_is_seen() -> None:
    (case,) = [case for case in CASES["ai.onnx::Hardmax"] if case.id == "first_of_ties"]
    assert lost(case, "float32", case.variants()[0][1]) == {"x0"}
