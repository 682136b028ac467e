"""Chains: what elementwise steps are as rows of the native op that computes several of them in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch

from torch_ort_session.ops.microsoft import gelu as gelus
from torch_ort_session.ops.native.chain import MOST_CONSTANTS, MOST_INPUTS, MOST_ROWS, Code
from torch_ort_session.ops.onnx import activation, arithmetic, clip, unary, variadic
from torch_ort_session.plan.lowering import NOTHING, Step


class Register(NamedTuple):
    """Where a number of a program stands: ``kind`` is one of the three below, ``place`` counts within it."""

    kind: int
    place: int


_INPUT, _CONSTANT, _ROW = range(3)


@dataclass(slots=True, eq=False)
class Draft:
    """A program while steps are added to it.

    It lives while the steps of one plan are fused.

    Attributes:
        numbers: Gives the number of a value that is one constant number; None for others.
        dtype: The dtype of every tensor.
        inputs: Values that it reads.
        constants: Numbers that it holds.
        rows: Its rows, with registers for operands.
        made: The register of each value that a row makes.
    """

    numbers: Callable[[int], float | None]
    dtype: torch.dtype
    inputs: list[int] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)
    rows: list[tuple[Code, tuple[Register | None, ...]]] = field(default_factory=list)
    made: dict[int, Register] = field(default_factory=dict)

    def read(self, value: int) -> Register:
        """The register of a value: of a row, of a constant, or of an input that it is from now on."""
        found = self.made.get(value)
        if found is not None:
            return found
        number = self.numbers(value)
        if number is not None:
            return self.constant(number)
        if value not in self.inputs:
            self.inputs.append(value)
        return Register(_INPUT, self.inputs.index(value))

    def constant(self, number: float) -> Register:
        """The register of a number."""
        # Zeros of both signs are two numbers, and so is each NaN.
        for place, held in enumerate(self.constants):
            if held == number and math.copysign(1.0, held) == math.copysign(1.0, number):
                return Register(_CONSTANT, place)
        self.constants.append(number)
        return Register(_CONSTANT, len(self.constants) - 1)

    def row(self, code: Code, *operands: Register | None) -> Register:
        """Add a row."""
        self.rows.append((code, operands))
        return Register(_ROW, len(self.rows) - 1)

    def add(self, step: Step) -> bool:
        """Add a step; False where it is not one that a program can hold, and then the draft is spoilt."""
        rule = _RULES.get(step.kernel.fn)
        if rule is None:
            return False
        defaults = {param.name: param.default for param in step.kernel.signature.attributes}
        made = rule(self, step.inputs, {**defaults, **step.node.attributes})
        if made is None:
            return False
        self.made[step.outputs[0]] = made
        return True

    @property
    def fits(self) -> bool:
        """Whether it keeps the limits of the op."""
        few = len(self.inputs) <= MOST_INPUTS and len(self.constants) <= MOST_CONSTANTS
        return few and len(self.rows) <= MOST_ROWS

    @property
    def program(self) -> tuple[int, ...]:
        """The rows as numbers: code and three operands each, -1 for what a code does not take."""
        base = {_INPUT: 0, _CONSTANT: len(self.inputs), _ROW: len(self.inputs) + len(self.constants)}
        found: list[int] = []
        for code, operands in self.rows:
            numbers = [-1 if one is None else base[one.kind] + one.place for one in operands]
            found += [int(code), *numbers, *[-1] * (3 - len(numbers))]
        return tuple(found)


Rule: TypeAlias = Callable[[Draft, tuple[int, ...], Mapping[str, Any]], Register | None]
"""Adds the rows of a step with these inputs and attributes, and tells where its result is; None where the
step has no rows."""


def is_member(step: Step) -> bool:
    """Whether a step is of an operator that has rows; whether it has some is told by :meth:`Draft.add`."""
    return step.kernel.fn in _RULES


def _unary(code: Code) -> Rule:
    return lambda draft, xs, given: draft.row(code, draft.read(xs[0]))


def _folded(code: Code) -> Rule:
    def rule(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
        if len(xs) < 2:
            return None
        result = draft.read(xs[0])
        for value in xs[1:]:
            result = draft.row(code, result, draft.read(value))
        return result

    return rule


def _sum(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
    # Longer sums of 16 bits are rounded once.
    return _folded(Code.ADD)(draft, xs, given) if len(xs) == 2 or draft.dtype == torch.float32 else None


def _pow(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
    number = draft.numbers(xs[1])
    if number is None:
        return draft.row(Code.POW, draft.read(xs[0]), draft.read(xs[1]))
    # For these torch copies, fills, or has formulas that no row has.
    if not math.isfinite(number) or number in (0.0, 1.0, -0.5, -2.0):
        return None
    short = {2.0: Code.SQUARE, 3.0: Code.CUBE, 0.5: Code.SQRT, -1.0: Code.RECIPROCAL}.get(number)
    if short is not None:
        return draft.row(short, draft.read(xs[0]))
    return draft.row(Code.POW, draft.read(xs[0]), draft.constant(number))


def _clamped(draft: Draft, value: int, low: float | None, high: float | None) -> Register | None:
    bounds = [low, high]
    if all(bound is None for bound in bounds) or any(b is not None and math.isnan(b) for b in bounds):
        return None
    if low is not None and high is not None and low > high:
        return None
    registers = [None if bound is None else draft.constant(bound) for bound in bounds]
    return draft.row(Code.CLIP, draft.read(value), *registers)


def _clip(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
    bounds: list[float | None] = []
    for place in (1, 2):
        value = xs[place] if place < len(xs) else NOTHING
        number = None if value == NOTHING else draft.numbers(value)
        if value != NOTHING and number is None:
            return None
        bounds.append(number)
    return _clamped(draft, xs[0], *bounds)


def _clip_between(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
    largest = torch.finfo(draft.dtype).max
    low, high = given["min"], given["max"]
    low = None if low is None or low < -largest else low
    high = None if high is None or high > largest else high
    return _clamped(draft, xs[0], low, high)


def _with(code: Code, *names: str) -> Rule:
    def rule(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
        return draft.row(code, draft.read(xs[0]), *[draft.constant(float(given[name])) for name in names])

    return rule


def _hard_sigmoid(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
    # Each row rounds to the dtype, and of 16 bits the kernel rounds once.
    if draft.dtype != torch.float32:
        return None
    alpha, beta = float(given["alpha"]), float(given["beta"])
    x = draft.read(xs[0])
    if beta != 0.5:
        line = draft.row(Code.ADD, draft.row(Code.MUL, x, draft.constant(alpha)), draft.constant(beta))
        return draft.row(Code.CLIP, line, draft.constant(0.0), draft.constant(1.0))
    if alpha != activation.SIXTH:
        x = draft.row(Code.MUL, x, draft.constant(6.0 * alpha))
    moved = draft.row(Code.ADD, x, draft.constant(3.0))
    held = draft.row(Code.CLIP, moved, draft.constant(0.0), draft.constant(6.0))
    return draft.row(Code.DIV, held, draft.constant(6.0))


def _gelu(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
    code = {"none": Code.GELU_ERF, "tanh": Code.GELU_TANH}.get(given.get("approximate", "none"))
    return None if code is None else draft.row(code, draft.read(xs[0]))


def _biased(code: Code) -> Rule:
    def rule(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
        x = draft.read(xs[0])
        if len(xs) > 1 and xs[1] != NOTHING:
            x = draft.row(Code.ADD, x, draft.read(xs[1]))
        return draft.row(code, x)

    return rule


def _swish(draft: Draft, xs: tuple[int, ...], given: Mapping[str, Any]) -> Register | None:
    alpha = float(given["alpha"])
    x = draft.read(xs[0])
    if alpha == 1.0:
        return draft.row(Code.SILU, x)
    if draft.dtype != torch.float32:
        return None
    gate = draft.row(Code.SIGMOID, draft.row(Code.MUL, x, draft.constant(alpha)))
    return draft.row(Code.MUL, x, gate)


_RULES: dict[Callable[..., Any], Rule] = {
    arithmetic.add: _folded(Code.ADD),
    arithmetic.sub: _folded(Code.SUB),
    arithmetic.mul: _folded(Code.MUL),
    arithmetic.div: _folded(Code.DIV),
    arithmetic.pow_: _pow,
    variadic.sum_: _sum,
    variadic.max_: _folded(Code.MAX),
    variadic.min_: _folded(Code.MIN),
    unary.abs_: _unary(Code.ABS),
    unary.neg: _unary(Code.NEG),
    unary.ceil: _unary(Code.CEIL),
    unary.floor: _unary(Code.FLOOR),
    unary.round_: _unary(Code.ROUND),
    unary.sqrt: _unary(Code.SQRT),
    unary.exp: _unary(Code.EXP),
    unary.log: _unary(Code.LOG),
    unary.reciprocal: _unary(Code.RECIPROCAL),
    unary.sin: _unary(Code.SIN),
    unary.cos: _unary(Code.COS),
    unary.erf: _unary(Code.ERF),
    activation.relu: _unary(Code.RELU),
    activation.sigmoid: _unary(Code.SIGMOID),
    activation.tanh: _unary(Code.TANH),
    activation.softplus: _unary(Code.SOFTPLUS),
    activation.softsign: _unary(Code.SOFTSIGN),
    activation.hard_swish: _unary(Code.HARD_SWISH),
    activation.leaky_relu: _with(Code.LEAKY_RELU, "alpha"),
    activation.elu: _with(Code.ELU, "alpha"),
    activation.hard_sigmoid: _hard_sigmoid,
    activation.gelu: _gelu,
    activation.swish: _swish,
    clip.clip: _clip,
    clip.clip_v1: _clip_between,
    clip.clip_v6: _clip_between,
    gelus.gelu: _gelu,
    gelus.bias_gelu: _biased(Code.GELU_ERF),
    gelus.fast_gelu: _biased(Code.GELU_TANH),
    gelus.quick_gelu: _swish,
}
