"""Every op case, eager and replayed with other data: a capture changes nothing but the time.

Runs of a session take turns with runs of another shape, where the operator takes one, and with runs of a
second session. Results are those of the eager runs to the bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from opcase import Fixed, OpCase, Random, Sequence_
from opgroups import all_cases, params
from replaying import apart

import torch_ort_session
from torch_ort_session import Options, SessionError
from torch_ort_session.session import Session


def seeded(session: Session, feeds: dict[str, Any], draw: int) -> list[Any]:
    torch.manual_seed(draw)
    return session.run(None, feeds)


def other_shapes(case: OpCase) -> Iterator[OpCase]:
    """The case with one size made larger wherever it stands among the random inputs, for each size."""
    sizes = {size for item in case.inputs for part in parts(item) for size in part.shape}
    for size in sorted(sizes, reverse=True):
        if size > 1:
            yield dataclasses.replace(case, inputs=[resized(item, size) for item in case.inputs])


def parts(item: Any) -> Iterator[Random]:
    if isinstance(item, Sequence_):
        yield from (part for part in item.items if isinstance(part, Random))
    elif isinstance(item, Random):
        yield item


def resized(item: Any, size: int) -> Any:
    if isinstance(item, Sequence_):
        return Sequence_(tuple(resized(part, size) for part in item.items))
    if item is None or isinstance(item, Fixed):
        return item
    return dataclasses.replace(item, shape=tuple(2 * dim if dim == size else dim for dim in item.shape))


def another(case: OpCase, dtype: str, eager: Session) -> OpCase | None:
    """The case with inputs of another shape that the operator takes; None where it takes none of them."""
    for found in other_shapes(case):
        try:
            seeded(eager, found.feeds(dtype, 0), 0)
        except SessionError:
            continue
        return found
    return None


@pytest.mark.parametrize("op", ["Add", "MatMul", "Conv", "Concat", "Gather", "LSTM", "Softmax", "TopK"])
def test_cases_of_common_operators_have_another_shape(op: str) -> None:
    """Where the generator gave up silently every case would run with one shape."""
    cases = [case for _, case in all_cases() if case.op == op and case.domain == ""]
    eager = [(case, *case.variants()[0]) for case in cases]
    options = Options(capture="off")
    loaded = [
        (case, kind, torch_ort_session.load(case.model(kind, opset), options=options))
        for case, kind, opset in eager
    ]
    found = [another(case, kind, session) for case, kind, session in loaded]
    assert sum(one is not None for one in found) >= 0.5 * len(found)


@pytest.mark.parametrize(("case", "dtype", "opset"), params())
def test_a_replay_gives_what_the_eager_run_gives(case: OpCase, dtype: str, opset: int) -> None:
    eager = torch_ort_session.load(case.model(dtype, opset), options=Options(capture="off"))
    session = second = Session(eager.model, eager.device, Options())
    varies = any(node.op in ("Dropout", "Multinomial", "Bernoulli") for node in session.graph.nodes)
    varies = varies or any(node.op.startswith("Random") for node in session.graph.nodes)
    turns = [(session, case)]
    if (dtype, opset) == case.variants()[0]:
        # Whose turn it is has nothing to do with the dtype.
        second = Session(eager.model, eager.device, Options())
        wide = another(case, dtype, eager)
        turns += [(second, case), *([] if wide is None else [(session, wide)])]
    for draw in (0, 1):
        for runs, of in turns:
            seeded(runs, of.feeds(dtype, draw), draw)
    # Now each is captured, then replayed, with data that it has and has not seen before.
    order = [(*turn, draw) for draw in (2, 3) for turn in turns]
    worst = 0.0
    for runs, of, draw in [*order, (session, case, 1)]:
        feeds = of.feeds(dtype, draw)
        expected = seeded(eager, feeds, draw)
        worst = max(worst, apart(seeded(runs, feeds, draw), expected))
    assert worst == 0.0, f"replays are {worst:.2g} of the largest magnitude from eager runs"
    assert varies or session.stats()["failed captures"] == 0
