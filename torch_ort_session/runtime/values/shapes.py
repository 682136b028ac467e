"""Buckets: feeds padded to one of a few sizes, and results cut back to the real one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from torch_ort_session.errors import InputError
from torch_ort_session.ir.ports import Port
from torch_ort_session.ir.types import Dim
from torch_ort_session.ops.kernel import Value
from torch_ort_session.options import Bucket
from torch_ort_session.runtime.values.allowed import Place, places, size_of, symbols_of, unknown


class Stretch(NamedTuple):
    """One symbolic dim of a run that is padded.

    Attributes:
        rule: How.
        real: Its size in the feeds.
        size: Its size in the bucket.
    """

    rule: Rule
    real: int
    size: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A bucket, and where its symbolic dim stands.

    Attributes:
        bucket: As the options have it.
        inputs: The dims of inputs that carry the symbol.
        outputs: The dims of outputs that do.
    """

    bucket: Bucket
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]

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
    symbols: Mapping[str, tuple[Place, ...]]
    device: torch.device

    def made(self, feed: Mapping[str, object]) -> torch.Tensor | None:
        """Ones, as large as the feeds; None where they do not tell."""
        sizes = [self._size(feed, dim) if isinstance(dim, str) else dim for dim in self.dims]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return None
        return torch.ones(known, dtype=self.dtype, device=self.device)

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
        outputs: Names of the model's outputs: of other values nobody knows which dims to cut.
    """

    rules: tuple[Rule, ...]
    masks: tuple[Mask, ...]
    outputs: frozenset[str]

    def completed(self, feed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feed with the masks that it leaves out."""
        for mask in self.masks:
            if mask.name not in feed:
                made = mask.made(feed)
                if made is not None:
                    feed = {**feed, mask.name: made}
        return feed

    def stretches(self, outputs: Sequence[str], fed: Mapping[str, Value]) -> tuple[Stretch, ...]:
        """What is padded in a run for some outputs; nothing where it asks for other values than outputs."""
        if not self.outputs.issuperset(outputs):
            return ()
        found = (rule.stretch(fed) for rule in self.rules)
        return tuple([stretch for stretch in found if stretch is not None])

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


def told(fed: Mapping[str, Value], padded: Mapping[str, Value]) -> str:
    """Which feeds were padded from what to what."""
    return "; ".join(
        f"{name} {list(value.shape)} to {list(padded[name].shape)}"  # type: ignore[union-attr]
        for name, value in fed.items()
        if value is not padded[name] and isinstance(value, torch.Tensor)
    )


def _rule(bucket: Bucket, inputs: Sequence[Port], outputs: Sequence[Port]) -> Rule:
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
    found = [(port.name, axis) for port in outputs for axis in _cut_dims(bucket, port)]
    return Rule(bucket, where, tuple(found))


def _cut_dims(bucket: Bucket, port: Port) -> tuple[int, ...]:
    """The dims of an output that carry the symbol."""
    given, dims = bucket.results.get(port.name), port.shape
    if given is not None:
        if dims is not None and any(axis >= len(dims) for axis in given):
            raise InputError(f"buckets: output {port} has no dims {list(given)}", name=port.name)
        return given
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
            made = torch.full((), value, dtype=port.dtype)
            if made.is_floating_point() or made.is_complex() or made.item() == value:
                return
            wrong = f"{port.dtype} has no {value}"
        except (RuntimeError, OverflowError) as error:
            wrong = f"{port.dtype} has no {value}: {error}".partition("\n")[0]
    raise InputError(f"buckets: input {port} cannot be padded with {value}: {wrong}", name=port.name)


def _mask(port: Port, inputs: Sequence[Port], device: torch.device) -> Mask:
    others = symbols_of(other for other in inputs if other.name != port.name)
    assert port.dtype is not None and port.shape is not None
    return Mask(port.name, port.dtype, port.shape, others, device)


def _by_name(where: Sequence[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, axis in where:
        found.setdefault(name, []).append(axis)
    return found


def _padded(tensor: torch.Tensor, axes: Sequence[int], size: int, fill: float) -> torch.Tensor:
    dims = [size if axis in axes else dim for axis, dim in enumerate(tensor.shape)]
    made = tensor.new_full(dims, fill)
    made[tuple([slice(0, dim) for dim in tensor.shape])].copy_(tensor)
    return made


def _size_in(feed: Mapping[str, object], where: Sequence[Place]) -> int | None:
    """The size of a symbolic dim in feeds that nobody has looked at yet."""
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
