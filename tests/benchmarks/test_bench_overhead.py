"""benchmarks/overhead.py: the handwritten torch chain is the model's chain."""

import agreement
import overhead
import pytest
import torch

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")


def test_the_model_has_a_thousand_dependent_nodes_and_torch_agrees_with_onnxruntime():
    blocks = overhead.make_weights()
    model = overhead.make_model(blocks)
    assert len(model.graph.node) == 1000
    assert len({node.op_type for node in model.graph.node}) >= 17
    made = {"x"}
    for node in model.graph.node:
        # Nothing can be folded away: each node has an input that depends on the feed.
        assert made & set(node.input)
        made |= set(node.output)
    x = torch.rand(overhead.ROWS, overhead.COLUMNS)
    expected = overhead.plain_onnxruntime(model).run(None, {"x": x.numpy()})
    found = agreement.compare(["y"], [overhead.eager(blocks, x).numpy()], expected, 1e-5)
    assert found.holds, found.reason
    other = overhead.eager(blocks, x + 1.0)
    assert not torch.allclose(other, torch.from_numpy(expected[0]))
