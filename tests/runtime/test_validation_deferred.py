"""Bound runs whose data is asked about late: who has to learn of it, and what blocks the next run."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from runtime.capturelab import session_on
from runtime.test_validation import unreadable, word_of

import torch_ort_session as tos

PAIR = (
    "g (float[n] x, int64[k] i) => (float[k] y, float[k] z) { [pick] y = Gather(x, i) e = Neg(y) z = Exp(e) }"
)
GOOD = torch.tensor([0, -1, 3])
BAD = torch.tensor([2, 7, -9])
ZEROS = torch.zeros(3)


class Lab:
    """A binding all of whose outputs are bound, past the runs that always ask at their end."""

    def __init__(self, text: str = PAIR, validate: str = "deferred", warm: int = 4) -> None:
        self.session = session_on(text, validate=validate)
        self.binding = self.session.bind()
        self.index = GOOD.clone()
        self.y, self.z = torch.zeros(3), torch.zeros(3)
        self.binding.input("x", torch.arange(5.0))
        self.binding.input("i", self.index)
        self.binding.output("y", self.y)
        self.binding.output("z", self.z)
        for _ in range(warm):
            self.binding.run()
            self.binding.read("y")

    @property
    def pending(self) -> bool:
        return word_of(self.session).ticket is not None

    def run(self, index: torch.Tensor) -> None:
        self.index.copy_(index)
        self.binding.run()


def told(call: Callable[[], object]) -> None:
    with pytest.raises(tos.DeviceIndexError, match=r"'pick'.*index 7"):
        call()


def test_m11_a_late_run_raises_nothing_and_its_readers_are_told_once_each() -> None:
    lab = Lab()
    before = lab.y.clone(), lab.z.clone()
    lab.run(BAD)
    assert lab.pending
    told(lambda: lab.binding.read("y"))
    assert not lab.pending
    assert torch.equal(lab.binding.read("y"), before[0])
    told(lambda: lab.binding.read("z"))
    assert torch.equal(lab.binding.read("z"), before[1])
    lab.session.check()


def test_m11_a_good_run_is_asked_about_once() -> None:
    lab = Lab()
    lab.run(torch.tensor([1, 1, 2]))
    word, waits = word_of(lab.session), []
    fetch = word.fetch
    word.fetch = lambda: waits.append(1) or fetch()  # type: ignore[func-returns-value]
    assert lab.binding.read("y").tolist() == [1, 1, 2]
    assert lab.binding.read("z").tolist() == torch.tensor([-1.0, -1, -2]).exp().tolist()
    lab.session.check()
    assert len(waits) == 1


def test_m11_the_device_is_not_waited_for_at_the_end_of_a_late_run(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    word = word_of(lab.session)
    waits: list[int] = []
    fetch = word.fetch
    word.fetch = lambda: waits.append(1) or fetch()  # type: ignore[func-returns-value]
    lab.run(GOOD)
    # The one look is that of begin, which has nothing to wait for on the CPU.
    assert len(waits) == 1


def test_m11_the_flags_of_a_generation_wait_for_every_reader() -> None:
    lab = Lab()
    lab.run(BAD)
    told(lambda: lab.binding.read("y"))
    # The word is free by now; what it said is kept for the other reader, whatever runs next.
    lab.run(torch.tensor([1, 2, 3]))
    assert lab.binding.read("y").tolist() == [1, 2, 3]
    told(lambda: lab.binding.read("z"))
    assert lab.binding.read("z").tolist() == torch.tensor([-1.0, -2, -3]).exp().tolist()


def test_m11_every_generation_is_told_to_a_reader_that_saw_none() -> None:
    lab = Lab()
    for _ in range(2):
        lab.run(BAD)
        told(lambda: lab.binding.read("y"))
    for _ in range(2):
        told(lambda: lab.binding.read("z"))
    lab.binding.read("z")
    lab.binding.read("y")


def test_m11_reading_nothing_is_reading() -> None:
    lab = Lab(
        "g (float[n] x, int64[k] i, float[m] e) => (float[k] y, float[m] z)"
        " { [pick] y = Gather(x, i) z = Neg(e) }",
        warm=0,
    )
    lab.binding.input("e", torch.zeros(0))
    lab.binding.output("z", torch.zeros(0))
    for _ in range(4):
        lab.binding.run()
        assert lab.binding.read("z").numel() == 0
    lab.run(BAD)
    told(lambda: lab.binding.read("z"))
    assert lab.binding.read("z").numel() == 0
    told(lambda: lab.binding.read("y"))


def test_m11_an_input_is_no_result() -> None:
    lab = Lab()
    lab.run(BAD)
    assert torch.equal(lab.binding.read("i"), BAD)
    assert lab.pending
    told(lambda: lab.binding.read("y"))


def test_m11_the_next_run_is_refused_until_somebody_asks() -> None:
    lab = Lab()
    lab.run(BAD)
    for act in (lab.binding.run, lab.binding.capture, lab.binding.replay):
        with pytest.raises(tos.DeviceValidationError, match="not asked yet"):
            act()
    with pytest.raises(tos.DeviceValidationError, match="not asked yet"):
        lab.session.run(None, {"x": torch.arange(5.0), "i": GOOD})
    told(lambda: lab.binding.read("y"))
    lab.run(GOOD)
    lab.session.check()
    lab.run(GOOD)


def test_m11_check_tells_what_nobody_was_told() -> None:
    lab = Lab()
    lab.run(BAD)
    told(lab.session.check)
    lab.session.check()
    lab.run(GOOD)
    lab.session.check()
    # Readers are told all the same.
    told(lambda: lab.binding.read("z"))
    told(lambda: lab.binding.read("y"))
    assert lab.binding.read("y").tolist() == [0, 4, 3]


def test_m11_a_word_that_cannot_be_read_stays_for_the_next_reader() -> None:
    lab = Lab()
    lab.run(BAD)
    with unreadable(word_of(lab.session)):
        for read in (lambda: lab.binding.read("y"), lab.session.check, lab.binding.reset):
            with pytest.raises(OSError, match="lost"):
                read()
        with pytest.raises(tos.DeviceValidationError, match="not asked yet"):
            lab.binding.run()
    told(lambda: lab.binding.read("y"))
    told(lambda: lab.binding.read("z"))
    lab.run(GOOD)


@pytest.mark.parametrize(
    "change",
    [
        lambda lab: lab.binding.unbind("z"),
        lambda lab: lab.binding.output("z", torch.zeros(3)),
        lambda lab: lab.binding.input("x", torch.arange(6.0)),
        lambda lab: lab.binding.write("i", GOOD),
        lambda lab: lab.binding.reset(),
        lambda lab: lab.binding.restore(lab.binding.snapshot()),
    ],
    ids=["unbind", "output", "input", "write", "reset", "restore"],
)
def test_m11_whoever_changes_what_is_bound_asks_first(change: Callable[[Lab], None]) -> None:
    lab = Lab()
    lab.run(BAD)
    told(lambda: change(lab))
    assert not lab.pending
    change(lab)
    lab.session.check()


@pytest.mark.parametrize("name", ["y", "z"])
def test_m11_a_binding_with_an_unbound_output_asks_at_once(name: str) -> None:
    lab = Lab()
    lab.binding.unbind(name)
    for _ in range(5):
        told(lambda: lab.run(BAD))
        assert not lab.pending
        lab.run(GOOD)
        assert not lab.pending
        assert lab.binding.read("y").tolist() == [0, 4, 3]


def test_m11_runs_that_are_observed_or_captured_ask_at_once() -> None:
    lab = Lab(warm=0)
    pending = []
    for _ in range(5):
        lab.run(GOOD)
        pending.append(lab.pending)
        lab.session.check()
    # Eager, observed, captured, replayed.
    assert pending == [True, False, False, True, True]
    lab.binding.reset()
    lab.index.copy_(BAD)
    told(lab.binding.capture)


def test_m11_a_run_that_failed_asks_at_once() -> None:
    text = (
        "g (float[n] x, int64[k] i, int64[r] s) => (float[a] y, float[k] z)"
        " { [pick] z = Gather(x, i) y = Reshape(z, s) }"
    )
    lab = Lab(text, warm=0)
    shape = torch.tensor([3])
    lab.binding.input("s", shape)
    for _ in range(5):
        lab.run(GOOD)
        lab.session.check()
        shape.fill_(4)
        told(lambda: lab.run(BAD))
        with pytest.raises(tos.KernelError, match="Reshape"):
            lab.run(GOOD)
        assert not lab.pending
        shape.fill_(3)


@pytest.mark.parametrize("validate", ["run", "off"])
def test_m11_only_deferred_runs_are_late(validate: str) -> None:
    lab = Lab(validate=validate, warm=0)
    for _ in range(5):
        if validate == "run":
            before = lab.y.clone()
            told(lambda: lab.run(BAD))
            assert torch.equal(lab.y, before)
            assert not lab.pending
        else:
            lab.run(BAD)
            assert lab.y.tolist() == [2, 4, 0]
        lab.run(GOOD)
        assert lab.binding.read("y").tolist() == [0, 4, 3]


def test_m11_bindings_of_one_session_share_its_word() -> None:
    lab = Lab()
    other = lab.session.bind()
    lab.run(BAD)
    with pytest.raises(tos.DeviceValidationError, match="not asked yet"):
        other.run({"x": torch.arange(5.0), "i": GOOD})
    told(lab.session.check)
    other.run({"x": torch.arange(5.0), "i": GOOD})
    assert other.read("y").tolist() == [0, 4, 3]
    told(lambda: lab.binding.read("y"))


def test_m11_a_binding_that_is_gone_leaves_its_ticket_to_check() -> None:
    lab = Lab()
    session = lab.session
    lab.run(BAD)
    del lab
    gc.collect()
    told(session.check)
    session.check()
    session.run(None, {"x": torch.arange(5.0), "i": GOOD})


def test_m11_runs_that_are_only_checked_leave_nothing_behind() -> None:
    lab = Lab()
    for _ in range(20):
        lab.run(GOOD)
        lab.session.check()
    assert len(lab.binding._recipients.deferrals) <= 1
