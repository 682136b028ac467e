"""A model whose every value is an output, made from its bytes: how another runtime is asked for all of them.

Protobuf merges what is appended to a message, so the new outputs are written behind the model as it stands.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch_ort_session.errors import ModelError

_GRAPH, _NODE, _GRAPH_OUTPUT, _NODE_OUTPUT, _NAME = 7, 1, 12, 2, 1
_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}


def value_names(model: bytes) -> tuple[str, ...]:
    """Names of the values that the nodes of a model's main graph make, in node order.

    Args:
        model: A serialized ModelProto.

    Raises:
        ModelError: The bytes are no protobuf message.
    """
    view = memoryview(model)
    names: dict[str, None] = {}
    for graph in _fields(view, _GRAPH):
        for node in _fields(graph, _NODE):
            for name in _fields(node, _NODE_OUTPUT):
                names[bytes(name).decode("utf-8", "replace")] = None
    names.pop("", None)
    return tuple(names)


def with_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """The model with further outputs behind its own.

    Args:
        model: A serialized ModelProto.
        names: Values of its main graph that are not outputs yet; their types are for the reader to infer.
    """
    outputs = b"".join(_field(_GRAPH_OUTPUT, _field(_NAME, name.encode())) for name in names)
    return model + _field(_GRAPH, outputs)


def output_names(model: bytes) -> tuple[str, ...]:
    """Names of the outputs that a model declares."""
    return tuple(
        bytes(name).decode("utf-8", "replace")
        for graph in _fields(memoryview(model), _GRAPH)
        for output in _fields(graph, _GRAPH_OUTPUT)
        for name in _fields(output, _NAME)
    )


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The length-delimited fields of one number, in order."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, position = _varint(message, position)
            if tag >> 3 == wanted:
                yield message[position : position + length]
            position += length
        elif kind == 0:
            _, position = _varint(message, position)
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            raise ModelError(f"wire type {kind} does not occur in a model", place=f"byte {position}")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ModelError("a number is cut off", place=f"byte {position}")


def _field(number: int, content: bytes) -> bytes:
    return _encode(number << 3 | _LENGTH_DELIMITED) + _encode(len(content)) + content


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
