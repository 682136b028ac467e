"""The two ways to make a bound run: what tests of bindings drive, one after the other."""

from __future__ import annotations

import torch_ort_session as tos


def drive_run(binding: tos.Binding) -> None:
    binding.run()


def drive_replay(binding: tos.Binding) -> None:
    """Capture at first, replay from then on."""
    if binding._state.dispatcher.latest_capture() is None:
        assert binding.capture() is None
    else:
        assert binding.replay() is True


DRIVERS = [drive_run, drive_replay]
