"""What ``ops --native`` and ``inspect --backend`` show: what is compiled, what records, what falls back."""

from __future__ import annotations

from typing import Any

import torch

from torch_ort_session.cli.common import count, print_json, table
from torch_ort_session.ops import registry
from torch_ort_session.runtime.readiness import name_of, native_ops, ready_on


def show_native(domain: str | None, as_json: bool) -> int:
    """Print what the compiled extension has, and which kernels use it or make do without.

    Args:
        domain: The only domain to show kernels of; None shows all.
        as_json: Whether to print JSON.
    """
    ready = ready_on(torch.device("cpu"))
    found = ready.extension
    kernels = [
        (name_of(kernel.domain, kernel.op), kernel.since, used)
        for (where, _), served in sorted(registry.kernels().items())
        for kernel in sorted(served, key=lambda k: k.since)
        if (domain is None or where == domain) and (used := native_ops(kernel))
    ]
    if as_json:
        facts: dict[str, Any] = {
            "torch": ready.torch,
            "extension": found.to_dict(),
            "recorder": ready.recorder,
            "falls_back": bool(found.reason),
            "kernels": [
                {"op": op, "since": list(since), "native": list(used)} for op, since, used in kernels
            ],
        }
        print_json(facts)
        return 0
    rows = [
        ("torch", ready.torch),
        ("extension", str(found)),
        ("compiled", ", ".join(found.ops) or "nothing"),
        ("compiled for", found.compiled_for),
        ("recorder", f"{ready.recorder}: {ready.reason}" if ready.reason else ready.recorder),
    ]
    print("\n".join(table(rows, indent="")))
    head = ("op", "revisions", "uses" if not found.reason else "falls back from")
    lines = [(op, " ".join(map(str, since)), ", ".join(used)) for op, since, used in kernels]
    print("\n".join(table([head, *lines], indent="")))
    which = "that would use native ops" if found.reason else "with native ops"
    print(f"{count(len(kernels), 'kernel')} {which}; all others are torch's ops alone")
    return 0
