"""The backend of a session in words: torch, the compiled extension, what records, which kernels use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from torch_ort_session.ir.graph import Graph
from torch_ort_session.ops import native, registry
from torch_ort_session.ops.native import files as native_files
from torch_ort_session.runtime.recorders import Stamp

_NAMESPACE = "torch_ort_session"
_FACTS = ("abi_version", "cpu_instructions", "cuda_architectures")
"""Ops by which the extension speaks of itself."""
_CHOICE = "instructions"
"""The argument of ops that have code for several sets of instructions of the CPU."""


@dataclass(frozen=True, slots=True)
class Extension:
    """The compiled extension as it was found.

    Attributes:
        library: Where it is; empty when there is none that fits.
        built_for: torch, CUDA and Python that it was compiled for; empty when there is none.
        abi: Version of its schemas; 0 when there is none.
        ops: The native ops that it has.
        cuda_ops: Those that it has for CUDA devices too.
        architectures: Compute capabilities that it has code for; empty without CUDA code.
        instructions: Sets of instructions of this machine's CPU that it has code for, the widest last.
        choosing: The ops that have code for each of those.
        stamp: Size and time of change of the library, which tell one build from another.
        reason: Why there is none; empty when there is.
    """

    library: str = ""
    built_for: str = ""
    abi: int = 0
    ops: tuple[str, ...] = ()
    stamp: tuple[int, int] = (0, 0)
    reason: str = ""
    cuda_ops: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    choosing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"none: {self.reason}" if self.reason else f"{self.library}, ABI {self.abi}"

    @property
    def compiled_for(self) -> str:
        """The devices that it has code for, in words."""
        if self.reason:
            return "nothing"
        cpu = f"the CPU ({', '.join(self.instructions)})" if self.instructions else "the CPU"
        if not self.architectures:
            return cpu
        return f"{cpu}, CUDA {' '.join(self.architectures)} ({', '.join(self.cuda_ops)})"

    def has(self, op: str, device: str) -> bool:
        """Whether it has a native op for a device, such as ``"cuda:0"``."""
        return not self.reason and op in (self.cuda_ops if device.startswith("cuda") else self.ops)

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain record."""
        lists = ("ops", "stamp", "cuda_ops", "architectures", "instructions", "choosing")
        return {**asdict(self), **{name: list(getattr(self, name)) for name in lists}}


@dataclass(frozen=True, slots=True)
class Readiness:
    """The backend as it was found when a session was loaded.

    Attributes:
        device: Where the session runs.
        torch: What runs it: torch, CUDA and Python.
        extension: The compiled extension.
        recorder: ``"tape"``, ``"CUDA graphs"`` or ``"none"``.
        reason: Why there is no recorder; empty when there is.
    """

    device: str
    torch: str
    extension: Extension
    recorder: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NativeUse:
    """The nodes of one operator, and what they run by.

    Attributes:
        op: The operator, with its domain.
        nodes: How many nodes there are, those of bodies included.
        native: Native ops that its kernels would use; empty when torch alone computes it.
    """

    op: str
    nodes: int
    native: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain record."""
        return {"op": self.op, "nodes": self.nodes, "native": list(self.native)}


@dataclass(frozen=True, slots=True)
class BackendReport:
    """The backend of a session; ``str()`` is for people, :meth:`to_dict` for programs.

    Attributes:
        ready: What was found when it was loaded.
        capture: The capture option.
        ops: Its operators.
        quarantined: Operators that run eagerly because recording one failed.
    """

    ready: Readiness
    capture: str
    ops: tuple[NativeUse, ...]
    quarantined: tuple[str, ...]

    @property
    def native(self) -> tuple[NativeUse, ...]:
        """Operators that use native ops, with those that they use."""
        return self._uses(there=True)

    @property
    def fallbacks(self) -> tuple[NativeUse, ...]:
        """Operators that would use native ops and make do with torch's, with those that are not there."""
        return self._uses(there=False)

    def _uses(self, *, there: bool) -> tuple[NativeUse, ...]:
        ready = self.ready
        uses = (
            replace(
                use, native=tuple(op for op in use.native if ready.extension.has(op, ready.device) is there)
            )
            for use in self.ops
        )
        return tuple(use for use in uses if use.native)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain records."""
        return {
            **asdict(self.ready),
            "extension": self.ready.extension.to_dict(),
            "capture": self.capture,
            "native": [use.to_dict() for use in self.native],
            "fallbacks": [use.to_dict() for use in self.fallbacks],
            "torch_alone": [use.to_dict() for use in self.ops if not use.native],
            "quarantined": list(self.quarantined),
        }

    def __str__(self) -> str:
        ready = self.ready
        alone = [use for use in self.ops if not use.native]
        nodes = sum(use.nodes for use in alone)
        rows = [
            ("device", ready.device),
            ("torch", ready.torch),
            ("extension", str(ready.extension)),
            ("compiled for", ready.extension.compiled_for),
            ("recorder", f"{ready.recorder}: {ready.reason}" if ready.reason else ready.recorder),
            ("capture", self.capture),
            ("native ops", _uses(self.native)),
            ("fall back", _uses(self.fallbacks)),
            ("torch alone", f"{_count(len(alone), 'operator')}, {_count(nodes, 'node')}"),
            ("quarantined", ", ".join(self.quarantined) or "none"),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def readiness(stamp: Stamp) -> Readiness:
    """A session's stamp, in full."""
    return Readiness(
        stamp.device, str(native_files.running()), extension(stamp), stamp.recorder, stamp.reason
    )


def extension(stamp: Stamp) -> Extension:
    """The compiled extension of a stamp, which is loaded where there is one."""
    if stamp.missing:
        return Extension(reason=stamp.missing)
    ops = _native_ops()
    return Extension(
        stamp.library,
        str(native_files.running()),
        native.ABI_VERSION,
        ops,
        stamp.build,
        cuda_ops=tuple(op for op in ops if native.has_kernel(op, "cuda")),
        architectures=native.cuda_architectures(),
        instructions=native.cpu_instructions(),
        choosing=tuple(op for op in ops if _chooses(op)),
    )


def backend_report(
    stamp: Stamp, capture: str, graph: Graph, quarantined: Collection[tuple[str, str]]
) -> BackendReport:
    """The report on a session's backend.

    Args:
        stamp: What was found at load.
        capture: The capture option.
        graph: The graph that runs.
        quarantined: (domain, operator) pairs that run eagerly.
    """
    counted = Counter((node.domain, node.op, node.since) for node in graph.all_nodes())
    kernels = ((registry.find(op, domain, since), number) for (domain, op, since), number in counted.items())
    uses: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for kernel, number in kernels:
        if kernel is not None:
            uses[name_of(kernel.domain, kernel.op), kernel.native] += number
    ops = tuple(NativeUse(op, number, used) for (op, used), number in sorted(uses.items()))
    names = tuple(sorted(name_of(domain, op) for domain, op in quarantined))
    return BackendReport(readiness(stamp), capture, ops, names)


def name_of(domain: str, op: str) -> str:
    """An operator with its domain, as messages show it."""
    return f"{domain or 'ai.onnx'}::{op}"


def _native_ops() -> tuple[str, ...]:
    """Names of the ops that the loaded extension has registered."""
    registered = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    # Forms that write into something given are the same op.
    ops = {op.partition(".")[0] for domain, _, op in registered if domain == _NAMESPACE}
    return tuple(sorted(ops.difference(_FACTS)))


def _chooses(op: str) -> bool:
    """Whether an op takes the set of instructions that it is to use."""
    schemas = torch._C._jit_get_schemas_for_operator(f"{_NAMESPACE}::{op}")
    return any(argument.name == _CHOICE for schema in schemas for argument in schema.arguments)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _uses(uses: Iterable[NativeUse]) -> str:
    listed = (f"{use.op} ({use.nodes}: {', '.join(use.native)})" for use in uses)
    return ", ".join(listed) or "none"
