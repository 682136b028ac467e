"""Element types of values, as far as schemas tell them without running anything.

Source: https://onnx.ai/onnx/repo-docs/IR.html#standard-data-types
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from torch_ort_session.ir import schema
from torch_ort_session.ir.graph import Graph, Node, Weight
from torch_ort_session.ir.types import ElementType, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class _Rule:
    """Where the element type of one output comes from; the first that is known holds.

    Attributes:
        attribute: An attribute that holds the code.
        inputs: Positions of inputs that have the same type.
        fixed: The only type that the schema allows, or that of the attribute's default.
    """

    attribute: str
    inputs: tuple[int, ...]
    fixed: ElementType | None


_CODES = ("to", "dtype", "output_dtype", "output_datatype")
# Outputs whose type variable differs from that of the input that they take their elements from.
_ELEMENTS_OF: dict[str, tuple[int, ...]] = {
    "SequenceConstruct": (0,),
    "SequenceAt": (0,),
    "SequenceInsert": (0, 1),
    "SplitToSequence": (0,),
    "ConcatFromSequence": (0,),
    "Optional": (0,),
    "OptionalGetElement": (0,),
    # The zero point says it; an attribute may too, and the scale says what a dequantized value is.
    "QuantizeLinear": (2,),
    "DequantizeLinear": (1,),
    "EyeLike": (0,),
    "Bernoulli": (0,),
    "RandomNormalLike": (0,),
    "RandomUniformLike": (0,),
}
_DEFAULTS: dict[str, ElementType] = {
    "ConstantOfShape": ElementType.FLOAT,
    "SequenceEmpty": ElementType.FLOAT,
    "QuantizeLinear": ElementType.UINT8,
    "Multinomial": ElementType.INT32,
}
_CONSTANTS: dict[str, ElementType] = {
    "value_float": ElementType.FLOAT,
    "value_floats": ElementType.FLOAT,
    "value_int": ElementType.INT64,
    "value_ints": ElementType.INT64,
    "value_string": ElementType.STRING,
    "value_strings": ElementType.STRING,
    # Of ai.onnx.ml::LabelEncoder.
    "values_floats": ElementType.FLOAT,
    "values_int64s": ElementType.INT64,
    "values_strings": ElementType.STRING,
}


def element_types(graph: Graph, outer: Mapping[str, ElementType] | None = None) -> Mapping[str, ElementType]:
    """Element types of the values that a graph defines, as far as they can be told.

    That of a sequence, an optional or a map is the type of what it holds.

    Args:
        graph: A graph or body.
        outer: Element types of values of enclosing graphs. One under the name of a formal input of a body
            serves where the body does not declare it (see ``body_inputs``).

    Returns:
        Element types by value name; a value that nothing is known of is left out.
    """
    outside = outer or {}
    types: dict[str, ElementType] = {}
    for info in graph.inputs:
        _note(types, info.name, element_of(info.type) or outside.get(info.name))
    for info in (*graph.value_info.values(), *graph.outputs):
        _note(types, info.name, element_of(info.type))
    for name, weight in graph.initializers.items():
        types[name] = weight.element
    for node in graph.nodes:
        if node.domain == "" and node.op in _WITH_BODIES:
            _from_bodies(node, types, outside)
            continue
        rules = _rules(node.op, node.domain, node.since)
        if not rules:
            continue
        last = len(rules) - 1
        for index, name in enumerate(node.outputs):
            if name and name not in types:
                _note(types, name, _apply(rules[min(index, last)], node, types, outside))
    return types


def element_of(kind: ValueType | None) -> ElementType | None:
    """The element type of a tensor type, or of what a sequence, optional or map holds; None when unknown."""
    while kind is not None and not isinstance(kind, TensorType):
        kind = kind.item
    return None if kind is None or kind.element is ElementType.UNDEFINED else kind.element


def body_inputs(node: Node, body: Graph, types: Mapping[str, ElementType]) -> Mapping[str, ElementType]:
    """Element types of the formal inputs of a body of If, Loop, Scan or SequenceMap.

    Args:
        node: The node.
        body: One of its bodies.
        types: Element types of the values that the node reads.
    """
    actual: list[ElementType | None] = [types.get(name) for name in node.inputs]
    if node.op == "Loop":
        actual = [ElementType.INT64, ElementType.BOOL, *actual[2:]]
    elif node.op == "Scan" and node.since < 9:
        actual = actual[1:]
    elif node.op == "If":
        actual = []
    return {info.name: kind for info, kind in zip(body.inputs, actual, strict=False) if kind is not None}


_WITH_BODIES = {"If", "Loop", "Scan", "SequenceMap"}


def _from_bodies(node: Node, types: dict[str, ElementType], outside: Mapping[str, ElementType]) -> None:
    if all(not name or name in types for name in node.outputs):
        return
    visible = {**outside, **types}
    for _, body in node.subgraphs():
        around = {**visible, **body_inputs(node, body, visible)}
        inner = element_types(body, around)
        results = body.outputs[1:] if node.op == "Loop" else body.outputs
        for name, info in zip(node.outputs, results, strict=False):
            if name and name not in types:
                _note(types, name, inner.get(info.name) or around.get(info.name))


def _note(types: dict[str, ElementType], name: str, kind: ElementType | None) -> None:
    if kind is not None:
        types[name] = kind


def _apply(
    rule: _Rule, node: Node, types: Mapping[str, ElementType], outside: Mapping[str, ElementType]
) -> ElementType | None:
    if rule.attribute:
        found = _from_attribute(node, rule.attribute)
        if found is not None:
            return found
    for index in rule.inputs:
        if index < len(node.inputs) and node.inputs[index]:
            name = node.inputs[index]
            kind = types.get(name) or outside.get(name)
            if kind is not None:
                return kind
    return rule.fixed


def _from_attribute(node: Node, attribute: str) -> ElementType | None:
    if attribute == "value":
        for name, value in node.attributes.items():
            if isinstance(value, Weight) and name.startswith(("value", "sparse_value")):
                return value.element
            if name in _CONSTANTS:
                return _CONSTANTS[name]
        return None
    return _code(node.attributes.get(attribute))


def _code(value: object) -> ElementType | None:
    if not isinstance(value, int) or value not in ElementType._value2member_map_:
        return None
    return ElementType(value) or None


@functools.cache
def _rules(op: str, domain: str, since: int) -> tuple[_Rule, ...]:
    """The rule of each output; the last one serves further variadic outputs."""
    found = schema.resolve(op, domain, since)
    if found is None:
        return ()
    names = {name for name, _ in found.attributes}
    attribute = next((name for name in _CODES if name in names), "")
    if op in ("Constant", "ConstantOfShape", "LabelEncoder"):
        attribute = "value"
    allowed = dict(found.types)
    rules = []
    for position, formal in enumerate(found.outputs):
        same = tuple(i for i, item in enumerate(found.inputs) if item.type_var == formal.type_var)
        if op in _ELEMENTS_OF and domain == "":
            same = _ELEMENTS_OF[op]
        listed = allowed.get(formal.type_var, (formal.type_var,))
        fixed = schema.element_type_from_string(listed[0]) if len(listed) == 1 else None
        same = () if fixed else same
        key = attribute if not fixed and (position == 0 or not same) else ""
        if position and "stash_type" in names and not fixed:
            key, same = "stash_type", ()
        if key and not fixed:
            fixed = _DEFAULTS.get(op) or _code(schema.default_number(op, domain, since, key))
        rules.append(_Rule(key, same, fixed))
    return tuple(rules)
