"""A kernel's signature is the operator's schema: every revision served is checked against onnx.defs."""

from __future__ import annotations

import onnx.defs
import pytest
from onnx.defs import OpSchema

from torch_ort_session.ir import schema
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import Kernel

_GRAPHS = (OpSchema.AttrType.GRAPH, OpSchema.AttrType.GRAPHS)


def served() -> list[tuple[Kernel, int]]:
    # Revision 0 is what an op of a known domain gets that onnx has no schema of.
    return [
        (kernel, since)
        for (domain, _), kernels in registry.kernels().items()
        if schema.newest_opset(domain) is not None
        for kernel in kernels
        for since in kernel.since
        if since != 0
    ]


def defaults(found: OpSchema) -> dict[str, object]:
    """Schema defaults by attribute, in the form kernels declare them."""
    values: dict[str, object] = {}
    for name, attribute in found.attributes.items():
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            items = (
                [v.decode() if isinstance(v, bytes) else v for v in value]
                if isinstance(value, list)
                else value
            )
            values[name] = value.decode() if isinstance(value, bytes) else items
    return values


@pytest.mark.parametrize(
    ("kernel", "since"),
    [pytest.param(k, s, id=f"{k.domain or 'ai.onnx'}-{k.op}-{s}") for k, s in served()],
)
def test_signature_is_the_schema(kernel: Kernel, since: int) -> None:
    found = onnx.defs.get_schema(kernel.op, max_inclusive_version=since, domain=kernel.domain)
    assert found.since_version == since, f"{since} is no revision of {kernel.op}"
    params = kernel.signature.inputs
    options = OpSchema.FormalParameterOption
    variadic = bool(found.inputs) and found.inputs[-1].option == options.Variadic
    assert len(params) >= len(found.inputs)
    for position, formal in enumerate(found.inputs):
        param = params[position]
        assert param.variadic == (formal.option == options.Variadic), formal.name
        if formal.option == options.Optional:
            assert param.optional or param.variadic, f"{formal.name} may be left out"
    for param in params[len(found.inputs) :]:
        assert param.optional or param.variadic, f"revision {since} has no input {param.name}"
    assert variadic == any(param.variadic for param in params) or len(params) > len(found.inputs)

    attributes = {param.name: param for param in kernel.signature.attributes}
    wanted = {name: a for name, a in found.attributes.items() if a.type not in _GRAPHS}
    assert set(wanted) <= set(attributes), "attributes the kernel does not take"
    for name, param in attributes.items():
        if name not in wanted:
            assert not param.required, f"revision {since} has no attribute {name}"
        elif wanted[name].required:
            assert param.required or len(kernel.since) > 1, f"{name} is required"
        else:
            assert not param.required, f"{name} may be left out"
    for name, value in defaults(found).items():
        declared = attributes[name].default
        given = list(value) if isinstance(value, (list, tuple)) else value
        shown = list(declared) if isinstance(declared, (list, tuple)) else declared
        if isinstance(given, float):
            assert shown == pytest.approx(given, rel=1e-6), name
        else:
            assert shown == given, name
    assert (found.max_output > 1) <= kernel.signature.several_outputs, "several outputs come as a tuple"


def test_every_revision_is_served_or_missing_as_a_whole() -> None:
    """A kernel that serves some revisions of an operator serves all of them."""
    partial = {}
    for (domain, op), kernels in registry.kernels().items():
        if schema.newest_opset(domain) is None:
            continue
        have = {since for kernel in kernels for since in kernel.since}
        lacking = [since for since in schema.revisions(op, domain) if since not in have]
        deprecated = [s for s in lacking if onnx.defs.get_schema(op, s, domain).deprecated]
        if rest := sorted(set(lacking) - set(deprecated)):
            partial[f"{domain or 'ai.onnx'}::{op}"] = rest
    assert partial == {}
