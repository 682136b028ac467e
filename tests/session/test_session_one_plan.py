"""One plan: what a session says of its memory, wherever it says it, is what it has allocated."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tapelab import needs_extension

import torch_ort_session as tos
from torch_ort_session.cli import main as command
from torch_ort_session.ir.text import byte_size


def blocks(count: int = 6) -> onnx.ModelProto:
    """Conv, Relu and LayerNormalization, one after the other."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for number in range(count):
        w = rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 9
        weights += [
            numpy_helper.from_array(w, f"w{number}"),
            numpy_helper.from_array(np.ones(64, np.float32), f"s{number}"),
        ]
        nodes += [
            helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"]),
            helper.make_node("LayerNormalization", [f"r{number}", f"s{number}"], [f"l{number}"]),
        ]
        value = f"l{number}"
    shape = ["n", 8, 64, 64]
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@needs_extension
def test_m13_explain_stats_and_the_page_name_the_bytes_that_are_allocated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, feed = tmp_path / "blocks.onnx", {"x": torch.rand(8, 8, 64, 64)}
    onnx.save(blocks(), path)
    np.save(tmp_path / "x.npy", feed["x"].numpy())
    session = tos.load(path)
    for _ in range(4):
        session.run(None, feed)
    allocated = sum(block.numel() for block in session._engine.state.arena._held())
    assert session.stats()["arena bytes"] == allocated > 0
    html = tmp_path / "plan.html"
    assert command(["plan", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--html", str(html)]) == 0
    arena = rf"arena +{re.escape(byte_size(allocated))} "
    texts = (session.explain(), session.explain(feed), capsys.readouterr().out)
    assert [len(re.findall(r"^ +arena ", text, re.M)) for text in texts] == [1, 1, 1]
    assert all(re.search(arena, text) for text in texts)
    rows = re.findall(r"<td>arena</td><td class=\"n\">([^<]*)</td>", html.read_text(encoding="utf-8"))
    assert rows == [byte_size(allocated)]
    assert session.plan(feed).memory.arena == allocated
