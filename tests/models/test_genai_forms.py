"""Decoders as onnxruntime-genai's model builder writes them: prompt and tokens, as onnxruntime has them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from genai_contest import ROOM, Contest
from genaimodels import ShapeFamily, decoder

FORMS = {
    "float32": ShapeFamily(),
    "int4": ShapeFamily("nbits"),
    "int4, level 4": ShapeFamily("nbits", level=4),
    "int4, asymmetric": ShapeFamily("nbits", symmetric=False),
    "int4, asymmetric, level 4": ShapeFamily("nbits", symmetric=False, level=4),
    "int4, tied": ShapeFamily("nbits", tied=True),
    "int8": ShapeFamily("nbits", bits=8),
    "int8, asymmetric": ShapeFamily("nbits", bits=8, symmetric=False),
    "int8, level 4": ShapeFamily("nbits", bits=8, level=4),
    "qdq": ShapeFamily("qdq"),
    "qdq, asymmetric": ShapeFamily("qdq", symmetric=False),
    "heads normalized, rotated outside": ShapeFamily(split=True),
    "heads normalized, int4": ShapeFamily("nbits", split=True),
    "sliding and full": ShapeFamily(layers=("sliding", "full"), softcap=10.0),
    "window and full": ShapeFamily(layers=("window", "full"), softcap=10.0),
    "experts, sinks": ShapeFamily(layers=("window", "full"), sink=True, experts=True),
    "experts, int4": ShapeFamily("nbits", experts=True),
    "convolution": ShapeFamily(layers=("conv", "full", "conv")),
    "convolution, int4": ShapeFamily("nbits", layers=("conv", "full")),
    "float16": ShapeFamily(half=True),
    "float16, int4": ShapeFamily("nbits", half=True),
}


@pytest.mark.parametrize("name", FORMS)
def test_prompt_and_tokens_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = tmp_path / "model.onnx"
    onnx.save(decoder(form), path)
    row = Contest(path, path, 1e-2 if form.half else 1e-4).run([(2, None), (1, ROOM)])
    assert row["reasons"] == []
    # A token is one recording.
    assert row["seams"] == []
    assert row["ineligible"] == 0
    assert row["replays"] >= 3
    assert (row["rounding"] > 1e-3) is (form.level == 4 or form.weights == "qdq")


def test_another_network_is_told_apart(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.onnx", tmp_path / "theirs.onnx"
    onnx.save(decoder(ShapeFamily("nbits", level=4), seed=0), ours)
    onnx.save(decoder(ShapeFamily("nbits", level=4), seed=1), theirs)
    reasons = Contest(ours, theirs, 1e-4).run([(1, None)])["reasons"]
    assert len(reasons) == 6
    assert all("1 rows of" in reason for reason in reasons)
