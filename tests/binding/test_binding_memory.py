"""M6, M18: whoever reads or writes what is bound meets the tensor as its owner has it now."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from binding.decoders import WIDTH, cell, growing
from expecttest import assert_expected_inline
from textmodel import message

import torch_ort_session as tos

CAPACITY = 6


class Cache:
    """A binding of a growing cache with two entries."""

    def __init__(self) -> None:
        self.binding = tos.load(growing()).bind()
        self.keys = torch.ones(CAPACITY, WIDTH)
        self.binding.state("past_k", "present_k", self.keys, capacity_dim=0, length=2)

    def move(self, capacity: int = CAPACITY) -> None:
        """Other memory under the tensor, as ``module.to()`` and optimizers leave it."""
        self.keys.data = torch.full((capacity, WIDTH), 5.0)


def test_m6_memory_that_moved_is_what_reads_and_snapshots_give() -> None:
    cache = Cache()
    cache.move()
    assert torch.equal(cache.binding.read("past_k"), torch.full((2, WIDTH), 5.0))
    cache.move()
    cache.keys.data.fill_(7.0)
    assert torch.equal(cache.binding.snapshot().states["past_k"], torch.full((2, WIDTH), 7.0))


def test_m6_memory_that_moved_is_what_is_written() -> None:
    cache = Cache()
    saved = cache.binding.snapshot()
    cache.move()
    cache.binding.restore(saved)
    assert torch.equal(cache.keys[:2], torch.ones(2, WIDTH))
    cache.move()
    cache.binding.write("past_k", torch.full((3, WIDTH), 9.0))
    assert torch.equal(cache.keys[:3], torch.full((3, WIDTH), 9.0))
    assert cache.binding.length("past_k") == 3


def test_m6_a_tensor_that_its_owner_made_longer_has_room_for_more() -> None:
    cache = Cache()
    cache.move(2 * CAPACITY)
    cache.binding.set_length("past_k", CAPACITY + 1)
    assert cache.binding.read("past_k").shape == (CAPACITY + 1, WIDTH)


@pytest.mark.parametrize(
    "use",
    [
        lambda b: b.run({"x": torch.zeros(1, 4)}),
        lambda b: b.read("h"),
        lambda b: b.write("h", torch.ones(1, 4)),
        lambda b: b.snapshot(),
    ],
    ids=["run", "read", "write", "snapshot"],
)
def test_m6_memory_that_was_freed_under_a_binding_is_never_touched(
    use: Callable[[tos.Binding], object],
) -> None:
    b, h = tos.load(cell()).bind(), torch.zeros(1, 4)
    b.state("h", "h_next", h)
    b.run({"x": torch.ones(1, 4)})
    h.untyped_storage().resize_(0)
    assert_expected_inline(
        message(tos.InputError, lambda: use(b)),
        """\
state 'h': the tensor needs 16 bytes of its storage, which has 0: its memory was freed or made
smaller; bind a tensor that has its memory""",
    )
    b.unbind("h")
    b.state("h", "h_next", torch.zeros(1, 4))
    b.run({"x": torch.ones(1, 4)})


def test_m18_a_part_of_the_tensor_can_be_written_to_another_part() -> None:
    for step in (1, 2):
        b = tos.load(growing()).bind()
        keys = torch.arange(float(CAPACITY * WIDTH * step)).reshape(CAPACITY, WIDTH * step)[:, ::step]
        b.state("past_k", "present_k", keys, capacity_dim=0, length=CAPACITY)
        expected = keys[2:].clone()
        b.write("past_k", keys[2:])
        assert torch.equal(b.read("past_k"), expected)


def test_m18_tensors_of_a_transform_cannot_be_bound() -> None:
    b = tos.load(cell()).bind()

    def inside(x: torch.Tensor) -> torch.Tensor:
        b.input("x", x)
        return x

    assert_expected_inline(
        message(tos.InputError, lambda: torch.vmap(inside)(torch.zeros(2, 1, 4))),
        """\
input 'x': bind a plain dense tensor, not one that a function transform is under way on (vmap,
grad, jvp)""",
    )


def test_m18_names_are_texts_and_snapshots_are_snapshots() -> None:
    b, x = tos.load(cell()).bind(), torch.zeros(1, 4)
    for call in (
        lambda: b.input(["x"], x),  # type: ignore[arg-type]
        lambda: b.output(["x"], x),  # type: ignore[arg-type]
        lambda: b.state("h", ["x"], x),  # type: ignore[arg-type]
        lambda: b.read(["x"]),  # type: ignore[arg-type]
        lambda: b.write(["x"], x),  # type: ignore[arg-type]
        lambda: b.unbind(["x"]),  # type: ignore[arg-type]
        lambda: b.length(["x"]),  # type: ignore[arg-type]
    ):
        assert message(tos.InputError, call) == "a name is a text, not the list ['x']"
    assert_expected_inline(
        message(tos.InputError, lambda: b.restore({"h": x})),  # type: ignore[arg-type]
        """restore() takes what snapshot() gave, not a dict""",
    )
