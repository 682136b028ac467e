"""Random graphs of 5 to 40 nodes, of every opset from 7 on: eager, observed, captured and replayed runs, with
fresh data and other shapes in between, beside onnxruntime and onnx's reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx
import pytest
import torch

from differential import elementwise, networks_and_control, shaping
from differential.growth import grow
from differential.known import KNOWN
from differential.oracle import OnnxRuntime
from differential.tallied import Compared
from differential.verdict import Tally, check

FAMILIES = (*elementwise.FAMILIES, *shaping.FAMILIES, *networks_and_control.FAMILIES)


@pytest.fixture(scope="module")
def ort() -> Iterator[OnnxRuntime]:
    oracle = OnnxRuntime()
    yield oracle
    oracle.close()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def check_all(seeds: range, ort: OnnxRuntime, compared: Compared) -> Tally:
    tally = Tally()
    for seed in seeds:
        grown = grow(seed, FAMILIES)
        tally.ops.update(node.op_type for node in grown.model.graph.node)
        check(grown, ort, tally)
        compared.note(grown.model)
    assert not tally.differences, "\n".join(map(str, tally.differences[:20]))
    return tally


def test_graphs_agree(ort: OnnxRuntime, compared: Compared) -> None:
    tally = check_all(range(150), ort, compared)
    # What was compared, so that a generator or an oracle that gives up does not pass.
    assert len(tally.ops) > 115
    assert tally.compared["reference"] > 1000 and tally.compared["onnxruntime"] > 600
    assert tally.compared["replays"] > 300


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 4000, 500))
def test_many_graphs_agree(start: int, ort: OnnxRuntime, compared: Compared) -> None:
    check_all(range(start, start + 500), ort, compared)


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset(opset: int, ort: OnnxRuntime, compared: Compared) -> None:
    tally = Tally()
    for seed in (1, 2):
        grown = grow(seed, FAMILIES, opset)
        check(grown, ort, tally)
        compared.note(grown.model)
    assert not tally.differences, "\n".join(map(str, tally.differences))
    assert tally.compared["reference"] or tally.compared["onnxruntime"]


def test_a_seed_makes_the_same_graph() -> None:
    one, other = (grow(5, FAMILIES) for _ in range(2))
    assert one.model == other.model
    assert Counter(node.op_type for node in one.model.graph.node)


def test_what_is_known_says_why() -> None:
    assert all(len(known.why) > 20 and known.ops for known in KNOWN)
