"""Operator schemas as the installed onnx knows them: the only reader of ``onnx.defs``.

Source: https://onnx.ai/onnx/api/defs.html
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.defs

from torch_ort_session.ir.types import ElementType

_OPTION = onnx.defs.OpSchema.FormalParameterOption


@dataclass(frozen=True, slots=True)
class Formal:
    """A formal input or output of an operator.

    Attributes:
        name: Its name in the schema.
        optional: Whether it may be left out.
        variadic: Whether it stands for any number of values.
        type_var: The type variable or type string, such as ``"T"`` or ``"tensor(int64)"``.
    """

    name: str
    optional: bool
    variadic: bool
    type_var: str


@dataclass(frozen=True, slots=True)
class Schema:
    """One revision of one operator.

    Attributes:
        op: Operator name.
        domain: ``""`` for ai.onnx.
        since: The revision.
        inputs: Formal inputs.
        outputs: Formal outputs.
        attributes: Attribute names, with whether each is required.
        types: Allowed types by type variable, such as ``{"T": ("tensor(float)", ...)}``.
        deprecated: Whether this revision withdraws the operator.
        has_function: Whether the schema carries a body made of other operators.
    """

    op: str
    domain: str
    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: tuple[tuple[str, bool], ...]
    types: tuple[tuple[str, tuple[str, ...]], ...]
    deprecated: bool
    has_function: bool


def newest_opset(domain: str = "") -> int | None:
    """The newest opset of a domain that the installed onnx knows; None for an unknown domain."""
    return _newest().get(canonical_domain(domain))


def canonical_domain(domain: str) -> str:
    """``"ai.onnx"`` is another name of the default domain."""
    return "" if domain == "ai.onnx" else domain


@functools.cache
def _newest() -> dict[str, int]:
    domains = {schema.domain for schema in onnx.defs.get_all_schemas()}
    newest = {
        domain: max(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain)
        for domain in domains
    }
    newest[""] = onnx.defs.onnx_opset_version()
    return newest


@functools.cache
def resolve(op: str, domain: str, opset: int) -> Schema | None:
    """The schema revision that governs ``op`` under an imported opset.

    Returns:
        The revision, or None when the installed onnx has none for this operator, domain and opset.
    """
    schema = _raw(op, canonical_domain(domain), opset)
    return None if schema is None else _convert(schema)


@functools.cache
def revisions(op: str, domain: str = "") -> tuple[int, ...]:
    """Every revision of an operator that the installed onnx knows, oldest first."""
    return tuple(
        sorted(
            schema.since_version
            for schema in onnx.defs.get_all_schemas_with_history()
            if schema.name == op and schema.domain == canonical_domain(domain)
        )
    )


@functools.cache
def operators(domain: str = "") -> tuple[str, ...]:
    """Names of every operator of a domain, in alphabetical order."""
    wanted = canonical_domain(domain)
    return tuple(sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == wanted}))


@dataclass(frozen=True, slots=True)
class Arity:
    """What a schema demands of a node.

    Attributes:
        inputs: Fewest and most inputs.
        outputs: Fewest and most outputs.
        attributes: Name, type code (of ``AttributeProto``) and whether it is required, of each attribute.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: tuple[tuple[str, int, bool], ...]


@functools.cache
def arity(op: str, domain: str, opset: int) -> Arity | None:
    """What the schema revision that governs ``op`` demands of a node; None where there is no schema."""
    schema = _raw(op, canonical_domain(domain), opset)
    if schema is None:
        return None
    return Arity(
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        attributes=tuple(
            (name, _type_code(item.type), bool(item.required)) for name, item in schema.attributes.items()
        ),
    )


def _type_code(kind: Any) -> int:
    return int(kind.value)


def default_number(op: str, domain: str, opset: int, attribute: str) -> int | None:
    """The default of an integer attribute; None when it has none."""
    schema = _raw(op, canonical_domain(domain), opset)
    found = None if schema is None else schema.attributes.get(attribute)
    if found is None or found.default_value.type != onnx.AttributeProto.INT:
        return None
    return int(found.default_value.i)


@dataclass(frozen=True, slots=True)
class Body:
    """A function body that a schema carries.

    Attributes:
        function: The body; it does not hold the defaults of attributes.
        defaults: The schema's default attributes.
        opset: The version of the operator's domain that the body is written for.
    """

    function: onnx.FunctionProto
    defaults: tuple[onnx.AttributeProto, ...]
    opset: int


def function_body(
    op: str, domain: str, opset: int, node: onnx.NodeProto, types: Sequence[onnx.TypeProto]
) -> Body | None:
    """The function body of an operator for one node of it.

    Args:
        op: Operator name.
        domain: Operator domain.
        opset: Imported version of the domain, or the operator's revision.
        node: The node; bodies may depend on its attributes and on which inputs it has.
        types: Types of the node's inputs; an empty message where nothing is known.

    Returns:
        The body for the newest version up to ``opset``, or None when there is none for this node.
    """
    # The type stubs of onnx lack the accessors of function bodies.
    schema: Any = _raw(op, canonical_domain(domain), opset)
    if schema is None:
        return None
    versions = schema.function_opset_versions or schema.context_dependent_function_opset_versions
    if not versions:
        return None
    # A body may be written in a newer version than the operator needs.
    version = max((v for v in versions if v <= opset), default=min(versions))
    if schema.function_opset_versions:
        data = schema.get_function_with_opset_version(version)
    else:
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), [item.SerializeToString() for item in types]
            )
        except (RuntimeError, ValueError):
            # The builder of a body complains of types that it needs and does not get.
            return None
    function = onnx.FunctionProto.FromString(data)
    if not function.node:
        return None
    defaults = tuple(item.default_value for item in schema.attributes.values() if item.default_value.name)
    return Body(function, defaults, version)


def element_type_from_string(text: str) -> ElementType | None:
    """The element type of a type string such as ``tensor(float)``; None when it is no tensor type."""
    if not (text.startswith("tensor(") and text.endswith(")")):
        return None
    name = text[len("tensor(") : -1].upper()
    try:
        return ElementType[name]
    except KeyError:
        return None


def _raw(op: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op, max_inclusive_version=opset, domain=domain)
    except onnx.defs.SchemaError:
        return None


def _convert(schema: onnx.defs.OpSchema) -> Schema:
    return Schema(
        op=schema.name,
        domain=schema.domain,
        since=schema.since_version,
        inputs=tuple(_formal(item) for item in schema.inputs),
        outputs=tuple(_formal(item) for item in schema.outputs),
        attributes=tuple((name, bool(item.required)) for name, item in schema.attributes.items()),
        types=tuple((item.type_param_str, tuple(item.allowed_type_strs)) for item in schema.type_constraints),
        deprecated=bool(schema.deprecated),
        has_function=bool(
            getattr(schema, "has_function", False) or getattr(schema, "has_context_dependent_function", False)
        ),
    )


def _formal(item: onnx.defs.OpSchema.FormalParameter) -> Formal:
    return Formal(
        name=item.name,
        optional=item.option == _OPTION.Optional,
        variadic=item.option == _OPTION.Variadic,
        type_var=item.type_str,
    )
