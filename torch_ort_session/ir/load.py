"""Model files and protos to a ``Model``: the only door into ``ir``.

Source: https://onnx.ai/onnx/repo-docs/IR.html
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.build import Scope, build_graph, imports
from torch_ort_session.ir.convert import shown, text
from torch_ort_session.ir.functions import expand_functions, function_key, templates
from torch_ort_session.ir.graph import Model
from torch_ort_session.ir.order import ordered
from torch_ort_session.ir.source import ModelSource, Parsed, read
from torch_ort_session.options import Limits

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

_log = logging.getLogger(__name__)
# What malformed data can raise below the checks of this package.
_FAULTS = (DecodeError, struct.error, UnicodeError, RecursionError, MemoryError, OverflowError, OSError)
_REPORTS = 100


def load_model(
    source: ModelSource | Model,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Model:
    """Load a model: model-local functions are expanded, schema revisions resolved, names and order checked.

    Weights of a file are private maps of it where their alignment allows, so the file must not be changed in
    place while the model lives.

    Args:
        source: A path, the bytes of a model file, or a model proto (which is not changed). A model that is
            loaded already, perhaps with limits of its own, is given back.
        base_dir: The folder of external data; for a path, the default is the folder that it lies in.
        limits: What the model may ask for; generous by default.
        progress: Called while the model is read, about a hundred times at most.

    Raises:
        ModelError: The file cannot be read, is malformed or beyond the limits; ``place`` says where.
        TypeError: ``source`` is none of these.
    """
    if isinstance(source, Model):
        return source
    try:
        parsed = read(source, base_dir, limits or Limits())
        try:
            return _model(parsed, progress)
        finally:
            parsed.storage.close()
    except _FAULTS as error:
        raise ModelError(
            f"it cannot be loaded ({type(error).__name__}: {str(error)[:200]}): the file is "
            "damaged, or there is "
            "not enough memory for it"
        ) from error


def _model(parsed: Parsed, progress: Progress | None) -> Model:
    proto, limits = parsed.proto, parsed.storage.limits
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"IR version {proto.ir_version} is newer than the installed onnx {onnx.__version__} knows "
            f"({onnx.IR_VERSION}): install a newer onnx, or export the model for an older version"
        )
    opsets = imports(proto.opset_import, proto.ir_version, "opset imports")
    scope = Scope("", opsets, parsed.storage, frozenset(function_key(item) for item in proto.functions))
    if progress is not None:
        scope = replace(scope, tick=_reporter(proto, progress))
    found = templates(proto.functions, scope)
    graph = build_graph(proto.graph, scope)
    place = f"graph {shown(graph.name)}"
    graph = ordered(expand_functions(graph, found, limits), place)
    metadata = {text(item.key): text(item.value) for item in proto.metadata_props}
    _log.debug("loaded %s: %d nodes, %d weights", parsed.name, len(graph.nodes), len(graph.initializers))
    return Model(
        graph=graph,
        opsets=opsets,
        ir_version=proto.ir_version,
        producer=f"{text(proto.producer_name)} {text(proto.producer_version)}".strip(),
        metadata=metadata,
        source=parsed.name,
    )


def _reporter(proto: onnx.ModelProto, progress: Progress) -> Callable[[int], None]:
    """Counts nodes and weights, and reports when about a hundredth more is done.

    Nodes of control-flow bodies are not known beforehand; they count, but never beyond the whole.
    """
    total = (
        len(proto.graph.node) + len(proto.graph.initializer) + sum(len(item.node) for item in proto.functions)
    )
    step = max(1, total // _REPORTS)
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        if done <= total and done // step > before // step:
            progress("reading the model", done, total)

    return tick
