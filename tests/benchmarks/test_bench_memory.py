"""benchmarks/load_memory.py: its model is readable elsewhere, its bounds bite, its text."""

import load_memory
import numpy as np
import pytest
from expecttest import assert_expected_inline


def row(moment, anonymous, resident):
    weights = 500_000_000
    return {
        "moment": moment,
        "weights": weights,
        "anonymous": anonymous * weights,
        "resident": resident * weights,
        "anonymous_share": anonymous,
        "resident_share": resident,
        "load_s": 0.25,
    }


IMPORT = {"torch_s": 1.5, "median_s": 0.3, "spread": 0.1, "fastest_s": 0.2, "rounds": 5}


def test_bounds():
    good = [row("loaded", 0.01, 0.02), row("ran", 0.02, 1.03)]
    assert load_memory.judge(good, IMPORT) == []
    bad = [row("loaded", 0.2, 0.2), row("ran", 1.1, 1.2)]
    assert_expected_inline(
        "\n".join(load_memory.judge(bad, {**IMPORT, "median_s": 1.0})),
        """\
loaded: anonymous memory grew by 0.20 x the weights, not below 0.2
ran: anonymous memory grew by 1.10 x the weights, not below 0.2
ran: resident memory grew by 1.20 x the weights, not below 1.2
import: 1.00 s over torch, not below 1 s""",
    )


def test_text():
    text = load_memory.as_text([row("loaded", 0.01, 0.02), row("ran", 0.02, 1.03)], IMPORT)
    assert_expected_inline(
        text,
        """\
500 MB of weights as external data, loaded in 250 ms; growth of memory:
moment               anonymous          resident
-------------  ---------------  ----------------
after loading   5.0 MB (0.01x)   10.0 MB (0.02x)
after a run    10.0 MB (0.02x)  515.0 MB (1.03x)
import: 0.30 s ±10% on top of torch (1.50 s)""",
    )


def test_the_model_it_writes_keeps_its_weights_outside(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="reads the written model")
    path, weights = load_memory.write_model(tmp_path, width=16, layers=3)
    assert weights == 3 * 16 * 16 * 4 == (tmp_path / "weights.bin").stat().st_size
    assert path.stat().st_size < 1500
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    data = np.fromfile(tmp_path / "weights.bin", np.float32).reshape(3, 16, 16)
    x = np.ones((1, 16), np.float32)
    expected = x @ data[0] @ data[1] @ data[2]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5)
