"""Output of ``ops --native`` and ``inspect --backend``: what is compiled, what records, what falls back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from torch_ort_session.cli.common import count, print_json, table
from torch_ort_session.explain.backend import Extension, Readiness, name_of, readiness
from torch_ort_session.ops import registry
from torch_ort_session.ops.fused import FUSED
from torch_ort_session.runtime.recorders import stamp_of


def show_native(domain: str | None, as_json: bool) -> int:
    """Print what the compiled extension has, and which kernels use it or make do without.

    Args:
        domain: The only domain to show kernels of; None shows all.
        as_json: Whether to print JSON.
    """
    ready = readiness(stamp_of(torch.device("cpu")))
    extension = ready.extension
    kernels = [
        (name_of(where, kernel.op), kernel.since, *_parted(kernel.native, ready))
        for (where, _), served in [*sorted(registry.kernels().items()), ((FUSED.domain, FUSED.op), (FUSED,))]
        for kernel in sorted(served, key=lambda k: k.since)
        if (domain is None or where == domain) and kernel.native
    ]
    users = Counter(op for _, op in {(name, op) for name, _, used, _ in kernels for op in used})
    if as_json:
        facts: dict[str, Any] = {
            "torch": ready.torch,
            "extension": extension.to_dict(),
            "recorder": ready.recorder,
            "falls_back": bool(extension.reason),
            "kernels": [
                {"op": op, "since": list(since), "native": list(used), "falls_back_from": list(lacking)}
                for op, since, used, lacking in kernels
            ],
        }
        print_json(facts)
        return 0
    rows = [
        ("torch", ready.torch),
        ("extension", str(extension)),
        ("compiled for", extension.compiled_for),
        ("recorder", f"{ready.recorder}: {ready.reason}" if ready.reason else ready.recorder),
    ]
    print("\n".join(table(rows, indent="")))
    compiled = [(op, *_code_for(extension, op), str(users[op])) for op in extension.ops]
    if compiled:
        print("\n".join(table([("compiled", "CPU", "CUDA", "operators"), *compiled], indent="")))
    head = ("op", "revisions", "uses", "falls back from")
    lines = [
        (op, " ".join(map(str, since)), ", ".join(used) or "-", ", ".join(lacking) or "-")
        for op, since, used, lacking in kernels
    ]
    print("\n".join(table([head, *lines], indent="")))
    which = "that would use native ops" if extension.reason else "with native ops"
    print(f"{count(len(kernels), 'kernel')} {which}; all others are torch's ops alone")
    return 0


def _parted(used: tuple[str, ...], ready: Readiness) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those ops that the extension has for the device, and those that it lacks."""
    there = tuple(op for op in used if ready.extension.has(op, ready.device))
    return there, tuple(op for op in used if op not in there)


def _code_for(extension: Extension, op: str) -> tuple[str, str]:
    """The places that the extension has code of an op for: on the CPU, and on CUDA."""
    cpu = "each set of instructions" if op in extension.choosing else "one for all"
    return cpu, " ".join(extension.architectures) if op in extension.cuda_ops else "-"
