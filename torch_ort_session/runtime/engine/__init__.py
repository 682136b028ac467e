"""One run, from feeds to results."""

from torch_ort_session.runtime.engine.engine import Engine
from torch_ort_session.runtime.engine.module_run import ModuleRun
from torch_ort_session.runtime.engine.run import capture_now, replay_now, run

__all__ = ["Engine", "ModuleRun", "capture_now", "replay_now", "run"]
