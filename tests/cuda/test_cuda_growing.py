"""M14 on CUDA graphs: a growing decode is what an eager one is; without a device see `fake_session.py`."""

from __future__ import annotations

import pytest
import torch
from fake_session import FakeTorch
from runtime.capturelab import counted

import torch_ort_session as tos
from benchmarks.decoder import Size, first_feed, make_decoder, next_feed
from torch_ort_session.runtime.dynamic import growing


@pytest.mark.cuda
def test_m14_a_growing_decode_on_a_device_is_never_wrong_and_never_ineligible() -> None:
    proto = make_decoder(Size())
    session = tos.load(proto, device="cuda")
    eager = tos.load(proto, device="cuda", options=tos.Options(capture="off"))
    names = [port.name for port in session.outputs]
    feed = {name: value.cuda() for name, value in first_feed(Size(), 2, past=5).items()}
    for _ in range(20):
        got, want = session.run(None, feed), eager.run(None, feed)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        feed = next_feed(feed, dict(zip(names, want, strict=True)))
    stats = session.stats()
    assert stats["growing runs ineligible"] == stats["growing runs rebuilt"] == 0
    assert stats["growing runs replayed"] == 16 and stats["captures"] == 1


def test_m14_what_does_not_grow_is_graphs_and_what_grows_runs_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The driver has to see every call, as a device would.
    monkeypatch.setattr(growing, "strips_for", lambda device: None)
    size = Size(layers=2)
    proto = make_decoder(size)
    eager = tos.load(proto, options=tos.Options(capture="off"))
    driver = FakeTorch()
    with driver.watching(monkeypatch):
        session = driver.session(proto)
        names = [port.name for port in session.outputs]
        feed = first_feed(size, past=5)
        held = []
        for _ in range(14):
            got, want = session.run(None, feed), eager.run(None, feed)
            for one, other in zip(got, want, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
            held += [(one, one.clone()) for one in got]
            feed = next_feed(feed, dict(zip(names, want, strict=True)))
        for one, then in held:
            assert torch.equal(one, then)
        found = counted(session, "growing runs primed", "growing runs replayed", "captures", "declines")
        assert found == (2, 10, 1, 0)
        assert len(driver.graphs) == 3
        session.release_memory()
    assert driver.open_pools() == [] and driver.capture is None
