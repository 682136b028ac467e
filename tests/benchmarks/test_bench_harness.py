"""benchmarks/harness.py and agreement.py: the statistics, the order of runs, the verdicts."""

import argparse
import json

import agreement
import harness
import numpy as np
import pytest
from expecttest import assert_expected_inline


def test_median_spread_and_minimum():
    found = harness.summarise([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (found.median, found.fastest, found.rounds) == (3.0, 1.0, 5)
    assert found.spread == pytest.approx((4.0 - 2.0) / 3.0)
    assert harness.summarise([2.0]) == harness.Timing(2.0, 0.0, 2.0, 1)
    assert harness.summarise([0.0, 0.0]).spread == 0.0
    with pytest.raises(ValueError, match="no samples"):
        harness.summarise([])


def test_variants_take_turns_and_the_warm_up_does_not_count():
    order = []
    now = [0.0]

    def variant(name, cost):
        def call():
            order.append(name)
            now[0] += cost

        return call

    timed = harness.interleave(
        {"a": variant("a", 1.0), "b": variant("b", 3.0)},
        seconds=0.0,
        least=3,
        warmup=1,
        clock=lambda: now[0],
    )
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert timed["a"] == harness.Timing(1.0, 0.0, 1.0, 3)
    assert timed["b"].median == 3.0


def test_rounds_end_with_the_time_or_at_the_most():
    now = [0.0]

    def tick():
        now[0] += 1.0

    def rounds(**limits):
        return harness.interleave({"a": tick}, warmup=0, clock=lambda: now[0], **limits)["a"].rounds

    assert rounds(seconds=10.0, least=2) == 10
    assert rounds(seconds=100.0, least=2, most=7) == 7


def test_variants_may_tell_their_own_time():
    now = [0.0]

    def slow():
        now[0] += 10.0
        return 0.5

    times = harness.interleave(
        {"a": slow, "b": slow}, seconds=0.0, least=2, warmup=0, telling=["a"], clock=lambda: now[0]
    )
    assert times["a"].samples == (0.5, 0.5)
    assert times["b"].samples == (10.0, 10.0)


def test_a_slow_spell_of_the_machine_leaves_the_ratio_of_rounds_alone():
    ours, theirs = harness.summarise([2.0, 20.0, 2.2]), harness.summarise([1.0, 10.0, 1.0])
    assert harness.paired(ours, theirs) == 2.0
    assert harness.paired(ours, harness.summarise([1.0, 0.0, 0.0])) == float("inf")
    with pytest.raises(ValueError, match="zip"):
        harness.paired(ours, harness.summarise([1.0]))


def test_many_rounds_are_judged_by_the_fastest_and_few_by_pairs():
    ours, theirs = harness.summarise([2.0, 30.0, 40.0]), harness.summarise([1.0, 10.0, 10.0])
    assert harness.ratio(ours, theirs) == 3.0
    assert harness.ratio(ours, theirs, many=3) == 2.0


def test_table():
    assert_expected_inline(
        harness.table(("model", "error"), [("a", "1e-4"), ("longer", "0")]),
        """\
model   error
------  -----
a        1e-4
longer      0""",
    )


def test_milliseconds_are_never_written_with_an_exponent():
    assert harness.milliseconds(harness.Timing(0.00012345, 0.041, 0.0, 9)) == "0.123 ms ±4%"
    assert harness.milliseconds(harness.Timing(1.2345, 0.0, 0.0, 9)) == "1234 ms ±0%"


def finish(capsys, *, misses, json_=False, check=False):
    args = argparse.Namespace(json=json_, check=check)
    status = harness.finish("bench", text="the table", rows=[{"x": 1}], misses=misses, args=args)
    return status, capsys.readouterr().out


def test_check_fails_on_misses_only(capsys):
    assert finish(capsys, misses=["row a"])[0] == 0
    status, text = finish(capsys, misses=["row a: too slow"], check=True)
    assert status == 1
    assert_expected_inline(
        text,
        """\
the table
misses: row a: too slow
""",
    )
    status, text = finish(capsys, misses=[], check=True)
    assert status == 0
    assert_expected_inline(
        text,
        """\
the table
bench: all 1 rows hold
""",
    )
    status, text = finish(capsys, misses=["row a"], json_=True, check=True)
    assert status == 1
    found = json.loads(text)
    assert (found["benchmark"], found["rows"], found["misses"]) == ("bench", [{"x": 1}], ["row a"])


def test_agreement_is_relative_to_the_largest_magnitude():
    expected = np.array([100.0, 0.0, -200.0], np.float32)
    close = agreement.compare(["y"], [expected + np.float32(0.01)], [expected], 1e-4)
    assert close.holds and close.error == pytest.approx(0.01 / 200.0, rel=1e-2)
    far = agreement.compare(["y"], [expected + np.float32(0.1)], [expected], 1e-4)
    assert not far.holds
    assert_expected_inline(far.reason, """y: error 0.0005 is above 0.0001""")


def test_agreement_of_integers_shapes_types_and_counts():
    ids = np.array([1, 2, 3])
    found = agreement.compare(["ids"], [np.array([1, 5, 3])], [ids], 1e-4)
    assert found.differing == 1
    assert_expected_inline(found.reason, """ids: 1 of 3 elements differ""")
    assert agreement.compare(["ids"], [ids], [ids], 0.0).holds
    shape = agreement.compare(["ids"], [ids.reshape(3, 1).astype(np.int32)], [ids], 1.0)
    assert_expected_inline(shape.reason, """ids: int32[3, 1] instead of int64[3]""")
    assert not agreement.compare(["a", "b"], [ids], [ids, ids], 1.0).holds


def test_agreement_of_values_that_are_not_finite():
    expected = np.array([np.nan, np.inf, 1.0])
    assert agreement.compare(["y"], [expected.copy()], [expected], 1e-6).holds
    for wrong in ([np.nan, -np.inf, 1.0], [0.0, np.inf, 1.0], [np.nan, np.inf, np.nan]):
        assert not agreement.compare(["y"], [np.array(wrong)], [expected], 1e9).holds
    empty = np.zeros((0, 4), np.float32)
    assert agreement.compare(["y"], [empty], [empty], 0.0).holds
    zero = np.zeros(3, np.float32)
    assert not agreement.compare(["y"], [zero + 1], [zero], 1e-4).holds
