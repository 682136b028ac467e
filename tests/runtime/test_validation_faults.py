"""What the validation word says, in words; its layout and flags in Python and in C++ alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from expecttest import assert_expected_inline
from textmodel import wrapped

from torch_ort_session import DeviceIndexError, DeviceValidationError
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.runtime.validation import word as layout
from torch_ort_session.runtime.validation.word import SENTENCES, Fault

HEADER = Path(__file__).resolve().parents[2] / "csrc" / "core" / "word.h"

NAMES = {
    "kIndexOutOfRange": Flag.INDEX,
    "kDivisionByZero": Flag.DIVISION,
    "kLengthOutOfRange": Flag.LENGTH,
    "kClassOutOfRange": Flag.CLASS,
    "kPositionOutOfRange": Flag.POSITION,
    "kDistributionEmpty": Flag.DISTRIBUTION,
    "kProbabilityOutOfRange": Flag.PROBABILITY,
}


def enum(name: str) -> dict[str, int]:
    """The members of an enum of the header."""
    found = re.search(rf"enum {name} : \w+ \{{(.*?)\}};", HEADER.read_text(), re.DOTALL)
    assert found is not None
    members: dict[str, int] = {}
    following = 0
    for member in filter(None, (part.strip() for part in found[1].split(","))):
        key, _, value = (part.strip() for part in member.partition("="))
        members[key] = int(value) if value else following
        following = members[key] + 1
    return members


def test_m11_flags_are_the_same_in_python_and_in_c() -> None:
    assert enum("Flag") == NAMES
    assert set(NAMES.values()) == set(Flag) == set(SENTENCES)


def test_m11_each_kind_has_a_bit_of_its_own() -> None:
    for flag in Flag:
        assert flag > 0 and flag & (flag - 1) == 0
    assert len({sentence.kind for sentence in SENTENCES.values()}) == len(Flag)


def test_m11_the_layout_is_the_same_in_python_and_in_c() -> None:
    places = ("FLAGS", "NODE", "VALUE", "COUNT", "HIGH", "DONE", "LOW", "SIZE")
    assert enum("Place") == {f"k{name.title()}": getattr(layout, name) for name in places}


def told(flag: Flag, value: int, low: int, high: int) -> str:
    """What is said of one bad value and, below it, of three."""
    texts = []
    for count in (1, 3):
        error = Fault(flag, "pick", "ai.onnx::Op", value, low, high, count, 0).error()
        assert (error.node, error.kind, error.value) == ("pick", SENTENCES[flag].kind, value)
        bounds = (low, high) if SENTENCES[flag].bounded else None
        assert (error.allowed, error.count) == (bounds, count)
        texts.append(wrapped(str(error)))
    return "\n".join([SENTENCES[flag].kind, *texts])


def test_m11_index() -> None:
    assert_expected_inline(
        told(Flag.INDEX, 7, -5, 4),
        """\
index out of range
node 'pick' (ai.onnx::Op): index 7 is outside of [-5, 5), the valid range of the indexed axis;
check the indices that were fed
node 'pick' (ai.onnx::Op): index 7 is outside of [-5, 5), the valid range of the indexed axis (3
indices are); check the indices that were fed""",
    )


def test_m11_division() -> None:
    assert_expected_inline(
        told(Flag.DIVISION, 0, 0, 0),
        """\
division by zero
node 'pick' (ai.onnx::Op): an integer is divided by 0, which has no result; check the divisors
that were fed, or replace zeros before they get here
node 'pick' (ai.onnx::Op): an integer is divided by 0, which has no result (3 divisors are
zero); check the divisors that were fed, or replace zeros before they get here""",
    )


def test_m11_length() -> None:
    assert_expected_inline(
        told(Flag.LENGTH, 9, 0, 4),
        """\
length out of range
node 'pick' (ai.onnx::Op): length 9 is outside of [0, 4], the lengths that fit the data; check
the lengths that were fed
node 'pick' (ai.onnx::Op): length 9 is outside of [0, 4], the lengths that fit the data (3
lengths are); check the lengths that were fed""",
    )


def test_m11_class() -> None:
    assert_expected_inline(
        told(Flag.CLASS, -1, 0, 9),
        """\
class out of range
node 'pick' (ai.onnx::Op): target -1 is outside of [0, 10), the classes that there are scores
for; check the targets that were fed; the attribute ignore_index names one that is left out
node 'pick' (ai.onnx::Op): target -1 is outside of [0, 10), the classes that there are scores
for (3 targets are); check the targets that were fed; the attribute ignore_index names one that
is left out""",
    )


def test_m11_position() -> None:
    assert_expected_inline(
        told(Flag.POSITION, 12, 0, 11),
        """\
position out of range
node 'pick' (ai.onnx::Op): position 12 is outside of [0, 12), the places that the cache has;
check the lengths and positions that were fed, or make the cache longer
node 'pick' (ai.onnx::Op): position 12 is outside of [0, 12), the places that the cache has (3
positions are); check the lengths and positions that were fed, or make the cache longer""",
    )


def test_m11_distribution() -> None:
    assert_expected_inline(
        told(Flag.DISTRIBUTION, 2, 0, 0),
        """\
nothing to draw
node 'pick' (ai.onnx::Op): row 2 of the probabilities leaves nothing to draw: it holds NaN, or
no outcome is possible; check the scores that were fed
node 'pick' (ai.onnx::Op): row 2 of the probabilities leaves nothing to draw: it holds NaN, or
no outcome is possible (3 rows do); check the scores that were fed""",
    )


def test_m11_probability() -> None:
    assert_expected_inline(
        told(Flag.PROBABILITY, 5, 0, 0),
        """\
no probability
node 'pick' (ai.onnx::Op): element 5 of the probabilities is outside of [0, 1], or NaN; check
the probabilities that were fed
node 'pick' (ai.onnx::Op): element 5 of the probabilities is outside of [0, 1], or NaN (3
elements are); check the probabilities that were fed""",
    )


@pytest.mark.parametrize("flag", Flag)
def test_m11_what_names_a_place_is_an_index_error(flag: Flag) -> None:
    error = Fault(flag, "n", "ai.onnx::Op", 1, 0, 0, 1, 0).error()
    places = {Flag.INDEX, Flag.CLASS, Flag.POSITION}
    assert isinstance(error, DeviceValidationError)
    assert isinstance(error, DeviceIndexError) is (flag in places)
