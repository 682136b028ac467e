"""What a run holds while it runs, and that it holds nothing afterwards."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import declare, load, message, model, operator

import torch_ort_session as tos


class Watch:
    """Weak references to everything that the kernel ``Note`` makes, and how many lived at most."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[torch.Tensor]] = []
        self.peak = 0

    @property
    def alive(self) -> int:
        return sum(ref() is not None for ref in self.made)

    def kernel(self) -> Any:
        @declare
        def Note(x: torch.Tensor) -> torch.Tensor:
            result = x + 1
            self.made.append(weakref.ref(result))
            self.peak = max(self.peak, self.alive)
            return result

        return Note


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    with operator(watch.kernel(), Fail, Interrupt, Memory):
        yield watch


@declare
def Fail(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("bad luck")


@declare
def Interrupt(x: torch.Tensor) -> torch.Tensor:
    raise KeyboardInterrupt


@declare
def Memory(x: torch.Tensor) -> torch.Tensor:
    raise torch.OutOfMemoryError("out of memory: tried to allocate 1 TiB")


CHAIN = (
    "g (float[n] x) => (float[n] y) { "
    + " ".join(f"{b} = tests.Note({a})" for a, b in zip(["x", *"abcdefgh"], [*"abcdefgh", "y"], strict=True))
    + " }"
)
SKIP = (
    "g (float[n] x) => (float[n] y) { a = tests.Note(x) b = tests.Note(a) c = tests.Note(b) y = Add(a, c) }"
)


def test_values_go_at_their_last_use(watch: Watch) -> None:
    session = load(CHAIN)
    assert session(torch.zeros(3)).tolist() == [9, 9, 9]
    assert len(watch.made) == 9
    assert watch.peak == 2  # the input of the running step, and its result
    assert watch.alive == 0


def test_a_value_stays_until_its_last_reader(watch: Watch) -> None:
    assert load(SKIP)(torch.zeros(3)).tolist() == [4, 4, 4]
    assert watch.peak == 3
    assert watch.alive == 0


def test_only_results_live_on(watch: Watch) -> None:
    result = load(CHAIN)(torch.zeros(3))
    assert watch.alive == 1
    assert watch.made[-1]() is result
    del result
    assert watch.alive == 0


def test_values_of_a_body_go_too(watch: Watch) -> None:
    session = load(
        "g (float[n] x, int64 k) => (float[n] y) { y = Loop (k, , x)"
        " <body = b (int64 i, bool c, float[n] s) => (bool d, float[n] o)"
        " { d = Identity(c) t = tests.Note(s) u = tests.Note(t) o = tests.Note(u) }> }"
    )
    assert session(torch.zeros(3), 10).tolist() == [30, 30, 30]
    assert watch.peak <= 3
    assert watch.alive == 0


def test_feeds_are_let_go(watch: Watch) -> None:
    session = load(CHAIN)
    x = torch.zeros(3)
    fed = weakref.ref(x)
    array = np.zeros(3, np.float32)
    counts = sys.getrefcount(array)
    session(x)
    session(array)
    del x
    assert fed() is None
    assert sys.getrefcount(array) == counts


FAILING = "g (float[n] x) => (float[n] y) { a = tests.Note(x) b = tests.Note(a) y = tests.Fail(b) }"


def test_after_a_failure(watch: Watch) -> None:
    session = load(FAILING)
    x = torch.zeros(3)
    fed = weakref.ref(x)
    with pytest.raises(tos.KernelError) as caught:
        session(x)
    del x
    caught.value.with_traceback(None)
    assert caught.value.__cause__ is not None
    caught.value.__cause__.with_traceback(None)
    del caught
    gc.collect()
    assert watch.alive == 0
    assert fed() is None


def test_after_a_failure_inside_a_body(watch: Watch) -> None:
    session = load(
        "g (float[n] x, bool c) => (float[n] y) { n = tests.Note(x) y = If (c) <then_branch = t () =>"
        " (float[n] a) { m = tests.Note(n) a = tests.Fail(m) }, else_branch = e () => (float[n] b)"
        " { b = Identity(n) }> }"
    )
    with contextlib.suppress(tos.KernelError):
        session(torch.zeros(3), True)
    gc.collect()
    assert watch.alive == 0
    assert session(torch.zeros(3), False).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["Fail", "Memory", "Interrupt"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_failure_needs_no_collector(watch: Watch, name: str, nested: bool) -> None:
    step = f"a = tests.Note(x) b = tests.{name}(a)"
    if nested:
        step = (
            f"n = tests.Note(x) b = If (c) <then_branch = t () => (float[n] o) {{ m = tests.Note(n)"
            f" o = tests.{name}(m) }}, else_branch = e () => (float[n] p) {{ p = Identity(n) }}>"
        )
    session = load(f"g (float[n] x) => (float[n] b) <bool c = {{1}}> {{ {step} }}")
    gc.disable()
    try:
        with contextlib.suppress(tos.KernelError, torch.OutOfMemoryError, KeyboardInterrupt):
            session(torch.zeros(3))
        assert watch.made
        assert watch.alive == 0
    finally:
        gc.enable()


def test_an_interrupt_passes_through(watch: Watch) -> None:
    session = load("g (float[n] x) => (float[n] y) { a = tests.Note(x) y = tests.Interrupt(a) }")
    with pytest.raises(KeyboardInterrupt):
        session(torch.zeros(3))
    gc.collect()
    assert watch.alive == 0


def test_out_of_memory_keeps_its_type(watch: Watch) -> None:
    session = load("g (float[n] x) => (float[n] y) { a = tests.Note(x) y = tests.Memory(a) }")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        session(torch.zeros(3))
    assert_expected_inline(
        "\n".join([str(caught.value), *caught.value.__notes__]),
        """\
out of memory: tried to allocate 1 TiB
while running node 'Memory_1' (tests::Memory)""",
    )


def test_kernel_errors_name_node_op_inputs_and_cause(watch: Watch) -> None:
    session = load(FAILING)
    assert_expected_inline(
        message(tos.KernelError, lambda: session(torch.zeros(3))),
        """\
node 'Fail_2' (tests::Fail) failed: bad luck
  inputs: b: float32[3] cpu""",
    )
    with pytest.raises(tos.KernelError) as caught:
        session(torch.zeros(3))
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value.__cause__, ValueError)
    assert (caught.value.op, caught.value.inputs) == ("tests::Fail", ("b: float32[3] cpu",))
    real = load("g (float[a,b] x, float[c,d] y) => (float[a,d] z) { z = MatMul(x, y) }")
    bad = (torch.zeros(2, 3), torch.zeros(2, 3))
    assert_expected_inline(
        message(tos.KernelError, lambda: real(*bad)),
        """\
node 'MatMul_0' (ai.onnx::MatMul) failed: mat1 and mat2 shapes cannot be multiplied (2x3 and
2x3)
  inputs: x: float32[2, 3] cpu; y: float32[2, 3] cpu""",
    )


def test_kernel_errors_inside_of_bodies(watch: Watch) -> None:
    branch = (
        "y = If (c) <then_branch = t () => (float[n] a) { m = Neg(x) [broken] a = tests.Fail(m) },"
        " else_branch = e () => (float[n] b) { b = Identity(x) }>"
    )
    session = load(f"g (float[n] x, bool c) => (float[n] y) {{ [choice] {branch} }}")
    assert_expected_inline(
        message(tos.KernelError, lambda: session(torch.zeros(3), True)),
        """\
node 'broken' (tests::Fail) failed: bad luck
  inputs: m: float32[3] cpu""",
    )
    memory = load(f"g (float[n] x, bool c) => (float[n] y) {{ [choice] {branch.replace('Fail', 'Memory')} }}")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        memory(torch.zeros(3), True)
    assert_expected_inline(
        "\n".join([str(caught.value), *caught.value.__notes__]),
        """\
out of memory: tried to allocate 1 TiB
while running node 'broken' (tests::Memory)
while running node 'choice' (ai.onnx::If)""",
    )


def test_an_index_outside_of_its_axis_names_the_node() -> None:
    session = load("g (float[n] x, int64[k] i) => (float[k] y) { [pick] y = Gather(x, i) }")
    assert_expected_inline(
        message(tos.DeviceIndexError, lambda: session(torch.zeros(3), [0, 3])),
        """\
node 'pick' (ai.onnx::Gather): index 3 is outside of [-3, 3), the valid range of the indexed
axis; check the indices that were fed""",
    )


def test_a_thousand_runs_without_growth(watch: Watch) -> None:
    session = load(
        "g (float[n] x, bool c) => (float[m] y, seq(float[n]) z) <float[2] w = {1, 2}>"
        " { n = Neg(x) z = SequenceConstruct(n, x) y = If (c) <then_branch = t () => (float[m] a)"
        " { a = Concat <axis = 0> (n, w) }, else_branch = e () => (float[n] b) { b = Exp(n) }> }"
    )
    feeds = [{"x": torch.zeros(size), "c": size % 2 == 0} for size in range(5)]

    def run(times: int) -> None:
        for _ in range(times):
            for feed in feeds:
                session.run(None, feed)
                with pytest.raises(tos.InputError):
                    session.run(None, {"x": 1})

    def tensors() -> tuple[int, int]:
        gc.collect()
        objects = gc.get_objects()
        return sum(issubclass(type(item), torch.Tensor) for item in objects), len(objects)

    run(12)
    before = tensors()
    run(200)
    after = tensors()
    assert after[0] == before[0]
    assert after[1] - before[1] < 100


def test_a_session_can_be_freed() -> None:
    session = tos.load(model(SKIP.replace("tests.Note", "Neg")))
    session(torch.zeros(3))
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
