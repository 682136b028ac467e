"""What a session says when a feed does not fit; every text is pinned."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import load, message

import torch_ort_session as tos

TWO = (
    "g (float[batch, 3] image, int64[batch] label) => (float[batch, 3] y)"
    " { l = Cast <to = 1> (label) u = Unsqueeze (l, axis) y = Add(image, u) }"
)


@pytest.fixture(scope="module")
def session() -> tos.Session:
    return load(TWO, weights={"axis": np.array([1])})


IMAGE = torch.ones(2, 3)
LABEL = torch.ones(2, dtype=torch.int64)


def refused(session: tos.Session, image: Any, label: Any = LABEL) -> str:
    return message(tos.InputError, lambda: session(image, label))


def test_dtypes(session: tos.Session) -> None:
    assert_expected_inline(
        refused(session, IMAGE.double()),
        """\
input 'image': got dtype float64, expected float32[batch, 3]; convert it, with
.to(torch.float32) for example: a feed is never cast silently""",
    )
    assert_expected_inline(
        refused(session, np.ones((2, 3))),
        """\
input 'image': got dtype float64, expected float32[batch, 3]; convert it, with
numpy.asarray(..., dtype='float32') for example: a feed is never cast silently""",
    )
    assert_expected_inline(
        refused(session, [np.ones(3), np.ones(3)]),
        """\
input 'image': got dtype float64, expected float32[batch, 3]; convert it, with
numpy.asarray(..., dtype='float32') for example: a feed is never cast silently""",
    )
    assert_expected_inline(
        refused(session, np.float64(1)),
        """\
input 'image': got dtype float64, expected float32[batch, 3]; convert it, with
numpy.asarray(..., dtype='float32') for example: a feed is never cast silently""",
    )
    assert_expected_inline(
        refused(session, IMAGE, [1.5, 2]),
        """\
input 'label': got Python values of kind float32, expected int64[batch]; that would lose
information""",
    )
    assert_expected_inline(
        refused(session, IMAGE, LABEL.int()),
        """\
input 'label': got dtype int32, expected int64[batch]; convert it, with .to(torch.int64) for
example: a feed is never cast silently""",
    )
    assert_expected_inline(
        refused(session, [[1j] * 3] * 2),
        """\
input 'image': got Python values of kind complex64, expected float32[batch, 3]; that would lose
information""",
    )
    assert_expected_inline(
        refused(session, np.ones((2, 3), "datetime64[s]")),
        """\
input 'image': got numpy dtype datetime64[s], expected float32[batch, 3]; numpy dtype
datetime64[s] has no torch counterpart""",
    )
    assert_expected_inline(
        refused(session, np.array([["a"] * 3] * 2)),
        """\
input 'image': got numpy dtype <U1, expected float32[batch, 3]; numpy dtype <U1 has no torch
counterpart""",
    )


def test_shapes(session: tos.Session) -> None:
    assert_expected_inline(
        refused(session, torch.ones(3)),
        """input 'image': got shape [3] of rank 1, expected float32[batch, 3]; the model expects rank 2""",
    )
    assert_expected_inline(
        refused(session, 1.0),
        """input 'image': got shape [] of rank 0, expected float32[batch, 3]; the model expects rank 2""",
    )
    assert_expected_inline(
        refused(session, torch.ones(2, 4)),
        """input 'image': got shape [2, 4], expected float32[batch, 3]; dim 1 is 4 and must be 3""",
    )
    assert_expected_inline(
        refused(session, torch.ones(3, 3)),
        """\
input 'label': got shape [2], expected [batch]; symbol 'batch' is 2 here (dim 0) but 3 in
'image' dim 0""",
    )
    assert_expected_inline(
        refused(session, [[1, 2, 3], [4, 5]]),
        """\
input 'image': got a list, expected float32[batch, 3]; expected sequence of length 3 at dim 1
(got 2)""",
    )


def test_a_symbol_within_one_input() -> None:
    square = load("g (float[n, n] x) => (float[n, n] y) { y = Neg(x) }")
    assert square(torch.ones(2, 2)).shape == (2, 2)
    assert_expected_inline(
        message(tos.InputError, lambda: square(torch.ones(2, 3))),
        """input 'x': got shape [2, 3], expected [n, n]; symbol 'n' is 3 here (dim 1) but 2 in 'x' dim 0""",
    )


def test_names(session: tos.Session) -> None:
    assert_expected_inline(
        message(tos.InputError, lambda: session(IMAGE, labels=LABEL)),
        """the model has no input 'labels'; did you mean 'label'? (its inputs: 'image', 'label')""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session.run(None, {"image": IMAGE, "zzz": LABEL})),
        """the model has no input 'zzz' (its inputs: 'image', 'label')""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session(IMAGE)),
        """required input(s) 'label' are missing; 'image' was fed""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session()),
        """required input(s) 'image', 'label' are missing; nothing was fed""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session({})),
        """required input(s) 'image', 'label' are missing; nothing was fed""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session(IMAGE, LABEL, 1, 2)),
        """4 positional inputs were given, the model takes 2: image, label""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session(IMAGE, LABEL, image=IMAGE)),
        """input 'image' was given by position and by name""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session({"image": IMAGE}, label=LABEL)),
        """\
input 'image': got dict, expected float32[batch, 3]; feed a torch tensor, a numpy array, a
Python number or list, or a DLPack producer""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session.run(None, {1: IMAGE, "label": LABEL})),  # type: ignore[dict-item]
        """the model has no input 1 (its inputs: 'image', 'label')""",
    )


def test_kinds(session: tos.Session) -> None:
    assert_expected_inline(
        refused(session, None),
        """input 'image': got None, expected float32[batch, 3]; only an optional input may be None""",
    )
    assert_expected_inline(
        refused(session, object()),
        """\
input 'image': got object, expected float32[batch, 3]; feed a torch tensor, a numpy array, a
Python number or list, or a DLPack producer""",
    )
    assert_expected_inline(
        refused(session, "text"),
        """\
input 'image': got str, expected float32[batch, 3]; feed a torch tensor, a numpy array, a Python
number or list, or a DLPack producer""",
    )
    assert_expected_inline(
        refused(session, [torch.ones(3), torch.ones(3)]),
        """\
input 'image': got a list of tensors, expected float32[batch, 3]; a list of tensors is no
tensor; stack them (torch.stack)""",
    )
    assert_expected_inline(
        refused(session, {"a": 1}),
        """\
input 'image': got dict, expected float32[batch, 3]; feed a torch tensor, a numpy array, a
Python number or list, or a DLPack producer""",
    )
    assert_expected_inline(
        refused(session, range(3)),
        """\
input 'image': got range, expected float32[batch, 3]; feed a torch tensor, a numpy array, a
Python number or list, or a DLPack producer""",
    )
    assert_expected_inline(
        refused(session, torch.ones(2, 3, device="meta")),
        """\
input 'image': got a meta tensor, which has no data, expected float32[batch, 3]; feed a real
tensor""",
    )
    assert_expected_inline(
        refused(session, torch.ones(2, 3).to_sparse()),
        """\
input 'image': got a torch.sparse_coo tensor, expected float32[batch, 3]; feed a dense tensor
(.to_dense(), .to_padded_tensor(0))""",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(3)])
        assert_expected_inline(
            refused(session, nested),
            """\
input 'image': got a nested tensor, expected float32[batch, 3]; feed a dense tensor
(.to_dense(), .to_padded_tensor(0))""",
        )


class _Broken:
    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("the memory is gone")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_masked_arrays() -> None:
    """numpy hands over what the mask hides; the mask was dropped without a word."""
    session = load("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    hidden = np.ma.masked_less(np.array([1.0, -2.0], np.float32), 0)
    assert_expected_inline(
        message(tos.InputError, lambda: session(hidden)),
        """\
input 'x': got a masked array, expected float32[n]; what the mask hides would be computed with;
feed .filled(...) or .data""",
    )
    assert session(np.ma.masked_less(hidden.data, -9)).tolist() == [-1, 2]


def test_a_producer_that_cannot_export(session: tos.Session) -> None:
    assert_expected_inline(
        refused(session, _Broken()),
        """\
input 'image': got _Broken, expected float32[batch, 3]; its DLPack export failed: the memory is
gone""",
    )


def test_sequences_and_optionals() -> None:
    joined = load("g (seq(float[n, 2]) x) => (float[m, 2] y) { y = ConcatFromSequence <axis = 0> (x) }")
    assert_expected_inline(
        message(tos.InputError, lambda: joined(torch.ones(2, 2))),
        """input 'x': got Tensor, expected sequence(float32[n, 2]); feed a list or tuple of tensors""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: joined(None)),
        """input 'x': got None, expected sequence(float32[n, 2]); only an optional input may be None""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: joined([torch.ones(1, 2), torch.ones(2, 2).double()])),
        """\
input 'x[1]': got dtype float64, expected float32[n, 2]; convert it, with .to(torch.float32) for
example: a feed is never cast silently""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: joined([torch.ones(1, 2), torch.ones(2, 3)])),
        """input 'x[1]': got shape [2, 3], expected float32[n, 2]; dim 1 is 3 and must be 2""",
    )
    optional = load("g (optional(float[n]) x) => (bool y) { y = OptionalHasElement(x) }")
    assert_expected_inline(
        message(tos.InputError, lambda: optional(torch.ones(2, 2))),
        """input 'x': got shape [2, 2] of rank 2, expected float32[n]; the model expects rank 1""",
    )


def test_strings() -> None:
    session = load("g (string[n] x) => (string[n] y) { y = Identity(x) }")
    assert_expected_inline(
        message(tos.InputError, lambda: session(torch.ones(2))),
        """input 'x': got Tensor, expected string[n]; feed str, or a list or numpy array of str""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session(["a", 1])),
        """input 'x': got an element of type int, expected string[n]; every element must be a str""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session([["a"], ["b"]])),
        """input 'x': got shape [2, 1] of rank 2, expected string[n]; the model expects rank 1""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session(np.ones(2))),
        """input 'x': got ndarray, expected string[n]; feed str, or a list or numpy array of str""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session(np.array([b"\xff"]))),
        """\
input 'x': got bytes that are not UTF-8, expected string[n]; 'utf-8' codec can't decode byte
0xff in position 0: invalid start byte""",
    )


def test_numbers_beyond_their_type() -> None:
    session = load("g (uint8[n] x) => (uint8[n] y) { y = Identity(x) }")
    assert_expected_inline(
        message(tos.InputError, lambda: session([256])),
        """\
input 'x': got a list, expected uint8[n]; value cannot be converted to type uint8 without
overflow""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session([-1])),
        """input 'x': got a negative number, expected uint8[n]; the type holds none""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session([2**70])),
        """input 'x': got a list, expected uint8[n]; Overflow when unpacking long long""",
    )


def test_run_wants_names_and_a_mapping(session: tos.Session) -> None:
    feed = {"image": IMAGE, "label": LABEL}
    assert_expected_inline(
        message(tos.InputError, lambda: session.run("y", feed)),
        """output_names is a list of names; write ['y']""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session.run(None, IMAGE)),  # type: ignore[arg-type]
        """feed is a mapping from input names to values, not a Tensor""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session.run(3, feed)),  # type: ignore[arg-type]
        """output_names is a list of names or None; got int""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: session.run({"y"}, feed)),  # type: ignore[arg-type]
        """output_names is a list of names or None; got set""",
    )


def test_names_may_come_from_a_generator(session: tos.Session) -> None:
    names = [port.name for port in session.outputs]
    results = session.run((name for name in names), {"image": IMAGE, "label": LABEL})  # type: ignore[arg-type]
    assert len(results) == len(names)


def test_the_facts_of_a_message_are_fields(session: tos.Session) -> None:
    with pytest.raises(tos.InputError) as caught:
        session(IMAGE.double(), LABEL)
    assert (caught.value.name, caught.value.got) == ("image", "dtype float64")
    assert caught.value.expected == "float32[batch, 3]"
    assert isinstance(caught.value, ValueError)


def test_a_refused_feed_changes_nothing(session: tos.Session) -> None:
    refused(session, IMAGE.double())
    assert session(IMAGE, LABEL).tolist() == [[2, 2, 2], [2, 2, 2]]
