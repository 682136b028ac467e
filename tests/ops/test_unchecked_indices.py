"""No index kernel of torch's sees an index from a feed that nobody has looked at."""

from functools import partial

import pytest
import torch
from indexwatch import unchecked
from opgroups import CASES, fed
from torch.utils import _pytree

import torch_ort_session as tos
from torch_ort_session.runtime.validation import validator

REPLACED = {
    "com.microsoft::GatherBlockQuantized": {"index_select"},
}
"""What is compared with the bounds by plain ops, and replaced by a place within them where it lies outside:
the operator says what an index outside gives, so that there is nothing to tell."""


@pytest.mark.parametrize("op", sorted(CASES))
def test_indices_from_feeds_are_checked(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Under a mode of the caller's there is no word otherwise, and torch itself refuses on the CPU.
    monkeypatch.setattr(validator, "watched", lambda: False)
    seen: set[str] = set()
    for case in CASES[op]:
        dtype, opset = case.variants()[0]
        session = tos.load(case.model(dtype, opset), options=tos.Options(capture="off"))
        feeds = {name: fed(name, value) for name, value in case.feeds(dtype, 0).items()}
        tensors = [leaf for leaf in _pytree.tree_leaves(feeds) if isinstance(leaf, torch.Tensor)]
        seen.update(unchecked(tensors, partial(session.run, None, feeds)))
    assert seen == REPLACED.get(op, set())


X = torch.rand(4, 3)
I = torch.tensor([0, 2])  # noqa: E741


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("index", lambda: X[I]),
        ("index", lambda: X[:, I + 1 - 1]),
        ("index_select", lambda: X.index_select(0, I.view(2, 1)[:, 0])),
        ("gather", lambda: X.gather(0, I.expand(1, 2).to(torch.int32).to(torch.int64))),
        ("scatter_", lambda: X.clone().scatter_(0, I.reshape(2, 1), 1.0)),
        ("index_put_", lambda: X.clone().index_put_((I,), torch.ones(3), accumulate=True)),
        ("embedding", lambda: torch.embedding(X, I)),
        ("take", lambda: torch.take(X, I.clamp(min=0))),
        ("nll_loss_forward", lambda: torch.nn.functional.nll_loss(X[:2], I)),
        ("index", lambda: X[X.flatten()[:2].mul(3).floor().to(torch.int64)]),
    ],
)
def test_an_index_as_it_came_is_found(name: str, body) -> None:
    assert unchecked([X, I], body) == [name]


@pytest.mark.parametrize(
    "body",
    [
        lambda: X[I.clamp(0, 3)],
        lambda: X[I.remainder(4)],
        lambda: X[X[:, 0].argsort()],
        lambda: X.gather(0, X.topk(2, 0).indices),
        lambda: X[(I > 0).to(torch.int64)],
    ],
)
def test_what_cannot_leave_its_range_is_not_found(body) -> None:
    assert unchecked([X, I], body) == []
