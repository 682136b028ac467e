"""The tensors of one binding: which there are, how much of each is valid, and how results reach them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_ort_session.errors import InputError
from torch_ort_session.ir.graph import Graph, ValueInfo
from torch_ort_session.ir.types import Dim, SequenceType, TensorType, describe
from torch_ort_session.ops.kernel import Value
from torch_ort_session.ops.microsoft.gqa.cache_rows import put_rows
from torch_ort_session.options import Capture
from torch_ort_session.plan.partition import Decline, DeclineReport, Reason
from torch_ort_session.runtime.bindings.bound import (
    Bound,
    check_apart,
    check_name,
    is_count,
    marks_of,
    tensor_text,
)
from torch_ort_session.runtime.bindings.shared_caches import Rows
from torch_ort_session.runtime.validation import write_latched
from torch_ort_session.runtime.values import BoundForm, Owned, stepwise


def switched_off(capture: Capture) -> DeclineReport | None:
    """Why no run is captured or replayed now; None when runs may be."""
    if capture == "off":
        return DeclineReport.of(Reason.OFF, "capture is off in the session's options")
    if stepwise():
        return DeclineReport.of(
            Reason.OFF, "a mode, transform or forward gradient of the caller's needs every call"
        )
    return None


def undelivered(graph: Graph, targets: Collection[str]) -> DeclineReport | None:
    """Why a replay would leave nothing in bound tensors; None when it leaves something.

    Outputs that are not bound are no hindrance beside one that is, nor where feeds do not tell their dims
    beforehand: they are copied, and read by name.

    Args:
        graph: The graph that runs.
        targets: Names of outputs that a tensor is bound to.
    """
    rows = tuple(_rows(graph, targets))
    return DeclineReport(rows) if rows else None


def _rows(graph: Graph, targets: Collection[str]) -> Iterator[Decline]:
    makers = {name: node for node in graph.nodes for name in node.outputs}
    symbols = {dim for info in graph.inputs for dim in _dims(info) if isinstance(dim, str)}
    for info in graph.outputs:
        if isinstance(info.type, SequenceType):
            reason = Reason.SEQUENCE
            message = f"{info.name!r} is a {describe(info.type)}, which no tensor holds"
        elif not targets and all(isinstance(dim, int) or dim in symbols for dim in _dims(info)):
            reason = Reason.UNBOUND
            message = f"nothing is bound to {info.name!r}, nor to any other output"
        else:
            continue
        node = makers.get(info.name)
        message += "; run() hands it over"
        if node is None:
            yield Decline("", "", "", reason, message)
        else:
            yield Decline(node.name, node.op, node.domain, reason, message)


def _dims(info: ValueInfo) -> tuple[Dim, ...]:
    if isinstance(info.type, TensorType) and info.type.shape is not None:
        return info.type.shape
    return (None,)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """States of a binding at one time, in memory of their own; made by :meth:`Binding.snapshot`.

    Attributes:
        states: The valid part of each state, by the name of its input.
        lengths: Valid entries of each state that has a capacity, by the same name.
    """

    states: Mapping[str, torch.Tensor]
    lengths: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What runs need of the tensors while neither they nor their lengths change.

    Attributes:
        views: What the model reads, by input.
        targets: What is written, by output.
        form: Their part of the signature.
        written: Identities of the storages that are written.
        fed: What a run is fed when nothing else is: filled by the first such run.
    """

    views: Mapping[str, torch.Tensor]
    targets: Mapping[str, Bound]
    form: tuple[BoundForm, ...]
    written: frozenset[int]
    fed: dict[str, Value] = field(default_factory=dict)


class Attached:
    """Tensors by the input and the output that they are, and the length of each; they live as the binding.

    It lives as long as its binding.

    Attributes:
        unbound: What the last run gave for outputs that are not bound, by name.
    """

    def __init__(self) -> None:
        self._bound: dict[tuple[str, str], Bound] = {}
        self._lengths: dict[str, int] = {}
        self._ready: Prepared | None = None
        self.unbound: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Bound]:
        return iter(tuple(self._bound.values()))

    def check(self, new: Bound) -> None:
        """Refuse a tensor whose names are taken otherwise, or that shares memory which runs write.

        Raises:
            InputError: It names the other tensor.
        """
        others = [bound for bound in self if bound.key != new.key]
        for other in others:
            if (new.source and new.source == other.source) or (new.target and new.target == other.target):
                name = new.source if new.source == other.source else new.target
                text = f"{name!r} is bound already, as {other.role} {other.label}; unbind({name!r}) first"
                raise InputError(text, name=name)
        check_apart(new, others)

    def put(self, new: Bound, length: int) -> None:
        """Add a tensor, in the place of the one that had its names."""
        self._bound[new.key] = new
        if new.capacity_dim is None:
            self._lengths.pop(new.name, None)
        else:
            self._lengths[new.name] = length
        self._ready = None

    def remove(self, name: str) -> None:
        """Give up what has a name."""
        for bound in self:
            if name in bound.key:
                del self._bound[bound.key]
                self._lengths.pop(bound.name, None)
        self._ready = None

    def whole_states(self) -> frozenset[tuple[str, str]]:
        """Inputs and outputs of the states that have no capacity dim."""
        states = (bound for bound in self if bound.role == "state")
        return frozenset(bound.key for bound in states if bound.capacity_dim is None)

    def moved(self) -> list[Bound]:
        """Tensors whose owner changed their memory or form since they were added."""
        return [bound for bound in self._bound.values() if marks_of(bound.tensor) != bound.marks]

    def ready(self) -> Prepared:
        """What the next run needs."""
        if self._ready is None:
            targets = {bound.target: bound for bound in self if bound.target}
            self._ready = Prepared(
                {bound.source: bound.valid(self.length(bound)) for bound in self if bound.source},
                targets,
                tuple(bound.form(self.length(bound)) for bound in self),
                frozenset(bound.tensor.untyped_storage()._cdata for bound in targets.values()),
            )
        return self._ready

    def fed(
        self, feed: Mapping[str, Any] | None, feeds_of: Callable[[Mapping[str, object]], dict[str, Value]]
    ) -> dict[str, Value]:
        """What a run is fed: what is bound, and the caller's feed beside it.

        Args:
            feed: Inputs that are not bound, by name.
            feeds_of: Checks and converts the feeds of a run.

        Raises:
            InputError: An input is bound and fed, or a feed does not fit.
        """
        ready = self.ready()
        if feed is None or (isinstance(feed, Mapping) and not feed):
            if not ready.fed:
                ready.fed.update(feeds_of(ready.views))
            return ready.fed
        if not isinstance(feed, Mapping):
            kind = type(feed).__name__
            raise InputError(f"feed is a mapping from input names to values, not a {kind}", got=kind)
        for name in feed:
            if name in ready.views:
                raise InputError(
                    f"input {name!r} is bound and was fed as well; leave it out of the feed, or unbind() it",
                    name=name,
                )
        return feeds_of({**feed, **ready.views})

    def find(self, name: str, *, output: bool = False) -> Bound | None:
        """What has a name; where an input and an output have it, the one or the other.

        Raises:
            InputError: It is no text.
        """
        check_name(name)
        sources = {bound.source: bound for bound in self if bound.source}
        targets = {bound.target: bound for bound in self if bound.target}
        first, second = (targets, sources) if output else (sources, targets)
        return first.get(name) or second.get(name)

    def growing(self, name: str) -> Bound:
        """The state of a name, which has a capacity.

        Raises:
            InputError: There is none.
        """
        bound = self.find(name)
        if bound is None:
            raise self.unknown(name, "bound")
        if bound.capacity_dim is None:
            raise bound.misfit("it has no capacity_dim, so that all of it is valid and it has no length")
        return bound

    def length(self, bound: Bound) -> int:
        """Valid entries of a tensor; 0 where all of it is valid."""
        return self._lengths.get(bound.name, 0)

    @property
    def lengths(self) -> dict[str, int]:
        """Valid entries of every tensor that has a capacity, by its name."""
        return dict(self._lengths)

    def put_lengths(self, lengths: Mapping[str, int]) -> None:
        """Declare lengths that were valid before."""
        self._lengths.update(lengths)
        self._ready = None

    def set_length(self, bound: Bound, length: int) -> None:
        """Declare how many entries are valid.

        Raises:
            InputError: There is no room for so many.
        """
        if not is_count(length) or length > bound.capacity:
            raise bound.misfit(f"a length is an int from 0 to {bound.capacity}, the capacity, not {length!r}")
        if self._lengths[bound.name] != length:
            self._lengths[bound.name] = length
            self._ready = None

    def valid(self, bound: Bound) -> torch.Tensor:
        """The valid part of a tensor: a view."""
        return bound.valid(self.length(bound))

    def deliver(
        self,
        names: tuple[str, ...],
        results: Sequence[Any],
        owned: Owned,
        word: torch.Tensor | None = None,
    ) -> int:
        """Write the results of a run to where they belong; all of them or, after an error, none.

        Args:
            names: Of the outputs.
            results: Of the run; they may lie in anybody's memory.
            owned: Gives memory to those that are not bound.
            word: A validation word that nobody has read; see :func:`write`.

        Returns:
            How many bytes were written.

        Raises:
            InputError: A result does not fit.
        """
        ready = self.ready()
        moves: list[tuple[torch.Tensor, torch.Tensor]] = []
        lengths: list[tuple[Bound, int]] = []
        rows: list[tuple[torch.Tensor, Rows]] = []
        rest: dict[str, Any] = {}
        for name, value in zip(names, results, strict=True):
            bound = ready.targets.get(name)
            if bound is None:
                rest[name] = value
                continue
            if isinstance(value, Rows):
                rows.append((bound.plain, value))
                continue
            place, part, after = bound.room(value, self.length(bound))
            moves.append((place, part))
            if bound.capacity_dim is not None:
                lengths.append((bound, after))
        # Before anything is written: what is not bound may lie in the memory of what is.
        rest = dict(zip(rest, owned(list(rest.values())), strict=True)) if rest else rest
        nbytes = write(moves, ready.written, word)
        if rows:
            entries = [put.fresh for _, put in rows]
            put_rows([cache for cache, _ in rows], entries, [put.start for _, put in rows], word)
            nbytes += sum(one.nbytes for one in entries)
        for bound, after in lengths:
            self.set_length(bound, after)
        self.unbound = rest
        return nbytes

    def snapshot(self) -> Snapshot:
        """Copies of every state's valid part, and the lengths."""
        states = {bound.name: self.valid(bound).clone() for bound in self if bound.role == "state"}
        return Snapshot(states, dict(self._lengths))

    def restore(self, snapshot: Snapshot) -> None:
        """Put states and lengths back.

        Raises:
            InputError: The states are not those of the snapshot. Nothing was written.
        """
        if not isinstance(snapshot, Snapshot):
            kind = type(snapshot).__name__
            raise InputError(f"restore() takes what snapshot() gave, not a {kind}", got=kind)
        states = {bound.name: bound for bound in self if bound.role == "state"}
        if set(states) != set(snapshot.states):
            was, now = (", ".join(sorted(names)) or "none" for names in (snapshot.states, states))
            raise InputError(f"the snapshot is of other states: {was}; bound are: {now}")
        moves = [(states[name], states[name].room(value, 0)) for name, value in snapshot.states.items()]
        for bound, (place, value, after) in moves:
            place.copy_(value)
            if bound.capacity_dim is not None:
                self.set_length(bound, after)

    def unknown(self, name: str, what: str) -> InputError:
        """An error that says what there is."""
        names = ", ".join(repr(n) for bound in self for n in dict.fromkeys(bound.key) if n) or "nothing"
        return InputError(f"{name!r} is not {what}; bound are: {names}", name=name, expected=names)

    def __str__(self) -> str:
        lines = []
        for bound in self:
            part = (
                ""
                if bound.capacity_dim is None
                else f", {self.length(bound)} valid along {bound.capacity_dim}"
            )
            lines.append(f"  {bound.role} {bound.label}: {tensor_text(bound.tensor)}{part}")
        return "\n".join(lines)


def write(
    moves: Sequence[tuple[torch.Tensor, torch.Tensor]],
    written: Collection[int],
    word: torch.Tensor | None = None,
) -> int:
    """Copy every result to its place, as if all were copied at once.

    Args:
        moves: Pairs of a place and what goes there, of one shape and dtype.
        written: Identities of the storages of all places.
        word: A validation word that nobody has read: what it tells of bad data keeps places as they are.

    Returns:
        Bytes that were copied, if any were.
    """
    places: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    nbytes = 0
    for place, value in moves:
        if value.untyped_storage()._cdata in written:
            if _same(place, value):
                continue
            # Another copy may come first and overwrite it: an output may be a state's old value.
            value = value.clone()
        places.append(place)
        values.append(value)
        nbytes += value.nbytes
    if word is not None:
        write_latched(places, values, word)
    elif places:
        torch._foreach_copy_(places, values)
    return nbytes


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()
