"""benchmarks/decode_kernels.py: what is compared is the same model, and what is slower or wrong is told."""

import decode_kernels
import harness
import pytest
from decode_kernels import Case, floats

import torch_ort_session as tos
from torch_ort_session.ops import native

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")
NORM = Case("SimplifiedLayerNormalization", "2 x 8", [floats(1, 2, 8), floats(8)], domain="", nodes=3)


def row(case=NORM, errors=(1e-7, 1e-7), **seconds):
    times = {"ours": [1.0, 1.0, 1.1], "plain": [2.0, 2.1, 2.0], "onnxruntime": [1.0, 1.1, 1.0]} | seconds
    found = {name: harness.summarise(samples) for name, samples in times.items()}
    return decode_kernels.row_of(case, "float32", 1, found, dict(zip(("ours", "plain"), errors, strict=True)))


@pytest.mark.parametrize("case", decode_kernels.CASES, ids=lambda case: case.name)
def test_a_model_has_as_many_nodes_as_are_counted(case):
    model = decode_kernels.make_model(case, decode_kernels.make_inputs(case, "float32"))
    assert len(model.graph.node) == case.nodes
    assert all(node.op_type == case.op for node in model.graph.node)
    assert {"float32"} <= set(case.dtypes) and set(case.theirs) <= set(case.dtypes)


@pytest.mark.parametrize("dtype", NORM.dtypes)
def test_a_measured_row_holds(dtype):
    found = decode_kernels.measure(NORM, dtype, 1, 0.0)
    assert (found["rounds"], found["threads"]) == (5, 1)
    assert set(found["microseconds"]) == {"ours", "plain"} | (
        {"onnxruntime"} if dtype == "float32" else set()
    )
    assert found["errors"]["ours"] <= found["error_bound"]
    assert NORM.name in decode_kernels.text_of([found])


@pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")
def test_plain_ops_are_recorded_without_the_kernels():
    inputs = decode_kernels.make_inputs(NORM, "float32")
    model = decode_kernels.make_model(NORM, inputs)
    feed = {f"x{place}": decode_kernels.tensor_of(value) for place, value in enumerate(inputs)}
    calls = {}
    for name in ("ours", "plain"):
        session = tos.load(model)
        with decode_kernels.plain_ops() if name == "plain" else decode_kernels.contextlib.nullcontext():
            decode_kernels.modelruns.warm(session, feed)
        held = (entry.captured for _, entry in session._engine.state.dispatcher.everything())
        (whole,) = (captured.whole for captured in held if captured is not None)
        calls[name] = whole.stats.calls
    assert calls["ours"] == NORM.nodes < calls["plain"]


def test_what_is_slower_or_wrong_is_a_miss():
    assert decode_kernels.judge([row()]) == []
    assert decode_kernels.judge([row(plain=[0.8, 0.8, 0.8]), row(errors=(1.0, 0.0))]) == [
        "SimplifiedLayerNormalization 2 x 8, float32, 1 thread(s): 1.25 x the plain ops, above 1.05",
        "SimplifiedLayerNormalization 2 x 8, float32, 1 thread(s): error 1.0e+00 above 3e-05",
    ]
