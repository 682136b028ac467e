"""Shared parts of RNN, GRU and LSTM: directions, sequence lengths, and the two ways to run a layer.

A *cell* computes one step and serves every attribute; a *layer* is torch's fused one. Shapes here are those
of ``layout=0``: sequences ``[time, batch, features]``, states ``[directions, batch, hidden]``.

Source: https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_lengths
from torch_ort_session.ops.kernel import KernelContext

States = tuple[Tensor, ...]
Layer = Callable[[Tensor, States, list[Tensor], bool], tuple[Tensor, ...]]
"""Called with the sequence, the states, flat parameters and whether they are of both directions."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One direction of a layer, or both at once, step by step.

    Tensors of both directions at once carry the directions as a first axis of their own.

    Attributes:
        project: From the sequence ``[time, batch, input]`` to what each step takes of it, for all steps at
            once: tensors ``[time, batch, ...]``.
        step: From one step's projected input ``[batch, ...]`` and the states ``[batch, hidden]`` to the next
            states, the output first.
    """

    project: Callable[[Tensor], tuple[Tensor, ...]]
    step: Callable[[tuple[Tensor, ...], States], States]


def count_directions(direction: str, weights: Tensor) -> int:
    """The number of directions.

    Args:
        direction: The attribute.
        weights: W, ``[directions, ...]``.

    Raises:
        ValueError: The attribute is not known, or W is not for that many directions.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"direction {direction!r} is not forward, reverse or bidirectional.")
    count = 2 if direction == "bidirectional" else 1
    if weights.shape[0] != count:
        raise ValueError(
            f"W is for {weights.shape[0]} directions where direction {direction!r} needs {count}."
        )
    return count


def inputs(
    x: Tensor, w: Tensor, r: Tensor, gates: int, hidden_size: int | None, layout: int, *initial: Tensor | None
) -> tuple[Tensor, States]:
    """The sequence and the initial states, checked, in this module's layout and a dtype to compute in.

    Args:
        x: ``[time, batch, input]``, or batch first when ``layout`` is 1.
        w: W.
        r: R.
        gates: How many gates.
        hidden_size: The attribute.
        layout: The attribute.
        initial: Initial states; None for zeros.

    Raises:
        ValueError: Shapes contradict each other.
    """
    if x.dim() != 3 or w.dim() != 3 or r.dim() != 3:
        raise ValueError(f"X, W and R have rank {x.dim()}, {w.dim()} and {r.dim()} where each needs rank 3.")
    hidden = r.shape[2]
    if (
        (hidden_size is not None and hidden_size != hidden)
        or w.shape != (r.shape[0], gates * hidden, x.shape[2])
        or r.shape[1] != gates * hidden
    ):
        raise ValueError(
            f"X {list(x.shape)}, W {list(w.shape)} and R {list(r.shape)} do not fit together with "
            f"{gates} gates and hidden_size {hidden_size}."
        )
    if layout:
        x = x.transpose(0, 1)
        initial = tuple(None if state is None else state.transpose(0, 1) for state in initial)
    # Half precision on the CPU is computed in single precision: sums over many steps would drift.
    if x.dtype in (torch.float16, torch.bfloat16) and x.device.type == "cpu":
        x = x.to(torch.float32)
    zeros = None
    states = []
    for state in initial:
        if state is None:
            if zeros is None:
                zeros = x.new_zeros(w.shape[0], x.shape[1], hidden)
            state = zeros
        states.append(state.to(x.dtype))
    return x, tuple(states)


def ready(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Tensor | None, ctx: KernelContext
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """W, R and B in the dtype of a sequence, and sequence lengths that fit it."""
    b = None if b is None else b.to(x.dtype)
    return w.to(x.dtype), r.to(x.dtype), b, check_lengths(lengths, x.shape[0], ctx)


def outputs(
    y: Tensor, states: States, layout: int, dtype: torch.dtype, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Y and the final states in the operator's layout and dtype; None for those that no node reads."""
    results: list[Tensor | None] = []
    for index, value in enumerate((y, *states)):
        if index >= len(wanted) or not wanted[index]:
            results.append(None)
            continue
        if layout:
            value = value.permute(2, 0, 1, 3) if index == 0 else value.transpose(0, 1)
        results.append(value.to(dtype))
    return results


def unroll(
    cells: Sequence[Cell], x: Tensor, states: States, direction: str, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """Run the cells over the sequences, each in its direction.

    Args:
        cells: One a direction, or one for both.
        x: ``[time, batch, input]``.
        states: Initial states, each ``[directions, batch, hidden]``, the output first.
        direction: The attribute.
        lengths: Sequence lengths ``[batch]`` or None for full ones.

    Returns:
        The outputs ``[time, directions, batch, hidden]``, zero after a sequence's end, and the states at each
        sequence's end, as ``states``.
    """
    valid = None if lengths is None else _counting(x, lengths)
    backward = None if direction == "forward" else _reverse(x, lengths)
    if direction == "bidirectional" and len(cells) == 1 and backward is not None:
        y, finals = _steps(cells[0], torch.stack((x, backward)), states, valid)
        return torch.stack((y[:, 0], _reverse(y[:, 1], lengths)), 1), finals
    outputs: list[Tensor] = []
    ends: list[States] = []
    for index, cell in enumerate(cells):
        own = x if backward is None or (index == 0 and len(cells) == 2) else backward
        y, last = _steps(cell, own, tuple(state[index] for state in states), valid)
        outputs.append(y if own is x else _reverse(y, lengths))
        ends.append(last)
    return _join(outputs), tuple(_pair(list(parts)) for parts in zip(*ends, strict=True))


def _steps(cell: Cell, x: Tensor, states: States, valid: Tensor | None) -> tuple[Tensor, States]:
    """One cell over sequences that all start at the first step; outputs have the time as first axis."""
    steps: list[Tensor] = []
    parts = zip(*(part.unbind(-3) for part in cell.project(x)), strict=True)
    for time, gates in enumerate(parts):
        following = cell.step(gates, states)
        if valid is not None:
            following = tuple(
                torch.where(valid[time], new, old) for new, old in zip(following, states, strict=True)
            )
        states = following
        steps.append(states[0])
    if not steps:
        return x.new_empty(0, *states[0].shape), tuple(state.clone() for state in states)
    y = torch.stack(steps)
    if valid is None:
        return y, states
    return torch.where(valid if y.dim() == 3 else valid[:, None], y, 0.0), states


def fuse(
    layer: Layer,
    x: Tensor,
    states: States,
    parameters: Sequence[list[Tensor]],
    direction: str,
    lengths: Tensor | None,
) -> tuple[Tensor, States]:
    """Run torch's fused layer over the sequences.

    With lengths only the first final state is right: a fused layer runs on past a sequence's end.

    Args:
        layer: The layer.
        x: ``[time, batch, input]``, at least one step.
        states: Initial states, each ``[directions, batch, hidden]``, the output first.
        parameters: For each direction, in torch's order.
        direction: The attribute.
        lengths: Sequence lengths ``[batch]`` or None for full ones.

    Returns:
        As :func:`unroll`.
    """
    if direction == "bidirectional" and lengths is None:
        y, *last = layer(x, states, [item for one in parameters for item in one], True)
        time, batch, width = y.shape
        return y.reshape(time, batch, 2, width // 2).transpose(1, 2), tuple(last)
    outputs: list[Tensor] = []
    finals: list[States] = []
    for index, own in enumerate(parameters):
        backward = index == 1 or direction == "reverse"
        initial = tuple(state[index : index + 1] for state in states)
        y, *last = layer(_reverse(x, lengths) if backward else x, initial, own, False)
        if lengths is not None:
            last[0] = _at_end(y, initial[0], lengths)
            y = torch.where(_counting(x, lengths), y, 0.0)
        outputs.append(_reverse(y, lengths) if backward else y)
        finals.append(tuple(last))
    return _join(outputs), tuple(
        parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*finals, strict=True)
    )


def torch_parameters(w: Tensor, r: Tensor, b: Tensor | None, order: Sequence[int]) -> list[list[Tensor]]:
    """W, R and B as torch's fused layers take them, with the gates in their order.

    Args:
        w: ``[directions, gates * hidden, input]``.
        r: ``[directions, gates * hidden, hidden]``.
        b: ``[directions, 2 * gates * hidden]`` or None.
        order: For each of torch's gates the place of the ONNX one.

    Returns:
        For each direction the input and recurrent matrices, then their biases if there are any.
    """
    biases = None if b is None else b.reshape(b.shape[0] * 2, -1)
    w, r = _reordered(w, order), _reordered(r, order)
    biases = None if biases is None else _reordered(biases, order)
    if w.device.type == "cuda":
        w, r, biases = _in_one_block(w, r, biases)
    weights = [list(pair) for pair in zip(w.unbind(0), r.unbind(0), strict=True)]
    if biases is not None:
        rows = biases.unbind(0)
        for direction, own in enumerate(weights):
            own += rows[2 * direction : 2 * direction + 2]
    return weights


def _reordered(gates: Tensor, order: Sequence[int]) -> Tensor:
    """The parts of axis 1 in another order; neighbours that stay neighbours move together."""
    size = gates.shape[1] // len(order)
    runs: list[list[int]] = []
    for place in order:
        if runs and runs[-1][1] == place:
            runs[-1][1] = place + 1
        else:
            runs.append([place, place + 1])
    if len(runs) == 1:
        return gates
    return torch.cat([gates[:, first * size : last * size] for first, last in runs], 1)


def _in_one_block(w: Tensor, r: Tensor, biases: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The parameters in one block of memory, matrices first, without which cuDNN copies them and warns."""
    matrices = torch.cat((w.flatten(1), r.flatten(1)), 1)
    parts = [matrices.reshape(-1)] if biases is None else [matrices.reshape(-1), biases.reshape(-1)]
    block = torch.cat(parts)
    rows = block[: matrices.numel()].view(matrices.shape)
    split = w.shape[1] * w.shape[2]
    return (
        rows[:, :split].view(w.shape),
        rows[:, split:].view(r.shape),
        None if biases is None else block[matrices.numel() :].view(biases.shape),
    )


def _join(outputs: list[Tensor]) -> Tensor:
    return outputs[0].unsqueeze(1) if len(outputs) == 1 else torch.stack(outputs, 1)


def _pair(states: list[Tensor]) -> Tensor:
    return states[0].unsqueeze(0) if len(states) == 1 else torch.stack(states)


def _counting(x: Tensor, lengths: Tensor) -> Tensor:
    """Mask of the steps that belong to a sequence: bool ``[time, batch, 1]``."""
    time = torch.arange(x.shape[0], device=x.device)
    return (time[:, None] < lengths)[:, :, None]


def _reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence backwards within its length; what follows stays."""
    if lengths is None:
        return x.flip(0)
    time = torch.arange(x.shape[0], device=x.device)[:, None]
    length = lengths.to(torch.int64).clamp(0, x.shape[0])
    index = torch.where(time < length, length - 1 - time, time)
    return x.gather(0, index[:, :, None].expand(-1, -1, x.shape[2]))


def _at_end(y: Tensor, initial: Tensor, lengths: Tensor) -> Tensor:
    """The output at each sequence's last step, ``[1, batch, hidden]``; the initial one if it has none."""
    length = lengths.to(torch.int64).clamp(0, y.shape[0])[None, :, None]
    last = y.gather(0, (length - 1).clamp(min=0).expand(-1, -1, y.shape[2]))
    return torch.where(length > 0, last, initial)
