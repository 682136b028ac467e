"""What tests of captured sessions share: sessions beside eager ones, and recorders that go wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from pytape import PyTapes
from textmodel import message, model
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.runtime.dispatch.policy import GraphEntry
from torch_ort_session.runtime.recorders.api import Recorder, Recording, Refused
from torch_ort_session.runtime.recorders.devices import recorder_for
from torch_ort_session.runtime.recorders.tape.recorder import TapeRecorder

Feed = Mapping[str, Any]
CHAIN = (
    "g (float[n] x, float[n] w) => (float[n] y)"
    " { a = Exp(x) b = Mul(a, w) c = Neg(b) d = Add(c, x) e = Abs(d) y = Sub(e, w) }"
)
STEPS = 6
"""Nodes of :data:`CHAIN`, each of which is one call."""

SEAMS = (
    "g (float[n] x, float[n] w) => (float[n] y, float[k] v)"
    " { a = Exp(x) b = Mul(a, w) s = Sqrt(b) t = Log(b) z = NonZero(b) c = Neg(b) d = Add(s, t) e = Sub(c, d)"
    " y = Sub(e, a) i = Squeeze(z) v = Gather(c, i) }"
)
BRANCHES = (
    "g (float[n] x) => (float[m] y, float[n] z) { p = ReduceSum <keepdims = 0> (x)"
    " zero = Constant <value_float = 0.0> () q = Greater(p, zero) n = Neg(x) o = Sin(n) r = Abs(o)"
    " b = If (q) <then_branch = t () => (float[n] a) { a = Exp(n) },"
    " else_branch = e () => (float[k] s) { s = Concat <axis = 0> (n, n) }> f = Abs(b) h = Sqrt(f)"
    " i = Cos(h) y = Neg(i) z = Mul(n, r) }"
)


def session_on(text: str, **options: Any) -> tos.Session:
    """A session that captures, with the oracle in Python where the extension is not built.

    Nothing is fused unless it is asked for: most tests count steps, or break one of them.
    """
    session = tos.load(model(text), options=tos.Options(**{"fuse": False, **options}))
    return session if native.status().usable else injected(session, lambda: TapeRecorder(PyTapes()))


def pair(text: str, **options: Any) -> tuple[tos.Session, tos.Session]:
    """A session that captures, and an eager one."""
    return session_on(text, **options), session_on(text, capture="off")


def cpu_recorder() -> Recorder:
    return recorder_for(torch.device("cpu")) or TapeRecorder(PyTapes())


def injected(session: tos.Session, recorder: Callable[[], Recorder | str]) -> tos.Session:
    """The session with another recorder."""
    session._engine.state = dataclasses.replace(session._engine.state, recorder=recorder)
    return session


def entries(session: tos.Session) -> list[GraphEntry]:
    return list(session._engine.state.dispatcher.entries.values())


def states(session: tos.Session) -> list[str]:
    """The state of each signature, the least recently used one first."""
    return [entry.state for entry in entries(session)]


def reasons(session: tos.Session) -> list[Reason]:
    """The reasons in the report of the signature that was used last."""
    report = entries(session)[-1].report
    return [] if report is None else [row.reason for row in report.rows]


def regions(session: tos.Session) -> list[str]:
    """The regions of the capture that was used last: how many steps a segment has, or a seam's operator."""
    captured = entries(session)[-1].captured
    assert captured is not None, states(session)
    return [
        f"{len(stage.calls)} recorded" if stage.recording is not None else stage.calls[0].step.node.op
        for stage in captured.regions
    ]


def counted(session: tos.Session, *names: str) -> tuple[int, ...]:
    stats = session.stats()
    return tuple(stats[name] for name in names)


def same(got: Iterable[Any], want: Iterable[Any]) -> None:
    """Results must be equal to the bit."""
    for ours, theirs in zip(got, want, strict=True):
        assert type(ours) is type(theirs)
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        elif isinstance(theirs, tuple):
            same(ours, theirs)
        elif theirs is not None:
            assert ours.tolist() == theirs.tolist()


def agree(session: tos.Session, eager: tos.Session, feed: Feed, outputs: list[str] | None = None) -> None:
    """One run of both on the same feed, which both leave as it is."""
    before = {name: value.clone() for name, value in feed.items() if isinstance(value, torch.Tensor)}
    same(session.run(outputs, feed), eager.run(outputs, feed))
    for name, value in before.items():
        assert torch.equal(feed[name], value)


def fail_alike(session: tos.Session, eager: tos.Session, feed: Feed) -> str:
    """The message of the error that both sessions raise for a feed."""
    told = message(tos.errors.SessionError, lambda: session.run(None, feed))
    assert told == message(tos.errors.SessionError, lambda: eager.run(None, feed))
    return told


def warmed(session: tos.Session, feed: Feed, runs: int = 3) -> None:
    """Run until the feed's signature is captured."""
    for _ in range(runs):
        session.run(None, feed)


class Failing:
    """A recorder that raises at its ``at``-th call of a torch op, counted over all recordings.

    Attributes:
        calls: Calls so far.
        recordings: What it has made, so that a test can see whether all of them were closed.
    """

    def __init__(self, at: int, error: Callable[[], BaseException]) -> None:
        self.at = at
        self.error = error
        self.calls = 0
        self.recordings: list[Recording] = []
        self.inner = cpu_recorder()

    def record(self, body: Callable[[], None]) -> Recording:
        def counting() -> None:
            with _Counting(self):
                body()

        recording = self.inner.record(counting)
        self.recordings.append(recording)
        return recording


class _Counting(TorchDispatchMode):
    def __init__(self, recorder: Failing) -> None:
        super().__init__()
        self.recorder = recorder

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.recorder.calls += 1
        if self.recorder.calls == self.recorder.at:
            raise self.recorder.error()
        return func(*args, **(kwargs or {}))


def refusal() -> Refused:
    return Refused("it was told to", "aten::test")
