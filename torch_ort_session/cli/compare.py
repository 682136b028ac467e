"""``torch-ort-session compare``: every value of a model beside another runtime's, in node order."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import torch_ort_session
from torch_ort_session.cli.common import CommandError, add_json, add_model, print_json, waiting
from torch_ort_session.cli.differences import Difference, difference
from torch_ort_session.cli.extend import output_names, value_names, with_outputs
from torch_ort_session.cli.feeds import add_feeds, make_feed
from torch_ort_session.cli.run import as_array
from torch_ort_session.ir.graph import Node

_ORACLES = ("onnxruntime", "reference")


@dataclass(frozen=True, slots=True)
class Row:
    """One compared value and the node that makes it."""

    value: str
    node: Node
    difference: Difference


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "compare", help="compare every value of a model with onnxruntime's or with onnx's reference"
    )
    add_model(parser)
    add_feeds(parser)
    parser.add_argument("--device", default="cpu", help="torch device (default cpu)")
    parser.add_argument(
        "--against",
        choices=_ORACLES,
        help="the other runtime (default onnxruntime where installed, else reference)",
    )
    parser.add_argument(
        "--tolerance", type=float, help="largest error of floats, as a share of the largest magnitude"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare and report; 1 when a value differs."""
    oracle = args.against or next(name for name in _ORACLES if name == "reference" or _installed(name))
    with waiting(f"loading {args.model}"):
        session = torch_ort_session.load(args.model, device=args.device)
    feed = make_feed(session.inputs, args)
    with waiting(f"running {oracle}"):
        expected = _run_oracle(oracle, args.model, {name: as_array(value) for name, value in feed.items()})
    makers = {name: node for node in session.graph.nodes for name in node.outputs if name in expected}
    values = session.run(list(makers), feed)
    rows = [
        Row(name, node, difference(value, expected[name], args.tolerance))
        for (name, node), value in zip(makers.items(), values, strict=True)
    ]
    if args.json:
        print_json({"model": args.model, "against": oracle, "values": [_facts(row) for row in rows]})
    else:
        print("\n".join(_report(args.model, oracle, rows)))
    return 1 if any(row.difference.reason for row in rows) else 0


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _run_oracle(oracle: str, model: str, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of the main graph that the other runtime made."""
    if oracle == "onnxruntime" and not _installed(oracle):
        raise CommandError("onnxruntime is not installed; install it, or compare --against reference")
    try:
        return _onnxruntime(model, feed) if oracle == "onnxruntime" else _reference(model, feed)
    except Exception as error:
        raise CommandError(f"{oracle} does not run this model: {error}") from error


def _onnxruntime(model: str, feed: Mapping[str, Any]) -> dict[str, Any]:
    import onnxruntime

    data = Path(model).read_bytes()
    own = output_names(data)
    inner = [name for name in value_names(data) if name not in own]
    options = onnxruntime.SessionOptions()
    # Optimised away values could not be compared.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Its errors come as exceptions; its log would print them a second time.
    options.log_severity_level = 4
    folder = str(Path(model).resolve().parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    session = onnxruntime.InferenceSession(
        with_outputs(data, inner), options, providers=["CPUExecutionProvider"]
    )
    names = [*own, *inner]
    return dict(zip(names, session.run(names, dict(feed)), strict=True))


def _reference(model: str, feed: Mapping[str, Any]) -> dict[str, Any]:
    from onnx.reference import ReferenceEvaluator

    # NaN and infinities are what the comparison reports; numpy's warnings of them would only repeat it.
    with np.errstate(all="ignore"):
        values: Any = ReferenceEvaluator(model).run(None, dict(feed), intermediate=True)
    return {name: value for name, value in values.items() if name}


def _facts(row: Row) -> dict[str, Any]:
    compared = row.difference
    return {
        "value": row.value,
        "node": row.node.name,
        "op": row.node.qualified,
        "error": compared.error,
        "magnitude": compared.magnitude,
        "nan": compared.nan,
        "expected_nan": compared.expected_nan,
        "agrees": not compared.reason,
        "reason": compared.reason,
    }


def _report(model: str, oracle: str, rows: list[Row]) -> list[str]:
    differing = [row for row in rows if row.difference.reason]
    worst = max((row.difference.share for row in rows if not row.difference.reason), default=0.0)
    lines = [f"{model} against {oracle}: {len(rows)} values compared, {len(differing)} differ"]
    if len(differing) < len(rows):
        lines.append(f"largest error of those that agree: {worst:.2g} of the largest magnitude")
    if differing:
        lines += [f"first difference: {_place(differing[0])}", f"  {differing[0].difference.reason}"]
        lines.append(f"  reads {_inputs(differing[0], rows)}")
    ours = next((row for row in rows if row.difference.nan), None)
    if ours is None:
        return [*lines, "first NaN: none"]
    both = f"; {oracle} has one there too" if ours.difference.expected_nan else ""
    return [*lines, f"first NaN: {_place(ours)}{both}"]


def _inputs(row: Row, rows: list[Row]) -> str:
    """The inputs of a node, and how far off those are: a small error may only have been made larger."""
    shares = {other.value: other.difference.share for other in rows}
    names = dict.fromkeys(name for name in row.node.inputs if name)
    shown = [f"{name} (error {shares[name]:.2g})" if name in shares else name for name in names]
    return ", ".join(shown) or "nothing"


def _place(row: Row) -> str:
    return f"{row.value!r}, made by node {row.node.name!r} ({row.node.qualified})"
