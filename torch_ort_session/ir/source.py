"""From what the user passes to a parsed message and the storage its weights refer to.

Source: https://onnx.ai/onnx/repo-docs/IR.html#serialization
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.files import MappedFile, folders_of, open_file
from torch_ort_session.ir.storage import Storage
from torch_ort_session.ir.wire import NO_CUTS, Buffer, Cuts, cut
from torch_ort_session.options import Limits

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"

# Smaller tensors cost less when the parser copies them than when they are cut out.
_CUT_FROM = 1 << 14
_SCAN_FROM = 1 << 18


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed model message.

    Attributes:
        proto: The message; large weights may be cut out of it.
        storage: Where their bytes lie.
        name: The path, or a word for where the model came from.
    """

    proto: onnx.ModelProto
    storage: Storage
    name: str


def read(source: ModelSource, base_dir: str | os.PathLike[str] | None, limits: Limits) -> Parsed:
    """Parse a model.

    Args:
        source: A path, the bytes of a model file, or a model proto (which is not changed).
        base_dir: The folder of external data; for a path, the default is the folder it lies in.
        limits: Loading limits.

    Raises:
        ModelError: The file cannot be read, or holds no model.
        TypeError: ``source`` is none of these.
    """
    folders: tuple[str, ...] = ()
    if base_dir is not None:
        folder = _path(base_dir, "base_dir is the path of a folder")
        folders = folders_of(os.path.join(folder, "model"))
    if isinstance(source, onnx.ModelProto):
        return Parsed(source, Storage(limits, folders), "<proto>")
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source).cast("B")
        proto, cuts = _parse(view, "model bytes", limits)
        return Parsed(proto, Storage(limits, folders, cuts, view), "<bytes>")
    path = _path(source, "a model is a path, bytes or an onnx.ModelProto")
    place = f"file {path!r}"
    file = open_file(path, place, limit=limits.file_bytes)
    try:
        proto, cuts = _parse_file(file, place, limits)
        return Parsed(proto, Storage(limits, folders or folders_of(path), cuts, file), path)
    except BaseException:
        file.close()
        raise


def _path(value: object, wanted: str) -> str:
    try:
        return os.fsdecode(os.fspath(value))  # type: ignore[call-overload]
    except TypeError:
        raise TypeError(f"{wanted}, not {type(value).__name__}") from None


def _parse_file(file: MappedFile, place: str, limits: Limits) -> tuple[onnx.ModelProto, Cuts]:
    if file.map is None:
        return _parse(file.copy(0, file.size).numpy().data, place, limits)
    return _parse(file.map, place, limits)


def _parse(buffer: Buffer, place: str, limits: Limits) -> tuple[onnx.ModelProto, Cuts]:
    if not len(buffer):
        raise ModelError("it is empty: fetch or export the model again", place=place)
    try:
        message, cuts = (bytes(buffer), NO_CUTS) if len(buffer) < _SCAN_FROM else cut(buffer, _CUT_FROM)
        if len(message) > limits.message_bytes:
            raise ModelError(
                f"the message has {len(message)} bytes without its large weights, the limit is "
                f"{limits.message_bytes}: store the weights as external data",
                place=place,
            )
        proto = onnx.ModelProto.FromString(message)
    except (DecodeError, ModelError) as error:
        reason = likely_cause(bytes(buffer[:512]))
        if reason is not None:
            raise ModelError(reason, place=place) from None
        if isinstance(error, ModelError):
            detail = str(error).removeprefix(f"{error.place}: ")
            raise ModelError(detail, place=f"{place} / {error.place}") from None
        raise ModelError(
            f"it cannot be parsed as an ONNX model ({error}): the file is truncated, damaged or no model",
            place=place,
        ) from None
    if not proto.HasField("graph"):
        reason = likely_cause(bytes(buffer[:512]))
        raise ModelError(reason or "it holds no graph: the file is truncated, or no ONNX model", place=place)
    return proto, cuts


def likely_cause(head: bytes) -> str | None:
    """What a file that is no ONNX model most likely is, by its first bytes, and what to do; None "
    "when unknown."""
    text = head.lstrip().lower()
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, the model itself was not fetched: run `git lfs pull`"
    if head.startswith(b"PK\x03\x04"):
        return (
            "it is a zip archive, perhaps a PyTorch checkpoint: unpack it, or export with torch.onnx.export"
        )
    if head[4:8] == b"ORTM":
        return (
            "it is a model in ORT format (.ort), which only onnxruntime reads: use the .onnx it was made from"
        )
    if head[4:8] == b"TFL3":
        return "it is a TensorFlow Lite model: convert it to ONNX, for example with tf2onnx"
    if head.startswith(b"GGUF"):
        return "it is a GGUF model: export the original model to ONNX"
    if head[8:10] == b'{"':
        return "it is a safetensors file, which holds weights and no graph: export the model to ONNX"
    if head.startswith(b"\x89HDF"):
        return "it is an HDF5 file, perhaps a Keras model: convert it to ONNX, for example with tf2onnx"
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return "it is a Python pickle, perhaps a PyTorch checkpoint: export with torch.onnx.export"
    if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd", b"7z\xbc\xaf")):
        return "it is a compressed file: unpack it first"
    if head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF", b"RIFF")):
        return "it is an image or a document, no model: check the path"
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is a web page, perhaps an error page saved by a download: fetch the model again"
    if text.startswith((b"ir_version:", b"graph {", b"graph{", b"opset_import", b"producer_name:")):
        return (
            'it is a protobuf text file: convert it with onnx.save(onnx.load(path, format="textproto"), ...)'
        )
    if text.startswith(b"<") and b"ir_version" in text:
        return "it is a model in ONNX's text syntax: convert it with onnx.parser.parse_model and onnx.save"
    if text.startswith(b"{"):
        return 'it is JSON: convert a model in JSON with onnx.save(onnx.load(path, format="json"), ...)'
    return None
