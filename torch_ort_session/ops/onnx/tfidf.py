"""TfIdfVectorizer: how often known n-grams appear.

Source: https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("TfIdfVectorizer", since=(9,))
def tfidf_vectorizer(
    X: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """How often each n-gram of a pool appears in each row.

    Args:
        X: Tokens [c] or [n, c]: int32, int64 or strings.
        max_gram_length: Longest n-grams looked for.
        max_skip_count: Tokens of an n-gram may lie up to this number of tokens apart, all gaps alike.
        min_gram_length: Shortest n-grams looked for.
        mode: ``"TF"`` (counts), ``"IDF"`` (weights of what appears) or ``"TFIDF"`` (counts x weights).
        ngram_counts: Where in the pool the n-grams of each length begin.
        ngram_indexes: Column of each n-gram.
        pool_int64s: The n-grams, first those of length 1.
        pool_strings: The same for strings.
        weights: Weight of each n-gram, 1 without it.
        ctx: The step.

    Returns:
        float32 [columns] or [n, columns].

    Raises:
        ValueError: The pool is missing, or the mode is another.

    Source: https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html
    """
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"mode {mode!r} is none of 'TF', 'IDF' and 'TFIDF'")
    if (pool_int64s if isinstance(X, Tensor) else pool_strings) is None:
        raise ValueError("TfIdfVectorizer needs pool_int64s for integers, pool_strings for strings")

    def make() -> _Pool:
        words = list(dict.fromkeys(pool_strings or []))
        numbers = dict(zip(words, range(len(words)), strict=True))
        flat = pool_int64s or [numbers[word] for word in pool_strings or []]
        pool = torch.tensor(flat, dtype=torch.int64, device=ctx.device)
        ends = [*ngram_counts[1:], len(flat)]
        grams = [
            pool[start:end].reshape(-1, i + 1)
            for i, (start, end) in enumerate(zip(ngram_counts, ends, strict=True))
        ]
        scale = weights if weights and mode != "TF" else [1.0] * len(ngram_indexes)
        return _Pool(
            grams=grams,
            columns=torch.tensor(ngram_indexes, dtype=torch.int64, device=ctx.device),
            scale=torch.tensor(scale, dtype=torch.float32, device=ctx.device),
            words=words,
        )

    pool = prepared(ctx, make)
    tokens = X.to(torch.int64) if isinstance(X, Tensor) else strings.find(pool.words, X).to(ctx.device)
    rows = tokens.reshape(-1, tokens.shape[-1])
    count = max(ngram_indexes, default=-1) + 1
    result = torch.zeros(rows.shape[0], count, dtype=torch.float32, device=rows.device)
    first = 0
    for length, grams in enumerate(pool.grams, start=1):
        here = slice(first, first + len(grams))
        first += len(grams)
        if min_gram_length <= length <= max_gram_length and len(grams):
            counts = _counts(rows, grams, max_skip_count if length > 1 else 0)
            if mode == "IDF":
                counts = counts.clamp(max=1)
            result = result.index_add(1, pool.columns[here], counts * pool.scale[here])
    return result.reshape(tokens.shape[:-1] + result.shape[1:])


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """The n-grams as tensors.

    Attributes:
        grams: For each length int64 [n-grams, length].
        columns: int64, the column of each n-gram.
        scale: float32, its weight.
        words: What string tokens are numbered by.
    """

    grams: list[Tensor]
    columns: Tensor
    scale: Tensor
    words: list[str]


def _counts(rows: Tensor, grams: Tensor, most_skips: int) -> Tensor:
    """float32 [rows, grams]: how often each n-gram appears in each row, over all skips."""
    count, length = grams.shape
    total = torch.zeros(rows.shape[0], count + 1, dtype=torch.float32, device=rows.device)
    for step in range(1, most_skips + 2):
        windows = rows.shape[1] - (length - 1) * step
        if windows <= 0:
            break
        starts = torch.arange(windows, device=rows.device).unsqueeze(1)
        places = starts + torch.arange(length, device=rows.device) * step
        number = _numbers(grams, rows[:, places])
        total = total.scatter_add(1, number, torch.ones_like(number, dtype=torch.float32))
    return total[:, _numbers(grams, grams)]


def _numbers(grams: Tensor, texts: Tensor) -> Tensor:
    """For each row of ``texts`` the number of the n-gram it equals; the number of n-grams when none."""
    base = grams.shape[0] + 1
    known, ranks = _ranks(grams[:, 0], texts[..., 0])
    for place in range(1, grams.shape[1]):
        token, wanted = _ranks(grams[:, place], texts[..., place])
        # Prefix and token make one number, and its rank among those of the pool a small one again.
        known, ranks = _ranks(known * base + token, ranks * base + wanted)
    return ranks


def _ranks(known: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Where numbers stand among the known ones, for these too; the count where one is not among them."""
    ordered = known.sort().values
    place = torch.searchsorted(ordered, wanted.contiguous())
    hit = ordered[place.clamp(max=len(known) - 1)] == wanted
    return torch.searchsorted(ordered, known.contiguous()), torch.where(hit, place, len(known))
