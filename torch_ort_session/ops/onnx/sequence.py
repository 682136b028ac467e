"""Sequences and optionals.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ort_session.ir.types import ValueType
from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import TensorSequence, kernel
from torch_ort_session.ops.onnx.concat import concat, parts


@kernel("SequenceConstruct", since=(11,))
def sequence_construct(*inputs: Any) -> TensorSequence:
    """The inputs as a sequence.

    Source: https://onnx.ai/onnx/operators/onnx__SequenceConstruct.html
    """
    return inputs


@kernel("SequenceEmpty", since=(11,))
def sequence_empty(*, dtype: int | None = None) -> TensorSequence:
    """A sequence of nothing; ``dtype`` says of what element type.

    Source: https://onnx.ai/onnx/operators/onnx__SequenceEmpty.html
    """
    return ()


@kernel("SequenceAt", since=(11,), host=("position",), view_of="input_sequence")
def sequence_at(input_sequence: TensorSequence, position: int) -> Any:
    """The entry at ``position``, negative ones counted from the end.

    Raises:
        ValueError: There is no such entry.

    Source: https://onnx.ai/onnx/operators/onnx__SequenceAt.html
    """
    return input_sequence[_place(position, len(input_sequence), "entry")]


@kernel("SequenceInsert", since=(11,), host=("position",), view_of="input_sequence")
def sequence_insert(
    input_sequence: TensorSequence, tensor: Any, position: int | None = None
) -> TensorSequence:
    """The sequence with ``tensor`` put in before ``position``, at the end without one.

    Raises:
        ValueError: There is no such place.

    Source: https://onnx.ai/onnx/operators/onnx__SequenceInsert.html
    """
    if position is None:
        return (*input_sequence, tensor)
    length = len(input_sequence)
    place = length if position == length else _place(position, length, "place")
    return (*input_sequence[:place], tensor, *input_sequence[place:])


@kernel("SequenceErase", since=(11,), host=("position",), view_of="input_sequence")
def sequence_erase(input_sequence: TensorSequence, position: int | None = None) -> TensorSequence:
    """The sequence without the entry at ``position``, the last one without one.

    Raises:
        ValueError: There is no such entry.

    Source: https://onnx.ai/onnx/operators/onnx__SequenceErase.html
    """
    place = _place(-1 if position is None else position, len(input_sequence), "entry")
    return (*input_sequence[:place], *input_sequence[place + 1 :])


@kernel("SequenceLength", since=(11,), host_result=True)
def sequence_length(input_sequence: TensorSequence) -> Tensor:
    """The number of entries, as a 0-d int64 on the CPU.

    Source: https://onnx.ai/onnx/operators/onnx__SequenceLength.html
    """
    return torch.tensor(len(input_sequence), dtype=torch.int64)


@kernel("ConcatFromSequence", since=(11,))
def concat_from_sequence(input_sequence: TensorSequence, *, axis: int, new_axis: int = 0) -> Tensor:
    """All entries one after the other along ``axis``, which is a new one if ``new_axis``.

    Raises:
        ValueError: The sequence is empty.

    Source: https://onnx.ai/onnx/operators/onnx__ConcatFromSequence.html
    """
    if not input_sequence:
        raise ValueError("an empty sequence has nothing to concatenate")
    return _stack(*input_sequence, axis=axis) if new_axis else concat(*input_sequence, axis=axis)


def _stack(*items: Tensor, axis: int) -> Tensor:
    if not isinstance(items[0], Tensor):
        return strings.by_position(_stack, *items, axis=axis)
    return torch.stack(items, axis)


@kernel("SplitToSequence", since=(11, 24), host=("split",), view_of="input")
def split_to_sequence(
    input: Tensor, split: list[int] | None = None, *, axis: int = 0, keepdims: int = 1
) -> TensorSequence:
    """Parts of ``input`` along ``axis``, as a sequence.

    Args:
        input: Tensor or strings.
        split: The size of each part; a single number is that of all parts but a shorter last one. Parts
            of size 1 without it.
        axis: The axis.
        keepdims: Whether parts of size 1 keep the axis; of no account when ``split`` is given.

    Raises:
        ValueError: The size of the parts is not positive.

    Source: https://onnx.ai/onnx/operators/onnx__SplitToSequence.html
    """
    length = input.shape[axis]
    sizes = [1] * length if split is None else split
    if split is not None and len(split) == 1:
        if split[0] <= 0:
            raise ValueError(f"parts of size {split[0]} cannot be made")
        sizes = [min(split[0], length - start) for start in range(0, length, split[0])]
    pieces = parts(input, sizes, axis)
    return tuple(_drop(part, axis) for part in pieces) if split is None and not keepdims else pieces


def _drop(part: Tensor, axis: int) -> Tensor:
    return part.squeeze(axis)


def _place(position: int, length: int, what: str) -> int:
    if not -length <= position < length:
        raise ValueError(f"there is no {what} {position} in a sequence of {length}")
    return position % length


@kernel("Optional", since=(15, 28), view_of="input")
def optional(input: Any | None = None, *, type: ValueType | None = None) -> Any:
    """``input`` as an optional; an absent one, of ``type``, without it.

    Source: https://onnx.ai/onnx/operators/onnx__Optional.html
    """
    return input


@kernel("OptionalHasElement", since=(15, 18, 28), host_result=True)
def optional_has_element(input: Any | None = None) -> Tensor:
    """Whether there is a value, as a 0-d bool on the CPU.

    Source: https://onnx.ai/onnx/operators/onnx__OptionalHasElement.html
    """
    return torch.tensor(input is not None)


@kernel("OptionalGetElement", since=(15, 18, 28), view_of="input")
def optional_get_element(input: Any) -> Any:
    """The value of an optional.

    Raises:
        ValueError: It is absent.

    Source: https://onnx.ai/onnx/operators/onnx__OptionalGetElement.html
    """
    if input is None:
        raise ValueError("the optional is empty")
    return input
