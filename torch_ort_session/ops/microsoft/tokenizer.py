"""Strings cut into tokens: Tokenizer of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Tokenizer
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import Strings, kernel

_START, _END = "\x02", "\x03"
# What looks beyond the match: where a text ends for it is not where the match does.
_ANCHORS = re.compile(r"\$|\\[bBzZ]")


@kernel("Tokenizer", domain="com.microsoft", since=(1,), seam="strings are on the host")
def tokenizer(
    x: Strings,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: list[str] | None = None,
    tokenexp: str | None = None,
) -> Strings:
    """The tokens of each string: what lies between separators, or what matches a pattern.

    Patterns are read as Python does in ASCII mode, which agrees with RE2 but for rare escapes; a match is the
    longest there is at its place. A separator that matches nothing at a place separates nothing there.

    Args:
        x: Strings [C] or [N, C].
        mark: Whether U+0002 and U+0003 are put around the tokens of a string.
        mincharnum: Fewest characters of a token, at least 1.
        pad_value: What fills up the rows.
        separators: Patterns, one after the other; one empty pattern makes tokens of all characters.
        tokenexp: The pattern of a token.

    Returns:
        Strings of the shape of ``x`` and one more dim, as long as the longest row; [0] or [N, 0] where there
        are no strings, and no columns where there is no token.

    Raises:
        ValueError: A pattern is none, there is not one kind of them, or ``x`` has other dims.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Tokenizer
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"Tokenizer takes strings of shape [C] or [N, C], not {list(x.shape)}.")
    if (not separators) is (not tokenexp):
        raise ValueError("Tokenizer needs either separators or tokenexp.")
    if mincharnum < 1:
        raise ValueError(f"mincharnum is at least 1, unlike {mincharnum}.")
    if not x.size:
        return strings.array([], (*x.shape[:-1], 0))
    cut = _cutter(separators or [], tokenexp or "")
    rows = [[token for token in cut(text) if len(token) >= mincharnum] for text in strings.flat(x)]
    most = max(len(row) for row in rows)
    if mark and most:
        rows, most = [[_START, *row, _END] for row in rows], most + 2
    padded = [token for row in rows for token in (*row, *[pad_value] * (most - len(row)))]
    return strings.array(padded, (*x.shape, most))


def _cutter(separators: list[str], tokenexp: str) -> Callable[[str], list[str]]:
    if tokenexp == "." or separators == [""]:
        return list
    if tokenexp:
        token = _pattern(tokenexp)
        return lambda text: _found(text, token)
    patterns = [_pattern(text) for text in separators]

    def between(text: str) -> list[str]:
        parts = [text]
        for pattern in patterns:
            parts = [rest for part in parts for rest in _split(part, pattern)]
        return parts

    return between


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


def _spans(text: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Where the pattern matches, from left to right, each time the longest match and never an empty one."""
    spans, start = [], 0
    anchored = _ANCHORS.search(pattern.pattern) is not None
    while start < len(text) and (match := pattern.search(text, start)) is not None:
        first, last = match.span()
        if not anchored:
            longer = (end for end in range(len(text), last, -1) if pattern.fullmatch(text, first, end))
            last = next(longer, last)
        if last > first:
            spans.append((first, last))
        start = max(last, first + 1)
    return spans


def _found(text: str, pattern: re.Pattern[str]) -> list[str]:
    return [text[first:last] for first, last in _spans(text, pattern)]


def _split(text: str, pattern: re.Pattern[str]) -> list[str]:
    edges = [0, *(edge for span in _spans(text, pattern) for edge in span), len(text)]
    return [text[first:last] for first, last in zip(edges[::2], edges[1::2], strict=True)]
