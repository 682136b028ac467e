"""Model files and protos to a ``Model``.

Source: https://onnx.ai/onnx/repo-docs/IR.html
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeAlias


from torch_ort_session.ir.build import Scope, build_graph, imports
from torch_ort_session.ir.convert import string
from torch_ort_session.ir.functions import expand_functions, function_key, templates
from torch_ort_session.ir.graph import Model
from torch_ort_session.ir.limits import Limits
from torch_ort_session.ir.source import ModelSource, Parsed, read

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def load_model(
    source: ModelSource,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Model:
    """Load a model."""
    parsed = read(source, base_dir, limits or Limits())
    try:
        return _model(parsed, progress)
    finally:
        parsed.storage.close()


def _model(parsed: Parsed, progress: Progress | None) -> Model:
    proto = parsed.proto
    opsets = imports(proto.opset_import, proto.ir_version, "opset imports")
    scope = Scope("", opsets, parsed.storage, frozenset(function_key(item) for item in proto.functions))
    graph = build_graph(proto.graph, scope)
    graph = expand_functions(graph, templates(proto.functions, scope), parsed.storage.limits)
    return Model(
        graph=graph,
        opsets=opsets,
        ir_version=proto.ir_version,
        producer=f"{string(proto.producer_name, 'model')} {string(proto.producer_version, 'model')}".strip(),
        metadata=MappingProxyType(
            {string(item.key, "metadata"): string(item.value, "metadata") for item in proto.metadata_props}
        ),
        source=parsed.name,
    )
