"""Views share memory, host results are on the host, and bad shapes are told in words."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx.concat import split, split_even
from torch_ort_session.ops.onnx.layout import depth_to_space, expand, tile, transpose
from torch_ort_session.ops.onnx.shape import flatten, reshape, shape_of, squeeze, unsqueeze
from torch_ort_session.ops.onnx.slice import slice_


def context(outputs: int = 1) -> KernelContext:
    names = tuple(f"y{i}" for i in range(outputs))
    node = Node(name="n", op="Op", domain="", since=1, inputs=("x",), outputs=names)
    return KernelContext(node=node, device=torch.device("cpu"), wanted=(True,) * outputs)


def test_views_copy_nothing() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    views = [
        reshape(x, [4, 6]),
        flatten(x),
        squeeze(x.unsqueeze(0), [0]),
        unsqueeze(x, [0, -1]),
        transpose(x, perm=[2, 0, 1]),
        expand(x, [5, 2, 3, 4]),
        slice_(x, [1], [3], [2], [1]),
        *split(x, [1, 2], axis=1, ctx=context(2)),
    ]
    address = x.untyped_storage().data_ptr()
    assert [view.untyped_storage().data_ptr() for view in views] == [address] * len(views)


def test_reshape_of_a_strided_input_is_right() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    assert torch.equal(reshape(x, [8, 3]), x.contiguous().reshape(8, 3))


def test_shape_is_computed_on_the_cpu() -> None:
    x = torch.empty(2, 3, device="meta")
    assert shape_of(x).tolist() == [2, 3]
    assert shape_of(x).device.type == "cpu"


def test_a_backward_slice_is_not_a_view_and_is_right() -> None:
    x = torch.arange(10)
    assert slice_(x, [-2], [1], [0], [-3]).tolist() == list(range(10))[-2:1:-3]


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(a, b, s) for a in (-9, -3, 0, 2, 9) for b in (-9, -3, 0, 2, 9) for s in (-3, -1, 1, 2)],
)
def test_slice_clamps_as_python_does_but_for_a_backward_start(start: int, end: int, step: int) -> None:
    x = torch.arange(5)
    wanted = list(range(5))[max(start, -5) if step < 0 else start : end : step]
    assert slice_(x, [start], [end], [0], [step]).tolist() == wanted
    assert slice_(x.expand(2, 5), [start, 0], [end, 2], [1, 0], [step, 1])[0].tolist() == wanted


def message(call: object) -> str:
    with pytest.raises(ValueError) as info:
        call()  # type: ignore[operator]
    return str(info.value)


def test_what_users_read() -> None:
    x = torch.zeros(2, 3)
    told = [
        message(lambda: reshape(x, [2, 3, 0])),
        message(lambda: flatten(x, axis=3)),
        message(lambda: squeeze(x, [1])),
        message(lambda: unsqueeze(x, [0, 0])),
        message(lambda: tile(x, [2])),
        message(lambda: depth_to_space(torch.zeros(1, 6, 2, 2), blocksize=2)),
        message(lambda: depth_to_space(torch.zeros(1, 4, 2, 2), blocksize=2, mode="RDC")),
        message(lambda: split_even(x, None, axis=1, ctx=context(2))),
        message(lambda: slice_(x, [0, 0], [1], [0, 1])),
        message(lambda: slice_(x, [0, 0], [1, 1], [0, 0])),
        message(lambda: slice_(x, [0], [1], [0], [0])),
    ]
    assert_expected_inline(
        "\n".join(told),
        """\
shape [2, 3, 0] copies a dim that data of shape (2, 3) does not have
axis 3 is out of range for an input of rank 2
axis 1 of an input of shape (2, 3) cannot be squeezed: it is not 1
axes [0, 0] do not name 2 different dims of a result of rank 4
repeats [2] needs one count for each of the 2 dims of the input
6 channels are not a multiple of blocksize 2 squared
mode 'RDC' is neither 'DCR' nor 'CRD'
axis 1 of size 3 does not split into 2 equal parts
starts [0, 0], ends [1], axes [0, 1] and steps [1, 1] must be of the same length
axes [0, 0] do not name different dims of an input of rank 2
slice step cannot be zero""",
    )
