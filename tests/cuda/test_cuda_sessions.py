"""Captured sessions on each device against eager ones on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime.capturelab import BRANCHES, CHAIN, SEAMS, counted, cpu_recorder, injected, states
from textmodel import declare, model, operator

import torch_ort_session as tos

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
devices = pytest.mark.parametrize("device", DEVICES)


def pair(text: str, device: str, **options: Any) -> tuple[tos.Session, tos.Session]:
    proto = model(text)
    eager = tos.load(proto, device="cpu", options=tos.Options(capture="off"))
    session = tos.load(proto, device=device, options=tos.Options(**options))
    return injected(session, cpu_recorder) if device == "cpu" else session, eager


def agree(session: tos.Session, eager: tos.Session, feed: dict[str, Any]) -> list[Any]:
    results = session.run(None, feed)
    for got, want in zip(results, eager.run(None, feed), strict=True):
        assert got.device.type == session.device.type
        torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-6)
    return results


def feed(length: int = 64) -> dict[str, Any]:
    return {"x": torch.rand(length) + 0.5, "w": torch.rand(length) + 1}


@devices
@pytest.mark.parametrize("text", [CHAIN, SEAMS])
def test_m2_replays_follow_their_feeds_and_leave_results_alone(device: str, text: str) -> None:
    session, eager = pair(text, device)
    held = []
    for step in range(12):
        for result in agree(session, eager, feed(64 if step % 3 else 65)):
            held.append((result, result.clone()))
    for result, then in held:
        assert torch.equal(result, then)
    assert counted(session, "captures", "replays") == (2, 6)


@devices
def test_m9_branches_that_flip(device: str) -> None:
    session, eager = pair(BRANCHES, device)
    for step in range(16):
        agree(session, eager, {"x": (torch.rand(8) + 0.1) * (1 if step % 4 else -1)})
    assert counted(session, "captures") >= (1,)


@devices
def test_m8_a_kernel_that_reads_data_is_quarantined_and_the_session_goes_on(device: str) -> None:
    @declare
    def Reads(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum().item())

    text = (
        "g (float[n] x) => (float[n] y) { a = Exp(x) b = Neg(a) c = Abs(b) d = Exp(c)"
        " e = tests.Reads(d) f = Neg(e) h = Abs(f) i = Sin(h) y = Cos(i) }"
    )
    with operator(Reads):
        session, eager = pair(text, device)
        for _ in range(8):
            agree(session, eager, {"x": torch.rand(16)})
    assert states(session) == ["captured"]
    assert session._engine.state.dispatcher.quarantined == {("tests", "Reads")}


@devices
def test_random_steps_draw_once_a_run(device: str) -> None:
    text = (
        "g (float[n] x) => (float[n] y) { a = Exp(x) b = Neg(a) c = Abs(b) d = Exp(c)"
        " r = RandomUniformLike(x) e = Add(d, r) f = Neg(e) h = Abs(f) y = Sqrt(h) }"
    )
    session, _ = pair(text, device)
    proto = model(text)
    eager = tos.load(proto, device=device, options=tos.Options(capture="off"))
    for step in range(8):
        given = {"x": torch.rand(16)}
        results = []
        for runs in (session, eager):
            torch.manual_seed(step)
            results.append([runs.run(None, given)[0].cpu(), torch.rand(2, device=device).cpu()])
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want)


@devices
def test_m16_memory_is_back_after_release(device: str) -> None:
    session, eager = pair(CHAIN, device)
    for length in (10, 1000, 100000):
        for _ in range(4):
            agree(session, eager, feed(length))
    session.release_memory()
    names = ("plans", "arena bytes", "static input bytes", "crossing bytes")
    assert counted(session, *names) == (0, 0, 0, 0)
    for _ in range(4):
        agree(session, eager, feed(10))
    assert states(session) == ["captured"]


@devices
def test_verify_finds_nothing_wrong(device: str) -> None:
    session, eager = pair(SEAMS, device, verify=True)
    for _ in range(8):
        agree(session, eager, feed())
    assert counted(session, "captures", "probes", "probe mismatches") == (1, 1, 0)
