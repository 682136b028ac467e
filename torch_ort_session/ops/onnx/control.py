"""Control flow: If, Loop, Scan. Tensors stay on the device; only the predicate and the trip count are read.

Source: https://onnx.ai/onnx/operators/onnx__Loop.html and its neighbours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Graph
from torch_ort_session.ir.types import TensorType
from torch_ort_session.ops.kernel import Body, KernelContext, Value, kernel

_SEAM = "which steps run depends on data"
_CPU = torch.device("cpu")


@kernel("If", since=(1, 11, 13, 16, 19, 21, 23, 24, 25), host=("cond",), seam=_SEAM)
def if_(cond: bool, *, ctx: KernelContext) -> tuple[Value, ...]:
    """Run one of two branches, which read enclosing values by name."""
    return ctx.bodies["then_branch" if cond else "else_branch"]()


@kernel("Loop", since=(1, 11, 13, 16, 19, 21, 23, 24, 25), host=("max_trips", "cond"), seam=_SEAM)
def loop(max_trips: int | None, cond: bool | None, *carried: Value, ctx: KernelContext) -> tuple[Value, ...]:
    """Run the body until its trip count or its condition ends it.

    Returns:
        The carried values, then one stacked tensor for each scan output (empty and typed after no trip).

    Raises:
        ValueError: A carried value changes its dtype, or its rank where the body declares that.
    """
    body, graph = ctx.bodies["body"], _graph(ctx, "body")
    count = len(carried)
    state: tuple[Value, ...] = carried
    scans: list[list[Value]] = [[] for _ in range(len(graph.outputs) - 1 - count)]
    going = cond is None or cond
    flag = torch.scalar_tensor(True, dtype=torch.bool, device=_CPU)
    index = 0
    while going and (max_trips is None or index < max_trips):
        # Host values: a body that slices by its trip number, or counts with it, waits for no device.
        number = torch.scalar_tensor(index, dtype=torch.int64, device=_CPU)
        results = body(number, flag, *state, lend=1 + count)
        state = results[1 : 1 + count]
        _check_carried(carried, state, graph, 2)
        for items, value in zip(scans, results[1 + count :], strict=True):
            items.append(value)
        # A body that passes its condition through, or makes it anew, says whether to go on.
        going = _flag(results[0])
        index += 1
    stacked = [_stack(items, graph, 1 + count + i, ctx.device) for i, items in enumerate(scans)]
    return (*_kept(body, state, ctx), *stacked)


@kernel("Scan", since=(9, 11, 16, 19, 21, 23, 24, 25))
def scan(
    *inputs: Tensor,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    ctx: KernelContext,
) -> tuple[Value, ...]:
    """Run the body once for each element along the scan axes.

    Returns:
        The final state values, then one stacked tensor for each scan output.

    Raises:
        ValueError: The scan inputs differ in length, or a state value changes its dtype or shape.
    """
    count = len(inputs) - num_scan_inputs
    axes = scan_input_axes or [0] * num_scan_inputs
    backward = scan_input_directions or [0] * num_scan_inputs
    sequences = [
        _elements(value, axis, bool(back))
        for value, axis, back in zip(inputs[count:], axes, backward, strict=True)
    ]
    return _scan(inputs[:count], sequences, scan_output_axes, scan_output_directions, ctx)


@kernel("Scan", since=(8,), host=("sequence_lens",))
def scan_batched(
    sequence_lens: list[int] | None,
    *inputs: Tensor,
    num_scan_inputs: int,
    directions: list[int] | None = None,
    ctx: KernelContext,
) -> tuple[Value, ...]:
    """The first Scan: axis 0 is the batch, axis 1 the sequence, with a length for each batch element."""
    count = len(inputs) - num_scan_inputs
    backward = directions or [0] * num_scan_inputs
    batch, longest = inputs[count].shape[0], inputs[count].shape[1]
    lengths = sequence_lens or [longest] * batch
    rows: list[tuple[Value, ...]] = []
    for row, length in enumerate(lengths):
        sequences = [
            _elements(value[row, :length], 0, bool(back))
            for value, back in zip(inputs[count:], backward, strict=True)
        ]
        rows.append(_scan(tuple(value[row] for value in inputs[:count]), sequences, None, None, ctx))
    joined: list[Value] = []
    for position, column in enumerate(zip(*rows, strict=True)):
        tensors: list[Any] = list(column)
        if position >= count:
            tensors = [_padded(value, longest) for value in tensors]
        joined.append(torch.stack(tensors))
    return tuple(joined)


@kernel("SequenceMap", since=(17,))
def sequence_map(
    input_sequence: tuple[Any, ...], *additional_inputs: Value, ctx: KernelContext
) -> tuple[Value, ...]:
    """Run the body on each element of a sequence.

    Returns:
        One sequence for each output of the body.
    """
    body = ctx.bodies["body"]
    for other in additional_inputs:
        if isinstance(other, tuple) and len(other) != len(input_sequence):
            raise ValueError(f"the sequences have different lengths: {len(input_sequence)} and {len(other)}")
    rows = []
    for position, item in enumerate(input_sequence):
        others = [each[position] if isinstance(each, tuple) else each for each in additional_inputs]
        rows.append(body(item, *others))
    if not rows:
        return tuple(() for _ in _graph(ctx, "body").outputs)
    return tuple(zip(*rows, strict=True))


def _scan(
    state: tuple[Value, ...],
    sequences: list[tuple[Tensor, ...]],
    output_axes: list[int] | None,
    output_directions: list[int] | None,
    ctx: KernelContext,
) -> tuple[Value, ...]:
    body, graph = ctx.bodies["body"], _graph(ctx, "body")
    lengths = {len(items) for items in sequences}
    if len(lengths) != 1:
        raise ValueError(f"the scan inputs have different lengths: {sorted(lengths)}")
    count, initial = len(state), state
    scans: list[list[Value]] = [[] for _ in range(len(graph.outputs) - count)]
    for elements in zip(*sequences, strict=True):
        results = body(*state, *elements, lend=count)
        state = results[:count]
        _check_carried(initial, state, graph, 0, dims=True)
        for items, value in zip(scans, results[count:], strict=True):
            items.append(value)
    axes = output_axes or [0] * len(scans)
    backward = output_directions or [0] * len(scans)
    stacked = [
        _stack(items[::-1] if back else items, graph, count + i, ctx.device, axis)
        for i, (items, axis, back) in enumerate(zip(scans, axes, backward, strict=True))
    ]
    return (*_kept(body, state, ctx), *stacked)


def _check_carried(
    first: tuple[Value, ...], last: tuple[Value, ...], graph: Graph, place: int, *, dims: bool = False
) -> None:
    """Refuse carried values of another dtype than the first ones, or of another rank or other dims.

    A Loop's may change their dims, and their rank unless the body declares it; a Scan's may not.
    """
    for number, (a, b) in enumerate(zip(first, last, strict=True)):
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            continue
        if a.dtype is b.dtype and (a.shape == b.shape if dims else a.dim() == b.dim()):
            continue
        info = graph.inputs[place + number]
        ranked = isinstance(info.type, TensorType) and info.type.shape is not None
        if a.dtype is not b.dtype or dims or ranked:
            was, now = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (a, b))
            may = "only its data" if dims else "only its data and its dims"
            raise ValueError(f"the carried value {info.name!r} was {was} and became {now}; {may} may change")


def _kept(body: Body, state: tuple[Value, ...], ctx: KernelContext) -> tuple[Value, ...]:
    """The last carried values, in memory that no later call writes where anybody reads them."""
    kept = iter(body.keep(tuple([value for place, value in enumerate(state) if ctx.wants(place)])))
    return tuple([next(kept) if ctx.wants(place) else value for place, value in enumerate(state)])


def _flag(value: Value) -> bool:
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise ValueError("the condition must be a single bool")
    return bool(value.item())


def _graph(ctx: KernelContext, name: str) -> Graph:
    graph = ctx.node.attributes[name]
    assert isinstance(graph, Graph)
    return graph


def _elements(value: Tensor, axis: int, backward: bool) -> tuple[Tensor, ...]:
    elements: tuple[Tensor, ...] = torch.unbind(value, axis)
    return elements[::-1] if backward else elements


def _padded(value: Tensor, length: int) -> Tensor:
    missing = length - value.shape[0]
    return torch.cat((value, value.new_zeros((missing, *value.shape[1:])))) if missing else value


def _stack(items: list[Any], graph: Graph, output: int, device: torch.device, axis: int = 0) -> Value:
    if items:
        return torch.stack(items, axis)
    info = graph.outputs[output]
    kind = info.type
    if not isinstance(kind, TensorType) or kind.element.torch_dtype is None:
        raise ValueError(f"no trip was made, and the body does not declare a tensor type for {info.name!r}")
    dims = [dim if isinstance(dim, int) else 0 for dim in kind.shape or ()]
    dims.insert(axis if axis >= 0 else axis + len(dims) + 1, 0)
    return torch.empty(dims, dtype=kind.element.torch_dtype, device=device)
