"""Feeds with bad data for every op that looks at it, made of the cases of `tests/cases`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from opcase import Fixed, OpCase, const
from opgroups import all_cases

import torch_ort_session as tos
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.runtime.validation.word import SENTENCES

MS = "com.microsoft"
CASES = [case for _, case in all_cases()]


def also(op: str, id: str | None, **inputs: Fixed) -> OpCase:
    """A case with inputs ``x<number>`` that it had not, under the id ``also``."""
    known = next(case for case in CASES if case.op == op and case.id == id)
    given = list(known.inputs)
    for name, value in inputs.items():
        place = int(name[1:])
        given += [None] * (place + 1 - len(given))
        given[place] = value
    return dataclasses.replace(known, inputs=given, id="also")


CASES += [
    also("MatMulNBits", "four", x4=const([0] * 32 + [1] * 32, "int32")),
    also("DynamicQuantizeLSTM", None, x4=const([1, 2], "int32")),
    also("GroupQueryAttention", "rotary", x9=const([[5], [4]], "int64")),
    also("GroupQueryAttention", "past", x16=const([3], "int32")),
]
Bounds = tuple[int, int] | None


@dataclass(frozen=True)
class Bad:
    """One input of one op, and a value that is bad there.

    Attributes:
        op: The operator.
        place: Number of the input.
        value: What takes the place of its first element.
        flag: What it is told as.
        allowed: The bounds that are told.
        domain: Of the operator.
        id: Of the case, where not the first one of the op with that input does.
        dtype: Of the case, where not its first one is meant.
        told: The value that is told, where it is not the bad one itself.
        at: Flat place of the bad value.
    """

    op: str
    place: int
    value: float
    flag: Flag
    allowed: Bounds = None
    domain: str = ""
    id: str | None = None
    dtype: str | None = None
    told: int | None = None
    at: int = 0

    def __str__(self) -> str:
        return "-".join(str(part) for part in (self.op, self.id, self.place, self.dtype, self.value) if part)

    def case(self) -> OpCase:
        for found in CASES:
            fits = found.op == self.op and found.domain in (self.domain, self.domain or "ai.onnx")
            there = len(found.inputs) > self.place and found.inputs[self.place] is not None
            named = self.id is None or found.id == self.id
            if fits and there and named and (self.dtype is None or self.dtype in found.dtypes):
                return found
        raise AssertionError(f"no case of {self}")


INDEX, DIVISION, LENGTH, CLASS, POSITION = Flag.INDEX, Flag.DIVISION, Flag.LENGTH, Flag.CLASS, Flag.POSITION
NAN = float("nan")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REDUCTIONS = ("add", "mul", "max", "min")
ROWS = [
    Bad("Gather", 1, 99, INDEX, (-5, 4)),
    Bad("Gather", 1, -6, INDEX, (-5, 4)),
    Bad("Gather", 1, 2**40, INDEX, (-5, 4)),
    Bad("Gather", 1, -(2**63), INDEX, (-5, 4)),
    Bad("Gather", 1, 99, INDEX, (-4, 3), id="matrix", at=2),
    Bad("Gather", 1, 99, INDEX, (-5, 4), id="vector"),
    Bad("Gather", 1, 99, INDEX, (-5, 4), id="number"),
    Bad("Gather", 1, -6, INDEX, (-5, 4), id="number_int32"),
    Bad("Gather", 1, 7, INDEX, (-3, 2), id="strings"),
    Bad("GatherElements", 1, 99, INDEX, (-3, 2)),
    Bad("GatherElements", 1, -9, INDEX, (-4, 3), id="int32"),
    Bad("GatherElements", 1, 9, INDEX, (-2, 1), id="strings"),
    Bad("GatherND", 1, 99, INDEX, (-3, 2)),
    Bad("GatherND", 1, 99, INDEX, (-4, 3), at=1),
    Bad("GatherND", 1, -9, INDEX, (-3, 2), id="batch"),
    Bad("GatherND", 1, 9, INDEX, (-2, 1), id="strings"),
    Bad("ScatterElements", 1, 99, INDEX, (-3, 2)),
    Bad("ScatterElements", 1, -99, INDEX, (-4, 3), id="int32"),
    Bad("ScatterElements", 1, 9, INDEX, (-3, 2), id="strings"),
    *(Bad("ScatterElements", 1, 9, INDEX, (-3, 2), id=how) for how in REDUCTIONS),
    Bad("Scatter", 1, 9, INDEX, (-3, 2)),
    Bad("ScatterND", 1, 9, INDEX, (-3, 2), id="elements"),
    Bad("ScatterND", 1, 9, INDEX, (-4, 3), id="elements", at=1),
    Bad("ScatterND", 1, -9, INDEX, (-3, 2), id="rows"),
    Bad("ScatterND", 1, 9, INDEX, (-2, 1), id="strings"),
    *(Bad("ScatterND", 1, value, INDEX, (-3, 2), id=how) for how in REDUCTIONS for value in (9, -4)),
    Bad("ScatterND", 1, 9, INDEX, (-3, 2), id="add_elements"),
    Bad("TensorScatter", 2, 3, POSITION, (0, 3), told=4),
    Bad("TensorScatter", 2, -1, POSITION, (0, 3)),
    Bad("ReverseSequence", 1, 5, LENGTH, (0, 4)),
    Bad("ReverseSequence", 1, -1, LENGTH, (0, 4), id="batch_first", at=2),
    Bad("ReverseSequence", 1, 4, LENGTH, (0, 2), id="strings"),
    *(Bad(op, 4, value, LENGTH, (0, 9)) for op in ("RNN", "GRU", "LSTM") for value in (10, -1)),
    Bad("Attention", 6, 6, LENGTH, (0, 5), id="lengths"),
    Bad("Attention", 6, -1, LENGTH, (0, 5), id="lengths_causal"),
    Bad("RotaryEmbedding", 3, 5, INDEX, (0, 4)),
    Bad("RotaryEmbedding", 3, -1, INDEX, (0, 4)),
    Bad("NegativeLogLikelihoodLoss", 1, 3, CLASS, (0, 2)),
    Bad("NegativeLogLikelihoodLoss", 1, -1, CLASS, (0, 2)),
    Bad("NegativeLogLikelihoodLoss", 1, 3, CLASS, (0, 2), id="2d_mean_True_-100"),
    Bad("SoftmaxCrossEntropyLoss", 1, 3, CLASS, (0, 2)),
    Bad("SoftmaxCrossEntropyLoss", 1, -1, CLASS, (0, 2)),
    Bad("RoiAlign", 2, 2, INDEX, (0, 1)),
    Bad("RoiAlign", 2, -1, INDEX, (0, 1)),
    Bad("MaxRoiPool", 1, 2, INDEX, (0, 1)),
    Bad("MaxRoiPool", 1, -1, INDEX, (0, 1)),
    Bad("MaxUnpool", 1, -1, INDEX, (0, 15)),
    Bad("MaxUnpool", 1, 16, INDEX, (0, 15)),
    Bad("Multinomial", 0, NAN, Flag.DISTRIBUTION, told=0),
    Bad("Multinomial", 0, float("inf"), Flag.DISTRIBUTION, told=0),
    Bad("Bernoulli", 0, 1.5, Flag.PROBABILITY, told=2, at=2),
    Bad("Bernoulli", 0, -0.5, Flag.PROBABILITY, told=0),
    Bad("Bernoulli", 0, NAN, Flag.PROBABILITY, told=1, at=1),
    *(Bad(op, 1, 0, DIVISION, dtype=dtype) for op in ("Div", "Mod") for dtype in INTEGERS),
    Bad("Mod", 1, 0, DIVISION, id="fmod", dtype="int64"),
    Bad("ArrayFeatureExtractor", 1, 3, INDEX, (0, 2), "ai.onnx.ml"),
    Bad("ArrayFeatureExtractor", 1, -1, INDEX, (0, 2), "ai.onnx.ml"),
    Bad("MRotaryEmbedding", 1, 9, INDEX, (0, 8), MS),
    Bad("MRotaryEmbedding", 1, -1, INDEX, (0, 8), MS),
    Bad("RotaryEmbedding", 1, 12, INDEX, (0, 11), MS),
    Bad("RotaryEmbedding", 1, -1, INDEX, (0, 11), MS),
    Bad("GroupQueryAttention", 5, 3, POSITION, (0, 2), MS),
    Bad("GroupQueryAttention", 5, -1, POSITION, (0, 2), MS),
    Bad("GroupQueryAttention", 5, 99, POSITION, (0, 4), MS, id="buffer"),
    Bad("GroupQueryAttention", 9, 12, INDEX, (0, 11), MS, id="also"),
    Bad("GroupQueryAttention", 9, -1, INDEX, (0, 11), MS, id="also"),
    Bad("GroupQueryAttention", 16, 4, LENGTH, (0, 3), MS, id="also"),
    Bad("MatMulNBits", 4, 2, INDEX, (0, 1), MS, id="also"),
    Bad("MatMulNBits", 4, -1, INDEX, (0, 1), MS, id="also"),
    Bad("DynamicQuantizeLSTM", 4, -1, LENGTH, (0, 5), MS, id="also"),
    Bad("SparseAttention", 8, 49, POSITION, (0, 47), MS, id="decode", told=48),
    Bad("SparseAttention", 8, 0, POSITION, (0, 47), MS, id="decode", told=-1),
    Bad("SparseAttention", 5, -1, LENGTH, (0, 5), MS),
    Bad("SparseAttention", 5, 99, LENGTH, (0, 5), MS, at=3),
    Bad("SparseAttention", 6, -1, INDEX, (0, 2), MS),
    Bad("SparseAttention", 6, 99, INDEX, (0, 2), MS),
    Bad("PagedAttention", 5, 8, LENGTH, (0, 7), MS),
    Bad("PagedAttention", 5, -1, LENGTH, (0, 7), MS),
    Bad("GatedDeltaNet", 3, 6, LENGTH, (0, 5), MS, at=2),
    Bad("GatedDeltaNet", 3, -1, LENGTH, (0, 5), MS),
    Bad("VarlenCausalConvWithState", 2, 6, LENGTH, (0, 5), MS, at=2),
    Bad("VarlenNGramHashMapping", 3, 7, LENGTH, (0, 6), MS, at=2),
    Bad("VarlenNGramHashMapping", 3, -2, LENGTH, (0, 6), MS, id="segments"),
    Bad("PagedAttention", 6, 8, POSITION, (0, 7), MS),
    Bad("PagedAttention", 6, -1, POSITION, (0, 7), MS),
    Bad("PagedAttention", 7, 6, INDEX, (-1, 5), MS),
    Bad("PagedAttention", 10, 24, POSITION, (-1, 23), MS),
    Bad("DecoderMaskedMultiHeadAttention", 7, 8, POSITION, (0, 7), MS),
    Bad("DecoderMaskedMultiHeadAttention", 7, -1, POSITION, (0, 7), MS),
    Bad("DecoderMaskedMultiHeadAttention", 9, 2, INDEX, (0, 1), MS),
    Bad("DecoderMaskedMultiHeadAttention", 9, -1, INDEX, (0, 1), MS),
    Bad("DecoderMaskedSelfAttention", 6, 99, POSITION, (0, 4), MS, id="buffer"),
    Bad("MultiHeadAttention", 8, 6, POSITION, (0, 5), MS),
    Bad("MultiHeadAttention", 8, -1, POSITION, (0, 5), MS),
    Bad("EmbedLayerNormalization", 0, 5, INDEX, (0, 4), MS),
    Bad("EmbedLayerNormalization", 0, -1, INDEX, (0, 4), MS),
    Bad("EmbedLayerNormalization", 1, 2, INDEX, (0, 1), MS),
    Bad("EmbedLayerNormalization", 8, 4, INDEX, (0, 3), MS),
    Bad("QEmbedLayerNormalization", 0, 9, INDEX, (0, 8), MS),
    Bad("QEmbedLayerNormalization", 1, -1, INDEX, (0, 1), MS),
    Bad("WordConvEmbedding", 0, 7, INDEX, (0, 6), MS),
    Bad("WordConvEmbedding", 0, -1, INDEX, (0, 6), MS),
    Bad("TorchEmbedding", 1, 5, INDEX, (0, 4), MS),
    Bad("TorchEmbedding", 1, -1, INDEX, (0, 4), MS),
    Bad("CropAndResize", 2, 2, INDEX, (0, 1), MS),
    Bad("CropAndResize", 2, -1, INDEX, (0, 1), MS),
    Bad("NGramRepeatBlock", 0, 5, INDEX, (0, 4), MS, id="tokens"),
    Bad("NGramRepeatBlock", 0, -1, INDEX, (0, 4), MS, id="tokens"),
    Bad("RestorePadding", 1, 6, INDEX, (0, 5), MS),
    Bad("RemovePadding", 1, 99, LENGTH, (0, 3), MS),
    Bad("RemovePadding", 1, -1, LENGTH, (0, 3), MS),
    Bad("PackedAttention", 3, 6, INDEX, (0, 5), MS),
    Bad("PackedAttention", 4, 99, LENGTH, (0, 4), MS),
    Bad("PackedMultiHeadAttention", 4, -1, INDEX, (0, 5), MS),
    Bad("AttnLSTM", 4, 5, LENGTH, (0, 4), MS),
    Bad("AttnLSTM", 12, -1, LENGTH, (0, 7), MS),
]


def feeds_of(bad: Bad) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A model, good feeds, and bad ones."""
    case = bad.case()
    dtype, opset = next(
        (dtype, opset) for dtype, opset in case.variants() if bad.dtype is None or dtype == bad.dtype
    )
    good = case.feeds(dtype, 0)
    name = f"x{bad.place}"
    wrong = np.array(good[name])
    wrong.reshape(-1)[bad.at] = bad.value
    return case.model(dtype, opset), good, {**good, name: wrong}


def told(bad: Bad, call: Callable[[], object]) -> None:
    with pytest.raises(tos.DeviceValidationError) as caught:
        call()
    error = caught.value
    value = int(bad.value) if bad.told is None else bad.told
    assert (error.node, error.kind, error.value) == ("case", SENTENCES[bad.flag].kind, value), str(error)
    assert error.allowed == bad.allowed, str(error)
    assert f"{bad.op})" in str(error)


def same(ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other)
        else:
            assert np.array_equal(one, other)
