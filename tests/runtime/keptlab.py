"""What a session has learnt of feeds that grow."""

from __future__ import annotations

import torch_ort_session as tos
from torch_ort_session.runtime.dynamic.growing import GrowthEntry


def all_kept(session: tos.Session) -> list[GrowthEntry]:
    """What is kept of each form of growing feeds, the oldest first."""
    return list(session._engine.state.growth._entries.values())


def kept(session: tos.Session) -> GrowthEntry:
    """What is kept of the only form."""
    (found,) = all_kept(session)
    return found
