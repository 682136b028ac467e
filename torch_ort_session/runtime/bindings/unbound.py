"""Why a binding captures nothing: it is off, or a replay would leave nothing in bound tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch_ort_session.ir.graph import Graph, ValueInfo
from torch_ort_session.ir.types import Dim, SequenceType, TensorType, describe
from torch_ort_session.options import Capture
from torch_ort_session.plan.partition.report import Decline, DeclineReport, Reason
from torch_ort_session.runtime.values.context import stepwise


def switched_off(capture: Capture) -> DeclineReport | None:
    """Why no run is captured or replayed now; None when runs may be."""
    if capture == "off":
        return DeclineReport.of(Reason.OFF, "capture is off in the session's options")
    if stepwise():
        return DeclineReport.of(
            Reason.OFF, "a mode, transform or forward gradient of the caller's needs every call"
        )
    return None


def undelivered(graph: Graph, targets: Collection[str]) -> DeclineReport | None:
    """Why a replay would leave nothing in bound tensors; None when it leaves something.

    Outputs that nobody binds are no hindrance beside one that is, nor where feeds do not tell their dims
    beforehand: they are copied, and read by name.

    Args:
        graph: The graph that runs.
        targets: Names of outputs that a tensor is bound to.
    """
    rows = tuple(_rows(graph, targets))
    return DeclineReport(rows) if rows else None


def _rows(graph: Graph, targets: Collection[str]) -> Iterator[Decline]:
    makers = {name: node for node in graph.nodes for name in node.outputs}
    symbols = {dim for info in graph.inputs for dim in _dims(info) if isinstance(dim, str)}
    for info in graph.outputs:
        if isinstance(info.type, SequenceType):
            reason, told = Reason.SEQUENCE, f"{info.name!r} is a {describe(info.type)}, which no tensor holds"
        elif not targets and all(isinstance(dim, int) or dim in symbols for dim in _dims(info)):
            reason, told = Reason.UNBOUND, f"nothing is bound to {info.name!r}, nor to any other output"
        else:
            continue
        node = makers.get(info.name)
        where = ("", "", "") if node is None else (node.name, node.op, node.domain)
        yield Decline(*where, reason, f"{told}; run() hands it over")


def _dims(info: ValueInfo) -> tuple[Dim, ...]:
    if isinstance(info.type, TensorType) and info.type.shape is not None:
        return info.type.shape
    return (None,)
