"""Cases of ImageDecoder: portable pixmaps, whose bytes can be written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const

_PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10
_COLOUR = np.frombuffer(b"P6 4 2 255\n" + _PIXELS.tobytes(), np.uint8)
_GREY = np.frombuffer(b"P5 4 2 255\n" + _PIXELS[:, :, 0].tobytes(), np.uint8)


def _colours(encoded: np.ndarray[Any, Any], pixel_format: str = "RGB") -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(_PIXELS[:, :, ::-1]) if pixel_format == "BGR" else _PIXELS


def _greys(encoded: np.ndarray[Any, Any], pixel_format: str = "RGB") -> np.ndarray[Any, Any]:
    return np.repeat(_PIXELS[:, :, :1], 1 if pixel_format == "Grayscale" else 3, axis=2)


CASES: tuple[OpCase, ...] = (
    OpCase("ImageDecoder", [const(_COLOUR, "uint8")], oracle=_colours),
    OpCase("ImageDecoder", [const(_COLOUR, "uint8")], {"pixel_format": "BGR"}, oracle=_colours),
    OpCase("ImageDecoder", [const(_GREY, "uint8")], {"pixel_format": "Grayscale"}, oracle=_greys),
    OpCase("ImageDecoder", [const(_GREY, "uint8")], {"pixel_format": "RGB"}, oracle=_greys),
)
