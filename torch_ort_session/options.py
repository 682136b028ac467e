"""Options of a session, as frozen records; the only reader of environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

Capture = Literal["auto", "off", "required"]
Validate = Literal["run", "deferred", "off"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds that a model must keep while it is loaded; the defaults are far above real models.

    Others are passed as ``load(path, options=Options(limits=Limits(nodes=...)))``.

    Attributes:
        nesting: Control-flow bodies within each other, and model-local functions that call each other.
        nodes: Nodes of all graphs together, after model-local functions are expanded.
        elements: Elements of one tensor.
        dense_bytes: Bytes of one sparse initializer once it is dense: the only weight that can be larger
            than the file that holds it.
        file_bytes: Size of the model file.
        message_bytes: Size of the protobuf message without the weights that are read straight from the file.
        hard_links: Whether an external data file may have other names (hard links). A folder unpacked from an
            archive can hold a link to any file of the same disk, so it is off; package managers that link
            files from a cache need it on.
    """

    nesting: int = 64
    nodes: int = 500_000
    elements: int = 1 << 40
    dense_bytes: int = 1 << 33
    file_bytes: int = 1 << 42
    message_bytes: int = (1 << 31) - 1
    hard_links: bool = False

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name == "hard_links":
                _flag(limit.name, value)
            else:
                _size(limit.name, value)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sizes of a symbolic dim that feeds are padded to, so that many sizes share a few captures.

    A run whose feeds have another size of the symbol is made on feeds padded behind their end to the next
    larger size of the bucket, and results are cut back. Larger ones than the last run as they come. That the
    real part of every result is the same with and without padding is the caller's promise, most often kept by
    a mask that the model reads: ``Options(verify=True)`` checks it.

    Attributes:
        symbol: The symbolic dim, as ``session.inputs`` shows it.
        sizes: What is padded to, rising.
        pad: The padding of each feed by name; 0 where none is given.
        mask: An input that is 1 (True) where data is real and is padded with 0. It may be left out of the
            feed: then it is made.
        results: For outputs of which the model does not tell it: the dims that carry the symbol, by name.
    """

    symbol: str
    sizes: tuple[int, ...]
    pad: Mapping[str, float] = field(default_factory=dict, hash=False)
    mask: str | None = None
    results: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.symbol, str) or not self.symbol:
            raise TypeError(f"symbol is the name of a symbolic dim, got {self.symbol!r}")
        sizes = _sizes(f"sizes of {self.symbol!r}", self.sizes)
        if not sizes or sizes[0] < 1 or sorted(set(sizes)) != list(sizes):
            raise ValueError(f"sizes of {self.symbol!r} must be positive and rise, got {self.sizes!r}")
        _mapping(f"pad of {self.symbol!r}", self.pad, "inputs", "numbers")
        _mapping(f"results of {self.symbol!r}", self.results, "outputs", "dims")
        if self.mask is not None and not isinstance(self.mask, str):
            raise TypeError(f"mask of {self.symbol!r} is the name of an input, got {self.mask!r}")
        for name, value in self.pad.items():
            if not isinstance(value, int | float):
                raise TypeError(f"the padding of {name!r} must be a number, got {value!r}")
        if self.mask in self.pad:
            raise ValueError(f"{self.mask!r} is the mask: it is padded with 0, and has no padding of its own")
        results = {name: _sizes(f"dims of result {name!r}", dims) for name, dims in self.results.items()}
        for name, dims in results.items():
            if len(set(dims)) < len(dims):
                raise ValueError(f"dims of result {name!r} are given twice: {dims}")
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "pad", dict(self.pad))
        object.__setattr__(self, "results", results)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a session's runs.

    Attributes:
        num_threads: Threads of torch's CPU kernels during a run, restored afterwards; None leaves the
            setting alone. Torch has one for the process, so sessions that run at once share it.
        capture: ``"auto"`` records what runs again and again and replays it, ``"off"`` always runs eagerly,
            ``"required"`` makes a run that should be captured and cannot be an error.
        max_plans: Signatures (shapes, dtypes and requested outputs) whose plans are kept; the least recently
            used goes first.
        verify: Checks for whoever doubts a result: plans are checked again, slots are filled with 0xFF after
            their last reader, and the first replay on other feeds than the captured ones is compared with an
            eager run. Where they differ the eager results are given, and the signature stays eager.
        limits: What a model may ask for before loading it is refused.
        validate: When it is asked whether kernels met bad data, such as an index outside of its axis:
            ``"run"`` at the end of each run, before results are given, ``"deferred"`` when bound outputs are
            read (runs that give results ask at their end), ``"off"`` never: what is outside of an axis is
            taken as the nearest entry. Memory outside of a tensor is read in no case.
        routes: Whether mixtures of experts count how often they choose each, for ``session.routes()``. Then
            each run is asked about at its end, whatever ``validate`` says; it may not be ``"off"``. What a
            bucket pads counts like all else.
        capture_only: What may be captured; everything else runs eagerly. Each entry gives sizes of symbolic
            dims, dims of inputs, or both, such as ``{"batch": 1, "sequence": 128}`` or
            ``{"image": (1, 3, 224, 224)}``; what it does not name may be anything. Sizes are those with their
            padding. None allows all.
        buckets: Symbolic dims whose sizes are padded to a few. Runs through a binding, runs under grad and
            runs with ``capture="off"`` are never padded.
        fuse: Whether captures compute chains of elementwise nodes in one pass over the data. Sums, products
            and the like come out the same to the bit, functions such as ``Exp`` to the last place or two.
            Runs that are not captured, and runs under grad, go node by node in any case.
    """

    num_threads: int | None = None
    capture: Capture = "auto"
    max_plans: int = 8
    verify: bool = False
    limits: Limits = field(default_factory=Limits)
    validate: Validate = "run"
    capture_only: tuple[Mapping[str, int | tuple[int, ...]], ...] | None = field(default=None, hash=False)
    buckets: tuple[Bucket, ...] = ()
    routes: bool = False
    fuse: bool = True

    def __post_init__(self) -> None:
        for name, words in (("capture", Capture), ("validate", Validate)):
            if getattr(self, name) not in get_args(words):
                known = ", ".join(map(repr, get_args(words)))
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        for name in ("max_plans", "num_threads"):
            value = getattr(self, name)
            if value is None and name == "num_threads":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        _flag("verify", self.verify)
        _flag("routes", self.routes)
        _flag("fuse", self.fuse)
        if self.routes and self.validate == "off":
            raise ValueError(
                'routes are told at the end of a validated run, so that validate must not be "off"'
            )
        if not isinstance(self.limits, Limits):
            raise TypeError(f"limits is a torch_ort_session.Limits record, got {self.limits!r}")
        if self.capture_only is not None:
            object.__setattr__(self, "capture_only", _allowed(self.capture_only))
        object.__setattr__(self, "buckets", _buckets(self.buckets))


def _allowed(entries: Any) -> tuple[Mapping[str, int | tuple[int, ...]], ...]:
    if isinstance(entries, Mapping) or not isinstance(entries, tuple | list):
        raise TypeError(f"capture_only is a tuple of mappings, got {type(entries).__name__}")
    if not entries:
        raise ValueError("capture_only allows nothing to be captured; write capture='off' for that")
    return tuple([_allowed_entry(entry) for entry in entries])


def _allowed_entry(entry: Any) -> Mapping[str, int | tuple[int, ...]]:
    if not isinstance(entry, Mapping) or not entry:
        raise TypeError(f"an entry of capture_only maps names to sizes, got {entry!r}")
    sizes: dict[str, int | tuple[int, ...]] = {}
    for name, value in entry.items():
        if not isinstance(name, str):
            raise TypeError(f"a name in capture_only is a text, got {name!r}")
        text = f"the size of {name!r} in capture_only"
        sizes[name] = _size(text, value) if isinstance(value, int) else _sizes(text, value)
    return sizes


def _buckets(buckets: Any) -> tuple[Bucket, ...]:
    listed = tuple(buckets) if isinstance(buckets, tuple | list) else (buckets,)
    for bucket in listed:
        if not isinstance(bucket, Bucket):
            raise TypeError(f"buckets holds torch_ort_session.Bucket records, got {bucket!r}")
    symbols = [bucket.symbol for bucket in listed]
    for symbol in symbols:
        if symbols.count(symbol) > 1:
            raise ValueError(f"{symbol!r} has two buckets; one holds all of its sizes")
    return listed


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def _mapping(what: str, value: Any, keys: str, values: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} maps {keys} to {values}, got {value!r}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{what} names {keys} by text, got {key!r}")


def _sizes(what: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple | list):
        raise TypeError(f"{what} must be a tuple of ints, got {values!r}")
    return tuple([_size(what, value) for value in values])


def _size(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be an int, got {value!r}")
    if value < 0:
        raise ValueError(f"{what} must not be negative, got {value}")
    return value
