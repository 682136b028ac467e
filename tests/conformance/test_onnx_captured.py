"""Every test of ONNX's suite that passes, captured and replayed, with the suite's data and with other data.

Each runs four times: eagerly, observed, captured and replayed, and the suite judges what the replay gave.
Then other data of the same form is replayed beside an eager session, and the suite's data once more. Where
numbers that the host needs (shapes, axes, pads) are inputs, which makes seams, the test runs again with those
inputs as constants, as exporters write them. What is recorded of each test is declared in `seams.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
import suite
import torch
from gaps import GAPS
from replaying import Seam, apart, as_constants, differ, number_feeds, other_data, seams_of, seeded
from seams import AS_CONSTANTS, CONSTANT, PARTLY, SAME_DATA, SEAMS

from torch_ort_session import Options
from torch_ort_session.compat.backend import Backend, PreparedModel, as_numpy
from torch_ort_session.session import Session, load

NAMES = [name for name in suite.CASES if name not in GAPS]


class Recorded(enum.Enum):
    """How much of a model is in recordings."""

    WHOLE = "all of it"
    PARTLY = "some of it"
    NOTHING = "nothing"
    CONSTANT = "nothing runs: every result is a constant"


@dataclass
class Conduct:
    """What a test's model did.

    Attributes:
        recorded: How much of it was recorded.
        seams: The kinds of seams that kept the rest out.
        constants: Whether that holds once numbers are constants.
        worst: How far replays were from eager runs, at most.
        other: Whether other data was replayed.
        faults: What is wrong.
    """

    recorded: Recorded = Recorded.CONSTANT
    seams: frozenset[Seam] = frozenset()
    constants: bool = False
    worst: float = 0.0
    other: bool = False
    faults: list[str] = field(default_factory=list)


class Replayed(PreparedModel):
    """A model that gives the suite what its replay gave."""

    def __init__(self, session: Session, model: onnx.ModelProto, conduct: Conduct) -> None:
        super().__init__(session)
        self.model = model
        self.conduct = conduct

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        feed = dict(zip([port.name for port in self.session.inputs], inputs, strict=False))
        results = self._put_through(self.session, feed)
        if Seam.NUMBERS in self.conduct.seams:
            self._with_constants(feed)
        kinds = [port.type for port in self.session.outputs]
        return tuple(as_numpy(value, kind) for value, kind in zip(results, kinds, strict=True))

    def _with_constants(self, feed: Mapping[str, Any]) -> None:
        numbers = number_feeds(self.session.plan(feed))
        if not numbers or not all(isinstance(feed[name], (np.ndarray, np.generic)) for name in numbers):
            return
        session = load(as_constants(self.model, feed, numbers))
        rest = {name: value for name, value in feed.items() if name not in numbers}
        if _recorded(session, rest)[0] is Recorded.WHOLE:
            self._put_through(session, rest)
            self.conduct.constants = True

    def _put_through(self, session: Session, feed: Mapping[str, Any]) -> list[Any]:
        """Capture, replay, replay with other data and again; gives what the first replay gave."""
        conduct = self.conduct
        eager = _seeded(session, feed)
        for _ in range(3):
            results = _seeded(session, feed)
            conduct.worst = max(conduct.worst, apart(results, eager))
        self._other_data(session, feed)
        conduct.worst = max(conduct.worst, apart(_seeded(session, feed), eager))
        # Afterwards, so that what a recording refused counts as the seam that it is from then on.
        conduct.recorded, conduct.seams = _recorded(session, feed)
        stats = session.stats()
        if conduct.recorded is Recorded.WHOLE and not (
            stats["captures"] == 1 and stats["replays"] >= 2 and stats["retirements"] == 0
        ):
            conduct.faults.append(f"its plan is one segment, yet: {stats}\n{session.explain()}")
        if conduct.recorded is Recorded.PARTLY and stats["captures"] < 1:
            conduct.faults.append(f"its plan has segments, yet nothing was captured:\n{session.explain()}")
        return results

    def _other_data(self, session: Session, feed: Mapping[str, Any]) -> None:
        conduct = self.conduct
        beside = Session(session.model, session.device, Options(capture="off"))
        conduct.other = False
        for integers in (True, False):
            fed = other_data(feed, 1, integers=integers)
            if not differ(feed, fed):
                return
            try:
                expected = _seeded(beside, fed)
            except Exception as error:
                # Such data is refused, and a replay has to refuse it as well.
                try:
                    _seeded(session, fed)
                    conduct.faults.append(f"a replay accepts what an eager run refuses: {error!r}")
                except type(error):
                    continue
                return
            conduct.worst = max(conduct.worst, apart(_seeded(session, fed), expected))
            conduct.other = True
            return


class Replaying(Backend):
    """A backend whose models are captured and replayed."""

    conduct: ClassVar[Conduct]

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        return Replayed(load(model), model, cls.conduct)


def _recorded(session: Session, feed: Mapping[str, Any]) -> tuple[Recorded, frozenset[Seam]]:
    torch.manual_seed(0)
    plan = session.plan(feed)
    assert plan.rules.minimum == 1
    if not plan.regions:
        return Recorded.CONSTANT, frozenset()
    kinds = seams_of(plan)
    if not plan.segments:
        return Recorded.NOTHING, kinds
    return (Recorded.PARTLY if kinds else Recorded.WHOLE), kinds


def _seeded(session: Session, feed: Mapping[str, Any]) -> list[Any]:
    return seeded(session, feed, 0)


def conduct_of(name: str) -> Conduct:
    """Run one test of the suite captured; it passes."""
    Replaying.conduct = conduct = Conduct()
    failures, skipped = suite.run(name, Replaying)
    assert not skipped, f"{name} was skipped: {skipped[0]}"
    assert not failures, failures[0]
    return conduct


def declared(name: str) -> tuple[Recorded, frozenset[Seam], bool]:
    """What `seams.py` says of a test: how much is recorded, the seams of the rest, with constants or not."""
    if name in SEAMS:
        return Recorded.NOTHING, frozenset({SEAMS[name]}), False
    if name in PARTLY:
        return Recorded.PARTLY, frozenset({PARTLY[name]}), False
    if name in CONSTANT:
        return Recorded.CONSTANT, frozenset(), False
    return Recorded.WHOLE, frozenset(), name in AS_CONSTANTS


@pytest.mark.parametrize("name", NAMES)
def test_conformance_captured(name: str) -> None:
    conduct = conduct_of(name)
    assert not conduct.faults, conduct.faults[0]
    assert (conduct.recorded, conduct.seams, conduct.constants) == declared(name)
    assert conduct.worst == 0.0, f"replays are {conduct.worst:.2g} of the largest magnitude from eager runs"
    if conduct.recorded in (Recorded.WHOLE, Recorded.PARTLY):
        assert conduct.other != (name in SAME_DATA), "whether it was replayed with other data is declared"


def test_how_many_tests_are_recorded_and_why_the_others_are_not() -> None:
    """A count that changes has a test behind it that was captured before, or is from now on."""
    rest = len(NAMES) - len(SEAMS) - len(PARTLY) - len(CONSTANT)
    counts = {"whole": rest - len(AS_CONSTANTS), "whole with constants": len(AS_CONSTANTS)}
    counts |= {"partly": len(PARTLY), "constant": len(CONSTANT)}
    counts |= {kind.name: sum(s is kind for s in SEAMS.values()) for kind in Seam}
    assert {name: count for name, count in counts.items() if count} == {
        "whole": 1624,
        "whole with constants": 117,
        "partly": 10,
        "constant": 38,
        "VIEWS": 73,
        "NUMBERS": 37,
        "SIZE": 23,
        "BODY": 37,
        "STRINGS": 32,
        "SEQUENCE": 17,
        "IMAGES": 9,
        "RANDOM": 6,
    }


def test_what_is_declared_is_declared_once_and_of_real_tests() -> None:
    lists = (SEAMS, PARTLY, CONSTANT, AS_CONSTANTS)
    names = [name for listed in lists for name in listed]
    assert sorted(names) == sorted(set(names))
    assert set(names) | set(SAME_DATA) <= set(NAMES)
