"""Bad data in every op that looks at it: told by node and value, eagerly and in a replay, and then over."""

from __future__ import annotations

import pytest
from badfeeds import ROWS, Bad, feeds_of, same, told
from runtime.capturelab import counted

import torch_ort_session as tos
from torch_ort_session.runtime.validation.validator import PLAIN, ValidationWord


@pytest.mark.parametrize("way", ["native", "plain"])
@pytest.mark.parametrize("bad", ROWS, ids=str)
def test_m11_bad_data_is_told_and_the_next_run_is_right(bad: Bad, way: str) -> None:
    model, good, wrong = feeds_of(bad)
    eager = tos.load(model, options=tos.Options(capture="off"))
    session = tos.load(model)
    for one in (eager, session):
        assert isinstance(one._engine.validation, ValidationWord)
        if way == "plain":
            one._engine.validation._checks = PLAIN
    random = bad.op in RANDOM
    want = eager.run(None, good)
    told(bad, lambda: eager.run(None, wrong))
    told(bad, lambda: session.run(None, wrong))
    for _ in range(3):
        got = session.run(None, good)
        if not random:
            same(got, want)
    captures = counted(session, "captures")
    for _ in range(2):
        told(bad, lambda: session.run(None, wrong))
        got = session.run(None, good)
        if not random:
            same(got, want)
    assert counted(session, "captures", "retirements") == (*captures, 0)
    if bad.op not in SEAMS and bad.id != "strings":
        assert captures == (1,)


RANDOM = {"Multinomial", "Bernoulli"}
SEAMS = {"RoiAlign", "RemovePadding", "CropAndResize", *RANDOM}
