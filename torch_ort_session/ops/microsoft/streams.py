"""Residual streams side by side, mixed, normalized and gated: the hyper connections of com.microsoft.

Sums and means are in float32, rounded once to the type of the streams.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.single_precision import single

_EPSILON = 9.999999747378752e-06


def _rms(x: Tensor, epsilon: float) -> Tensor:
    """float32 rows divided by the root of their mean square."""
    wide = single(x)
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)


def _branches(x: Tensor, count: int) -> Tensor:
    """[..., C, H], where C is told for streams that come as [..., C * H]."""
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count) if count else x


@kernel("GatedRMSNorm", domain="com.microsoft", since=(1,))
def gated_rms_norm(
    x: Tensor, scale: Tensor, gate: Tensor, *, activation: str = "silu", epsilon: float = _EPSILON
) -> Tensor:
    """Root mean square normalization of groups of features, times an activation of a gate.

    Args:
        x: [..., H * C].
        scale: [C].
        gate: Of the shape of ``x``.
        activation: silu, swish (another name of silu) or sigmoid.
        epsilon: Added to the mean square.

    Raises:
        ValueError: An unknown activation.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatedRMSNorm
    """
    if activation not in ("silu", "swish", "sigmoid"):
        raise ValueError(f"activation must be silu, swish or sigmoid, not {activation!r}.")
    z = single(gate)
    factor = torch.sigmoid(z) if activation == "sigmoid" else F.silu(z)
    rows = _rms(x.reshape(*x.shape[:-1], -1, scale.shape[0]), epsilon) * single(scale)
    return (rows.reshape(x.shape) * factor).to(x.dtype)


@kernel("BranchwiseRMSNorm", domain="com.microsoft", since=(1,))
def branchwise_rms_norm(
    x: Tensor, scale: Tensor | None = None, *, epsilon: float = _EPSILON, num_branches: int = 0
) -> Tensor:
    """Root mean square normalization of each stream.

    Args:
        x: [..., C, H], or with ``num_branches`` [..., C * H].
        scale: [C * H], [C, H] or [H].
        epsilon: Added to the mean square.
        num_branches: C.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BranchwiseRMSNorm
    """
    rows = _rms(_branches(x, num_branches), epsilon)
    if scale is not None:
        rows = rows * single(scale).reshape(-1, rows.shape[-1])
    return rows.reshape(x.shape).to(x.dtype)


@kernel("HyperConnectionPreMix", domain="com.microsoft", since=(1,))
def hyper_connection_pre_mix(
    streams: Tensor, pre_mix: Tensor, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> Tensor:
    """The weighted sum of the streams.

    Args:
        streams: [..., C, H], or with ``num_branches`` [..., C * H].
        pre_mix: Weights [..., C], [..., C, 1], [..., C, H], or of flat streams [..., C * H].
        num_branches: C.
        reduction_scale: Factor of the sum.

    Returns:
        [..., H].

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.HyperConnectionPreMix
    """
    rows = _branches(streams, num_branches)
    mixed = single(rows) * single(_gates(pre_mix, rows))
    return (mixed.sum(-2) * reduction_scale).to(streams.dtype)


@kernel("HyperConnectionPostMix", domain="com.microsoft", since=(1,))
def hyper_connection_post_mix(
    streams: Tensor,
    block_output: Tensor,
    post_mix: Tensor,
    stream_mix: Tensor | None = None,
    *,
    num_branches: int = 0,
) -> Tensor:
    """Streams mixed among themselves, each with its share of a block's result.

    Args:
        streams: [..., C, H], or with ``num_branches`` [..., C * H].
        block_output: [..., H].
        post_mix: Shares [..., C], [..., C, 1] or [..., C, H].
        stream_mix: [..., C, C], from its last but one to its last axis; None leaves the streams as they are.
        num_branches: C.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.HyperConnectionPostMix
    """
    rows = _branches(streams, num_branches)
    wide = single(rows)
    if stream_mix is not None:
        wide = torch.matmul(single(stream_mix).transpose(-1, -2), wide)
    share = single(_gates(post_mix, rows)) * single(block_output).unsqueeze(-2)
    return (wide + share).reshape(streams.shape).to(streams.dtype)


def _gates(gates: Tensor, rows: Tensor) -> Tensor:
    """[..., C, 1] or [..., C, H]."""
    if gates.dim() == rows.dim():
        return gates
    return gates.reshape(*gates.shape[:-1], rows.shape[-2], -1)


@kernel("HyperConnectionLowRankMix", domain="com.microsoft", since=(1,))
def hyper_connection_low_rank_mix(
    streams: Tensor,
    norm_scale: Tensor,
    down_weight: Tensor,
    up_weight: Tensor,
    inject_weight: Tensor,
    prev_block_output: Tensor | None = None,
    prev_post_gate: Tensor | None = None,
    *,
    epsilon: float = _EPSILON,
    gate_div: float = 1.0,
    gate_mul: float = 1.0,
    num_branches: int,
    reduction_scale: float = 1.0,
    silu_alpha: float = 1.0,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The last block's result put into the streams, and what the next block reads of them.

    Args:
        streams: [..., C * H].
        norm_scale: [C * H].
        down_weight: [C * H, R].
        up_weight: [R, C * H].
        inject_weight: [C * H, C].
        prev_block_output: [..., H].
        prev_post_gate: [..., C].
        epsilon: Added to the mean square.
        gate_div: Divisor of the injection's logits.
        gate_mul: Factor of the injection's gate.
        num_branches: C.
        reduction_scale: Factor of the sum over the streams.
        silu_alpha: Factor within the SiLU.
        ctx: Tells whether the streams are wanted.

    Returns:
        What the next block reads [..., H], its gate [..., C], and where asked for the streams.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.HyperConnectionLowRankMix
    """
    kind, shape = streams.dtype, streams.shape
    mixed = streams
    if prev_block_output is not None and prev_post_gate is not None:
        mixed = hyper_connection_post_mix(
            streams, prev_block_output, prev_post_gate, num_branches=num_branches
        )
    normed = branchwise_rms_norm(mixed, norm_scale, epsilon=epsilon, num_branches=num_branches)
    z = _product(normed, down_weight) * silu_alpha
    hidden = z * _sigmoid(z)
    gates = _sigmoid(_product(hidden, up_weight))
    rows, by_stream = _branches(normed, num_branches), _branches(gates, num_branches)
    read = ((single(rows) * single(by_stream)).sum(-2) * reduction_scale).to(kind)
    gate = _sigmoid(_product(normed, inject_weight) / gate_div) * gate_mul
    return read, gate, mixed.reshape(shape).clone() if ctx.wants(2) else None


def _product(x: Tensor, w: Tensor) -> Tensor:
    return torch.matmul(single(x), single(w)).to(x.dtype)


def _sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(single(x)).to(x.dtype)


@kernel("EngramGate", domain="com.microsoft", since=(1,))
def engram_gate(
    key: Tensor,
    query: Tensor,
    value: Tensor,
    key_norm_scale: Tensor,
    query_norm_scale: Tensor,
    conv_norm_scale: Tensor | None = None,
    *,
    epsilon: float = _EPSILON,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """A value for each stream, times how well its key fits its query.

    Args:
        key: [B, L, C, H].
        query: [B, L, C, H].
        value: [B, L, H].
        key_norm_scale: [C, H].
        query_norm_scale: [C, H].
        conv_norm_scale: [C, H], for the second output.
        epsilon: Added to the mean squares.
        ctx: Tells whether the second output is wanted.

    Returns:
        The gated value [B, L, C, H], and where asked for its root mean square normalization.

    Raises:
        ValueError: The second output is wanted without its scale.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.EngramGate
    """
    left = _rms(key, epsilon) * single(key_norm_scale)
    right = _rms(query, epsilon) * single(query_norm_scale)
    dot = (left * right).sum(-1, keepdim=True) / float(key.shape[-1]) ** 0.5
    gate = torch.sigmoid(torch.sign(dot) * torch.sqrt(dot.abs().clamp(min=1e-6)))
    gated = gate * single(value).unsqueeze(2)
    if not ctx.wants(1):
        return gated.to(key.dtype), None
    if conv_norm_scale is None:
        raise ValueError("the output gated_value_normed needs the input conv_norm_scale.")
    return gated.to(key.dtype), (_rms(gated, epsilon) * single(conv_norm_scale)).to(key.dtype)
