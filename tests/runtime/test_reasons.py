"""M3: every reason is told where it is true, as a row of a table and as a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import Failing, cpu_recorder, injected, refusal, session_on, warmed
from runtime.test_probe import LYING, Bakes
from textmodel import operator

import torch_ort_session as tos
from benchmarks import decoder
from torch_ort_session import Bucket
from torch_ort_session.ops import native
from torch_ort_session.plan.partition.report import Decline, DeclineReport, Reason
from torch_ort_session.runtime.recorders.api import Recorder

X = {"x": torch.tensor([1.0, 2.0, 3.0])}
ONE = "g (float[n] x) => (float[n] y) { y = Exp(x) }"
TWO = "g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }"
PICK = "g (float[n] x) => (int64[1,k] y) { a = Exp(x) z = NonZero(a) y = Neg(z) }"


def rows(session: tos.Session) -> Iterator[Decline]:
    for _, entry in session._engine.state.dispatcher.everything():
        yield from () if entry.report is None else entry.report.rows


def after(session: tos.Session, runs: int = 4, feed: dict[str, Any] = X) -> list[Decline]:
    warmed(session, feed, runs)
    return list(rows(session))


def failing(text: str, error: Callable[[], BaseException], runs: int = 3) -> list[Decline]:
    return after(injected(session_on(text), lambda: Failing(1, error)), runs)


def control_flow() -> list[Decline]:
    return after(session_on("g (float[n] x) => (seq(float[n]) y) { y = SequenceConstruct(x) }"))


def loose() -> list[Decline]:
    session = session_on(TWO)
    session._engine.state.dispatcher.learnt.unstable.add("Exp_0")
    return after(session)


def from_data() -> list[Decline]:
    return short_of(
        session_on(
            "g (float[n] x) => (float[k] y) <int64[1] a = {0}> { t = ReduceSum <keepdims = 1> (x, a)"
            " m = Cast <to = 7> (t) y = Expand(t, m) }"
        )
    )


def short_of(session: tos.Session) -> list[Decline]:
    """Where no segment is long enough, reports tell of every step."""
    session._engine.state = dataclasses.replace(session._engine.state, minimum=4)
    return after(session)


def growth() -> list[Decline]:
    size = decoder.Size(layers=1, heads=2, groups=1, width=4, words=20)
    session = tos.load(decoder.make_decoder(size))
    if not native.status().usable:
        session = injected(session, cpu_recorder)
    feed = decoder.first_feed(size, past=5)
    for _ in range(12):
        got = session.run(None, feed)
        feed = decoder.next_feed(feed, dict(zip([port.name for port in session.outputs], got, strict=True)))
    (kept,) = session._engine.state.growth._entries.values()
    assert kept.entry is not None and kept.entry.captured is not None
    regions = kept.entry.captured.regions
    return [
        Decline(stage.calls[0].step.node.name, stage.calls[0].step.node.op, "", region.reason, region.message)
        for stage in regions
        if (region := stage.region).reason is not None
    ]


def not_warmed() -> list[Decline]:
    session = session_on(TWO)
    warmed(session, X, 3)
    dispatcher = session._engine.state.dispatcher
    other = dispatcher.rules.stamp._replace(library="another build")
    dispatcher.rules = dataclasses.replace(dispatcher.rules, stamp=other)
    return after(session, 1)


def seam() -> list[Decline]:
    return after(session_on("g (float[n] x) => (int64[1,k] y) { y = NonZero(x) }"))


def through_binding(text: str, outputs: dict[str, torch.Tensor], **options: Any) -> list[Decline]:
    binding = session_on(text, **options).bind()
    binding.input("x", X["x"])
    for name, tensor in outputs.items():
        binding.output(name, tensor)
    report = binding.capture()
    return [] if report is None else list(report.rows)


def replayed_without() -> list[Decline]:
    with pytest.raises(tos.CaptureError) as caught:
        session_on(ONE).bind().replay(X)
    assert isinstance(caught.value.report, DeclineReport)
    return list(caught.value.report.rows)


def diverged() -> list[Decline]:
    session = session_on(PICK)
    warmed(session, X, 3)
    return after(session, 1, {"x": torch.tensor([0.0, -1000.0, 1.0])})


def probed() -> list[Decline]:
    with operator(Bakes):
        session = session_on(LYING, verify=True)
        for shift in range(6):
            session.run(None, {"x": X["x"] + shift})
        return list(rows(session))


def short() -> list[Decline]:
    return short_of(session_on(TWO))


def no_room() -> BaseException:
    return MemoryError("no room for 8 bytes")


def told_not_to() -> Recorder | str:
    return "it was told not to"


def padded() -> list[Decline]:
    text = "g (float[n] x) => (float[1] t) { t = ReduceSum (x) }"
    session = session_on(text, buckets=(Bucket("n", (4,), pad={"x": 1}),), verify=True)
    session.run(None, X)
    return [row for report in session._engine.state.dispatcher.learnt.refused.values() for row in report.rows]


FOUND: dict[Reason, Callable[[], list[Decline]]] = {
    Reason.CONTROL_FLOW: control_flow,
    Reason.OUTPUT_SHAPE: loose,
    Reason.INPUT_SHAPE: from_data,
    Reason.NOT_WARMED: not_warmed,
    Reason.SEAM: seam,
    Reason.GROWTH: growth,
    Reason.RECORDING: lambda: failing(ONE, refusal, 3),
    Reason.MEMORY: lambda: failing(ONE, no_room),
    Reason.UNBOUND: lambda: through_binding(ONE, {}),
    Reason.SEQUENCE: lambda: through_binding(
        "g (float[n] x) => (float[n] y, seq(float[n]) s) { y = Exp(x) s = SequenceConstruct(y) }",
        {"y": torch.zeros(3)},
    ),
    Reason.NOTHING: seam,
    Reason.DIVERGED: diverged,
    Reason.PROBE: probed,
    Reason.SHORT: short,
    Reason.LATCHED: lambda: failing(ONE, no_room, 16),
    Reason.OFF: lambda: through_binding(ONE, {"y": torch.zeros(3)}, capture="off"),
    Reason.NO_CAPTURE: replayed_without,
    Reason.UNLISTED: lambda: after(session_on(ONE, capture_only=({"n": 9},))),
    Reason.BUCKET: padded,
}


def test_m3_there_is_a_case_for_every_reason() -> None:
    assert set(FOUND) == set(Reason)


def test_m3_every_reason_is_told_where_it_is_true() -> None:
    told = []
    for reason, cause in FOUND.items():
        found = [row for row in cause() if row.reason is reason]
        assert found, reason
        report = DeclineReport((found[0],))
        (record,) = report.to_dict()
        assert record["reason"] == reason.value and record["message"] == found[0].message
        told.append(found[0])
    assert_expected_inline(
        "\n".join(line[:100].rstrip() for line in str(DeclineReport(tuple(told))).splitlines()),
        """\
node                 op                          reason                         message
-------------------  --------------------------  -----------------------------  --------------------
SequenceConstruct_0  ai.onnx::SequenceConstruct  host control flow or sequence  'y' is no tensor (se
Exp_0                ai.onnx::Exp                unresolved output shape        the shape of its res
Expand_2             ai.onnx::Expand             unresolved input shape         its input 'shape' is
(run)                                            kernel not warmed              the capture was made
NonZero_0            ai.onnx::NonZero            kernel declares a seam         the size of the outp
Range_5              ai.onnx::Range              disqualified by growth         't1' grows from run
Exp_0                ai.onnx::Exp                recording failed               recording ai.onnx::E
(run)                                            out of memory                  no room for 8 bytes
Exp_0                ai.onnx::Exp                outputs not bound              nothing is bound to
SequenceConstruct_1  ai.onnx::SequenceConstruct  sequence output                's' is a sequence(fl
(run)                                            nothing capturable             no segment is left t
NonZero_1            ai.onnx::NonZero            diverged                       'z' was int64[1, 3]
(run)                                            probe mismatch                 a replay on other fe
Exp_0                ai.onnx::Exp                below minimum length           2 step(s) with 2 lau
(run)                                            latched                        4 captures broke off
(run)                                            capture off                    capture is off in th
(run)                                            replay without capture         there is nothing to
(run)                                            not on the whitelist           n=3 is none of those
(run)                                            padding changes results        a padded run differs""",
    )


def test_m3_a_session_whose_recorder_is_off_says_so() -> None:
    found = after(injected(session_on(ONE), told_not_to))
    assert [(row.reason, row.message) for row in found] == [(Reason.OFF, "it was told not to")]
