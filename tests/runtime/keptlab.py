"""What a session has learnt of feeds that grow."""

from __future__ import annotations

import torch_ort_session as tos
from torch_ort_session.runtime.dynamic.growing import KeptGrowth


def all_kept(session: tos.Session) -> list[KeptGrowth]:
    """What is kept of each form of growing feeds, the oldest first."""
    return list(session._engine.state.memo._kept.values())


def kept(session: tos.Session) -> KeptGrowth:
    """What is kept of the only form."""
    (found,) = all_kept(session)
    return found
