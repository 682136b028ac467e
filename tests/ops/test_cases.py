"""Every check that a kernel owes, for every case of tests/cases, in one walk.

A case is loaded once for each of its dtypes and opsets. Its eager runs are those of the oracle, with feeds of
any strides; a second session that captures and replays them gives the same to the bit, with data that it has
and has not seen before, while runs of another shape, where the operator takes one, and of a third session
come in between.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from opcase import Fixed, OpCase, Random, Sequence_, assert_matches
from opgroups import all_cases, check_each, named, params
from replaying import apart, seeded

import torch_ort_session
from torch_ort_session import Options, SessionError
from torch_ort_session.ops import registry
from torch_ort_session.runtime.values.feeds import from_numpy
from torch_ort_session.session import Session


def without_layout(value: Any) -> Any:
    """The same data in a transposed (non-contiguous) array."""
    if isinstance(value, np.ndarray) and value.ndim >= 2 and value.dtype != object:
        return np.ascontiguousarray(value.T).T
    return value


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


@pytest.mark.parametrize("case", params())
def test_case(case: OpCase) -> None:
    # Whose turn it is has nothing to do with the dtype.
    check_each(
        (named(case, dtype, opset), partial(walk, case, dtype, opset, alternating=number == 0))
        for number, (dtype, opset) in enumerate(case.variants())
    )


def walk(case: OpCase, dtype: str, opset: int, *, alternating: bool) -> None:
    """Run a case at a dtype and an opset: eagerly beside its oracle, then captured and replayed beside that.

    Args:
        case: The case.
        dtype: What its inputs without a dtype of their own are.
        opset: Of the case's domain.
        alternating: Whether runs of a third session and of another shape come in between.
    """
    eager = torch_ort_session.load(case.model(dtype, opset), options=Options(capture="off"))
    session = Session(eager.model, eager.device, Options())
    turns = [(session, case)]
    if alternating:
        turns.append((Session(eager.model, eager.device, Options()), case))
        wide = another(case, dtype, eager)
        turns += [] if wide is None else [(session, wide)]
    ask, worst = case.ask(dtype, opset), 0.0
    for draw in (0, 1):
        feeds = case.feeds(dtype, draw)
        expected, got = ask(feeds), seeded(eager, feeds, draw)
        all_match(got, expected, case.tol)
        for runs, of in turns:
            results = seeded(runs, of.feeds(dtype, draw), draw)
            worst = max(worst, apart(results, got) if of is case else 0.0)
    # Now each is captured, then replayed, with data that it has and has not seen before.
    for draw in (2, 3):
        wanted = {id(of): seeded(eager, of.feeds(dtype, draw), draw) for _, of in turns}
        for runs, of in turns:
            worst = max(worst, apart(seeded(runs, of.feeds(dtype, draw), draw), wanted[id(of)]))
    worst = max(worst, apart(seeded(session, feeds, 1), got))
    assert worst == 0.0, f"replays are {worst:.2g} of the largest magnitude from eager runs"
    strided = {name: without_layout(value) for name, value in feeds.items()}
    if any(strided[name] is not value for name, value in feeds.items()):
        for runs in (eager, session):
            all_match(seeded(runs, strided, 1), expected, case.tol)
        if alternating:
            all_match(captured_of(Session(eager.model, eager.device, Options()), strided), expected, case.tol)
    varies = any(node.op in ("Dropout", "Multinomial", "Bernoulli") for node in session.graph.nodes)
    varies = varies or any(node.op.startswith("Random") for node in session.graph.nodes)
    assert varies or session.stats()["failed captures"] == 0


def captured_of(session: Session, feeds: dict[str, Any]) -> list[Any]:
    """What a session gives that has run twice before with the same feeds, as it captures them."""
    return [seeded(session, feeds, 1) for _ in range(3)][-1]


def all_match(got: Sequence[Any], expected: Sequence[Any], tolerance: float | None) -> None:
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert_matches(ours, theirs, tolerance)


GRAD = [(family, case) for family, case in all_cases() if case.grad]


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{f}-{c.op}-{i}") for i, (f, c) in enumerate(GRAD)])
def test_gradients(case: OpCase) -> None:
    """Gradients through the session equal finite differences, in float64; by one projection where many."""
    opset = case.variants()[0][1]
    session = torch_ort_session.load(case.model("float64", opset))
    feeds = {name: from_numpy(name, value) for name, value in case.feeds("float64", 0).items()}
    names = [name for name, value in feeds.items() if value.dtype == torch.float64]
    assert names, "a case with grad=True needs a float input"

    def call(*floats: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = session.run(None, {**feeds, **dict(zip(names, floats, strict=True))})
        return tuple(item for item in results if item.requires_grad)

    floats = [feeds[name].clone().requires_grad_() for name in names]
    many = sum(value.numel() for value in floats) > 200
    assert torch.autograd.gradcheck(call, floats, atol=1e-5, fast_mode=many)


def test_every_kernel_has_a_case() -> None:
    covered = {(case.domain, case.op) for _, case in all_cases()}
    missing = sorted(
        f"{domain or 'ai.onnx'}::{op}" for domain, op in registry.kernels() if (domain, op) not in covered
    )
    # Maps are no tensors, so no case can feed or check them: tests/ops/test_ml.py runs these.
    assert missing == ["ai.onnx.ml::CastMap", "ai.onnx.ml::DictVectorizer", "ai.onnx.ml::ZipMap"]
