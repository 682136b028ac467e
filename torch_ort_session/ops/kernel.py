"""The kernel contract: a Python function whose signature is the operator's schema.

Positional parameters are the ONNX inputs in order (``*xs`` variadic, ``| None`` optional); keyword-only
parameters are the attributes under their ONNX names. One name is reserved: ``ctx``, a :class:`KernelContext`.
A kernel writes to none of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch

from torch_ort_session.ir.graph import Node
from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.signature import KernelSignature, signature_of

Strings: TypeAlias = np.ndarray[Any, np.dtype[np.object_]]
"""A tensor of strings: a numpy object array of ``str``, on the host."""

SEQUENCE_MARK = "onnx sequence"
TensorSequence = Annotated[tuple[Any, ...], SEQUENCE_MARK]
"""A sequence value, one result (a plain ``tuple[...]`` return annotation means several outputs)."""

Value: TypeAlias = torch.Tensor | Strings | tuple[Any, ...] | None
"""Content of a place in a frame: a tensor, strings, a sequence (tuple), or None for an absent optional."""


class Body(Protocol):
    """A control-flow body, bound to the enclosing values of the current run."""

    def __call__(self, *inputs: Value, lend: int = 0) -> tuple[Value, ...]:
        """Run the body on its formal inputs and return its outputs.

        Args:
            inputs: One value a formal input.
            lend: How many of the leading outputs may lie in memory that the next call writes, once it has
                read its inputs; :meth:`keep` is for those that are wanted longer.
        """
        ...

    def keep(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Outputs of the last call, in memory that no later call writes."""
        ...


class Validation(Protocol):
    """Receiver of kernels' reports of bad data, without a host read.

    Attributes:
        on: Whether the run that is under way notes bad data.
    """

    on: bool

    @property
    def counting(self) -> bool:
        """Whether mixtures count how often they choose each expert."""
        ...

    def count_routes(self, experts: torch.Tensor, count: int, node: Node) -> None:
        """Count the experts, int64 of any shape, that a mixture of ``count`` chose, while ``counting``."""
        ...

    def check_index(self, index: torch.Tensor, size: int, node: Node) -> torch.Tensor:
        """Note the first index outside of ``[-size, size)``; return a safe, wrapped index."""
        ...

    def check_range(self, values: torch.Tensor, low: int, high: int, flag: Flag, node: Node) -> torch.Tensor:
        """Note the first number outside of ``[low, high]``; return numbers that lie within."""
        ...

    def noting(self, node: Node) -> tuple[int, torch.Tensor | None]:
        """Number of a node, and the word while ``on``: for ops that note bad data themselves."""
        ...


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class KernelContext:
    """Facts of a node and a run that its schema does not carry.

    Attributes:
        node: The node being run.
        device: The session's device: where a kernel without tensor inputs makes its result.
        wanted: For each output of the node, whether it is read.
        input_types: ONNX element types of the inputs, None where the model does not tell. They tell int4
            from int8 where both are carried by one torch dtype (see ``ir.types``).
        output_types: The same for the outputs.
        bodies: Control-flow bodies by attribute name.
        validation: Where bad data is reported; None where torch itself refuses it with a Python error.
    """

    node: Node
    device: torch.device
    wanted: tuple[bool, ...]
    input_types: tuple[ElementType | None, ...] = ()
    output_types: tuple[ElementType | None, ...] = ()
    bodies: Mapping[str, Body] = field(default_factory=dict)
    validation: Validation | None = None

    def wants(self, index: int) -> bool:
        """Whether output ``index`` is read."""
        return index < len(self.wanted) and self.wanted[index]

    def input_type(self, index: int) -> ElementType | None:
        """The ONNX element type of input ``index``, None when unknown or absent."""
        return self.input_types[index] if index < len(self.input_types) else None

    def output_type(self, index: int) -> ElementType | None:
        """The ONNX element type of output ``index``, None when unknown."""
        return self.output_types[index] if index < len(self.output_types) else None

    def generator(self, seed: float | None) -> torch.Generator | None:
        """The generator of a random op: one made from ``seed`` when the node names one, else torch's own.

        The seed attribute is a float; its 32 bits are the seed, so that every value counts.
        """
        if seed is None:
            return None
        generator = torch.Generator(self.device)
        generator.manual_seed(int(np.float32(seed).view(np.uint32)))
        return generator


Seam: TypeAlias = str | Callable[[Node], str | None] | None
Checks: TypeAlias = bool | Callable[[Node, Sequence[ElementType | None], Sequence[Value], Validation], bool]
"""Whether a kernel reports bad data; a function tells it of a node, the element types of its inputs, those
inputs that are constant, with None for what is not known, and where bad data is reported."""


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One function that serves some revisions of one operator.

    Attributes:
        op: Operator name.
        domain: ``""`` for ai.onnx.
        since: Exactly the revisions served.
        fn: The function.
        signature: Its parsed signature.
        view_of: Input whose memory the result may alias.
        seam: Why the kernel cannot be captured: a text, a function of the node, or None.
        host_result: Whether the result is made on the CPU from static facts (Shape, Size).
        varies: Whether the result differs from run to run by itself (random ops).
        checks: Whether it reports bad data into the run's validation word. ``True`` says that no float is
            looked at.
        native: Names of the ops of ``csrc/register.cpp`` that it calls, itself or by helpers, sorted. Whether
            one is there, and fits the tensors of a run, is asked at each call.
    """

    op: str
    domain: str
    since: tuple[int, ...]
    fn: Callable[..., Any]
    signature: KernelSignature
    view_of: str | None = None
    seam: Seam = None
    host_result: bool = False
    varies: bool = False
    checks: Checks = False
    native: tuple[str, ...] = ()

    def may_fault(
        self,
        node: Node,
        types: Sequence[ElementType | None],
        constants: Sequence[Value],
        validation: Validation,
    ) -> bool:
        """Whether it may report something at a node.

        Args:
            node: The node.
            types: Element types of the node's inputs, None where they are not known.
            constants: The inputs that are constant, None for the others.
            validation: Where it would.
        """
        return self.checks(node, types, constants, validation) if callable(self.checks) else self.checks

    def seam_reason(self, node: Node) -> str | None:
        """Why this kernel is a seam at ``node``; None when it can be captured."""
        return self.seam(node) if callable(self.seam) else self.seam


_Fn = TypeVar("_Fn", bound=Callable[..., Any])
_ATTRIBUTE = "__tos_kernels__"


def kernel(
    op: str,
    *,
    since: Sequence[int],
    domain: str = "",
    host: Sequence[str] = (),
    view_of: str | None = None,
    seam: Seam = None,
    host_result: bool = False,
    varies: bool = False,
    checks: Checks = False,
    native: Sequence[str] = (),
) -> Callable[[_Fn], _Fn]:
    """Declare a function as the kernel of some revisions of an operator; it may be stacked.

    Args:
        op: Operator name.
        since: Exactly the schema revisions served.
        domain: Operator domain, ``""`` for ai.onnx.
        host: Names of parameters wanted as Python numbers (``int``, ``float``, ``bool``, ``Scalar``,
            ``list[int]`` or ``list[float]`` by their annotation), or as one where it is a constant and as the
            tensor where it is not (``Scalar | Tensor``).
        view_of: Parameter whose memory the result may alias.
        seam: Why it cannot be captured.
        host_result: The result is made on the CPU from static facts.
        varies: The result differs from run to run by itself.
        checks: It reports bad data into the run's validation word, always or where a function says so.
        native: Names of the native ops that it calls, itself or by helpers, sorted.

    Raises:
        TypeError: The signature does not follow the contract.
    """

    def declare(fn: _Fn) -> _Fn:
        signature = signature_of(fn, tuple(host))
        names = {param.name for param in signature.inputs}
        for name in (*host, *((view_of,) if view_of else ())):
            if name not in names:
                raise TypeError(f"kernel {op}: {name!r} is not a positional parameter of {fn.__name__}")
        record = Kernel(
            op=op,
            domain=domain,
            since=tuple(since),
            fn=fn,
            signature=signature,
            view_of=view_of,
            seam=seam,
            host_result=host_result,
            varies=varies,
            checks=checks,
            native=tuple(native),
        )
        setattr(fn, _ATTRIBUTE, (*getattr(fn, _ATTRIBUTE, ()), record))
        return fn

    return declare


def kernels_of(fn: object) -> tuple[Kernel, ...]:
    """The kernels declared on a function; empty for anything else."""
    declared: tuple[Kernel, ...] = getattr(fn, _ATTRIBUTE, ())
    return declared
