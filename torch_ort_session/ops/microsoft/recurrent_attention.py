"""An LSTM that looks at a memory after each step: AttnLSTM of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.AttnLSTM
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_ort_session.ops.common import recurrent
from torch_ort_session.ops.common import recurrent_activations as functions_of
from torch_ort_session.ops.common.checks import check_lengths, has_input
from torch_ort_session.ops.common.recurrent import Cell, States
from torch_ort_session.ops.common.recurrent_cells import lstm_cell
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("AttnLSTM", domain="com.microsoft", since=(1,), checks=has_input(4, 12), native=("check_range",))
def attn_lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    p: Tensor | None,
    qw: Tensor,
    mw: Tensor,
    v: Tensor,
    m: Tensor,
    memory_seq_lens: Tensor | None = None,
    aw: Tensor | None = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """An LSTM whose input each time carries what the last output found in a memory.

    Args:
        x: ``[time, batch, input]``.
        w: ``[directions, 4 * hidden, input + depth]``, gates in the order input, output, forget, cell; depth
            is that of the attention, the last dim of ``aw``, or without it of ``m``.
        r: ``[directions, 4 * hidden, hidden]``.
        b: ``[directions, 8 * hidden]`` or None.
        sequence_lens: int32 ``[batch]`` or None.
        initial_h: ``[directions, batch, hidden]`` or None for zeros.
        initial_c: The same for the cell.
        p: Peepholes ``[directions, 3 * hidden]`` or None.
        qw: ``[directions, hidden, size]``, of the queries.
        mw: ``[directions, memory, size]``, of the memory.
        v: ``[directions, size]``.
        m: The memory ``[batch, steps, memory]``.
        memory_seq_lens: int32 ``[batch]``, how many steps of the memory count; None is all.
        aw: ``[directions, hidden + memory, depth]`` or None.
        activations: Three functions a direction.
        activation_alpha: Their alphas.
        activation_beta: Their betas.
        clip: Bound of their inputs.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        hidden_size: As in ``r``.
        input_forget: Whether the forget gate is one minus the input gate.
        ctx: Tells which outputs are wanted.

    Returns:
        Y ``[time, directions, batch, hidden]``, Y_h and Y_c ``[directions, batch, hidden]``.

    Raises:
        ValueError: Inputs that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.AttnLSTM
    """
    count = recurrent.count_directions(direction, w)
    names = functions_of.named(activations, ("sigmoid", "tanh", "tanh"), count)
    functions = functions_of.activations(names, activation_alpha, activation_beta)
    functions = [f if i % 3 == 2 else functions_of.clipped(f, clip) for i, f in enumerate(functions)]
    own, fed = w[..., : x.shape[2]], w[..., x.shape[2] :]
    x, states = recurrent.inputs(x, own, r, 4, hidden_size, 0, initial_h, initial_c)
    seen = None
    counted = check_lengths(memory_seq_lens, m.shape[1], ctx)
    if counted is not None:
        place = torch.arange(m.shape[1], device=m.device)
        seen = place < counted.unsqueeze(1)
        m = torch.where(seen.unsqueeze(2), m, torch.zeros_like(m))
    cells = [
        _attending(
            lstm_cell(
                own[d],
                r[d],
                None if b is None else b[d],
                None if p is None else p[d],
                functions[3 * d : 3 * d + 3],
                bool(input_forget),
            ),
            fed[d],
            _attention(qw[d], mw[d], v[d], m, seen, None if aw is None else aw[d]),
        )
        for d in range(count)
    ]
    nothing = x.new_zeros(count, x.shape[1], fed.shape[2])
    lengths = check_lengths(sequence_lens, x.shape[0], ctx)
    y, states = recurrent.unroll(cells, x, (*states, nothing), direction, lengths)
    y_out, h_out, c_out = recurrent.outputs(y, states[:2], 0, x.dtype, (*ctx.wanted, False, False)[:3])
    return y_out, h_out, c_out


def _attention(
    qw: Tensor, mw: Tensor, v: Tensor, memory: Tensor, seen: Tensor | None, aw: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """From an output ``[batch, hidden]`` to what the next step is fed ``[batch, depth]``."""
    keys = torch.matmul(memory, mw)

    def attend(h: Tensor) -> Tensor:
        score = torch.matmul(torch.tanh(keys + torch.matmul(h, qw).unsqueeze(1)), v)
        if seen is not None:
            score = torch.where(seen, score, float("-inf"))
        context = torch.bmm(torch.softmax(score, 1).unsqueeze(1), memory).squeeze(1)
        return context if aw is None else torch.matmul(torch.cat((h, context), 1), aw)

    return attend


def _attending(cell: Cell, fed: Tensor, attend: Callable[[Tensor], Tensor]) -> Cell:
    """The cell with a third state: what the attention found, which the gates take in."""

    def step(gates: tuple[Tensor, ...], states: States) -> States:
        h, c, context = states
        h, c = cell.step((torch.addmm(gates[0], context, fed.t()),), (h, c))
        return h, c, attend(h)

    return Cell(cell.project, step)
