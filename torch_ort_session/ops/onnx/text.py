"""Strings: StringNormalizer, StringConcat, StringSplit, RegexFullMatch.

Strings live on the host, so these kernels are seams by nature.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import re

import numpy as np
import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import Strings, kernel

_HOST = "strings live on the host"


@kernel("StringConcat", since=(20,), seam=_HOST)
def string_concat(X: Strings, Y: Strings) -> Strings:
    """Each string of ``X`` with that of ``Y`` behind it, broadcast as numbers are.

    Source: https://onnx.ai/onnx/operators/onnx__StringConcat.html
    """
    joined = X + Y
    # Two 0-d arrays make a str.
    return strings.array([joined], ()) if isinstance(joined, str) else joined


@kernel("StringSplit", since=(20,), seam=_HOST)
def string_split(
    X: Strings, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Strings, Tensor]:
    """Each string in parts.

    Args:
        X: Strings.
        delimiter: What parts them; runs of white space without it or when it is empty.
        maxsplit: How often at most, from the left.

    Returns:
        The parts [*shape, most parts], with empty strings behind where there are fewer, and their numbers,
        int64.

    Source: https://onnx.ai/onnx/operators/onnx__StringSplit.html
    """
    parts: list[str] = []
    counts: list[int] = []
    for text in strings.flat(X):
        row = text.split(delimiter or None, -1 if maxsplit is None else maxsplit)
        counts.append(len(row))
        parts += row
    most = max(counts, default=0)
    table = strings.array(parts)
    if len(parts) != len(counts) * most:
        padded = np.full((len(counts), most), "", np.object_)
        padded[np.arange(most) < np.array(counts)[:, None]] = table
        table = padded
    return table.reshape(*X.shape, most), strings.numbers(counts, X.shape, torch.int64)


@kernel("RegexFullMatch", since=(20,), seam=_HOST)
def regex_full_match(X: Strings, *, pattern: str | None = None) -> Tensor:
    """Which strings match a pattern from their first to their last character, as bool.

    The pattern is read as Python does, which agrees with RE2 but for rare escapes.

    Raises:
        ValueError: There is no pattern, or it is none.

    Source: https://onnx.ai/onnx/operators/onnx__RegexFullMatch.html
    """
    if pattern is None:
        raise ValueError("RegexFullMatch needs a pattern")
    try:
        match = re.compile(pattern).fullmatch
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    # A match is true whatever it holds.
    return strings.numbers(map(bool, map(match, strings.flat(X))), X.shape, torch.bool)


@kernel("StringNormalizer", since=(10,), seam=_HOST)
def string_normalizer(
    X: Strings,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: list[str] | None = None,
) -> Strings:
    """Strings without the stop words, in lower or upper case if wanted.

    Args:
        X: Strings [c] or [1, c].
        case_change_action: ``"LOWER"``, ``"UPPER"`` or ``"NONE"``.
        is_case_sensitive: Whether a stop word must agree in case.
        locale: Of no account: cases are changed by Unicode's rules in every locale.
        stopwords: The strings to leave out.

    Returns:
        What is left, of the same rank; one empty string when nothing is.

    Raises:
        ValueError: The shape or the action is another.

    Source: https://onnx.ai/onnx/operators/onnx__StringNormalizer.html
    """
    if X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[0] != 1):
        raise ValueError(f"StringNormalizer takes strings of shape [c] or [1, c], not {list(X.shape)}")
    if case_change_action not in ("LOWER", "UPPER", "NONE"):
        raise ValueError(f"case_change_action {case_change_action!r} is none of 'LOWER', 'UPPER' and 'NONE'")
    folded = str if is_case_sensitive else str.casefold
    stops = {folded(word) for word in stopwords or ()}
    kept = [text for text in strings.flat(X) if folded(text) not in stops]
    if case_change_action != "NONE":
        kept = [text.lower() if case_change_action == "LOWER" else text.upper() for text in kept]
    kept = kept or [""]
    return strings.array(kept, (len(kept),) if X.ndim == 1 else (1, len(kept)))
