"""M14 on a device: a growing decode gives what an eager one gives there."""

from __future__ import annotations

import pytest
import torch
from cudalab import real_lab

import torch_ort_session as tos
from benchmarks.decoder import Size, first_feed, make_decoder, next_feed


@pytest.mark.cuda
def test_m14_a_growing_decode_on_a_device_is_never_wrong_and_never_ineligible() -> None:
    real_lab()
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
    assert stats["growing runs replayed"] == 16
