"""Where the bytes of weights lie: in the message, in the model's file, or in files beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
import torch

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.convert import shown, string
from torch_ort_session.ir.files import MappedFile, contained, open_file
from torch_ort_session.ir.wire import NO_CUTS, Cuts
from torch_ort_session.options import Limits


@dataclass(frozen=True, slots=True)
class Storage:
    """The bytes that a model's tensors refer to.

    Attributes:
        limits: Loading limits.
        folders: Folders that external data may lie in; empty when none was given.
        cuts: The spans cut out of the message.
        buffer: What the spans point into: the model's file, or the bytes that the caller passed.
        opened: External data files by real path.
    """

    limits: Limits
    folders: tuple[str, ...] = ()
    cuts: Cuts = NO_CUTS
    buffer: MappedFile | memoryview | None = None
    opened: dict[str, MappedFile] = field(default_factory=dict)

    def close(self) -> None:
        """Close every file; weights that are views of a map keep it."""
        for file in self.opened.values():
            file.close()
        if isinstance(self.buffer, MappedFile):
            self.buffer.close()

    def raw(self, proto: onnx.TensorProto, expected: int, dtype: torch.dtype, place: str) -> torch.Tensor:
        """The ``raw_data`` of a tensor as a flat tensor.

        Raises:
            ModelError: It does not have the expected number of bytes.
        """
        held = proto.raw_data
        span = self.cuts.find(held)
        found = len(held) if span is None else span[1]
        if found != expected:
            raise ModelError(
                f"raw_data has {found} bytes, its dims and type need {expected}: the file is damaged",
                place=place,
            )
        if span is None:
            return _own(held, dtype)
        if isinstance(self.buffer, MappedFile):
            return self.buffer.tensor(span[0], span[1], dtype)
        assert self.buffer is not None
        return _own(self.buffer[span[0] : span[0] + span[1]], dtype)

    def external(
        self, proto: onnx.TensorProto, expected: int, dtype: torch.dtype, place: str
    ) -> torch.Tensor:
        """The external data of a tensor as a flat tensor.

        Raises:
            ModelError: The reference is malformed, leaves the model's folder, or does not fit the file.
        """
        entries = _entries(proto, place)
        location = entries.get("location", "")
        offset = _number(entries, "offset", place)
        length = _number(entries, "length", place)
        if length is not None and length != expected:
            raise ModelError(
                f"its length is {length} bytes, its dims and type need {expected}: the file is damaged",
                place=place,
            )
        if not self.folders:
            raise ModelError(
                f"the data lies in the file {shown(location)}, and a model that does not come from a "
                "path has no folder: "
                "pass base_dir=",
                place=place,
            )
        real = contained(location, self.folders, place)
        file = self.opened.get(real)
        if file is None:
            file = self.opened[real] = self._open(real, place)
        start = offset or 0
        if start + expected > file.size:
            raise ModelError(
                f"{expected} bytes at offset {start} run past the end of {shown(location)}, which has "
                f"{file.size} bytes: "
                "the data file is truncated or belongs to another model",
                place=place,
            )
        return file.tensor(start, expected, dtype)

    def _open(self, real: str, place: str) -> MappedFile:
        file = open_file(real, place, limit=self.limits.file_bytes, follow=False)
        links = os.fstat(file.file.fileno()).st_nlink
        if links > 1 and not self.limits.hard_links:
            file.close()
            raise ModelError(
                f"{shown(real)} has {links} names (hard links), so it may be a file from outside of the "
                "model's folder: "
                "copy it, or pass Limits(hard_links=True) for a model you trust",
                place=place,
            )
        return file


def _own(data: bytes | memoryview, dtype: torch.dtype) -> torch.Tensor:
    """A copy that nobody else can write to."""
    if not len(data):
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype)


def _entries(proto: onnx.TensorProto, place: str) -> Mapping[str, str]:
    entries: dict[str, str] = {}
    for item in proto.external_data:
        key = string(item.key, place)
        if key in entries:
            raise ModelError(f"its key {key!r} is given twice: the file is damaged", place=place)
        entries[key] = string(item.value, place)
    return entries


def _number(entries: Mapping[str, str], key: str, place: str) -> int | None:
    value = entries.get(key)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 19):
        raise ModelError(
            f"its {key} is {value[:40]!r}, not a number of bytes: the file is damaged", place=place
        )
    return int(value)
