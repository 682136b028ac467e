"""The validation word: what is noted there, by plain ops and by the native one alike."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import message, model

import torch_ort_session as tos
from torch_ort_session.errors import PlanError
from torch_ort_session.ir.graph import Node
from torch_ort_session.ir.load import load_model
from torch_ort_session.ops import native, registry
from torch_ort_session.ops.common.checks import check_divisor, check_each, check_range, note_routes
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.index import check_index
from torch_ort_session.plan.lowering.build import build_steps
from torch_ort_session.plan.lowering.lower import lower
from torch_ort_session.plan.lowering.steps import Setting
from torch_ort_session.runtime.captures.warmup import frame_of
from torch_ort_session.runtime.interpreter.program import bind_steps
from torch_ort_session.runtime.validation import word as layout
from torch_ort_session.runtime.validation.validator import (
    PLAIN,
    Ticket,
    ValidationWord,
    checks_on,
    validation_scope,
)

CPU = torch.device("cpu")
WAYS = ["plain", "native"]


def node(name: str) -> Node:
    return Node(name, "Gather", "", 13, ("x", "i"), ("y",))


@pytest.fixture(params=WAYS)
def one(request: pytest.FixtureRequest) -> Iterator[ValidationWord]:
    """A word under a ticket, noted by one way of checking or the other."""
    if request.param == "native" and not native.status().usable:
        pytest.skip(native.status().reason)
    made = ValidationWord(CPU)
    made._checks = PLAIN if request.param == "plain" else checks_on(CPU)
    made.begin()
    made.on = True
    yield made


def finish(word: ValidationWord) -> None:
    """Read the word for its ticket."""
    assert word.ticket is not None
    fault = word.read(word.ticket)
    if fault is not None:
        raise fault.error()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize(
    ("index", "wrapped"),
    [([0, 4, -1, -5], [0, 4, 4, 0]), ([[2], [-2]], [[2], [3]]), (3, 3), ([], [])],
)
def test_m11_good_indices_are_wrapped(
    one: ValidationWord, index: Any, wrapped: Any, dtype: torch.dtype
) -> None:
    given = torch.tensor(index)
    given = given.abs() % 5 if dtype is torch.uint8 else given
    got = one.check_index(given.to(dtype), 5, node("n"))
    assert got.dtype is torch.int64
    assert got.tolist() == (given.tolist() if dtype is torch.uint8 else wrapped)
    finish(one)


@pytest.mark.parametrize("index", [[5], [0, 5, 99], [[0, 1], [5, 2]], 5, [0, 5, -6]])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_m11_the_first_bad_index_is_told(one: ValidationWord, index: Any, dtype: torch.dtype) -> None:
    safe = one.check_index(torch.tensor(index, dtype=dtype), 5, node("pick"))
    assert bool(((safe >= 0) & (safe < 5)).all())
    with pytest.raises(tos.DeviceIndexError) as caught:
        finish(one)
    assert (caught.value.node, caught.value.value, caught.value.kind) == ("pick", 5, "index out of range")
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize("value", [2**40, -(2**40), 2**63 - 1, -(2**63), 2**31, -1 - 2**31])
def test_m11_values_and_axes_of_64_bits_are_told(one: ValidationWord, value: int) -> None:
    size = 2**31 - 1 if abs(value) < 2**33 else 2**33
    safe = one.check_index(torch.tensor([3, value, 4]), size, node("pick"))
    assert safe.tolist() == [3, size - 1 if value > 0 else 0, 4]
    text = message(tos.DeviceIndexError, lambda: finish(one))
    assert f"index {value} is outside of [-{size}, {size})" in " ".join(text.split())


def test_m11_what_lies_outside_is_clamped(one: ValidationWord) -> None:
    index = torch.tensor([[1, -6], [9, 4]]).t()
    assert one.check_index(index, 5, node("pick")).tolist() == [[1, 4], [0, 4]]
    assert_expected_inline(
        message(tos.DeviceIndexError, lambda: finish(one)),
        """\
node 'pick' (ai.onnx::Gather): index 9 is outside of [-5, 5), the valid range of the indexed
axis (2 indices are); check the indices that were fed""",
    )


def test_m12_the_first_fault_of_a_ticket_stays_and_later_ones_are_counted(one: ValidationWord) -> None:
    one.check_index(torch.tensor([0]), 5, node("good"))
    one.check_index(torch.tensor([7]), 5, node("first"))
    one.check_index(torch.tensor([8, 9]), 6, node("second"))
    one.check_index(torch.tensor([0]), 6, node("third"))
    assert_expected_inline(
        message(tos.DeviceIndexError, lambda: finish(one)),
        """\
node 'first' (ai.onnx::Gather): index 7 is outside of [-5, 5), the valid range of the indexed
axis (3 indices are); check the indices that were fed""",
    )


def test_m11_the_layout_of_the_word(one: ValidationWord) -> None:
    one.check_index(torch.tensor([0]), 5, node("good"))
    one.check_index(torch.tensor([0, -(2**32) - 7, 9]), 2**32 + 5, node("bad"))
    assert one.word.dtype is torch.int32
    assert one.word.tolist() == [Flag.INDEX, 2, -7, -2, 1, 4, 1, 0, -5, -2]


def test_m11_counts_end_at_the_greatest_int32(one: ValidationWord) -> None:
    one.check_index(torch.tensor([7]), 5, node("first"))
    one.word[layout.COUNT] = 2**31 - 2
    one.check_index(torch.tensor([7, 7, 7]), 5, node("first"))
    assert one.word[layout.COUNT].item() == 2**31 - 1


def test_m12_only_begin_clears_the_word(one: ValidationWord) -> None:
    one.check_index(torch.tensor([7]), 5, node("first"))
    with pytest.raises(tos.DeviceIndexError):
        finish(one)
    assert one.word[layout.FLAGS].item() == Flag.INDEX
    one.begin()
    assert not one.word.any()
    finish(one)
    one.begin()
    one.check_index(torch.tensor([9]), 5, node("later"))
    assert "'later'" in message(tos.DeviceIndexError, lambda: finish(one))


def test_m11_one_node_has_one_number(one: ValidationWord) -> None:
    for index in (1, 2, 9, 11):
        one.check_index(torch.tensor([index]), 5, node("again"))
    assert "index 9" in message(tos.DeviceIndexError, lambda: finish(one))
    assert len(one.numbers) == 1


def test_m11_an_empty_axis_has_no_valid_index(one: ValidationWord) -> None:
    told = message(IndexError, lambda: one.check_index(torch.tensor([0]), 0, node("n")))
    assert told == "the indexed axis is empty, so that no index is valid"
    assert one.check_index(torch.tensor([], dtype=torch.int64), 0, node("n")).numel() == 0


def test_m11_checking_with_plain_ops_reads_nothing() -> None:
    word = ValidationWord(torch.device("meta"))
    word.begin()
    word.check_index(torch.empty(3, dtype=torch.int64, device="meta"), 5, node("n"))
    assert word.word.is_meta


def test_m11_a_run_begins_only_when_the_word_was_read() -> None:
    word = ValidationWord(CPU)
    first = word.begin()
    assert_expected_inline(
        message(tos.DeviceValidationError, word.begin),
        """\
whether the run before met bad data was not asked yet; read an output of it with binding.read(),
or call session.check(), before the next run""",
    )
    assert word.read(first) is None
    second = word.begin()
    assert (first.generation, second.generation) == (1, 2)


def test_m11_foreign_and_stale_tickets_are_refused_and_poison_nothing() -> None:
    word, other = ValidationWord(CPU), ValidationWord(CPU)
    stale = word.begin()
    assert word.read(stale) is None
    foreign, ticket = other.begin(), word.begin()
    assert message(PlanError, lambda: word.read(foreign)) == "validation ticket 1 is of another session"
    assert message(PlanError, lambda: word.read(stale)) == "validation ticket 1 is consumed already"
    assert message(PlanError, lambda: word.read(Ticket(word, 9))) == "validation ticket 9 is consumed already"
    assert word.ticket == ticket
    assert word.read(ticket) is None
    word.begin()


def test_m11_a_word_that_cannot_be_read_keeps_its_ticket() -> None:
    word = ValidationWord(CPU)
    ticket, fetch = word.begin(), word.fetch

    def broken() -> list[int]:
        raise OSError("the device is lost")

    word.fetch = broken
    with pytest.raises(OSError, match="lost"):
        word.read(ticket)
    assert word.ticket == ticket
    word.fetch = fetch
    assert word.read(ticket) is None


MODELS = {
    "Gather": "g (float[5] x, int64[k] i) => (float[k] y) { [pick] y = Gather(x, i) }",
    "Gather of integers": "g (int64[5] x, int64[k] i) => (int64[k] y) { [pick] y = Gather(x, i) }",
    "Gather of rows": "g (float[5, 2] x, int64[k] i) => (float[k, 2] y) { [pick] y = Gather(x, i) }",
    "GatherElements": "g (float[5] x, int64[k] i) => (float[k] y) { [pick] y = GatherElements(x, i) }",
    "in a body": (
        "g (float[5] x, int64[k] i) => (float[k] y) <bool c = {1}> { y = If (c) <then_branch = t ()"
        " => (float[k] a) { [pick] a = Gather(x, i) }, else_branch = e () => (float[k] b)"
        " { b = Gather(x, i) }> }"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_m11_kernels_report_into_it(name: str, one: ValidationWord) -> None:
    finish(one)
    graph = lower(load_model(model(MODELS[name])).graph)
    setting = Setting(CPU, lambda name, weight, device: weight.data, validation=one)
    program = bind_steps(build_steps(graph, setting))
    assert program.validation is one
    x = torch.arange(10.0).reshape(5, 2) if "rows" in name else torch.arange(5.0)
    x = x.to(torch.int64) if "integers" in name else x

    def run(index: list[int]) -> torch.Tensor:
        values = frame_of(program, {"x": x, "i": torch.tensor(index)})
        with validation_scope(program.validation):
            for call in program.calls:
                call.call(values)
            result = values[program.steps.outputs[0]]
        assert isinstance(result, torch.Tensor)
        return result

    assert torch.equal(run([0, -1, 4]), x[[0, -1, 4]])
    with pytest.raises(tos.DeviceIndexError) as caught:
        run([0, 5])
    assert (caught.value.node, caught.value.value) == ("pick", 5)
    assert torch.equal(run([3]), x[[3]])


def test_m11_kernels_that_check_say_so() -> None:
    """Where none of a plan's kernels says so nobody asks: a silent one would lose its faults."""
    kernels = [kernel for revisions in registry.kernels().values() for kernel in revisions]
    wrong = [k.op for k in kernels if (k.checks is not False) is not _reaches(k.fn, set())]
    assert not wrong
    assert sum(kernel.checks is not False for kernel in kernels) > 12


def _reaches(function: Any, seen: set[str]) -> bool:
    """Whether a function looks at data, itself or through functions of the package."""
    for name in _names(function.__code__):
        called = function.__globals__.get(name)
        if called in (check_index, check_range, check_each, check_divisor, note_routes):
            return True
        ours = inspect.isfunction(called) and called.__module__.startswith("torch_ort_session.ops.")
        if name not in seen and ours:
            seen.add(name)
            if _reaches(called, seen):
                return True
    return False


def _names(code: CodeType) -> set[str]:
    inner = [_names(const) for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*inner)
