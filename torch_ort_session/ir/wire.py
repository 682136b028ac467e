"""The wire format of protobuf, as far as it takes to find large tensors without parsing them.

A parser copies every ``raw_data`` field once, and reading the field copies it again. Here the fields are
cut out of the message first; what is left is small, and the weights are read straight from the file.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import mmap
import secrets
from dataclasses import dataclass
from typing import TypeAlias

from torch_ort_session.errors import ModelError

Buffer: TypeAlias = "memoryview | mmap.mmap | bytes"

_RAW = "raw"
# Which fields lead to a ``raw_data`` field; field numbers of onnx.proto.
_PATHS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "function": {7: "node", 11: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {9: _RAW},
}
# The parser refuses messages that nest deeper.
_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Cuts:
    """The ``raw_data`` fields that were cut out of a message.

    Attributes:
        token: What stands at the start of a field that was cut; random, so that no file can hold it.
        spans: Offset and length of each in the file.
    """

    token: bytes
    spans: tuple[tuple[int, int], ...]

    def find(self, raw: bytes) -> tuple[int, int] | None:
        """Offset and length of the data that a ``raw_data`` field stands for; None when it is the "
        "data itself."""
        size = len(self.token)
        if not self.spans or len(raw) != size + 8 or not raw.startswith(self.token):
            return None
        return self.spans[int.from_bytes(raw[size:], "little")]


NO_CUTS = Cuts(b"", ())


def cut(buffer: Buffer, threshold: int) -> tuple[bytes, Cuts]:
    """A model message without the ``raw_data`` fields of at least ``threshold`` bytes, and where they lie.

    Raises:
        ModelError: The message is truncated, or holds what no model can hold; the place is the byte.
    """
    token = secrets.token_bytes(16)
    spans: list[tuple[int, int]] = []
    out = _shorten(_Cutting(buffer, threshold, token, spans), 0, len(buffer), "model", 0)
    return b"".join(out), Cuts(token, tuple(spans))


@dataclass(frozen=True, slots=True)
class _Cutting:
    """A message that is shortened: what is left out of it, by what token, and where it lay."""

    buffer: Buffer
    threshold: int
    token: bytes
    spans: list[tuple[int, int]]


def _shorten(cutting: _Cutting, start: int, end: int, kind: str, depth: int) -> list[bytes]:
    buffer, spans = cutting.buffer, cutting.spans
    if depth > _DEPTH:
        raise ModelError(f"messages nest more than {_DEPTH} deep: the file is damaged", place=f"byte {start}")
    paths = _PATHS[kind]
    out: list[bytes] = []
    copied = position = start
    while position < end:
        tag, value = _varint(buffer, position, end)
        wire = tag & 7
        if wire == 2:
            length, value = _varint(buffer, value, end)
            following = value + length
            inner = paths.get(tag >> 3) if length >= cutting.threshold else None
            if inner is not None and following <= end:
                out.append(bytes(buffer[copied:position]))
                if inner is _RAW:
                    body = [cutting.token, len(spans).to_bytes(8, "little")]
                    spans.append((value, length))
                else:
                    body = _shorten(cutting, value, following, inner, depth + 1)
                out.append(_encode(tag) + _encode(sum(map(len, body))))
                out.extend(body)
                copied = following
        elif wire == 0:
            _, following = _varint(buffer, value, end)
        elif wire == 1:
            following = value + 8
        elif wire == 5:
            following = value + 4
        else:
            raise ModelError(
                f"wire type {wire} of field {tag >> 3} does not occur in a model: the file is "
                "damaged or no ONNX model",
                place=f"byte {position}",
            )
        if following > end:
            what = "file" if depth == 0 else kind
            raise ModelError(
                f"a field of {following - value} bytes runs past the end of the {what} by "
                f"{following - end} bytes: "
                "the file is truncated or damaged; fetch it again",
                place=f"byte {position}",
            )
        position = following
    out.append(bytes(buffer[copied:end]))
    return out


def _varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A number and the position after it."""
    value = shift = 0
    start = position
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ModelError(
        "a number is cut off: the file is truncated or damaged; fetch it again", place=f"byte {start}"
    )


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
