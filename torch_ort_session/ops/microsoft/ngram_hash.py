"""Hashes of the last words at each place: NGramHashMapping of com.microsoft, also of packed sequences.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_range
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel


@dataclass(frozen=True, slots=True)
class _History:
    """What lies before each place, by distance.

    Attributes:
        ids: The words, from the place itself on backwards.
        changes: Whether the segment changes between a distance and the next; None where that is all one.
    """

    ids: list[Tensor]
    changes: list[Tensor] | None


def _hashes(
    history: _History,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    offsets: Tensor | None,
    eos: Tensor | None,
    filler: Tensor,
    heads: int,
) -> Tensor:
    """[..., orders * heads] of the words of each order, none from beyond a boundary."""
    mix = history.ids[0] * multipliers[0]
    cut: Tensor | None = None
    mixes = []
    for order in range(1, len(history.ids)):
        word = history.ids[order]
        if eos is not None:
            ended = word == eos
            cut = ended if cut is None else cut | ended
        if history.changes is not None:
            changed = history.changes[order - 1]
            cut = changed if cut is None else cut | changed
        word = word if cut is None else torch.where(cut, filler, word)
        mix = mix ^ (word * multipliers[order])
        mixes.append(mix.unsqueeze(-1).expand(*mix.shape, heads))
    hashed = torch.remainder(torch.cat(mixes, -1), vocab_sizes)
    return hashed if offsets is None else hashed + offsets


def _filler(ids: Tensor, pad: int, eos: Tensor | None) -> Tensor:
    return ids.new_full((), pad) if eos is None else eos.reshape(())


@kernel("NGramHashMapping", domain="com.microsoft", since=(1,))
def ngram_hash_mapping(
    input_ids: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    past_ids: Tensor | None = None,
    head_offsets: Tensor | None = None,
    eos_token_id: Tensor | None = None,
    segment_ids: Tensor | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[Tensor, Tensor]:
    """Hashes of the last 2, 3, ... words at each place: products with odd numbers, xor, and a remainder.

    Args:
        input_ids: int32 or int64 [B, L].
        multipliers: One for each distance.
        vocab_sizes: [(n - 1) * heads], each positive: the heads of order 2 first.
        past_ids: [B, n - 1], the words before.
        head_offsets: [(n - 1) * heads], added to the hashes.
        eos_token_id: A number, what stands where no word is.
        segment_ids: int32 [B, L]; what lies in another segment does not count.
        max_ngram_size: n, 2 or more.
        n_head_per_ngram: Hashes of an order.
        pad_id: What stands where no word is, without ``eos_token_id``.
        reset_on_eos: Whether what lies before an end does not count.

    Returns:
        The hashes [B, L, (n - 1) * heads], and the last n - 1 words [B, n - 1].

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.NGramHashMapping
    """
    past, (batch, length) = max_ngram_size - 1, input_ids.shape
    filler = _filler(input_ids, pad_id, eos_token_id)
    before = filler.expand(batch, past) if past_ids is None else past_ids
    whole = torch.cat((before, input_ids), 1)
    changes = None
    if segment_ids is not None:
        changed = segment_ids[:, 1:] != segment_ids[:, :-1]
        changed = torch.constant_pad_nd(changed, [past + 1 if length else past, 0])
        changes = [changed.narrow(1, past - back, length) for back in range(past)]
    history = _History([whole.narrow(1, past - back, length) for back in range(past + 1)], changes)
    eos = eos_token_id if reset_on_eos else None
    hashed = _hashes(history, multipliers, vocab_sizes, head_offsets, eos, filler, n_head_per_ngram)
    return hashed, whole[:, length:].clone()


@kernel("VarlenNGramHashMapping", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
def varlen_ngram_hash_mapping(
    input_ids: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    cumulative_sequence_length: Tensor,
    past_ids: Tensor | None = None,
    head_offsets: Tensor | None = None,
    eos_token_id: Tensor | None = None,
    segment_ids: Tensor | None = None,
    past_segment_ids: Tensor | None = None,
    capture_count: Tensor | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """NGramHashMapping of sequences behind one another.

    Args:
        input_ids: int32 or int64 [T].
        multipliers: One for each distance.
        vocab_sizes: [(n - 1) * heads], each positive.
        cumulative_sequence_length: int32 [B + 1], where sequences begin, and the end.
        past_ids: [B, n - 1], the words before each sequence.
        head_offsets: [(n - 1) * heads], added to the hashes.
        eos_token_id: A number, what stands where no word is.
        segment_ids: int32 [T]; what lies in another segment does not count.
        past_segment_ids: int32 [B, n - 1], the segments of ``past_ids``; None is that of the first word.
        capture_count: int32 [B], how many states of each sequence are wanted.
        max_ngram_size: n, 2 or more.
        n_head_per_ngram: Hashes of an order.
        pad_id: What stands where no word is, without ``eos_token_id``.
        reset_on_eos: Whether what lies before an end does not count.
        state_update_capacity: Most states that are shown.
        ctx: Is told of sequences that end outside of the words.

    Returns:
        The hashes [T, (n - 1) * heads], the last n - 1 words of each sequence [B, n - 1], their segments, and
        the words after each of the first tokens [B, capacity, n - 1].

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.VarlenNGramHashMapping
    """
    sums = check_range(cumulative_sequence_length, 0, input_ids.shape[0], Flag.LENGTH, ctx)
    past, starts, ends = max_ngram_size - 1, sums[:-1], sums[1:]
    batch, device = starts.shape[0], input_ids.device
    place = torch.arange(input_ids.shape[0], device=device)
    row = torch.searchsorted(ends, place, right=True).clamp(max=batch - 1)
    local = place - starts[row]
    filler = _filler(input_ids, pad_id, eos_token_id)
    before = filler.expand(batch, past) if past_ids is None else past_ids

    def at(values: Tensor, old: Tensor, rows: Tensor, where: Tensor) -> Tensor:
        """Values by place in their sequence, those before its start from the past."""
        some = values if values.shape[0] else values.new_zeros(1)
        new = some[(starts[rows] + where).clamp(0, some.shape[0] - 1)]
        return torch.where(where >= 0, new, old[rows, (where + past).clamp(0, past - 1)])

    ids = [at(input_ids, before, row, local - back) for back in range(past + 1)]
    changes = None
    segments = None
    if segment_ids is not None:
        # The last sequences may be empty, and begin behind the last word.
        some = segment_ids if segment_ids.shape[0] else segment_ids.new_zeros(1)
        alike = some[starts.clamp(max=some.shape[0] - 1)].unsqueeze(1).expand(batch, past)
        old = alike if past_segment_ids is None else past_segment_ids
        known = [at(segment_ids, old, row, local - back) for back in range(past + 1)]
        changes = [known[back] != known[back + 1] for back in range(past)]
        segments = old
    eos = eos_token_id if reset_on_eos else None
    history = _History(ids, changes)
    hashed = _hashes(history, multipliers, vocab_sizes, head_offsets, eos, filler, n_head_per_ngram)
    every = torch.arange(batch, device=device).unsqueeze(1)
    slot = torch.arange(past, device=device)
    last = (ends - starts).unsqueeze(1) - past + slot
    present = at(input_ids, before, every, last)
    if segment_ids is not None and segments is not None:
        segments = at(segment_ids, segments, every, last)
    update = None
    if state_update_capacity and capture_count is not None:
        step = torch.arange(state_update_capacity, device=device).unsqueeze(1)
        after = at(input_ids, before, every.unsqueeze(2), step + 1 - past + slot)
        shown = torch.minimum(capture_count.to(torch.int64), ends - starts).reshape(-1, 1, 1)
        update = torch.where(step < shown, after, pad_id)
    return hashed, present, segments, update
