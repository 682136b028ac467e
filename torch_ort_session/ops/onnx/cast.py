"""Cast, CastLike and BitCast.

Sources: https://onnx.ai/onnx/operators/onnx__Cast.html, onnx__CastLike, onnx__BitCast
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ir.types import ElementType, element_type_of
from torch_ort_session.ops.common.casting import PLAIN, bits_of, convert, from_bits
from torch_ort_session.ops.kernel import KernelContext, Strings, kernel
from torch_ort_session.ops.onnx.cast_text import parse, render


def _makes_text(node: Node) -> str | None:
    """Why a cast to strings cannot be captured. The target of CastLike shows in the step's specs alone."""
    to = node.attributes.get("to")
    return "strings are made on the host" if to in (ElementType.STRING, "STRING") else None


@kernel("Cast", since=(6, 9, 13, 19, 21, 23, 24, 25, 28), view_of="x", seam=_makes_text)
def cast(
    x: Tensor | Strings, *, to: int, saturate: int = 1, round_mode: str = "up", ctx: KernelContext
) -> Tensor | Strings:
    """``x`` in another element type.

    Args:
        x: Any type.
        to: Code of the element type.
        saturate: Whether 8-bit floats hold what is too large for them at their greatest number.
        round_mode: How float8e8m0 rounds: ``"up"``, ``"down"`` or ``"nearest"``.
        ctx: Context.

    Returns:
        The same shape; ``x`` itself when there is nothing to do.

    Raises:
        ValueError: An unknown type or rounding, or a text that is no number.
    """
    plain = PLAIN.get(to)
    if plain is not None and isinstance(x, Tensor):
        return x.to(plain)
    return _cast(x, _element(to), saturate != 0, round_mode, ctx)


@kernel("Cast", since=(1,), view_of="x", seam=_makes_text)
def cast_v1(x: Tensor | Strings, *, to: str, ctx: KernelContext) -> Tensor | Strings:
    """As :func:`cast`, with the type by its name, such as ``"FLOAT"``.

    Raises:
        ValueError: An unknown type.
    """
    try:
        element = ElementType[to.upper()]
    except KeyError:
        raise ValueError(f"The attribute to names no element type of ONNX: {to!r}.") from None
    return _cast(x, element, True, "up", ctx)


@kernel("CastLike", since=(15, 19, 21, 23, 24, 25), view_of="x", seam=_makes_text)
def cast_like(
    x: Tensor | Strings,
    like: Tensor | Strings,
    *,
    saturate: int = 1,
    round_mode: str = "up",
    ctx: KernelContext,
) -> Tensor | Strings:
    """``x`` in the element type of ``like``; the rest as in :func:`cast`.

    Raises:
        ValueError: An unknown rounding, or a text that is no number.
    """
    element = ctx.input_type(1)
    if element is None:
        element = element_type_of(like.dtype) if isinstance(like, Tensor) else ElementType.STRING
    return _cast(x, element, saturate != 0, round_mode, ctx)


@kernel("BitCast", since=(26,), view_of="x")
def bit_cast(x: Tensor, *, to: int, ctx: KernelContext) -> Tensor:
    """The bits of ``x`` read as another type of the same width.

    Args:
        x: Any type but strings.
        to: Code of the element type.
        ctx: Context.

    Returns:
        The same shape, without a copy where the carriers allow it.

    Raises:
        ValueError: The widths differ, or the type is unknown.
    """
    element = _element(to)
    source = ctx.input_type(0) or element_type_of(x.dtype)
    dtype = element.torch_dtype
    if dtype is None or source.bits != element.bits:
        raise ValueError(
            f"BitCast needs types of one width, not {source.label} with {source.bits} bits "
            f"and {element.label} with {element.bits}."
        )
    if element.is_packed:
        return from_bits(bits_of(x, source), element)
    if dtype is torch.bool:
        return x.view(torch.uint8).ne(0)
    return x.view(dtype)


def _cast(
    x: Tensor | Strings, to: ElementType, saturate: bool, round_mode: str, ctx: KernelContext
) -> Tensor | Strings:
    if isinstance(x, Tensor):
        return render(x) if to is ElementType.STRING else convert(x, to, saturate, round_mode)
    return x if to is ElementType.STRING else parse(x, to, ctx.device, saturate, round_mode)


def _element(code: int) -> ElementType:
    if code in ElementType._value2member_map_ and code:
        return ElementType(code)
    raise ValueError(f"The attribute to is {code}, which is the code of no element type known here.")
