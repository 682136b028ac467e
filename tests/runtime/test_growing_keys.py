"""M14 beside key feeds: a decoder that takes its prompt and its tokens in two branches of an If."""

from __future__ import annotations

from typing import Any

import torch
from expecttest import assert_expected_inline
from ortsession import ort_session
from textmodel import model

import torch_ort_session as tos
from torch_ort_session import Options
from torch_ort_session.trace import counters

MERGED = """
    merged (float[1, n, 4] x, float[1, p, 4] past, bool[1] use_cache)
        => (float[1, n, 4] y, float[1, t, 4] present)
    <float[4, 4] w = {1, 2, 0, 1, 0, 1, 1, 0, 2, 0, 1, 1, 1, 1, 0, 2}>
    {
        y, present = If (use_cache) <
            then_branch = cached () => (y1, present1) {
                a1 = MatMul (x, w)
                b1 = Tanh (a1)
                c1 = Add (b1, x)
                present1 = Concat <axis = 1> (past, c1)
                t1 = Transpose <perm = [0, 2, 1]> (present1)
                s1 = MatMul (c1, t1)
                p1 = Softmax <axis = -1> (s1)
                m1 = MatMul (p1, present1)
                d1 = MatMul (m1, w)
                e1 = Sigmoid (d1)
                y1 = Mul (e1, c1)
            },
            else_branch = prompt () => (y2, present2) {
                a2 = MatMul (x, w)
                b2 = Tanh (a2)
                present2 = Add (b2, x)
                y2 = Identity (present2)
            }
        >
    }
"""


def decode(session: tos.Session, tokens: int, *, past: int = 3) -> None:
    """A prompt and tokens, each compared with what onnxruntime gives for the same feed."""
    proto = model(MERGED)
    other = ort_session(proto.SerializeToString())
    generator = torch.Generator().manual_seed(past)

    def turn(length: int, cache: torch.Tensor, cached: bool) -> torch.Tensor:
        x = torch.randn(1, length, 4, generator=generator)
        feed = {"x": x, "past": cache, "use_cache": torch.tensor([cached])}
        got = session.run(None, feed)
        want = other.run(None, {name: value.numpy() for name, value in feed.items()})
        for one, two in zip(got, want, strict=True):
            torch.testing.assert_close(one, torch.from_numpy(two), rtol=1e-5, atol=1e-5)
        present: torch.Tensor = got[1]
        return present

    cache = turn(past, torch.zeros(1, 0, 4), False)
    for _ in range(tokens):
        cache = turn(1, cache, True)


def grown(session: tos.Session) -> dict[str, int]:
    names = (counters.PRIMED, counters.REBUILT, counters.GROWN, counters.INELIGIBLE, counters.CAPTURES)
    stats = session.stats()
    return {name.rpartition(" ")[2]: stats[name] for name in names if stats[name]}


def test_m14_the_branch_that_a_key_feed_takes_is_folded_while_feeds_grow() -> None:
    session = tos.load(model(MERGED), options=Options(fuse=False))
    decode(session, 10)
    assert grown(session) == {"primed": 2, "replayed": 6, "captures": 1}
    assert_expected_inline(
        str(session._engine.state.growth),
        """\
growing (x: float32[1, 1, 4], past: float32[1, grows, 4], use_cache: bool[1] = True) -> (y, present)
  0 of 13 steps are known beforehand
  7 are replayed, in 2 segments
  6 steps from 'If_0/then_branch/Concat_3': disqualified by growth, 'past' grows from run to run""",
    )


def test_m14_the_other_branch_is_taken_when_the_key_feed_says_so() -> None:
    session, eager = tos.load(model(MERGED)), tos.load(model(MERGED), options=Options(capture="off"))
    decode(session, 8)
    # Dims as the next token's, but with the flag that takes the branch without a cache.
    for cached in (True, False, True, False):
        feed: dict[str, Any] = {
            "x": torch.ones(1, 1, 4),
            "past": torch.ones(1, 12 if cached else 13, 4),
            "use_cache": torch.tensor([cached]),
        }
        for one, two in zip(session.run(None, feed), eager.run(None, feed), strict=True):
            assert one.shape == two.shape
            torch.testing.assert_close(one, two)


def test_m14_decodes_take_turns_with_prompts() -> None:
    session = tos.load(model(MERGED), options=Options(verify=True))
    for past in (3, 5, 2):
        decode(session, 7, past=past)
    assert session.stats()[counters.INELIGIBLE] == 0
    assert session.stats()[counters.MISMATCHES] == 0
