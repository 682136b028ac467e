"""Explain: what a plan does and why, in words and in facts."""

from __future__ import annotations

import json
from dataclasses import replace

import torch
from expecttest import assert_expected_inline
from plan.planning import see
from plan.walks import KERNELS
from textmodel import operator

from torch_ort_session.explain.explain import explain, explain_all, facts
from torch_ort_session.plan.plan import Plan, make_plan

TEXT = (
    "g (float[64, 4] x, int64 n) => (float[?] y) <int64[1] m = {-1}, int64[1] z = {0}> { a = Neg(x) b ="
    " Exp(a)"
    " t = Transpose(b) c = tests.Cut(t) d = Mul(c, c) s = Shape(d) p = ReduceProd(s) r = Reshape(d, p)"
    " u = Unsqueeze(n, z) k = Slice(r, z, u) o = NonZero(k) f = Cast <to = 1> (o) g2 = Reshape(f, m) y ="
    " Exp(g2) }"
)


def planned(keys: tuple[tuple[str, int | bool], ...] = (("n", 40),), **kwargs: object) -> Plan:
    with operator(*KERNELS):
        seen = see(TEXT, {"x": torch.ones(64, 4), "n": torch.tensor(40)}, keys=[name for name, _ in keys])
    return seen.plan(keys=keys, **kwargs)


def test_a_plan_in_words() -> None:
    assert_expected_inline(
        explain(planned(), title="feeds of 64 rows"),
        """\
feeds of 64 rows
14 steps on cpu: 9 in 3 segments, 2 in 2 seams, 3 folded into constants
2 of these hold as long as shapes that depend on data stay as they are
key feeds: n = 40
passes: none

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
  arena        2.0 KB  2 places for 6 values, at least 2.0 KB needed
  slots        5.6 KB  96% of all that is no result
  activations  6.1 KB  3 views beside them
  results      256 B   handed to the user, so never in the arena
  at once      2.0 KB  the most that has to be there at one step
  eager peak   2.1 KB  the most that an eager run holds at once
  saved        3.6 KB  by slots that are used again
largest slots
  a  1.0 KB  steps 0 to 1
  b  1.0 KB  steps 1 to 3
  c  1.0 KB  steps 3 to 4
  d  1.0 KB  steps 4 to 7
  r  1.0 KB  steps 7 to 10""",
    )


def test_a_plan_in_words_with_all_that_can_be_told() -> None:
    plan = planned(keys=(), quarantined={("", "Exp")}, minimum=2)
    assert_expected_inline(
        explain(plan, passes=("fold constants", "fuse attention")),
        """\
14 steps on cpu: 3 in 1 segment, 9 in 8 seams, 2 folded into constants
2 of these hold as long as shapes that depend on data stay as they are
key feeds: none
passes: fold constants, fuse attention
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
  arena        2.0 KB  2 places for 3 values, at least 2.0 KB needed
  slots        3.1 KB  52% of all that is no result
  activations  6.1 KB  4 views beside them
  results      256 B   handed to the user, so never in the arena
  at once      2.0 KB  the most that has to be there at one step
  eager peak   2.1 KB  the most that an eager run holds at once
  saved        1.0 KB  by slots that are used again
largest slots
  c  1.0 KB  steps 3 to 4
  d  1.0 KB  steps 4 to 7
  r  1.0 KB  steps 7 to 10""",
    )


def test_sizes_that_are_not_known() -> None:
    text = (
        "g (float[64, 4] x) => (float[64, 4] y) <int64 z = {0}> { a = Neg(x) s = SequenceConstruct(a)"
        " d = SequenceAt(s, z) e = Exp(d) y = Neg(e) }"
    )
    assert_expected_inline(
        explain(see(text, {"x": torch.ones(64, 4)}).plan()),
        """\
5 steps on cpu: 3 in 2 segments, 2 in 2 seams, 0 folded into constants
key feeds: none
passes: none

regions
  segment  1 step, 1 launch
  seam     SequenceConstruct_1 (ai.onnx::SequenceConstruct)
           host control flow or sequence: 's' is no tensor (sequence)
  seam     SequenceAt_2 (ai.onnx::SequenceAt)
           host control flow or sequence: 's' is no tensor (sequence)
  segment  2 steps, 2 launches

memory
  arena        2.0 KB                             2 places for 3 values, at least 2.0 KB needed
  slots        3.1 KB                             100% of all that is no result
  activations  4.1 KB                             1 view beside them
  results      1.0 KB                             handed to the user, so never in the arena
  at once      2.0 KB                             the most that has to be there at one step
  eager peak   2.0 KB                             the most that an eager run holds at once
  saved        not known: 1 value without a size
largest slots
  a  1.0 KB  steps 0 to 2
  d  1.0 KB  steps 2 to 3
  e  1.0 KB  steps 3 to 4""",
    )


def test_a_plan_without_slots_says_why() -> None:
    text = "g (float[64, 4] x) => (float[64, 4] y) { a = Neg(x) y = Exp(a) }"
    seen = see(text, {"x": torch.ones(64, 4)})
    specs = [spec and spec._replace(nbytes=1 << 61) for spec in seen.observation.specs]
    huge = replace(seen.observation, specs=tuple(specs))
    plan = make_plan(seen.steps, seen.static_values, huge, torch.device("cpu"))
    assert_expected_inline(
        explain(plan),
        """\
2 steps on cpu: 2 in 1 segment, 0 in 0 seams, 0 folded into constants
key feeds: none
passes: none

regions
  segment  2 steps, 2 launches

memory: all of it stays with torch (a slot of 2305843009213693952 bytes cannot be planned)""",
    )
    assert facts(plan)["memory"] is None


def test_a_plan_of_nothing() -> None:
    plan = see("g (float[2] x) => (float[2] x) { y = Neg(x) }", {"x": torch.ones(2)}).plan()
    assert_expected_inline(
        explain(plan),
        """\
0 steps on cpu: 0 in 0 segments, 0 in 0 seams, 0 folded into constants
key feeds: none
passes: none

memory
  arena        0 B  0 places for 0 values, at least 0 B needed
  slots        0 B  100% of all that is no result
  activations  0 B  0 views beside them
  results      0 B  handed to the user, so never in the arena
  at once      0 B  the most that has to be there at one step
  eager peak   0 B  the most that an eager run holds at once
  saved        0 B  by slots that are used again""",
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
passes: none

regions
  segment  1 step, 1 launch

memory
  arena        0 B    0 places for 0 values, at least 0 B needed
  slots        0 B    100% of all that is no result
  activations  256 B  0 views beside them
  results      256 B  handed to the user, so never in the arena
  at once      256 B  the most that has to be there at one step
  eager peak   8 B    the most that an eager run holds at once
  saved        0 B    by slots that are used again

x float32[3]
1 step on cpu: 1 in 1 segment, 0 in 0 seams, 0 folded into constants
key feeds: none
passes: none

regions
  segment  1 step, 1 launch

memory
  arena        0 B    0 places for 0 values, at least 0 B needed
  slots        0 B    100% of all that is no result
  activations  256 B  0 views beside them
  results      256 B  handed to the user, so never in the arena
  at once      256 B  the most that has to be there at one step
  eager peak   12 B   the most that an eager run holds at once
  saved        0 B    by slots that are used again""",
    )
    assert explain_all([]) == "no plan"


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
 "passes": [],
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
  "complete": true,
  "arena": 2048,
  "lower_bound": 2048,
  "slotted": 5632,
  "activations": 6144,
  "results": 256,
  "needed_at_once": 2048,
  "eager_peak": 2056,
  "saved": 3584,
  "share": 0.9565,
  "slots": 2,
  "assignments": 6,
  "views": 3,
  "unknown": 0
 },
 "failure": "",
 "largest_slots": [
  {
   "value": "a",
   "bytes": 1024,
   "offset": 0,
   "first_step": 0,
   "last_step": 1
  },
  {
   "value": "b",
   "bytes": 1024,
   "offset": 1024,
   "first_step": 1,
   "last_step": 3
  },
  {
   "value": "c",
   "bytes": 1024,
   "offset": 0,
   "first_step": 3,
   "last_step": 4
  },
  {
   "value": "d",
   "bytes": 1024,
   "offset": 1024,
   "first_step": 4,
   "last_step": 7
  },
  {
   "value": "r",
   "bytes": 1024,
   "offset": 0,
   "first_step": 7,
   "last_step": 10
  }
 ]
}""",
    )
