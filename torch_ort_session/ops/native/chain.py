"""Chains of elementwise steps in one pass: a small program that the compiled op runs, and plain ops for it.

The op is in ``csrc/elementwise/chain/``; its codes are those of ``chain.h`` there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops import native

MOST_INPUTS: Final = 8
MOST_CONSTANTS: Final = 16
MOST_ROWS: Final = 32
DTYPES: Final = frozenset((torch.float32, torch.float16, torch.bfloat16))
"""Types of all inputs of a chain, and of its result."""


class Code(IntEnum):
    """Functions that a row of a program computes of the registers that it names."""

    ADD = 0
    SUB = 1
    MUL = 2
    DIV = 3
    MIN = 4
    """The lesser one, NaN where one is; so is MAX."""
    MAX = 5
    POW = 6
    NEG = 7
    ABS = 8
    RECIPROCAL = 9
    SQRT = 10
    EXP = 11
    LOG = 12
    ERF = 13
    TANH = 14
    SIGMOID = 15
    RELU = 16
    FLOOR = 17
    CEIL = 18
    ROUND = 19
    """Halves go to the even number."""
    SIN = 20
    COS = 21
    SQUARE = 22
    CUBE = 23
    """Rounded as ``torch.pow(x, 3)`` is on the device."""
    SOFTPLUS = 24
    SOFTSIGN = 25
    MISH = 26
    CLIP = 27
    """Of a number, the lower and the upper bound; -1 stands for a bound that is left out."""
    LEAKY_RELU = 28
    """Of a number and alpha; so is ELU."""
    ELU = 29
    HARD_SIGMOID = 30
    """Of a number, alpha and beta: ``alpha * x + beta``, held in [0, 1]."""
    HARD_SWISH = 31
    GELU_ERF = 32
    GELU_TANH = 33
    SILU = 34

    @property
    def operands(self) -> int:
        """Number of registers that it takes; those of ``CLIP`` that are left out count too."""
        if self in (Code.CLIP, Code.HARD_SIGMOID):
            return 3
        return 2 if self <= Code.POW or self in (Code.LEAKY_RELU, Code.ELU) else 1


def chain(inputs: Sequence[Tensor], program: Sequence[int], constants: Sequence[float]) -> Tensor | None:
    """The result of a program, by the compiled op; None where plain ops have to do instead.

    They have to where :func:`.native.device_op` gives none, and for what is not of one float type.

    Args:
        inputs: 1 to 8 tensors of one dtype of :data:`DTYPES` that broadcast with each other, of any strides.
        program: 1 to 32 rows of four numbers: a :class:`Code` and three registers, -1 for those that the code
            does not take. Registers are numbered: the inputs, the constants, the results of the rows in
            order. The last row is the result.
        constants: Up to 16 numbers, which are taken as float32.

    Returns:
        The broadcast of all inputs, contiguous. Every row is computed in float32 and rounded to the dtype.

    Raises:
        ValueError: A program that is none, or too much of something.
        RuntimeError: The inputs do not broadcast.
    """
    if not 1 <= len(inputs) <= MOST_INPUTS:
        raise ValueError(f"A chain has 1 to {MOST_INPUTS} inputs, not {len(inputs)}.")
    dtype = inputs[0].dtype
    if dtype not in DTYPES or any(each.dtype != dtype for each in inputs):
        return None
    op = native.device_op("elementwise_chain", *inputs)
    return None if op is None else op(inputs, program, constants)


def composite(inputs: Sequence[Tensor], program: Sequence[int], constants: Sequence[float]) -> Tensor:
    """The same by plain ops: what :func:`chain` is measured by, and what gradients go through.

    Args:
        inputs: As in :func:`chain`.
        program: As in :func:`chain`.
        constants: As in :func:`chain`.

    Returns:
        The broadcast of all inputs, contiguous.

    Raises:
        ValueError: A number of the program is no code.
        IndexError: A row reads a register that is not there.
    """
    dtype = inputs[0].dtype
    registers = [each.float() for each in inputs]
    registers += [inputs[0].new_tensor(each, dtype=torch.float32) for each in constants]
    for start in range(0, len(program), 4):
        code = Code(program[start])
        taken = program[start + 1 : start + 1 + code.operands]
        operands: list[Any] = [None if each < 0 else registers[each] for each in taken]
        if code is Code.CUBE:
            operands = [operands[0].to(dtype)]
        registers.append(_PLAIN[code](*operands).to(dtype).float())
    shape = torch.broadcast_shapes(*(each.shape for each in inputs))  # type: ignore[no-untyped-call]
    return registers[-1].to(dtype).expand(shape).contiguous()


def _clip(x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    return x if low is None and high is None else torch.clamp(x, low, high)


_PLAIN: Final[dict[Code, Callable[..., Tensor]]] = {
    Code.ADD: torch.add,
    Code.SUB: torch.sub,
    Code.MUL: torch.mul,
    Code.DIV: torch.div,
    Code.MIN: torch.minimum,
    Code.MAX: torch.maximum,
    Code.POW: torch.pow,
    Code.NEG: torch.neg,
    Code.ABS: torch.abs,
    Code.RECIPROCAL: torch.reciprocal,
    Code.SQRT: torch.sqrt,
    Code.EXP: torch.exp,
    Code.LOG: torch.log,
    Code.ERF: torch.erf,
    Code.TANH: torch.tanh,
    Code.SIGMOID: torch.sigmoid,
    Code.RELU: torch.relu,
    Code.FLOOR: torch.floor,
    Code.CEIL: torch.ceil,
    Code.ROUND: torch.round,
    Code.SIN: torch.sin,
    Code.COS: torch.cos,
    Code.SQUARE: torch.square,
    Code.CUBE: lambda x: torch.pow(x, 3),
    Code.SOFTPLUS: lambda x: F.softplus(x, 1.0, 40.0),
    Code.SOFTSIGN: F.softsign,
    Code.MISH: F.mish,
    Code.CLIP: _clip,
    Code.LEAKY_RELU: lambda x, alpha: torch.where(x > 0, x, x * alpha),
    Code.ELU: lambda x, alpha: torch.where(x >= 0, x, torch.expm1(x) * alpha),
    Code.HARD_SIGMOID: lambda x, alpha, beta: torch.clamp(x * alpha + beta, 0.0, 1.0),
    Code.HARD_SWISH: F.hardswish,
    Code.GELU_ERF: F.gelu,
    Code.GELU_TANH: lambda x: F.gelu(x, approximate="tanh"),
    Code.SILU: F.silu,
}
