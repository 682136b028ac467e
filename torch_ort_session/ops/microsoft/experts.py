"""What mixtures of experts share: choosing experts, their activations, and the sum of what they say.

Shapes are those of the inputs whatever the choice is, so that a mixture can be captured. Few tokens fetch
the weights of their own experts; many pass through all experts one by one, and what was not asked for is
left out.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MoE
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.common.bits import movable

# How much less than the best an expert of a sparse mixture may score, relative to the scores.
_SPARSE_MARGIN = 0.02

# What the compiled ops take: the type of rows and scales, and the columns of a block.
_FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16))
_LEAST_BLOCK = 16
_WIDEST_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Activation:
    """What lies between the two projections of an expert.

    Attributes:
        kind: relu, relu2, gelu, silu, identity, swiglu or geglu.
        fusion: How gates and values share the rows of the first projection: 1 by turns, 2 one after the
            other, 0 not at all.
        alpha: Factor of the gate within the sigmoid.
        beta: Added to the values.
        limit: Bound of gates from above and of values on both sides.
        late: Whether the activated gate is bounded instead of the gate.
    """

    kind: str
    fusion: int
    alpha: float
    beta: float
    limit: float | None
    late: bool

    def __call__(self, x: Tensor, values: Tensor | None) -> Tensor:
        """Activate the first projection ``x``, beside the third one's values where there are any.

        Raises:
            ValueError: The kind is unknown, or gates have no values.
        """
        if self.kind in ("swiglu", "geglu") and self.fusion:
            x, values = _halves(x, self.fusion)
        if self.kind == "swiglu":
            return self._gated(x, values)
        if self.kind == "geglu" and values is not None:
            return F.gelu(x, approximate="tanh") * values
        plain = _PLAIN.get(self.kind)
        if plain is None:
            raise ValueError(f"activation_type {self.kind!r} with swiglu_fusion {self.fusion} is not known.")
        y = plain(x)
        return y if values is None else y * values

    def _gated(self, gate: Tensor, values: Tensor | None) -> Tensor:
        if values is None:
            raise ValueError("swiglu without swiglu_fusion needs the weights of a third projection.")
        if self.limit is not None:
            values = values.clamp(-self.limit, self.limit)
            if not self.late:
                gate = gate.clamp(max=self.limit)
        opened = gate * torch.sigmoid(self.alpha * gate)
        if self.limit is not None and self.late:
            opened = opened.clamp(max=self.limit)
        return opened * (values + self.beta)


_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "identity": lambda x: x,
}


def _halves(x: Tensor, fusion: int) -> tuple[Tensor, Tensor]:
    if fusion == 1:
        return x[..., ::2], x[..., 1::2]
    gate, values = x.chunk(2, -1)
    return gate, values


@dataclass(frozen=True, slots=True)
class Projection:
    """One projection of all experts.

    Attributes:
        parts: Tensors [E, ...] that the weights are made of.
        weights: Makes the weights [..., N, K] of some experts from their parts.
        bias: [E, N].
        bits: Of a number of weights that lie packed beside scales and zero points; 0 where the weights are
            the one part; None where they are made in another way.
    """

    parts: tuple[Tensor | None, ...]
    weights: Callable[..., Tensor]
    bias: Tensor | None
    bits: int | None = None

    def one(self, x: Tensor, expert: int) -> Tensor:
        """Expert number ``expert`` on tokens [T, K]: [T, N]."""
        weight = self.weights(*(None if part is None else part[expert] for part in self.parts))
        return F.linear(x, weight.to(x.dtype), None if self.bias is None else self.bias[expert])

    def each(self, x: Tensor, experts: Tensor) -> Tensor:
        """For each token of [P, K] its own expert: [P, N]."""
        rows = None if self.bits is None else self._read(x, experts)
        if rows is not None:
            return rows
        taken = (None if p is None else movable(torch.index_select, p, 0, experts) for p in self.parts)
        y = torch.bmm(self.weights(*taken).to(x.dtype), x.unsqueeze(2)).squeeze(2)
        return y if self.bias is None else y + torch.index_select(self.bias, 0, experts)

    def _read(self, x: Tensor, experts: Tensor) -> Tensor | None:
        """The same by the compiled op, which reads the weights of these experts alone as they lie.

        None where it does not serve.
        """
        weight = self.parts[0]
        if weight is None or x.dtype not in _FLOATS or x.shape[1] == 0:
            return None
        if self.bias is not None and self.bias.dtype not in _FLOATS:
            return None
        if not self.bits:
            if weight.dtype != x.dtype:
                return None
            op = native.device_op("expert_rows", x, experts, weight, self.bias)
            return None if op is None else cast(Tensor, op(x, experts, weight, self.bias))
        _, scales, zeros = self.parts
        if scales is None or scales.dtype not in _FLOATS or self.bits not in (2, 4, 8):
            return None
        by_row = scales.dim() == 2
        if zeros is not None and (by_row or zeros.dtype is not torch.uint8):
            return None
        blocks = 1 if by_row else scales.shape[2]
        block = x.shape[1] // blocks
        if (
            block < _LEAST_BLOCK
            or block & (block - 1)
            or block > _WIDEST_BLOCK
            or block * blocks != x.shape[1]
        ):
            return None
        op = native.device_op("expert_rows_nbits", x, experts, weight, scales, zeros, self.bias)
        return (
            None
            if op is None
            else cast(Tensor, op(x, experts, weight, scales, zeros, self.bias, self.bits, block))
        )


def route(
    scores: Tensor, k: int, normalize: bool, sparse: bool, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The experts of each token and their shares.

    Args:
        scores: Logits [T, E].
        k: Experts a token.
        normalize: Whether the shares of a token sum to 1.
        sparse: Whether each expert is only weighed against those that score nearly as high.
        weights: The shares [T, E], where they are not the softmax of the scores.

    Returns:
        int64 [T, k] and [T, k], in the type of ``scores``.

    Raises:
        ValueError: A sparse mixture of other than 2 experts.
    """
    wide = scores if scores.dtype is torch.float64 else scores.to(torch.float32)
    if sparse:
        if k != 2:
            raise ValueError(f"a sparse mixer chooses 2 experts, not {k}.")
        return _sparse(wide, scores.dtype)
    # Of experts that score alike the first is chosen, which topk does not promise.
    ordered, order = torch.sort(wide, dim=-1, descending=True, stable=True)
    best, experts = ordered[:, :k], order[:, :k]
    if weights is not None:
        shares = torch.gather(weights.to(wide.dtype), 1, experts)
        shares = shares / shares.sum(-1, keepdim=True) if normalize else shares
    elif normalize:
        shares = torch.softmax(best, -1)
    else:
        shares = torch.gather(torch.softmax(wide, -1), 1, experts)
    return experts, shares.to(scores.dtype)


def _sparse(scores: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    left = scores
    experts, shares = [], []
    for _ in range(2):
        top, expert = left.max(-1, keepdim=True)
        far = (top - scores) / torch.maximum(scores.abs(), top) > _SPARSE_MARGIN
        share = torch.softmax(left.masked_fill(far, -torch.inf), -1)
        experts.append(expert)
        shares.append(torch.gather(share, 1, expert))
        left = left.scatter(1, expert, -torch.inf)
    return torch.cat(experts, 1), torch.cat(shares, 1).to(dtype)


def mix(
    x: Tensor,
    experts: Tensor,
    shares: Tensor,
    count: int,
    projections: tuple[Projection, Projection, Projection | None],
    activation: Activation,
) -> Tensor:
    """The weighted sum of what the chosen experts make of each token.

    Args:
        x: [T, H].
        experts: int64 [T, k].
        shares: [T, k].
        count: Number of experts.
        projections: From H to I, back from I to H, and from H to I the values of gates.
        activation: Between them.

    Returns:
        [T, H].
    """
    first, second, third = projections
    tokens, k = experts.shape
    if tokens * k < count:
        flat = experts.reshape(-1)
        repeated = x.repeat_interleave(k, 0)
        inner = activation(first.each(repeated, flat), None if third is None else third.each(repeated, flat))
        y = second.each(inner, flat).reshape(tokens, k, x.shape[1])
        return (y * shares.unsqueeze(2)).sum(1)
    total: Tensor | None = None
    for expert in range(count):
        chosen = experts == expert
        share = torch.where(chosen, shares, 0).sum(1, keepdim=True)
        inner = activation(first.one(x, expert), None if third is None else third.one(x, expert))
        # What an expert makes of tokens that are not its own may be infinite.
        y = torch.where(chosen.any(1, keepdim=True), second.one(inner, expert) * share, 0)
        total = y if total is None else total + y
    return torch.zeros_like(x) if total is None else total
