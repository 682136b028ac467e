"""Strings: numpy object arrays on the host, moved about by the kernels that move tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numpy as np
import torch

from torch_ort_session.ops.kernel import Strings

_R = TypeVar("_R")


def by_position(move: Callable[..., _R], *values: object, fill: str = "", **rest: Any) -> _R:
    """Run a kernel that only moves elements on the positions of strings, then put the strings there.

    Args:
        move: The kernel; it sees int64 tensors of positions where strings came, all else unchanged.
        *values: Its positional arguments, among them string arrays.
        fill: The string that position -1 stands for.
        **rest: Its keyword arguments.

    Returns:
        What the kernel returns, with string arrays in place of positions. It is typed as the kernel's own
        result, because a kernel for any element type is annotated with tensors.
    """
    pool: list[Strings] = []
    start = 0
    arguments: list[object] = []
    for value in values:
        if isinstance(value, np.ndarray):
            arguments.append(torch.arange(start, start + value.size).reshape(value.shape))
            pool.append(value.reshape(-1))
            start += value.size
        else:
            arguments.append(value)
    pool.append(array([fill]))
    texts = np.concatenate(pool)
    return cast(_R, _texts(move(*arguments, **rest), texts))


def _texts(result: object, texts: Strings) -> object:
    if isinstance(result, tuple):
        return tuple(_texts(item, texts) for item in result)
    if isinstance(result, torch.Tensor):
        # take() of a one-dimensional index is an array even where one of a 0-d index would be a str.
        return texts.take(result.reshape(-1).numpy()).reshape(tuple(result.shape))
    return result


def array(texts: Iterable[object], shape: tuple[int, ...] | None = None) -> Strings:
    """A string tensor of the given texts, one-dimensional without a shape."""
    items = list(texts)
    strings = np.empty(len(items), dtype=object)
    strings[:] = items
    return strings if shape is None else strings.reshape(shape)


def numbers(values: Iterable[int], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers, one of each string, as a tensor of their shape.

    numpy reads Python's numbers several times as fast as torch: 5,000 in 0.06 ms instead of 0.5.
    """
    kind = np.dtype(str(dtype).rpartition(".")[2])
    return torch.from_numpy(np.fromiter(values, kind, count=math.prod(shape)).reshape(shape))


def flat(texts: Strings) -> list[str]:
    """The strings in row-major order."""
    items: list[str] = texts.reshape(-1).tolist()
    return items


def as_tensor(texts: Strings) -> torch.Tensor:
    """The same object, typed as the tensors that kernels for any element type return."""
    return cast(torch.Tensor, texts)


def codes(known: Iterable[str], *texts: Strings) -> tuple[Any, ...]:
    """Numbers in place of strings, in the strings' own order.

    Args:
        known: Strings that get a number even where they do not appear.
        *texts: String tensors.

    Returns:
        For each of ``texts`` an int64 tensor of its shape, and last the table of strings by number.
    """
    parts = [array(known), *(text.reshape(-1) for text in texts)]
    table, number = np.unique(np.concatenate(parts), return_inverse=True)
    coded = torch.split(torch.from_numpy(number.reshape(-1)), [part.size for part in parts])[1:]
    shaped = [code.reshape(tuple(text.shape)) for code, text in zip(coded, texts, strict=True)]
    return (*shaped, table)


def filled(texts: Strings) -> torch.Tensor:
    """Which strings are not empty, as a bool tensor."""
    return torch.from_numpy((texts != "").astype(np.bool_))


def pick(known: Iterable[str], index: torch.Tensor) -> Strings:
    """``known[index]`` for every element of an int64 tensor."""
    places = index.reshape(-1).cpu().numpy()
    return array(known).take(places).reshape(tuple(index.shape))


def find(known: Iterable[str], texts: Strings) -> torch.Tensor:
    """int64, where each string stands in ``known`` (the last place of several); -1 where it does not."""
    table = {text: place for place, text in enumerate(known)}
    return numbers((table.get(text, -1) for text in flat(texts)), texts.shape, torch.int64)
