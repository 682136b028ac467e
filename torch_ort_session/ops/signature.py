"""Signatures of kernels' functions: inputs, attributes, and whether they take a context."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import torch

Scalar = int | float | bool
"""Annotation of a host input wanted as one Python number of the tensor's own kind."""


@dataclass(frozen=True, slots=True)
class InputParam:
    """One positional parameter: its name, whether it may be absent or repeats, and its host form.

    ``host`` is None for a tensor, else one of ``"ints" "floats" "int" "float" "bool" "scalar" "constant"``;
    the last is a number where the model holds a constant, and the tensor itself where it does not.
    """

    name: str
    optional: bool
    variadic: bool
    host: str | None

    @property
    def read(self) -> bool:
        """Whether the kernel wants Python numbers whatever the input is, so that its data is read."""
        return self.host is not None and self.host != "constant"


@dataclass(frozen=True, slots=True)
class AttributeParam:
    """One keyword-only parameter: an attribute, whether it must be given, and its default."""

    name: str
    required: bool
    default: object


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """Parsed signature of a kernel's function.

    Attributes:
        inputs: Positional parameters.
        attributes: Keyword-only parameters less ``ctx``.
        several_outputs: Whether the result is a tuple of outputs rather than one value.
        takes_ctx: Whether the kernel asks for a :class:`.kernel.KernelContext`.
    """

    inputs: tuple[InputParam, ...]
    attributes: tuple[AttributeParam, ...]
    several_outputs: bool
    takes_ctx: bool


def signature_of(fn: Callable[..., Any], host: tuple[str, ...]) -> KernelSignature:
    """Read a function's signature.

    Args:
        fn: The function of a kernel.
        host: Names of parameters wanted as Python numbers.

    Raises:
        TypeError: It does not follow the contract of :mod:`.kernel`.
    """
    hints = typing.get_type_hints(fn, include_extras=True)
    inputs: list[InputParam] = []
    attributes: list[AttributeParam] = []
    takes_ctx = False
    for param in inspect.signature(fn).parameters.values():
        hint = hints.get(param.name)
        if param.kind is param.KEYWORD_ONLY:
            if param.name == "ctx":
                takes_ctx = True
            else:
                required = param.default is param.empty
                attributes.append(AttributeParam(param.name, required, None if required else param.default))
        elif param.kind in (param.POSITIONAL_ONLY, param.POSITIONAL_OR_KEYWORD, param.VAR_POSITIONAL):
            plain, optional = _strip_none(hint)
            inputs.append(
                InputParam(
                    name=param.name,
                    optional=optional,
                    variadic=param.kind is param.VAR_POSITIONAL,
                    host=_host_form(fn, param.name, plain) if param.name in host else None,
                )
            )
        else:
            raise TypeError(f"kernel {fn.__name__}: **{param.name} cannot be a kernel parameter")
    return KernelSignature(
        inputs=tuple(inputs),
        attributes=tuple(attributes),
        several_outputs=typing.get_origin(hints.get("return")) is tuple,
        takes_ctx=takes_ctx,
    )


def _strip_none(hint: object) -> tuple[object, bool]:
    if typing.get_origin(hint) in (Union, types.UnionType):
        members = [item for item in typing.get_args(hint) if item is not type(None)]
        optional = len(members) < len(typing.get_args(hint))
        joined: object = members[0]
        for item in members[1:]:
            joined = joined | item
        return joined, optional
    return hint, False


def _host_form(fn: Callable[..., Any], name: str, hint: object) -> str:
    forms: dict[object, str] = {
        int: "int",
        float: "float",
        bool: "bool",
        list[int]: "ints",
        list[float]: "floats",
        Scalar: "scalar",
        Scalar | torch.Tensor: "constant",
    }
    try:
        return forms[hint]
    except (KeyError, TypeError):
        raise TypeError(f"kernel {fn.__name__}: host input {name!r} has no host form for {hint}") from None
