"""``torch-ort-session ops``: which operators have a kernel, and which do not."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

from torch_ort_session.cli.backend import show_native
from torch_ort_session.cli.common import CommandError, add_json, count, print_json, table
from torch_ort_session.ir import schema
from torch_ort_session.ops import contrib, gaps, registry
from torch_ort_session.ops.kernel import Kernel

_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", contrib.DOMAIN)
"""The domains whose operators are known: those that onnx has schemas of, and onnxruntime's own."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser("ops", help="list the operators that have a kernel, or those that do not")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--missing", action="store_true", help="list the known operators that have no kernel, and why"
    )
    which.add_argument(
        "--check", metavar="NAME", help="show each revision of one operator; exit 1 if one lacks"
    )
    which.add_argument(
        "--native", action="store_true", help="show what is compiled, and which kernels use it or fall back"
    )
    parser.add_argument("--domain", help="look only at this domain, such as com.microsoft")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table that was asked for."""
    domain = None if args.domain is None else schema.canonical_domain(args.domain)
    if args.check is not None:
        return _check(args.check, domain, args.json)
    if args.missing:
        return _missing(domain, args.json)
    if args.native:
        return show_native(domain, args.json)
    return _list(domain, args.json)


def _label(domain: str) -> str:
    return domain or "ai.onnx"


def _list(domain: str | None, as_json: bool) -> int:
    kernels = [
        kernel
        for (where, _), served in sorted(registry.kernels().items())
        for kernel in sorted(served, key=lambda k: k.since)
        if domain is None or where == domain
    ]
    if as_json:
        print_json([_facts(kernel) for kernel in kernels])
        return 0
    rows = [("op", "domain", "revisions", "seam")]
    rows += [
        (
            kernel.op,
            _label(kernel.domain),
            " ".join(map(str, kernel.since)),
            _seam(kernel) or "-",
        )
        for kernel in kernels
    ]
    print("\n".join(table(rows, indent="")))
    operators = len({(k.domain, k.op) for k in kernels})
    revisions = sum(len(k.since) for k in kernels)
    print(f"{count(operators, 'operator')}, {count(revisions, 'revision')}")
    return 0


def _facts(kernel: Kernel) -> dict[str, Any]:
    return {
        "op": kernel.op,
        "domain": _label(kernel.domain),
        "since": list(kernel.since),
        "seam": _seam(kernel),
        "function": f"{kernel.fn.__module__}.{kernel.fn.__qualname__}",
    }


def _seam(kernel: Kernel) -> str | None:
    return "depends on the node" if callable(kernel.seam) else kernel.seam


def _status(op: str, domain: str, since: int) -> str:
    """One of ``kernel``, ``function`` (runs through its schema's body), ``withdrawn``, ``missing``."""
    if registry.find(op, domain, since) is not None:
        return "kernel"
    revision = schema.resolve(op, domain, since)
    if revision is not None and revision.deprecated:
        return "withdrawn"
    return "function" if revision is not None and revision.has_function else "missing"


def _operators(domain: str) -> tuple[str, ...]:
    return tuple(contrib.REVISIONS) if domain == contrib.DOMAIN else schema.operators(domain)


def _known(op: str, domain: str) -> tuple[int, ...]:
    return contrib.REVISIONS.get(op, ()) if domain == contrib.DOMAIN else schema.revisions(op, domain)


def _missing(domain: str | None, as_json: bool) -> int:
    if domain is not None and domain not in _DOMAINS and schema.newest_opset(domain) is None:
        raise CommandError(f"the operators of domain {domain!r} are not known, so nothing can be missing")
    rows: dict[str, list[dict[str, Any]]] = {"missing": [], "function": []}
    for where in _DOMAINS if domain is None else (domain,):
        for op in _operators(where):
            by_status: dict[str, list[int]] = {}
            for since in _known(op, where):
                by_status.setdefault(_status(op, where, since), []).append(since)
            for status in rows:
                if status in by_status:
                    rows[status].append({"op": op, "domain": _label(where), "since": by_status[status]})
            if "missing" in by_status:
                rows["missing"][-1]["reason"] = gaps.why(op, where)
    if as_json:
        print_json({"missing": rows["missing"], "through_function_body": rows["function"]})
        return 0
    print("without a kernel")
    print("\n".join(_rows(rows["missing"])))
    print("without a kernel of their own; they run through the function body of their schema")
    print("\n".join(_rows(rows["function"])))
    return 0


def _rows(items: list[dict[str, Any]]) -> list[str]:
    rows = ((i["op"], i["domain"], " ".join(map(str, i["since"])), i.get("reason", "")) for i in items)
    return table(rows) or ["  none"]


def _check(op: str, domain: str | None, as_json: bool) -> int:
    where, _, name = op.rpartition("::")
    if where:
        # As messages write it: ai.onnx::Add.
        op, domain = name, "" if where == "ai.onnx" else where
    known = {where for where, name in registry.kernels() if name == op}
    known |= {where for where in _DOMAINS if _known(op, where)}
    domains = sorted(known if domain is None else known & {domain})
    if not domains:
        raise CommandError(f"no operator {op!r} is known, neither here nor to the installed onnx{_meant(op)}")
    revisions = [_revision(op, where, since) for where in domains for since in _revisions(op, where)]
    if as_json:
        print_json(revisions)
    else:
        print(op)
        print("\n".join(table((r["domain"], str(r["since"]), r["status"], r["where"]) for r in revisions)))
    return 1 if any(r["status"] == "missing" for r in revisions) else 0


def _meant(op: str) -> str:
    """The operators whose names differ from one in case alone."""
    names = {name for _, name in registry.kernels()} | {name for d in _DOMAINS for name in _operators(d)}
    close = sorted(name for name in names if name.lower() == op.lower())
    return f"; is {' or '.join(map(repr, close))} meant?" if close else ""


def _revisions(op: str, domain: str) -> tuple[int, ...]:
    served = {s for kernel in registry.kernels().get((domain, op), ()) for s in kernel.since}
    return tuple(sorted(served | set(_known(op, domain))))


def _revision(op: str, domain: str, since: int) -> dict[str, Any]:
    kernel = registry.find(op, domain, since)
    where = ""
    if kernel is not None:
        path = Path(inspect.getsourcefile(kernel.fn) or "")
        where = f"{kernel.fn.__qualname__} in {path.parent.name}/{path.name}"
    status = _status(op, domain, since)
    if status == "missing":
        where = gaps.why(op, domain)
    return {"domain": _label(domain), "since": since, "status": status, "where": where}
