"""The texts that a beam search has finished, and the steps that finish them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.onnx.topk import top_k


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """The best finished texts of each sample, best first.

    Attributes:
        scores: float32 [B, K]; minus infinity where there is none.
        texts: int64 [B, K, L], filled up with the padding token.
        count: int64 [B], how many there are.
        done: bool [B], whether no better ones are looked for.
    """

    scores: Tensor
    texts: Tensor
    count: Tensor
    done: Tensor


def no_hypotheses(text: Tensor, beams: int) -> Hypotheses:
    """None yet, for texts [B * K, L]."""
    batch = text.shape[0] // beams
    return Hypotheses(
        scores=text.new_full((batch, beams), -torch.inf, dtype=torch.float32),
        texts=torch.zeros_like(text).reshape(batch, beams, text.shape[1]),
        count=text.new_zeros(batch),
        done=text.new_zeros(batch, dtype=torch.bool),
    )


def added(known: Hypotheses, which: Tensor, scores: Tensor, texts: Tensor) -> Hypotheses:
    """The best of those known and new ones; of equal ones the older.

    Args:
        known: Those known.
        which: bool [B, N], which of the new ones are finished texts.
        scores: float32 [B, N].
        texts: int64 [B, N, L].

    Returns:
        As many as before, and ``done`` as it was.
    """
    beams = known.scores.shape[1]
    places = torch.arange(beams, device=scores.device)
    there = torch.cat((places < known.count.unsqueeze(1), which), 1)
    joined = torch.cat((known.scores, scores), 1)
    order = torch.sort(joined, dim=1, descending=True, stable=True).indices
    # A score may be minus infinity itself: what is there goes first whatever its score.
    present = there.gather(1, order).to(torch.uint8)
    order = order.gather(1, torch.sort(present, dim=1, descending=True, stable=True).indices[:, :beams])
    texts = torch.cat((known.texts, texts), 1)
    return Hypotheses(
        scores=torch.where(there, joined, -torch.inf).gather(1, order),
        texts=texts.gather(1, order.unsqueeze(2).expand(-1, -1, texts.shape[2])),
        count=(known.count + which.sum(1)).clamp(max=beams),
        done=known.done,
    )


@dataclass(frozen=True, slots=True)
class Goals:
    """What a beam search is for.

    Attributes:
        eos: The token that ends a text.
        pad: The token that fills up what is done.
        length_penalty: Power of the length that scores are divided by.
        early: Whether a sample is done as soon as it has as many texts as beams.
    """

    eos: int
    pad: int
    length_penalty: float
    early: bool


@dataclass(frozen=True, slots=True)
class Beams:
    """How the beams go on.

    Attributes:
        scores: float32 [B * K].
        tokens: int64 [B * K], the next tokens.
        order: int64 [B * K], the beam that each goes on from.
    """

    scores: Tensor
    tokens: Tensor
    order: Tensor


def next_beams(
    scores: Tensor, text: Tensor, length: int, known: Hypotheses, goals: Goals
) -> tuple[Beams, Hypotheses]:
    """One step of a beam search.

    Twice as many candidates as beams are looked at, in the order of their scores. Those that end a text are
    finished where they are among the first K; the best K others go on.

    Args:
        scores: float32 [B * K, V], of each text with each next token.
        text: int64 [B * K, L], of which ``length`` tokens are there, and padding after them.
        length: Length of the text.
        known: The texts that are finished.
        goals: What is looked for.

    Returns:
        How the beams go on, and the texts that are finished now.

    Raises:
        ValueError: A vocabulary of one token.
    """
    batch, beams = known.scores.shape
    vocab = scores.shape[1]
    if vocab < 2:
        raise ValueError(f"a search needs two tokens to choose from, not {vocab}.")
    values, place = top_k(scores.reshape(batch, beams * vocab), 2 * beams)
    first = torch.arange(0, batch * beams, beams, device=scores.device).unsqueeze(1)
    token, origin = place % vocab, place // vocab + first
    ends = token == goals.eos
    going = torch.sort(ends.to(torch.uint8), dim=1, stable=True).indices[:, :beams]
    weight = float(length) ** goals.length_penalty
    ended = added(
        known,
        ends[:, :beams] & ~known.done.unsqueeze(1),
        values[:, :beams] / weight,
        text.index_select(0, origin[:, :beams].reshape(-1)).reshape(batch, beams, text.shape[1]),
    )
    full = ended.count == beams
    if not goals.early:
        full = full & ~(ended.scores[:, -1] < values[:, 0] / weight)
    was = known.done.unsqueeze(1)
    went = Beams(
        scores=values.gather(1, going).masked_fill(was, 0.0).reshape(-1),
        tokens=token.gather(1, going).masked_fill(was, goals.pad).reshape(-1),
        # What is done goes on from anywhere: nobody reads it.
        order=origin.gather(1, going).masked_fill(was, 0).reshape(-1),
    )
    return went, Hypotheses(ended.scores, ended.texts, ended.count, known.done | full)


def closed(known: Hypotheses, scores: Tensor, text: Tensor, goals: Goals) -> Hypotheses:
    """With the beams that no token ended, where a sample is not done.

    Args:
        known: The texts that are finished.
        scores: float32 [B * K].
        text: int64 [B * K, L].
        goals: What is looked for.
    """
    batch, beams = known.scores.shape
    weight = float(text.shape[1]) ** goals.length_penalty
    return added(
        known,
        ~known.done.unsqueeze(1).expand(-1, beams),
        scores.reshape(batch, beams) / weight,
        text.reshape(batch, beams, text.shape[1]),
    )
