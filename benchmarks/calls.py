"""What the recorded calls of a model cost one by one, each alone, without the recording around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import torch_ort_session
from torch_ort_session.runtime.captures.warmup import frame_of
from torch_ort_session.runtime.recorders import devices
from torch_ort_session.runtime.recorders.tape.recorder import TapeRecorder

Piece = Callable[[], object]
Call = tuple[str, str, list[Any], list[torch.Tensor | None]]


class LoggedTape:
    """A native tape that notes what is written on it."""

    def __init__(self, native: Any, calls: list[Call]) -> None:
        self._tape = native.Tape()
        self._calls = calls

    def add(self, name: str, overload: str, args: list[Any], results: Sequence[torch.Tensor | None]) -> None:
        self._tape.add(name, overload, args, results)
        self._calls.append((name, overload, list(args), list(results)))

    def __len__(self) -> int:
        return len(self._tape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)


class Logged:
    """The compiled extension, with tapes that note their calls."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.calls: list[Call] = []

    def Tape(self) -> LoggedTape:
        return LoggedTape(self._native, self.calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)


def pieces_of(model: Any, feed: Mapping[str, Any]) -> tuple[list[Piece], str]:
    """Every call that a capture of a model records, and every step that it leaves to a seam, in order.

    Each is a tape of its own on the tensors that the recording made, which share no memory and are never
    given up, so that every call finds what it was recorded with.

    Args:
        model: what `load` takes.
        feed: of the signature.

    Returns:
        The pieces, and what to know about them; none, with the reason, where nothing is recorded.
    """
    native = devices._native_module()
    if native is None:
        return [], "the extension is not built"
    session = torch_ort_session.load(model)
    for _ in range(2):
        session.run(None, feed)
    machine = session._engine.state
    entries = (entry for _, entry in machine.dispatcher.everything())
    planned = next((entry.planned for entry in entries if entry.planned is not None), None)
    if planned is None:
        return [], "not captured"
    plan, program = planned.plan, planned.program
    frame = frame_of(program, _fed(session, feed))
    pieces: list[Piece] = []
    for region in plan.regions:
        calls = [program.calls[position] for position in region.positions]
        if not region.is_segment:
            for bound in calls:
                bound.call(frame)
                pieces.append(lambda bound=bound: bound.call(frame))  # type: ignore[misc]
            continue
        logged = Logged(native)

        def body(calls: Sequence[Any] = calls) -> None:
            for bound in calls:
                bound.call(frame)

        TapeRecorder(logged).record(body)  # type: ignore[arg-type]
        pieces += [_alone(native, call) for call in logged.calls]
    seams = len(plan.seams)
    return pieces, f"{seams} seam{'' if seams == 1 else 's'}" if seams else ""


def _fed(session: torch_ort_session.Session, feed: Mapping[str, Any]) -> Mapping[str, Any]:
    _, _, intake = session._engine.program(tuple(port.name for port in session.outputs))
    fed: Mapping[str, Any] = intake(feed)
    return fed


def _alone(native: Any, call: Call) -> Piece:
    name, overload, args, results = call
    tape = native.Tape()
    tape.own([result for result in results if result is not None])
    tape.add(name, overload, args, results)
    replay: Piece = tape.replay
    return replay


def one_by_one(
    pieces: Sequence[Piece], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """A function that runs every piece once, in order, and gives the seconds that they took together.

    What a tape without a call takes, and the clock, is taken off each.
    """
    native = devices._native_module()
    assert native is not None
    empty = native.Tape().replay

    def timed(piece: Piece) -> float:
        begun = clock()
        piece()
        return clock() - begun

    def run() -> float:
        with torch.no_grad():
            return sum(timed(piece) for piece in pieces) - len(pieces) * min(timed(empty) for _ in range(20))

    return run
