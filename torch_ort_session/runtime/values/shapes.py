"""Buckets: feeds padded to one of a few sizes, and results cut back to the real one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from torch_ort_session.errors import InputError, meant
from torch_ort_session.ir.ports import Port
from torch_ort_session.ir.types import Dim, describe
from torch_ort_session.ops.kernel import Value
from torch_ort_session.options import Bucket


class Stretch(NamedTuple):
    """One symbolic dim of a run that is padded.

    Attributes:
        rule: How.
        real: Its size in the feeds.
        size: Its size in the bucket.
    """

    rule: BucketRule
    real: int
    size: int


@dataclass(frozen=True, slots=True)
class BucketRule:
    """A bucket, and where its symbolic dim stands.

    Attributes:
        bucket: As the options have it.
        inputs: The dims of inputs that carry the symbol.
        outputs: The dims of outputs that do.
    """

    bucket: Bucket
    inputs: tuple[DimPlace, ...]
    outputs: tuple[DimPlace, ...]

    def stretch(self, fed: Mapping[str, Value]) -> Stretch | None:
        """What this rule does to a run on these feeds; None when nothing."""
        real = size_of(fed, self.inputs)
        if not real:
            return None
        size = next((size for size in self.bucket.sizes if size >= real), real)
        return None if size == real else Stretch(self, real, size)


@dataclass(frozen=True, slots=True)
class Mask:
    """An input that is made where the feed leaves it out.

    Attributes:
        name: Of the input.
        dtype: Its dtype.
        dims: Its dims.
        symbols: Where other inputs have its symbolic dims.
        device: Where the session runs.
    """

    name: str
    dtype: torch.dtype
    dims: tuple[Dim, ...]
    symbols: Mapping[str, tuple[DimPlace, ...]]
    device: torch.device

    def made(self, feed: Mapping[str, object]) -> torch.Tensor | None:
        """Ones, as large as the feeds; None where they do not tell."""
        sizes = [self._size(feed, dim) if isinstance(dim, str) else dim for dim in self.dims]
        dims = [size for size in sizes if size is not None]
        if len(dims) < len(sizes):
            return None
        return torch.ones(dims, dtype=self.dtype, device=self.device)

    def _size(self, feed: Mapping[str, object], symbol: str) -> int | None:
        where = self.symbols.get(symbol, ())
        size = _size_in(feed, where)
        # A feed that has no such dim is refused in its own words, not for want of a mask.
        return 1 if size is None and any(feed.get(name) is not None for name, _ in where) else size


@dataclass(frozen=True, slots=True)
class Padding:
    """How the runs of a model are padded.

    Attributes:
        rules: One a bucket.
        masks: Inputs that may be left out.
        outputs: Names of the model's outputs: of other values it is not known which dims to cut.
    """

    rules: tuple[BucketRule, ...]
    masks: tuple[Mask, ...]
    outputs: frozenset[str]

    def completed(self, feed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feed with the masks that it leaves out."""
        for mask in self.masks:
            if mask.name not in feed:
                mask_tensor = mask.made(feed)
                if mask_tensor is not None:
                    feed = {**feed, mask.name: mask_tensor}
        return feed

    def stretches(self, outputs: Sequence[str], fed: Mapping[str, Value]) -> tuple[Stretch, ...]:
        """What is padded in a run for some outputs; nothing where it asks for other values than outputs."""
        if not self.outputs.issuperset(outputs):
            return ()
        stretches = (rule.stretch(fed) for rule in self.rules)
        return tuple([stretch for stretch in stretches if stretch is not None])

    def __str__(self) -> str:
        return "\n".join(
            f"{rule.bucket.symbol} is padded to {', '.join(map(str, rule.bucket.sizes))}"
            for rule in self.rules
        )


def padding(
    buckets: Sequence[Bucket], inputs: Sequence[Port], outputs: Sequence[Port], device: torch.device
) -> Padding | None:
    """What the buckets mean for a model; None without any.

    Args:
        buckets: As the options have them.
        inputs: The model's inputs.
        outputs: The model's outputs.
        device: Where the session runs.

    Raises:
        InputError: A bucket names what the model does not have, or pads what cannot be padded or cut back.
    """
    if not buckets:
        return None
    rules = tuple([_rule(bucket, inputs, outputs) for bucket in buckets])
    names = {bucket.mask for bucket in buckets}
    masks = tuple([_mask(port, inputs, device) for port in inputs if port.name in names])
    return Padding(rules, masks, frozenset(port.name for port in outputs))


def pad(fed: Mapping[str, Value], stretches: Sequence[Stretch]) -> dict[str, Value]:
    """Feeds with their padding.

    Args:
        fed: Feeds as the frame holds them; none is written.
        stretches: What is padded.

    Returns:
        The feeds, those that carry a symbol of the stretches in memory of their own.
    """
    padded = dict(fed)
    for rule, _, size in stretches:
        axes = _by_name(rule.inputs)
        for name, dims in axes.items():
            value = padded.get(name)
            if isinstance(value, torch.Tensor):
                padded[name] = _padded(value, dims, size, rule.bucket.pad.get(name, 0))
    return padded


def cut(names: Sequence[str], results: Sequence[Any], stretches: Sequence[Stretch]) -> list[Any]:
    """Results without their padding.

    Args:
        names: Of the results.
        results: Of a padded run.
        stretches: What was padded.

    Returns:
        The results; those that were cut are in memory of their own.

    Raises:
        ValueError: A result does not have the size of the bucket where it should.
    """
    whole = dict(zip(names, results, strict=True))
    cuts: dict[str, Any] = {}
    for rule, real, size in stretches:
        for name, axis in rule.outputs:
            value = cuts.get(name, whole.get(name))
            if name not in whole:
                continue
            if not isinstance(value, torch.Tensor) or value.dim() <= axis or value.shape[axis] != size:
                dims = list(value.shape) if isinstance(value, torch.Tensor) else "no tensor"
                raise ValueError(
                    f"{name!r} came out as {dims}, where dim {axis} carries {rule.bucket.symbol!r}, which is "
                    f"{size} with its padding"
                )
            cuts[name] = value.narrow(axis, 0, real)
    return [cuts[name].clone() if name in cuts else whole[name] for name in names]


def padding_text(fed: Mapping[str, Value], padded: Mapping[str, Value]) -> str:
    """Which feeds were padded from what to what."""
    return "; ".join(
        f"{name} {list(value.shape)} to {list(padded[name].shape)}"  # type: ignore[union-attr]
        for name, value in fed.items()
        if value is not padded[name] and isinstance(value, torch.Tensor)
    )


def _rule(bucket: Bucket, inputs: Sequence[Port], outputs: Sequence[Port]) -> BucketRule:
    symbol, ports = bucket.symbol, {port.name: port for port in inputs}
    where = places(symbol, symbols_of(inputs), "buckets")
    carriers = {name for name, _ in where}
    for name in (*bucket.pad, *([] if bucket.mask is None else [bucket.mask])):
        if name not in ports:
            raise unknown("buckets", "input", name, ports)
        if name not in carriers:
            raise InputError(f"buckets: input {ports[name]} has no dim {symbol!r}", name=name)
    for name in carriers:
        _check_padding(ports[name], 0 if name == bucket.mask else bucket.pad.get(name, 0))
    for name in bucket.results:
        if all(port.name != name for port in outputs):
            raise unknown("buckets", "output", name, [port.name for port in outputs])
    cut_dims = [(port.name, axis) for port in outputs for axis in _cut_dims(bucket, port)]
    return BucketRule(bucket, where, tuple(cut_dims))


def _cut_dims(bucket: Bucket, port: Port) -> tuple[int, ...]:
    """The dims of an output that carry the symbol."""
    listed, dims = bucket.results.get(port.name), port.shape
    if listed is not None:
        if dims is not None and any(axis >= len(dims) for axis in listed):
            raise InputError(f"buckets: output {port} has no dims {list(listed)}", name=port.name)
        return listed
    if port.dtype is None or dims is None or any(_doubtful(dim, bucket.symbol) for dim in dims):
        raise InputError(
            f"buckets: the model does not tell which dims of output {port} carry {bucket.symbol!r}; say it "
            f"with results={{{port.name!r}: (...)}}, () for none",
            name=port.name,
        )
    return tuple([axis for axis, dim in enumerate(dims) if dim == bucket.symbol])


def _doubtful(dim: Dim, symbol: str) -> bool:
    """Whether a dim may hang on a symbol in a way that is no name: exporters write sums as well."""
    if isinstance(dim, str):
        return dim != symbol and symbol in re.split(r"\W+", dim)
    return dim is None


def _check_padding(port: Port, value: float) -> None:
    wrong = "it holds no numbers"
    if port.dtype is not None:
        try:
            filled = torch.full((), value, dtype=port.dtype)
            if filled.is_floating_point() or filled.is_complex() or filled.item() == value:
                return
            wrong = f"{port.dtype} has no {value}"
        except (RuntimeError, OverflowError) as error:
            wrong = f"{port.dtype} has no {value}: {error}".partition("\n")[0]
    raise InputError(f"buckets: input {port} cannot be padded with {value}: {wrong}", name=port.name)


def _mask(port: Port, inputs: Sequence[Port], device: torch.device) -> Mask:
    others = symbols_of(other for other in inputs if other.name != port.name)
    assert port.dtype is not None and port.shape is not None
    return Mask(port.name, port.dtype, port.shape, others, device)


def _by_name(where: Sequence[DimPlace]) -> dict[str, list[int]]:
    axes: dict[str, list[int]] = {}
    for name, axis in where:
        axes.setdefault(name, []).append(axis)
    return axes


def _padded(tensor: torch.Tensor, axes: Sequence[int], size: int, fill: float) -> torch.Tensor:
    dims = [size if axis in axes else dim for axis, dim in enumerate(tensor.shape)]
    padded = tensor.new_full(dims, fill)
    padded[tuple([slice(0, dim) for dim in tensor.shape])].copy_(tensor)
    return padded


def _size_in(feed: Mapping[str, object], where: Sequence[DimPlace]) -> int | None:
    """The size of a symbolic dim in feeds that were not checked yet."""
    for name, axis in where:
        value = feed.get(name)
        if value is None:
            continue
        dims = _dims(value)
        if axis < len(dims):
            return int(dims[axis])
    return None


def _dims(value: Any) -> tuple[int, ...]:
    if hasattr(value, "shape"):
        return tuple(value.shape)
    try:
        return np.shape(value)
    except ValueError:
        # A list with rows of different lengths; the checks of feeds say so.
        return ()


DimPlace: TypeAlias = tuple[str, int]
"""A dim: the name of an input or output, and which of its dims."""

_SHOWN = 4
"""Entries that a message shows."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be captured.

    Attributes:
        entries: Of each the sizes of symbolic dims and the dims of inputs that it names.
        symbols: Where the symbolic dims stand that are named.
    """

    entries: tuple[Mapping[str, int | tuple[int, ...]], ...]
    symbols: Mapping[str, tuple[DimPlace, ...]]

    def refusal(self, fed: Mapping[str, Value]) -> str:
        """Why a run on these feeds is not captured; empty when it may be."""
        sizes = {
            name: size_of(fed, self.symbols[name]) if isinstance(size, int) else _dims_if_any(fed.get(name))
            for entry in self.entries
            for name, size in entry.items()
        }
        if any(all(sizes[name] == size for name, size in entry.items()) for entry in self.entries):
            return ""
        listed = "; ".join(_told(entry) for entry in self.entries[:_SHOWN])
        more = f" and {len(self.entries) - _SHOWN} more" if len(self.entries) > _SHOWN else ""
        return f"{_told(sizes)} is none of those in capture_only: {listed}{more}"


def allowed(
    entries: Sequence[Mapping[str, int | tuple[int, ...]]] | None, inputs: Sequence[Port]
) -> Allowed | None:
    """The whitelist of a model.

    Args:
        entries: As the options have them; None allows everything.
        inputs: The model's inputs.

    Raises:
        InputError: A name is no symbolic dim or no input, or dims do not fit the input.
    """
    if entries is None:
        return None
    symbols, ports = symbols_of(inputs), {port.name: port for port in inputs}
    used: dict[str, tuple[DimPlace, ...]] = {}
    for entry in entries:
        for name, size in entry.items():
            if isinstance(size, int) and name in ports and name not in symbols:
                raise _mixed_up(
                    name,
                    f"is an input, {describe(ports[name].type)}: it is given all of its dims, as a tuple",
                )
            if not isinstance(size, int) and name in symbols and name not in ports:
                advice = "is given one size, as an int; for several sizes write several entries"
                raise _mixed_up(name, f"is a symbolic dim and {advice}")
            if isinstance(size, int):
                used[name] = places(name, symbols, "capture_only")
            elif name not in ports:
                raise unknown("capture_only", "input", name, ports)
            else:
                _check_dims(ports[name], size)
    return Allowed(tuple(entries), used)


def symbols_of(ports: Iterable[Port]) -> dict[str, tuple[DimPlace, ...]]:
    """Where each symbolic dim of some inputs or outputs stands, in order."""
    symbols: dict[str, tuple[DimPlace, ...]] = {}
    for port in ports:
        for axis, dim in enumerate(port.shape or ()):
            if isinstance(dim, str):
                symbols[dim] = (*symbols.get(dim, ()), (port.name, axis))
    return symbols


def places(symbol: str, symbols: Mapping[str, tuple[DimPlace, ...]], option: str) -> tuple[DimPlace, ...]:
    """Where a symbolic dim stands.

    Raises:
        InputError: No input has it.
    """
    if symbol not in symbols:
        raise unknown(option, "symbolic dim", symbol, symbols)
    return symbols[symbol]


def size_of(fed: Mapping[str, Value], where: Iterable[DimPlace]) -> int | None:
    """The size of a symbolic dim; None where no feed of this run has it."""
    for name, axis in where:
        dims = _dims_if_any(fed.get(name))
        if dims is not None:
            return dims[axis]
    return None


def unknown(option: str, what: str, name: str, names: Iterable[str]) -> InputError:
    """An error for a name in the options that the model does not have."""
    listed = sorted(names)
    hint = meant(name, listed)
    shown = ", ".join(map(repr, listed)) or "none"
    return InputError(
        f"{option}: no input has the {what} {name!r}{hint} (there are: {shown})"
        if what == "symbolic dim"
        else f"{option}: the model has no {what} {name!r}{hint} (there are: {shown})",
        name=name,
        got=name,
        expected=shown,
    )


def _mixed_up(name: str, what: str) -> InputError:
    return InputError(f"capture_only: {name!r} {what}", name=name)


def _check_dims(port: Port, wanted: tuple[int, ...]) -> None:
    fits = port.shape is None or (
        len(port.shape) == len(wanted)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(port.shape, wanted, strict=True))
    )
    if not fits:
        raise InputError(
            f"capture_only: input {port.name!r} never has the dims {list(wanted)}; the model says {port}",
            name=port.name,
            got=str(list(wanted)),
            expected=str(port),
        )


def _dims_if_any(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if hasattr(value, "shape") else None


def _told(entry: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={list(value) if isinstance(value, tuple) else 'absent' if value is None else value}"
        for name, value in entry.items()
    )
