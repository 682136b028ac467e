"""Feeds: what a user has becomes a tensor that fits the model's input, or an error that says why not."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.utils.dlpack

from torch_ort_session.errors import InputError, meant
from torch_ort_session.ir.graph import ValueInfo
from torch_ort_session.ir.types import (
    ElementType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    describe,
    describe_shape,
)
from torch_ort_session.ops.kernel import Value
from torch_ort_session.runtime.values.context import emptied
from torch_ort_session.runtime.values.guards import FeedGuard, FeedRow, feed_guard, feed_row, is_plain

Symbols: TypeAlias = dict[str, tuple[int, str, int]]
"""Symbolic dims that feeds have bound: the size, and which input bound it with which dim."""

_HOST = torch.device("cpu")


def check_names(feed: Mapping[str, object], names: Sequence[str], required: Sequence[str]) -> None:
    """Refuse unknown and missing names.

    Args:
        feed: What came.
        names: Every input name of the model.
        required: Those without a default.

    Raises:
        InputError: A name is unknown, or a required one is missing.
    """
    for name in feed:
        if name not in names:
            hint = meant(str(name), names)
            listed = ", ".join(repr(item) for item in names) or "none"
            raise InputError(
                f"the model has no input {name!r}{hint} (its inputs: {listed})",
                name=str(name),
                got=str(name),
                expected=listed,
            )
    missing = [name for name in required if name not in feed]
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        fed = ", ".join(repr(name) for name in feed) or "nothing"
        raise InputError(
            f"required input(s) {listed} are missing; {fed} was fed",
            name=missing[0],
            got=fed,
            expected=listed,
        )


def convert(info: ValueInfo, value: object, device: torch.device, symbols: Symbols) -> Value:
    """One feed as the frame holds it.

    Args:
        info: The model's input.
        value: A torch tensor (any strides, any device), a numpy array, a Python number or nested list, any
            DLPack producer; a list or tuple of those for a sequence; None for an absent optional.
        device: Where the session runs; a tensor elsewhere is copied there.
        symbols: Symbolic dims bound by the feeds before, with who bound them; extended here.

    Returns:
        A tensor on ``device`` (a view of the feed's own memory where that is possible), or strings, a
        tuple or None. Shape as fed, dtype the carrier of the input's element type.

    Raises:
        InputError: Wrong kind, dtype, rank, static dim, or a symbol with two values.
    """
    return _convert(info.name, info.type, value, device, symbols)


def convert_all(
    infos: Iterable[ValueInfo],
    defaults: Container[str],
    feed: Mapping[str, object],
    device: torch.device,
    on_host: Container[str] = (),
) -> dict[str, Value]:
    """Every feed of a run as the frame holds it.

    Args:
        infos: The model's inputs.
        defaults: Names of those that have a default.
        feed: What came, by name.
        device: Where the session runs.
        on_host: Names of inputs that stay on the CPU.

    Returns:
        One value for each name that was fed, in the model's order.

    Raises:
        InputError: A name is unknown or missing, or a value does not fit.
    """
    infos = tuple(infos)
    if len(feed) != len(infos) or any(info.name not in feed for info in infos):
        optional = {info.name for info in infos if isinstance(info.type, OptionalType)}
        names = [info.name for info in infos]
        check_names(feed, names, [name for name in names if name not in defaults and name not in optional])
    symbols: Symbols = {}
    fed: dict[str, Value] = {}
    for info in infos:
        name = info.name
        if name in feed:
            value, target = feed[name], _HOST if name in on_host else device
            fits = _fits(name, info.type, value, target, symbols)
            fed[name] = value if fits else convert(info, value, target, symbols)  # type: ignore[assignment]
    return fed


def _fits(name: str, kind: ValueType | None, value: object, device: torch.device, symbols: Symbols) -> bool:
    """Whether a feed needs no conversion: the quick way of what is right; all else goes the long way."""
    if type(kind) is not TensorType or not is_plain(value, kind.element.torch_dtype, device):
        return False
    dims, shape = kind.shape, value.shape  # type: ignore[attr-defined]
    if dims is None:
        return True
    if len(dims) != len(shape):
        return False
    for axis, dim in enumerate(dims):
        size = shape[axis]
        if dim is None or dim == size:
            continue
        if not isinstance(dim, str):
            return False
        bound = symbols.get(dim)
        if bound is None:
            symbols[dim] = (size, name, axis)
        elif bound[0] != size:
            return False
    return True


def any_requires_grad(values: Iterable[Value]) -> bool:
    """Whether a value, or an item of a sequence, requires grad."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return True
        if isinstance(value, tuple) and any_requires_grad(value):
            return True
    return False


def recordable(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values with copies in the place of inference tensors, which autograd refuses to save."""
    return {name: _recordable(value) for name, value in values.items()}


def _recordable(value: Value) -> Value:
    if isinstance(value, torch.Tensor):
        return value.clone() if value.is_inference() else value
    return tuple(_recordable(item) for item in value) if isinstance(value, tuple) else value


def _convert(
    name: str,
    kind: ValueType | None,
    value: object,
    device: torch.device,
    symbols: Symbols,
) -> Value:
    if isinstance(kind, OptionalType):
        return None if value is None else _convert(name, kind.item, value, device, symbols)
    if value is None:
        raise _wrong(name, "None", kind, "only an optional input may be None")
    if isinstance(kind, SequenceType):
        if not isinstance(value, (list, tuple)):
            got = type(value).__name__
            raise _wrong(name, got, kind, "feed a list or tuple of tensors")
        return tuple(_convert(f"{name}[{i}]", kind.item, item, device, {}) for i, item in enumerate(value))
    if isinstance(kind, MapType):
        raise _wrong(name, type(value).__name__, kind, "map inputs are not supported")
    if kind is None or kind.element is ElementType.UNDEFINED:
        return _as_tensor(name, value, None, "any tensor").to(device)
    if kind.element is ElementType.STRING:
        strings = _as_strings(name, value, describe(kind))
        _check_shape(name, tuple(strings.shape), kind, symbols)
        return strings
    tensor = _as_tensor(name, value, kind.element, kind)
    dtype = kind.element.torch_dtype
    if tensor.dtype != dtype:
        raise _wrong(
            name,
            f"dtype {_short(tensor.dtype)}",
            kind,
            f"convert it, with {_cast(value, dtype)} for example: a feed is never cast silently",
        )
    if tensor.layout != torch.strided or tensor.is_nested:
        got = "a nested tensor" if tensor.is_nested else f"a {tensor.layout} tensor"
        raise _wrong(name, got, kind, "feed a dense tensor (.to_dense(), .to_padded_tensor(0))")
    _check_shape(name, tuple(tensor.shape), kind, symbols)
    if tensor.device != device:
        if tensor.is_meta:
            raise _wrong(name, "a meta tensor, which has no data", kind, "feed a real tensor")
        tensor = tensor.to(device)
    if emptied(tensor):
        raise _wrong(name, "a tensor whose memory was given back", kind, "its storage was resized to 0")
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    return tensor


def _check_shape(name: str, shape: tuple[int, ...], kind: TensorType, symbols: Symbols) -> None:
    dims = kind.shape
    if dims is None:
        return
    if len(dims) != len(shape):
        why = f"the model expects rank {len(dims)}"
        raise _wrong(name, f"shape {list(shape)} of rank {len(shape)}", kind, why)
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if dim == size or dim is None:
            continue
        if isinstance(dim, int):
            raise _wrong(name, f"shape {list(shape)}", kind, f"dim {axis} is {size} and must be {dim}")
        bound, by, place = symbols.setdefault(dim, (size, name, axis))
        if bound != size:
            why = f"symbol {dim!r} is {size} here (dim {axis}) but {bound} in {by!r} dim {place}"
            raise _wrong(name, f"shape {list(shape)}", describe_shape(dims), why)


def _as_tensor(
    name: str, value: object, element: ElementType | None, expected: ValueType | str
) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return _plain(value)
    if isinstance(value, np.ndarray | np.generic):
        if np.ma.is_masked(value):
            why = "what the mask hides would be computed with; feed .filled(...) or .data"
            raise _wrong(name, "a masked array", expected, why)
        return from_numpy(name, np.asarray(value), expected)
    if isinstance(value, bool | int | float | complex | list | tuple):
        return _from_python(name, value, element, expected)
    if hasattr(value, "__dlpack__"):
        try:
            return torch.utils.dlpack.from_dlpack(value)
        except (RuntimeError, TypeError, BufferError, ValueError) as error:
            raise _wrong(
                name, type(value).__name__, expected, f"its DLPack export failed: {error}"
            ) from error
    why = "feed a torch tensor, a numpy array, a Python number or list, or a DLPack producer"
    raise _wrong(name, type(value).__name__, expected, why)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without a subclass that would spread to the results.

    A subclass that intercepts dispatch (a fake tensor, a distributed one) has no plain form and stays.
    """
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return tensor
    intercepts = kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    return tensor if intercepts else tensor.as_subclass(torch.Tensor)


def _from_python(
    name: str, value: Any, element: ElementType | None, expected: ValueType | str
) -> torch.Tensor:
    leaf = value
    while isinstance(leaf, list | tuple) and leaf:
        leaf = leaf[0]
    if isinstance(leaf, torch.Tensor):
        why = "a list of tensors is no tensor; stack them (torch.stack)"
        raise _wrong(name, f"a {type(value).__name__} of tensors", expected, why)
    if isinstance(leaf, np.ndarray):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise _wrong(name, f"a {type(value).__name__} of arrays", expected, str(error)) from error
        return from_numpy(name, array, expected)
    dtype = None if element is None else element.torch_dtype
    try:
        natural = torch.as_tensor(value, device="cpu")
        if dtype is None or natural.numel() == 0:
            return natural if dtype is None else natural.to(dtype)
        if not torch.can_cast(natural.dtype, dtype):
            kind = _short(natural.dtype)
            raise _wrong(name, f"Python values of kind {kind}", expected, "that would lose information")
        if not dtype.is_signed and not natural.is_floating_point() and bool((natural < 0).any()):
            raise _wrong(name, "a negative number", expected, "the type holds none")
        return torch.as_tensor(value, dtype=dtype, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise _wrong(name, f"a {type(value).__name__}", expected, str(error)) from error


def from_numpy(
    name: str, array: np.ndarray[Any, Any], expected: ValueType | str = "a tensor"
) -> torch.Tensor:
    """A numpy array as a tensor over the same memory where that is possible, bfloat16 and float8 included.

    Raises:
        InputError: The array's dtype has no torch counterpart.
    """
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    special = _ML_DTYPES.get(array.dtype.name)
    if special is not None:
        if special in _PACKED:
            return torch.from_numpy(array.astype(_PACKED[special][0])).to(_PACKED[special][1])
        assert isinstance(special, torch.dtype)
        plain = np.dtype(np.uint16 if special.itemsize == 2 else np.uint8)
        return torch.from_numpy(np.ascontiguousarray(array).view(plain)).view(special).reshape(array.shape)
    if any(stride % array.itemsize for stride in array.strides if array.itemsize):
        array = array.copy()
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        why = f"numpy dtype {array.dtype} has no torch counterpart"
        raise _wrong(name, f"numpy dtype {array.dtype}", expected, why) from error


_ML_DTYPES: Mapping[str, torch.dtype | str] = {
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
    "float4_e2m1fn": "float4",
    "int4": "signed",
    "int2": "signed",
    "uint4": "unsigned",
    "uint2": "unsigned",
}
_PACKED: Mapping[object, tuple[Any, torch.dtype]] = {
    "float4": (np.float32, torch.float8_e4m3fn),
    "signed": (np.int8, torch.int8),
    "unsigned": (np.uint8, torch.uint8),
}


def _as_strings(name: str, value: object, expected: str) -> np.ndarray[Any, np.dtype[np.object_]]:
    array = np.asarray(value, dtype=object) if isinstance(value, str | list | tuple) else value
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "OUST":
        raise _wrong(name, type(value).__name__, expected, "feed str, or a list or numpy array of str")
    listed = array.reshape(-1).tolist()
    if not set(map(type, listed)) <= {str}:
        try:
            listed = [item.decode() if isinstance(item, bytes) else item for item in listed]
        except UnicodeDecodeError as error:
            raise _wrong(name, "bytes that are not UTF-8", expected, str(error)) from error
        odd = next((item for item in listed if not isinstance(item, str)), None)
        if odd is not None:
            raise _wrong(
                name, f"an element of type {type(odd).__name__}", expected, "every element must be a str"
            )
    strings = np.empty(array.shape, dtype=object)
    strings.reshape(-1)[:] = listed
    return strings


def _wrong(name: str, got: str, wanted: ValueType | str | None, why: str) -> InputError:
    expected = wanted if isinstance(wanted, str) else describe(wanted)
    return InputError(
        f"input {name!r}: got {got}, expected {expected}; {why}", name=name, got=got, expected=expected
    )


def _cast(value: object, dtype: torch.dtype | None) -> str:
    name = _short(dtype)
    return f".to(torch.{name})" if isinstance(value, torch.Tensor) else f"numpy.asarray(..., dtype={name!r})"


def _short(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


_ACCEPTED = 256
"""Combinations of dims that are remembered; then the memory starts afresh."""


class FeedConverter:
    """Converts and checks feeds as :func:`.feeds.convert_all` does, at less cost for dims seen before.

    Its lifetime is that of the program whose feeds it converts.

    Args:
        infos: The model's inputs.
        defaults: Names of those that have a default.
        device: Where the session runs.
        on_host: Names of inputs that stay on the CPU.
    """

    def __init__(
        self,
        infos: Iterable[ValueInfo],
        defaults: Container[str],
        device: torch.device,
        on_host: Container[str] = (),
    ) -> None:
        self._infos = tuple(infos)
        self._defaults = defaults
        self._device = device
        self._on_host = on_host
        self._accepted: set[tuple[torch.Size, ...]] = set()
        self._guard = self._compiled()

    def __call__(self, feed: Mapping[str, object]) -> dict[str, Value]:
        """Every feed of a run as the frame holds it.

        Args:
            feed: What came, by name.

        Returns:
            One value for each name that was fed, in the model's order.

        Raises:
            InputError: It is no mapping, a name is unknown or missing, or a value does not fit.
        """
        if type(feed) is not dict and not isinstance(feed, Mapping):
            kind = type(feed).__name__
            raise InputError(f"feed is a mapping from input names to values, not a {kind}", got=kind)
        fed = None if self._guard is None else self._accepted_as_it_is(self._guard, feed)
        if fed is None:
            fed = convert_all(self._infos, self._defaults, feed, self._device, self._on_host)
            if self._guard is not None and len(fed) == len(self._infos):
                if len(self._accepted) >= _ACCEPTED:
                    self._accepted.clear()
                self._accepted.add(tuple([value.shape for value in fed.values()]))  # type: ignore[union-attr]
        return fed

    def _accepted_as_it_is(self, guard: FeedGuard, feed: Mapping[str, object]) -> dict[str, Value] | None:
        """The feeds, if nothing about them is new; None leaves the rest, errors included, to the long way."""
        admitted = guard.admit(feed)
        if admitted is None:
            return None
        if tuple([value.shape for value in admitted.values()]) not in self._accepted:
            return None
        for name, value in admitted.items():
            if type(value) is not torch.Tensor:
                admitted[name] = from_numpy(name, value)
        return admitted

    def _compiled(self) -> FeedGuard | None:
        """The guard of feeds with any dims; None where an input is no tensor."""
        rows: list[FeedRow] = []
        for info in self._infos:
            dtype = info.type.element.torch_dtype if type(info.type) is TensorType else None
            if dtype is None:
                return None
            device = _HOST if info.name in self._on_host else self._device
            rows.append(feed_row(info.name, dtype, device, 0))
        return feed_guard(rows, (None,), gradients=True)
