"""Explain: what a plan does and why, in words and in facts."""

from __future__ import annotations

import json
from dataclasses import replace

import torch
from expecttest import assert_expected_inline
from plan.planning import see
from plan.walks import KERNELS
from tapelab import needs_extension
from textmodel import operator

from torch_ort_session.explain.explain import explain, explain_all, facts
from torch_ort_session.plan.memory.layout import MemoryLayout
from torch_ort_session.plan.plan import Plan

TEXT = (
    "g (float[64, 4] x, int64 n) => (float[?] y) <int64[1] m = {-1}, int64[1] z = {0}> { a = Neg(x) b ="
    " Exp(a)"
    " t = Transpose(b) c = tests.Cut(t) d = Mul(c, c) s = Shape(d) p = ReduceProd(s) r = Reshape(d, p)"
    " u = Unsqueeze(n, z) k = Slice(r, z, u) o = NonZero(k) f = Cast <to = 1> (o) g2 = Reshape(f, m) y ="
    " Exp(g2) }"
)


def planned(keys: tuple[tuple[str, int | bool], ...] = (("n", 40),), **rules: object) -> Plan:
    feed = {"x": torch.ones(64, 4), "n": torch.tensor(40)}
    with operator(*KERNELS):
        return see(TEXT, feed, keys=[name for name, _ in keys]).laid_out(feed, keys=keys, **rules)


@needs_extension
def test_a_plan_in_words() -> None:
    assert_expected_inline(
        explain(planned(), title="feeds of 64 rows"),
        """\
feeds of 64 rows
14 steps on cpu: 9 in 3 segments, 2 in 2 seams, 3 folded into constants
2 of these hold as long as shapes that depend on data stay as they are
key feeds: n = 40

regions
  segment  3 steps, 2 launches
  seam     Cut_3 (tests::Cut)
           kernel declares a seam: it cuts
           every replay compares the shape of 'c'
  segment  3 steps, 2 launches
  seam     NonZero_10 (ai.onnx::NonZero)
           kernel declares a seam: the size of the output depends on the data
           every replay compares the shape of 'o'
  segment  3 steps, 2 launches

memory
  arena       2.0 KB  7 storages in it, at least 2.0 KB needed
  beside      256 B   the most at once that a replay allocates, 160 B of results leave with it
  written     5.8 KB  8 storages of 6 recorded calls
  at once     2.0 KB  the most that has to be there at one call
  eager peak  2.0 KB  the most that an eager run holds at once
  saved       3.6 KB  by slots that are used again
largest slots
  a  1.0 KB  calls 0 to 1
  b  1.0 KB  calls 1 to 2
  c  1.0 KB  calls 2 to 3
  d  1.0 KB  calls 3 to 4
  r  1.0 KB  calls 4 to 5""",
    )


@needs_extension
def test_a_plan_in_words_with_all_that_can_be_told() -> None:
    plan = planned(keys=(), quarantined=frozenset({("", "Exp")}), minimum=2)
    assert_expected_inline(
        explain(plan),
        """\
14 steps on cpu: 3 in 1 segment, 9 in 8 seams, 2 folded into constants
2 of these hold as long as shapes that depend on data stay as they are
key feeds: none
quarantined: ai.onnx::Exp

regions
  seam     Neg_0 (ai.onnx::Neg)
           below minimum length: 1 step(s) with 1 launch(es), fewer than 2
  seam     Exp_1 (ai.onnx::Exp)
           recording failed: recording ai.onnx::Exp failed before
  seam     Transpose_2 (ai.onnx::Transpose)
           below minimum length: 1 step(s) with only views
  seam     Cut_3 (tests::Cut)
           kernel declares a seam: it cuts
           every replay compares the shape of 'c'
  segment  3 steps, 2 launches
  seam     Slice_9 (ai.onnx::Slice)
           unresolved input shape: its input 'ends' is a number that follows from data
  seam     NonZero_10 (ai.onnx::NonZero)
           kernel declares a seam: the size of the output depends on the data
  seam     Cast_11 to Reshape_12 (2 steps)
           below minimum length: 2 step(s) with 1 launch(es), fewer than 2
  seam     Exp_13 (ai.onnx::Exp)
           recording failed: recording ai.onnx::Exp failed before

memory
  arena       2.0 KB  3 storages in it, at least 2.0 KB needed
  beside      0 B     the most at once that a replay allocates
  written     3.1 KB  3 storages of 2 recorded calls
  at once     2.0 KB  the most that has to be there at one call
  eager peak  2.0 KB  the most that an eager run holds at once
  saved       1.0 KB  by slots that are used again
largest slots
  c  1.0 KB  calls 3 to 4
  d  1.0 KB  calls 4 to 5
  r  1.0 KB  calls 5 to 7""",
    )


def test_memory_that_is_not_laid_out() -> None:
    text = "g (float[64, 4] x) => (float[64, 4] y) { a = Neg(x) y = Exp(a) }"
    plan = see(text, {"x": torch.ones(64, 4)}).plan()
    assert facts(plan)["memory"] is None
    assert explain(plan).splitlines()[-1] == "memory: laid out when the segments are recorded"
    declined = replace(plan, failure="recording failed: it reads data on the host")
    said = "memory: nothing is recorded: recording failed: it reads data on the host"
    assert explain(declined).splitlines()[-1] == said


def test_memory_that_a_device_keeps() -> None:
    text = "g (float[64, 4] x) => (float[64, 4] y) { a = Neg(x) y = Exp(a) }"
    plan = see(text, {"x": torch.ones(64, 4)}).plan()
    pooled = replace(plan, memory=MemoryLayout(1, (0, 1), pool=1 << 21))
    assert_expected_inline(
        explain(pooled).partition("memory\n")[2],
        """\
  graph pool  2.1 MB  taken by the device's allocator for 1 graph
  eager peak  2.0 KB  the most that an eager run holds at once""",
    )
    assert facts(pooled)["memory"]["arena"] == 0


def test_a_plan_of_nothing() -> None:
    plan = see("g (float[2] x) => (float[2] x) { y = Neg(x) }", {"x": torch.ones(2)}).plan()
    assert_expected_inline(
        explain(plan),
        """\
0 steps on cpu: 0 in 0 segments, 0 in 0 seams, 0 folded into constants
key feeds: none

memory: nothing is recorded""",
    )


def test_several_plans() -> None:
    text = "g (float[n] x) => (float[n] y) { y = Neg(x) }"
    plans = [(f"x float32[{n}]", see(text, {"x": torch.ones(n)}).plan()) for n in (2, 3)]
    assert_expected_inline(
        explain_all(plans),
        """\
x float32[2]
1 step on cpu: 1 in 1 segment, 0 in 0 seams, 0 folded into constants
key feeds: none

regions
  segment  1 step, 1 launch

memory: laid out when the segments are recorded

x float32[3]
1 step on cpu: 1 in 1 segment, 0 in 0 seams, 0 folded into constants
key feeds: none

regions
  segment  1 step, 1 launch

memory: laid out when the segments are recorded""",
    )
    assert explain_all([]) == "no plan"


@needs_extension
def test_facts_are_json() -> None:
    assert_expected_inline(
        json.dumps(facts(planned()), indent=1),
        """\
{
 "device": "cpu",
 "steps": {
  "total": 14,
  "recorded": 9,
  "eager": 2,
  "folded": 3,
  "assumed": 2
 },
 "key_feeds": {
  "n": 40
 },
 "quarantined": [],
 "regions": [
  {
   "kind": "segment",
   "first_step": 0,
   "last_step": 2,
   "steps": 3,
   "launches": 2,
   "fused": [],
   "ops": {
    "Exp": 1,
    "Neg": 1,
    "Transpose": 1
   }
  },
  {
   "kind": "seam",
   "first_step": 3,
   "last_step": 3,
   "steps": 1,
   "launches": 1,
   "fused": [],
   "ops": {
    "tests::Cut": 1
   },
   "node": "Cut_3",
   "op": "tests::Cut",
   "reason": "kernel declares a seam",
   "message": "it cuts",
   "compared": [
    "c"
   ]
  },
  {
   "kind": "segment",
   "first_step": 4,
   "last_step": 9,
   "steps": 3,
   "launches": 2,
   "fused": [],
   "ops": {
    "Mul": 1,
    "Reshape": 1,
    "Slice": 1
   }
  },
  {
   "kind": "seam",
   "first_step": 10,
   "last_step": 10,
   "steps": 1,
   "launches": 1,
   "fused": [],
   "ops": {
    "NonZero": 1
   },
   "node": "NonZero_10",
   "op": "ai.onnx::NonZero",
   "reason": "kernel declares a seam",
   "message": "the size of the output depends on the data",
   "compared": [
    "o"
   ]
  },
  {
   "kind": "segment",
   "first_step": 11,
   "last_step": 13,
   "steps": 3,
   "launches": 2,
   "fused": [],
   "ops": {
    "Cast": 1,
    "Exp": 1,
    "Reshape": 1
   }
  }
 ],
 "memory": {
  "calls": 6,
  "arena": 2048,
  "lower_bound": 2048,
  "slots": 7,
  "slotted": 5600,
  "storages": 8,
  "written": 5760,
  "beside": 256,
  "given": 160,
  "held": 0,
  "graph_pool": 0,
  "needed_at_once": 2048,
  "eager_peak": 2048,
  "saved": 3552
 },
 "failure": "",
 "largest_slots": [
  {
   "value": "a",
   "bytes": 1024,
   "offset": 0,
   "first_call": 0,
   "last_call": 1
  },
  {
   "value": "b",
   "bytes": 1024,
   "offset": 0,
   "first_call": 1,
   "last_call": 2
  },
  {
   "value": "c",
   "bytes": 1024,
   "offset": 1024,
   "first_call": 2,
   "last_call": 3
  },
  {
   "value": "d",
   "bytes": 1024,
   "offset": 1024,
   "first_call": 3,
   "last_call": 4
  },
  {
   "value": "r",
   "bytes": 1024,
   "offset": 0,
   "first_call": 4,
   "last_call": 5
  }
 ]
}""",
    )
