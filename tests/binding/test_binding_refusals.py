"""M18: every misuse is an error when it is bound, and the binding is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from binding.decoders import WIDTH, WORDS, growing
from expecttest import assert_expected_inline
from textmodel import load, message, model

import torch_ort_session as tos

LANES = """g (float[n, 3] x, int64[n, 3] ids, float[2, p, 4] past, string[k] words, seq(float[k]) many,
              float past_scalar)
   => (float[n, 3] y, float[2, t, 4] present, float[2, t] flat, float16[2, t, 4] half, seq(float[k]) same,
       float[5, t, 4] other) {
   y = Identity(x)  present = Concat <axis = 1> (past, past)  flat = ReduceSum <keepdims = 0> (past, two)
   half = Cast <to = 10> (past)  same = Identity(many)  other = Concat <axis = 0> (past, past, past)
}"""


@pytest.fixture(scope="module")
def session() -> tos.Session:
    return load(LANES, weights={"two": [2]})


def refused(call: Callable[[], Any]) -> str:
    return message(tos.InputError, call)


def test_unknown_names(session: tos.Session) -> None:
    b, x = session.bind(), torch.zeros(2, 3)
    assert_expected_inline(
        refused(lambda: b.input("xx", x)),
        """\
the model has no input 'xx'; did you mean 'x'? (its inputs: 'x', 'ids', 'past', 'words', 'many',
'past_scalar')""",
    )
    assert_expected_inline(
        refused(lambda: b.output("x", x)),
        """the model has no output 'x' (its outputs: 'y', 'present', 'flat', 'half', 'same', 'other')""",
    )
    assert_expected_inline(
        refused(lambda: b.state("x", "z", x)),
        """the model has no output 'z' (its outputs: 'y', 'present', 'flat', 'half', 'same', 'other')""",
    )
    assert_expected_inline(refused(lambda: b.unbind("x")), """'x' is not bound; bound are: nothing""")
    assert_expected_inline(refused(lambda: b.length("x")), """'x' is not bound; bound are: nothing""")


def test_what_is_no_tensor(session: tos.Session) -> None:
    b, x = session.bind(), torch.zeros(2, 3)
    assert_expected_inline(
        refused(lambda: b.input("x", x.numpy())),
        """\
input 'x': got a value of type ndarray; bind a torch tensor: a copy would not be what you hold""",
    )
    assert_expected_inline(
        refused(lambda: b.input("many", x)),
        """\
input 'many' is a sequence(float32[k]), and only tensors can be bound; feed or read it run by
run""",
    )
    assert_expected_inline(
        refused(lambda: b.output("same", x)),
        """\
output 'same' is a sequence(float32[k]), and only tensors can be bound; feed or read it run by
run""",
    )
    assert_expected_inline(
        refused(lambda: b.input("words", x)),
        """input 'words' is a string[k], and only tensors can be bound; feed or read it run by run""",
    )
    assert_expected_inline(
        refused(lambda: b.input("x", x.to_sparse())),
        """input 'x': bind a plain dense tensor, not a torch.sparse_coo tensor""",
    )
    with torch._subclasses.fake_tensor.FakeTensorMode():
        fake = torch.zeros(2, 3)
    assert_expected_inline(
        refused(lambda: b.input("x", fake)), """input 'x': bind a plain dense tensor, not FakeTensor"""
    )


def test_devices(session: tos.Session) -> None:
    b, x = session.bind(), torch.zeros(2, 3, device="meta")
    assert_expected_inline(
        refused(lambda: b.input("x", x)),
        """input 'x': the tensor is on meta and must be on cpu, where the model uses it""",
    )
    assert_expected_inline(
        refused(lambda: b.output("y", x)),
        """output 'y': the tensor is on meta and must be on cpu, where the model uses it""",
    )


def test_dtypes_and_dims(session: tos.Session) -> None:
    b = session.bind()
    assert_expected_inline(
        refused(lambda: b.input("x", torch.zeros(2, 3).double())),
        """\
input 'x': got dtype float64, expected float32[n, 3]; bind a torch.float32 tensor: nothing is
cast""",
    )
    assert_expected_inline(
        refused(lambda: b.input("x", torch.zeros(2, 3, 1))),
        """input 'x': got shape [2, 3, 1] of rank 3, expected float32[n, 3]; the model expects rank 2""",
    )
    assert_expected_inline(
        refused(lambda: b.output("y", torch.zeros(2, 3).half())),
        """\
output 'y': got dtype float16, expected float32[n, 3]; bind a torch.float32 tensor: nothing is
cast""",
    )
    assert_expected_inline(
        refused(lambda: b.output("y", torch.zeros(2, 2))),
        """output 'y': got shape [2, 2], expected float32[n, 3]; dim 1 is 2 and must be 3""",
    )
    assert_expected_inline(
        refused(lambda: b.state("x", "y", torch.zeros(4, 4))),
        """state 'x': got shape [4, 4], expected float32[n, 3]; dim 1 is 4 and must be 3""",
    )


def test_states(session: tos.Session) -> None:
    b, cache = session.bind(), torch.zeros(2, 8, 4)
    assert_expected_inline(
        refused(lambda: b.state("past", "present", cache, 1, 9)),
        """state 'past': the tensor holds 8 along dim 1, fewer than the length 9""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "present", cache, 3)),
        """state 'past': capacity_dim 3 is no dim of a tensor of rank 3""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "present", cache, True)),
        """state 'past': capacity_dim True is no dim of a tensor of rank 3""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "present", cache, 1, -1)),
        """state 'past': length must be a non-negative int, got -1""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "present", cache, length=3)),
        """state 'past': a length needs a capacity_dim to count along""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "half", cache, 1)),
        """\
state 'past': the model reads float32[2, p, 4] and makes 'half' as float16[2, t, 4]; a state is
one tensor, so the two must agree but for dim 1""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "flat", cache, 1)),
        """\
state 'past': the model reads float32[2, p, 4] and makes 'flat' as float32[2, t]; a state is one
tensor, so the two must agree but for dim 1""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "other", cache, 1)),
        """\
state 'past': the model reads float32[2, p, 4] and makes 'other' as float32[5, t, 4]; a state is
one tensor, so the two must agree but for dim 1""",
    )
    assert_expected_inline(
        refused(lambda: b.state("past", "present", torch.zeros(3, 8, 4), 1)),
        """state 'past': got shape [3, 0, 4], expected float32[2, p, 4]; dim 0 is 3 and must be 2""",
    )
    assert list(b._attached) == []


def test_a_present_that_is_larger_than_the_tensor() -> None:
    text = "g (float[p] past, float[1] x) => (float[6] present) { present = Concat <axis = 0> (x, past) }"
    b = load(text).bind()
    assert_expected_inline(
        refused(lambda: b.state("past", "present", torch.zeros(5), 0)),
        """state 'past': 'present' is 6 long along dim 0 and the tensor holds 5""",
    )
    b.state("past", "present", torch.zeros(6), 0)


def test_what_cannot_be_written(session: tos.Session) -> None:
    b, row = session.bind(), torch.zeros(1, 3).expand(2, 3)
    b.input("x", row)
    assert_expected_inline(
        refused(lambda: b.output("y", row)),
        """\
output 'y': elements of the tensor share memory (an expanded tensor?), so that it cannot be
written; bind tensor.contiguous()""",
    )
    with torch.inference_mode():
        frozen = torch.zeros(2, 3)
    b.input("x", frozen)
    assert_expected_inline(
        refused(lambda: b.output("y", frozen)),
        """output 'y': the tensor was made in inference mode and cannot be written outside of it""",
    )
    z = load("g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }").bind()
    lazy = torch.ones(2, dtype=torch.complex64).conj()
    assert_expected_inline(
        refused(lambda: z.input("x", lazy)),
        """input 'x': the tensor is a lazy negation or conjugate; bind tensor.resolve_neg().resolve_conj()""",
    )


def test_names_that_are_taken(session: tos.Session) -> None:
    b = session.bind()
    b.state("x", "y", torch.zeros(2, 3))
    assert_expected_inline(
        refused(lambda: b.input("x", torch.zeros(2, 3))),
        """'x' is bound already, as state 'x' -> 'y'; unbind('x') first""",
    )
    assert_expected_inline(
        refused(lambda: b.output("y", torch.zeros(2, 3))),
        """'y' is bound already, as state 'x' -> 'y'; unbind('y') first""",
    )
    b.unbind("y")
    b.input("x", torch.zeros(2, 3))
    b.output("y", torch.zeros(2, 3))
    assert_expected_inline(
        refused(lambda: b.state("x", "y", torch.zeros(2, 3))),
        """'x' is bound already, as input 'x'; unbind('x') first""",
    )


def test_memory_that_is_shared(session: tos.Session) -> None:
    b, x = session.bind(), torch.zeros(4, 3)
    b.input("x", x)
    assert_expected_inline(
        refused(lambda: b.output("y", x)),
        """\
output 'y' shares memory with input 'x', and a run would write one while the other is in use;
give each its own memory (an output that is the next run's input is bound once, with state())""",
    )
    assert_expected_inline(
        refused(lambda: b.output("y", x[3:])),
        """\
output 'y' shares memory with input 'x', and a run would write one while the other is in use;
give each its own memory (an output that is the next run's input is bound once, with state())""",
    )
    b.input("x", x[:2])
    b.output("y", x[2:])
    both = torch.zeros(2, 8, 2, 4)
    b.state("past", "present", both[:, :, 0], 1)
    assert_expected_inline(
        refused(lambda: b.output("other", both.view(16, 8)[:5, None, :4])),
        """\
output 'other' shares memory with state 'past', and a run would write one while the other is in
use; give each its own memory (an output that is the next run's input is bound once, with
state())""",
    )


def test_two_inputs_may_share_memory() -> None:
    session = load("g (float[n] x, float[n] y) => (float[n] z) { z = Add(x, y) }")
    b, x = session.bind(), torch.ones(4)
    b.input("x", x)
    b.input("y", x)
    b.run()
    assert torch.equal(b.read("z"), 2 * x)


def test_lengths(session: tos.Session) -> None:
    b = session.bind()
    b.state("past", "present", torch.zeros(2, 8, 4), 1)
    b.input("x", torch.zeros(2, 3))
    for length in (9, -1, True, 1.0):
        assert "a length is an int from 0 to 8" in refused(lambda n=length: b.set_length("past", n))
    assert_expected_inline(
        refused(lambda: b.set_length("past", 9)),
        """state 'past': a length is an int from 0 to 8, the capacity, not 9""",
    )
    assert_expected_inline(
        refused(lambda: b.length("x")),
        """input 'x': it has no capacity_dim, so that all of it is valid and it has no length""",
    )


def test_at_a_run_symbols_have_one_value_and_nothing_was_written() -> None:
    b = tos.load(growing()).bind()
    keys, values, logits = torch.zeros(9, WIDTH), torch.zeros(9, WIDTH), torch.ones(1, WORDS)
    b.input("token", torch.zeros(1, dtype=torch.int64))
    b.state("past_k", "present_k", keys, 0, 2)
    b.state("past_v", "present_v", values, 0, 3)
    b.output("logits", logits)
    for act in (b.run, b.capture, b.replay):
        assert_expected_inline(
            refused(act),
            """\
input 'past_v': got shape [3, 8], expected [p, 8]; symbol 'p' is 3 here (dim 0) but 2 in
'past_k' dim 0""",
        )
    assert not bool(keys.any()) and not bool(values.any()) and bool((logits == 1).all())


def test_at_a_run_results_fit_what_is_bound_or_nothing_was_written() -> None:
    session = load("g (float[n] x, float[m] h) => (float[k] y, float[j] g) { y = Add(x, x) g = Add(h, x) }")
    b, x, h, y = session.bind(), torch.ones(3), torch.ones(1), torch.zeros(3)
    b.input("x", x)
    b.state("h", "g", h)
    b.output("y", y)
    assert_expected_inline(
        refused(b.run),
        """\
state 'h': the new value is float32[3], the bound tensor is float32[1]; a state that grows needs
a capacity_dim""",
    )
    assert_expected_inline(
        refused(b.capture),
        """\
state 'h': the new value is float32[3], the bound tensor is float32[1]; a state that grows needs
a capacity_dim""",
    )
    b.unbind("h")
    b.input("h", h)
    b.output("y", torch.zeros(4))
    b.output("g", y)
    assert_expected_inline(
        refused(b.run), """output 'y': the new value is float32[3], the bound tensor is float32[4]"""
    )
    assert not bool(y.any()) and bool((h == 1).all())


def test_a_model_that_says_nothing_of_its_outputs_is_checked_at_the_run() -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    proto.graph.output[0].ClearField("type")
    b = tos.load(proto).bind()
    b.input("x", torch.ones(2))
    b.output("y", torch.ones(2, dtype=torch.int64))
    assert_expected_inline(
        refused(b.run), """output 'y': the new value is float32[2], the bound tensor is int64[2]"""
    )
    b.output("y", y := torch.ones(2))
    b.run()
    assert torch.equal(y, -torch.ones(2))
