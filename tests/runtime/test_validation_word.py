"""The validation word on CPU tensors: the first fault stays, until the next run begins."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import message, model

import torch_ort_session as tos
from torch_ort_session.ir.graph import Node
from torch_ort_session.ir.load import load_model
from torch_ort_session.plan.build import build_steps
from torch_ort_session.plan.lower import lower
from torch_ort_session.plan.steps import Setting
from torch_ort_session.runtime.execute import bind_steps, execute
from torch_ort_session.runtime.validation import ValidationWord

CPU = torch.device("cpu")


def node(name: str) -> Node:
    return Node(name, "Gather", "", 13, ("x", "i"), ("y",))


def word() -> ValidationWord:
    made = ValidationWord(CPU)
    made.begin()
    return made


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(
    ("index", "wrapped"),
    [([0, 4, -1, -5], [0, 4, 4, 0]), ([[2], [-2]], [[2], [3]]), (3, 3), ([], [])],
)
def test_good_indices_are_wrapped(index: Any, wrapped: Any, dtype: torch.dtype) -> None:
    one = word()
    got = one.check_index(torch.tensor(index, dtype=dtype), 5, node("n"))
    assert got.dtype is dtype
    assert got.tolist() == wrapped
    one.finish()


@pytest.mark.parametrize("index", [[5], [0, 5, 99], [[0, 1], [5, 2]], 5, [0, 5, -6]])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_the_first_bad_index_is_told(index: Any, dtype: torch.dtype) -> None:
    one = word()
    safe = one.check_index(torch.tensor(index, dtype=dtype), 5, node("pick"))
    assert bool(((safe >= 0) & (safe < 5)).all())
    with pytest.raises(tos.DeviceIndexError) as caught:
        one.finish()
    assert (caught.value.node, caught.value.value, caught.value.kind) == ("pick", 5, "index out of range")
    assert isinstance(caught.value, IndexError)


def test_too_negative() -> None:
    one = word()
    assert one.check_index(torch.tensor([1, -6]), 5, node("pick")).tolist() == [1, 0]
    assert_expected_inline(
        message(tos.DeviceIndexError, one.finish),
        """\
node 'pick' (ai.onnx::Gather): index -6 is outside of [-5, 5), the valid range of the indexed
axis; check the indices that were fed""",
    )


def test_the_first_fault_of_a_run_stays() -> None:
    one = word()
    one.check_index(torch.tensor([0]), 5, node("good"))
    one.check_index(torch.tensor([7]), 5, node("first"))
    one.check_index(torch.tensor([8]), 6, node("second"))
    one.check_index(torch.tensor([0]), 6, node("third"))
    assert_expected_inline(
        message(tos.DeviceIndexError, one.finish),
        """\
node 'first' (ai.onnx::Gather): index 7 is outside of [-5, 5), the valid range of the indexed
axis; check the indices that were fed""",
    )


def test_a_run_begins_clean() -> None:
    one = word()
    one.check_index(torch.tensor([7]), 5, node("first"))
    one.begin()
    one.finish()
    one.check_index(torch.tensor([9]), 5, node("later"))
    assert "'later'" in message(tos.DeviceIndexError, one.finish)


def test_one_node_may_be_checked_many_times() -> None:
    one, it = word(), node("again")
    for index in (1, 2, 9, 11):
        one.check_index(torch.tensor([index]), 5, it)
    assert "index 9" in message(tos.DeviceIndexError, one.finish)
    assert len(one.numbers) == 1


def test_an_empty_axis_has_no_valid_index() -> None:
    one = word()
    assert_expected_inline(
        message(IndexError, lambda: one.check_index(torch.tensor([0]), 0, node("n"))),
        """the indexed axis is empty, so that no index is valid""",
    )
    assert one.check_index(torch.tensor([], dtype=torch.int64), 0, node("n")).numel() == 0


def test_checking_reads_nothing() -> None:
    one = ValidationWord(torch.device("meta"))
    one.begin()
    one.check_index(torch.empty(3, dtype=torch.int64, device="meta"), 5, node("n"))


MODELS = {
    "Gather": "g (float[5] x, int64[k] i) => (float[k] y) { [pick] y = Gather(x, i) }",
    "Gather of rows": "g (float[5, 2] x, int64[k] i) => (float[k, 2] y) { [pick] y = Gather(x, i) }",
    "GatherElements": "g (float[5] x, int64[k] i) => (float[k] y) { [pick] y = GatherElements(x, i) }",
    "in a body": (
        "g (float[5] x, int64[k] i) => (float[k] y) <bool c = {1}> { y = If (c) <then_branch = t ()"
        " => (float[k] a) { [pick] a = Gather(x, i) }, else_branch = e () => (float[k] b)"
        " { b = Gather(x, i) }> }"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_kernels_report_into_it(name: str) -> None:
    one = ValidationWord(CPU)
    graph = lower(load_model(model(MODELS[name])).graph)
    setting = Setting(CPU, lambda name, weight, device: weight.data, validation=one)
    program = bind_steps(build_steps(graph, setting))
    steps = program.steps
    x = torch.arange(10.0).reshape(5, 2) if "rows" in name else torch.arange(5.0)

    def run(index: list[int]) -> torch.Tensor:
        values = list(steps.template)
        for fed, place in zip(steps.input_names, steps.inputs, strict=True):
            values[place] = x if fed == "x" else torch.tensor(index)
        one.begin()
        execute(program, values)
        one.finish()
        result = values[steps.outputs[0]]
        assert isinstance(result, torch.Tensor)
        return result

    assert torch.equal(run([0, -1, 4]), x[[0, -1, 4]])
    with pytest.raises(tos.DeviceIndexError) as caught:
        run([0, 5])
    assert (caught.value.node, caught.value.value) == ("pick", 5)
    assert torch.equal(run([3]), x[[3]])
