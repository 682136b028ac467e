"""Random graphs of 5 to 40 nodes, of every opset from 7 on: eager, observed, captured and replayed runs, with
fresh data and other shapes in between, beside onnxruntime and onnx's reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx
import pytest
import torch

import torch_ort_session as tos
from differential import elementwise, networks_and_control, shaping
from differential.growth import grow
from differential.known import KNOWN
from differential.oracle import OnnxRuntime
from differential.tallied import Compared
from differential.verdict import Outcome, Tally, check, unlike

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
        check(grown, ort, tally)
        compared.note(grown.model)
    assert not tally.differences, "\n".join(map(str, tally.differences[:20]))
    return tally


def enough(tally: Tally, graphs: int) -> None:
    """What has to have been compared, so that a generator or an oracle that gives up does not pass."""
    assert tally.graphs == graphs
    assert len(tally.ops) > 115
    least = {
        "reference": 7,
        "onnxruntime": 6,
        "eager outputs": 100,
        "eager errors": 1.5,
        "replays": 2.5,
    }
    each = {name: tally.compared[name] / graphs for name in least}
    assert sum(tally.ops.values()) > 20 * graphs
    assert all(each[name] > count for name, count in least.items()), each


def test_graphs_agree(ort: OnnxRuntime, compared: Compared, all_drawn: bool) -> None:
    graphs = 150 if all_drawn else 50
    enough(check_all(range(graphs), ort, compared), graphs)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 4000, 500))
def test_many_graphs_agree(start: int, ort: OnnxRuntime, compared: Compared) -> None:
    enough(check_all(range(start, start + 500), ort, compared), 500)


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


def test_a_run_is_the_eager_run_to_the_bit_and_so_is_its_error() -> None:
    one = torch.tensor([1.0, float("nan")])
    close = torch.tensor([1.0 + 2.0**-23, float("nan")])
    assert unlike(Outcome([one]), Outcome([one.clone()]), ["y"]) == []
    assert unlike(Outcome([close]), Outcome([one]), ["y"]) == [("y", "the last bits differ")]
    failed, other = (Outcome(error=tos.SessionError(text)) for text in ("it failed", "it failed elsewhere"))
    assert unlike(failed, Outcome(error=tos.SessionError("it failed")), ["y"]) == []
    assert unlike(failed, other, ["y"]) == [
        ("", "SessionError('it failed') instead of SessionError('it failed elsewhere')")
    ]
    assert unlike(failed, Outcome([one]), ["y"]) == [("", "SessionError('it failed') instead of it succeeds")]


def test_the_mean_of_nothing_is_not_compared(ort: OnnxRuntime) -> None:
    """A drawn graph in which onnxruntime gives 0 where numpy, torch and the session give NaN."""
    grown = grow(30832, (*shaping.FAMILIES, *networks_and_control.FAMILIES, *elementwise.FAMILIES))
    assert "ReduceMean" in {node.op_type for node in grown.model.graph.node}
    feed = grown.feed(4, 0)
    place = [out.name for out in grown.model.graph.output].index("v14")
    assert ort.ask(grown.model.SerializeToString())
    assert ort.ask(feed)[place].tolist() == [0.0]
    tally = Tally()
    check(grown, ort, tally)
    assert not tally.differences and tally.compared["onnxruntime"]
    assert tos.load(grown.model).run(None, feed)[place].isnan().all()


def test_what_is_known_says_why() -> None:
    assert all(len(known.why) > 20 and known.ops for known in KNOWN)
