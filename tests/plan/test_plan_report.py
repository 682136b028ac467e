"""Decline reports: a table for people, records for programs."""

from __future__ import annotations

import json

from expecttest import assert_expected_inline

from torch_ort_session.plan.partition.report import Decline, DeclineReport, Reason, table

REPORT = DeclineReport(
    (
        Decline("", "", "", Reason.NOTHING, "no segment is left to record"),
        Decline("pick", "NonZero", "", Reason.SEAM, "the size of the output depends on the data"),
        Decline("route", "MoE", "com.microsoft", Reason.RECORDING, "aten::item reads data"),
    )
)


def test_m3_a_report_reads_as_a_table() -> None:
    assert_expected_inline(
        str(REPORT),
        """\
node   op                  reason                  message
-----  ------------------  ----------------------  ------------------------------------------
(run)                      nothing capturable      no segment is left to record
pick   ai.onnx::NonZero    kernel declares a seam  the size of the output depends on the data
route  com.microsoft::MoE  recording failed        aten::item reads data""",
    )


def test_m3_a_report_is_records_for_programs() -> None:
    assert_expected_inline(
        json.dumps(REPORT.to_dict(), indent=1),
        """\
[
 {
  "node": "",
  "op": "",
  "domain": "",
  "reason": "nothing capturable",
  "message": "no segment is left to record"
 },
 {
  "node": "pick",
  "op": "NonZero",
  "domain": "",
  "reason": "kernel declares a seam",
  "message": "the size of the output depends on the data"
 },
 {
  "node": "route",
  "op": "MoE",
  "domain": "com.microsoft",
  "reason": "recording failed",
  "message": "aten::item reads data"
 }
]""",
    )


def test_m3_a_report_on_the_whole_run() -> None:
    assert_expected_inline(
        str(DeclineReport.of(Reason.OFF, "Options(capture='off')")),
        """\
node   op  reason       message
-----  --  -----------  ----------------------
(run)      capture off  Options(capture='off')""",
    )


def test_m3_the_reasons_are_those_that_users_are_told() -> None:
    assert_expected_inline(
        "\n".join(reason.value for reason in Reason),
        """\
host control flow or sequence
unresolved output shape
unresolved input shape
kernel not warmed
kernel declares a seam
disqualified by growth
recording failed
out of memory
outputs not bound
sequence output
nothing capturable
diverged
probe mismatch
below minimum length
latched
capture off
replay without capture
not on the whitelist
padding changes results""",
    )


def test_a_table_is_as_wide_as_its_texts() -> None:
    assert_expected_inline(
        table([("a", "long head"), ("longer", "x"), ("", "")]),
        """\
a       long head
------  ---------
longer  x
""",
    )
