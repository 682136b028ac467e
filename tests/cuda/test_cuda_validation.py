"""Bad indices on a device: told after the run, with the process and the context alive."""

from __future__ import annotations

import pytest
import torch
from textmodel import model

import torch_ort_session as tos

STEP = (
    "g (float[8, 4] x, int64[1, 1] at, float[1, 4] row, float[8, 4] past)"
    " => (float[1, 1, 4] y, float[8, 4] present)"
    " { [put] present = ScatterND(past, at, row) [pick] y = Gather(x, at) }"
)


def bound(validate: str) -> tuple[tos.Session, tos.Binding, torch.Tensor, torch.Tensor]:
    session = tos.load(model(STEP), device="cuda", options=tos.Options(validate=validate))  # type: ignore[arg-type]
    binding = session.bind()
    at, past = torch.zeros(1, 1, dtype=torch.int64).cuda(), torch.zeros(8, 4).cuda()
    binding.input("x", torch.arange(32.0).reshape(8, 4).cuda())
    binding.input("row", torch.ones(1, 4).cuda())
    binding.input("at", at)
    binding.state("past", "present", past)
    binding.output("y", torch.zeros(1, 1, 4).cuda())
    return session, binding, at, past


@pytest.mark.cuda
def test_m11_every_way_of_running_tells_and_the_context_lives() -> None:
    nodes = "[pick] p = Gather(x, i) e = Exp(p) f = Neg(e) y = Abs(f)"
    text = f"g (float[n] x, int64[k] i) => (float[k] y) {{ {nodes} }}"
    session = tos.load(model(text), device="cuda")
    x, good, bad = torch.arange(5.0).cuda(), torch.tensor([0, -1, 3]).cuda(), torch.tensor([2, 7, -9]).cuda()
    want = x[good].exp()
    for _ in range(6):
        with pytest.raises(tos.DeviceIndexError) as caught:
            session.run(None, {"x": x, "i": bad})
        assert (caught.value.node, caught.value.value) == ("pick", 7)
        torch.testing.assert_close(session.run(None, {"x": x, "i": good})[0], want)
    assert session.stats()["captures"] == 1 and session.stats()["retirements"] == 0


@pytest.mark.cuda
@pytest.mark.parametrize("validate", ["run", "deferred"])
def test_m12_a_bad_position_leaves_no_hole(validate: str) -> None:
    session, binding, at, past = bound(validate)
    for step in range(4):
        at.fill_(step)
        binding.run()
        binding.read("y")
    before = past.clone()
    at.fill_(8)
    with pytest.raises(tos.DeviceIndexError, match="index 8"):
        binding.run()
        binding.read("y")
    assert torch.equal(past, before)
    with pytest.raises(tos.DeviceIndexError, match="index 9"), binding.together():
        for step in (4, 5, 9, 6):
            at.fill_(step)
            binding.run()
        binding.read("y")
    before[4:6] = 1
    assert torch.equal(past, before)
    session.check()


@pytest.mark.cuda
def test_m11_a_late_run_waits_for_nothing() -> None:
    session, binding, _, _ = bound("deferred")
    for _ in range(4):
        binding.run()
        session.check()
    with torch.cuda.device(0):
        torch.cuda.set_sync_debug_mode("error")
        try:
            binding.run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    session.check()


@pytest.mark.cuda
def test_m11_off_clamps() -> None:
    session, binding, at, past = bound("off")
    at.fill_(100)
    for _ in range(4):
        binding.run()
    assert past[-1].tolist() == [1, 1, 1, 1] and not past[:-1].any()
    session.check()
