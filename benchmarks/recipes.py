"""Realistic inputs for a model of zoo.toml, made from its recipe and a seed.

A recipe is one table of a model's `input` list: name, dtype, shape (numbers, or names that a table of
`sizes` gives numbers to) and kind, with the options that the kind's function below takes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def feeds(model: Mapping[str, Any], sizes: Mapping[str, Any], seed: int = 0) -> dict[str, Array]:
    """One feed of a model: an array for each input, the same for the same seed and sizes.

    Args:
        model: a table of zoo.toml.
        sizes: one table of its `sizes`.
        seed: another seed gives other values; a "seed" in `sizes` is added to it.

    Raises:
        KeyError: a shape names a size that `sizes` lacks, or the kind is unknown.
    """
    seed += int(sizes.get("seed", 0))
    return {recipe["name"]: make(recipe, sizes, seed) for recipe in model["input"]}


def make(recipe: Mapping[str, Any], sizes: Mapping[str, Any], seed: int = 0) -> Array:
    """The array of one recipe; each input has random numbers of its own."""
    options = {key: value for key, value in recipe.items() if key not in ("name", "dtype", "shape", "kind")}
    shape = tuple(sizes[dim] if isinstance(dim, str) else int(dim) for dim in recipe["shape"])
    if isinstance(options.get("value"), str):
        options["value"] = sizes[options["value"]]
    rng = np.random.default_rng([seed, zlib.crc32(recipe["name"].encode()), *shape])
    return np.asarray(KINDS[recipe["kind"]](rng, shape, **options)).astype(recipe["dtype"])


def normal(rng: np.random.Generator, shape: tuple[int, ...], *, scale: float = 1.0) -> Array:
    """Gaussian noise of this standard deviation."""
    return rng.standard_normal(shape) * scale


def uniform(rng: np.random.Generator, shape: tuple[int, ...], *, low: float, high: float) -> Array:
    """Uniform numbers in [low, high)."""
    return rng.uniform(low, high, shape)


def value(rng: np.random.Generator, shape: tuple[int, ...], *, value: float) -> Array:
    """One number everywhere."""
    return np.full(shape, value)


def tokens(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    *,
    low: int,
    high: int,
    first: int | None = None,
    last: int | None = None,
) -> Array:
    """Ids in [low, high), with fixed first and last ids of each row where given."""
    ids = rng.integers(low, high, shape)
    if first is not None:
        ids[..., 0] = first
    if last is not None:
        ids[..., -1] = last
    return ids


def mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """An attention mask (rows, length): the first row is full, the others end in padding."""
    rows, length = shape
    kept = rng.integers(max(1, length // 2), length + 1, rows)
    kept[0] = length
    return np.arange(length)[None, :] < kept[:, None]


def audio(rng: np.random.Generator, shape: tuple[int, ...], *, gain: float = 1.0) -> Array:
    """Speech-like sound within -gain..gain along the longest axis: gliding harmonics under syllables."""
    axis = int(np.argmax(shape))
    length = shape[axis]
    others = shape[:axis] + shape[axis + 1 :]
    time = np.arange(length) / 16000.0
    start = rng.uniform(0.0, 1.0, (*others, 1))
    pitch = rng.uniform(90.0, 240.0, (*others, 1))
    phase = 2.0 * np.pi * (start + pitch * (time + 0.02 * np.sin(2.0 * np.pi * 3.0 * time)))
    voice = sum(np.sin(harmonic * phase) / harmonic**1.2 for harmonic in range(1, 13))
    syllables = 0.55 + 0.45 * np.sin(2.0 * np.pi * (4.0 * time + start))
    sound = 0.3 * voice * syllables + 0.01 * rng.standard_normal((*others, length))
    return np.moveaxis(np.clip(sound, -1.0, 1.0) * gain, -1, axis)


def image(rng: np.random.Generator, shape: tuple[int, ...], **options: Any) -> Array:
    """A photo-like picture: soft colour gradients with a few sharp-edged shapes and grain."""
    count, channels, height, width = _picture_sizes(shape, options)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    picture = np.empty((count, channels, height, width))
    for plane in picture.reshape(-1, height, width):
        a, b, c = rng.uniform(-4.0, 4.0, 3)
        plane[...] = 0.5 + 0.3 * np.sin(a * x + b * y + c)
    for _ in range(8):
        top, left = rng.uniform(0, height * 0.8), rng.uniform(0, width * 0.8)
        box = np.s_[int(top) : int(top + height * 0.25), int(left) : int(left + width * 0.25)]
        picture[:, :, box[0], box[1]] = rng.uniform(0.0, 1.0, (1, channels, 1, 1))
    picture += 0.02 * rng.standard_normal(picture.shape)
    return _finish(np.clip(picture, 0.0, 1.0), **options)


def page(rng: np.random.Generator, shape: tuple[int, ...], **options: Any) -> Array:
    """A scanned page: white paper with lines of dark strokes the size of letters."""
    count, channels, height, width = _picture_sizes(shape, options)
    paper = np.full((count, 1, height, width), 0.94)
    line = min(height, 32)
    for sheet in paper[:, 0]:
        for top in range(0, height - line + 1, line + line // 4):
            left = int(rng.integers(4, 12))
            while left < width - 12:
                stem, tall = int(rng.integers(2, 4)), int(rng.integers(line // 2, line - 6))
                base = top + line - 4
                sheet[base - tall : base, left : left + stem] = 0.1
                bar = base - int(rng.integers(0, tall))
                sheet[max(bar - 2, top) : bar, left : left + int(rng.integers(6, 11))] = 0.1
                left += int(rng.choice([9, 11, 12, 24]))
    noisy = paper + 0.02 * rng.standard_normal((count, channels, height, width))
    return _finish(np.clip(noisy, 0.0, 1.0), **options)


def _picture_sizes(shape: tuple[int, ...], options: Mapping[str, Any]) -> tuple[int, int, int, int]:
    count, *rest = shape
    height, width, channels = rest if options.get("channels_last") else (*rest[1:], rest[0])
    return count, channels, height, width


def _finish(
    picture: Array,
    *,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    gain: float = 1.0,
    channels_last: bool = False,
) -> Array:
    normalised = (picture - np.reshape(mean, (-1, 1, 1))) / np.reshape(std, (-1, 1, 1)) * gain
    return np.moveaxis(normalised, 1, -1) if channels_last else normalised


KINDS: Mapping[str, Callable[..., Array]] = {
    "normal": normal,
    "uniform": uniform,
    "value": value,
    "zeros": lambda rng, shape: np.zeros(shape),
    "ones": lambda rng, shape: np.ones(shape),
    "tokens": tokens,
    "mask": mask,
    "audio": audio,
    "image": image,
    "page": page,
}
