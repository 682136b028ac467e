"""``torch-ort-session inspect``: what a model says, and what of it cannot run here."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch_ort_session
from torch_ort_session.cli.common import add_json, add_model, count, print_json, table, waiting
from torch_ort_session.errors import UnsupportedOp, UnsupportedOpError
from torch_ort_session.ir.graph import Graph, Model, Node, ValueInfo, Weight
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.text import byte_size, dump
from torch_ort_session.ir.types import describe
from torch_ort_session.plan.lowering import lower


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser("inspect", help="show a model's inputs, outputs, operators and weights")
    add_model(parser)
    parser.add_argument(
        "--nodes",
        action="store_true",
        help="show every node with the values it reads and makes, bodies included",
    )
    parser.add_argument(
        "--backend",
        action="store_true",
        help="load it, and show what it runs with: torch, extension, kernels",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what the model says."""
    if args.backend:
        return _backend(args)
    with waiting(f"loading {args.model}"):
        model = load_model(args.model)
    facts = _facts(model, args.nodes)
    if args.json:
        print_json(facts)
    else:
        print("\n".join(_lines(facts)))
        if args.nodes:
            print(dump(model.graph), end="")
    return 0


def _backend(args: argparse.Namespace) -> int:
    with waiting(f"loading {args.model}"):
        report = torch_ort_session.load(args.model).backend_report()
        graph = load_model(args.model).graph if args.nodes else None
    if args.json:
        nodes = {} if graph is None else {"node_list": [_node(node) for node in graph.all_nodes()]}
        print_json({"model": args.model, **report.to_dict(), **nodes})
        return 0
    print(report)
    if graph is not None:
        print(dump(graph), end="")
    return 0


def _facts(model: Model, nodes: bool) -> dict[str, Any]:
    graph = model.graph
    ops = Counter((node.domain or "ai.onnx", node.op) for node in graph.all_nodes())
    weights = list(_weights(graph))
    fed = [info for info in graph.inputs if info.name not in graph.initializers]
    facts: dict[str, Any] = {
        "model": model.source,
        "producer": model.producer,
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in model.opsets.items()},
        "metadata": dict(model.metadata),
        "inputs": [_port(info) for info in fed],
        "outputs": [_port(info) for info in graph.outputs],
        "weights": {"tensors": len(weights), "bytes": sum(weight.nbytes for weight in weights)},
        "nodes": len(graph.nodes),
        "nested_nodes": sum(1 for _ in graph.all_nodes()) - len(graph.nodes),
        "ops": [
            {"domain": domain, "op": op, "count": number}
            for (domain, op), number in sorted(ops.items(), key=lambda item: (-item[1], item[0]))
        ],
        "unsupported": [_unsupported(op) for op in _missing(model)],
    }
    if nodes:
        facts["node_list"] = [_node(node) for node in graph.all_nodes()]
    return facts


def _weights(graph: Graph) -> Iterator[Weight]:
    """Initializers and the values of Constant nodes, those of bodies included."""
    yield from graph.initializers.values()
    for node in graph.nodes:
        yield from (value for value in node.attributes.values() if isinstance(value, Weight))
        for _, body in node.subgraphs():
            yield from _weights(body)


def _missing(model: Model) -> tuple[UnsupportedOp, ...]:
    try:
        lower(model.graph)
    except UnsupportedOpError as error:
        return error.ops
    return ()


def _port(info: ValueInfo) -> dict[str, str]:
    return {"name": info.name, "type": describe(info.type)}


def _node(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "domain": node.domain or "ai.onnx",
        "since": node.since,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
    }


def _unsupported(op: UnsupportedOp) -> dict[str, Any]:
    return {
        "op": op.op,
        "domain": op.domain,
        "since": op.since,
        "nodes": list(op.nodes),
        "reason": op.reason,
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    lines = [f"{facts['model']}", f"  IR version {facts['ir_version']}, opsets {opsets}"]
    if facts["producer"]:
        lines.append(f"  made by {facts['producer']}")
    for title in ("inputs", "outputs"):
        lines += [title, *table((port["name"], port["type"]) for port in facts[title])]
    weights = facts["weights"]
    lines += ["weights", f"  {count(weights['tensors'], 'tensor')}, {byte_size(weights['bytes'])}"]
    nested = f", {facts['nested_nodes']} more in bodies" if facts["nested_nodes"] else ""
    lines += ["operators", f"  {count(facts['nodes'], 'node')}{nested}"]
    lines += table(
        (f"{op['count']:5}", op["op"] if op["domain"] == "ai.onnx" else f"{op['domain']}::{op['op']}")
        for op in facts["ops"]
    )
    lines.append("unsupported")
    lines += table(
        (f"{op['domain']}::{op['op']}", f"revision {op['since']}", op["reason"], ", ".join(op["nodes"][:3]))
        for op in facts["unsupported"]
    ) or ["  none"]
    return lines
