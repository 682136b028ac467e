"""The memo: what stays the same from run to run while the feeds grow, as the caches of a decoder do."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis.growth import find_growth, growing_values
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.runtime.dynamic.residual import Shortened, shortened
from torch_ort_session.runtime.dynamic.shape_family import Form, Grown, described, grown_since, pace_of
from torch_ort_session.runtime.interpreter.program import Program
from torch_ort_session.runtime.interpreter.views import BoundProgram, Views, bound_program
from torch_ort_session.runtime.values.signature import Signature

if TYPE_CHECKING:
    from torch_ort_session.runtime.captures.capture import Captured
    from torch_ort_session.runtime.dispatch.policy import Entry
    from torch_ort_session.runtime.dynamic.symbolic_tape import Weave

_RESTARTS = 16
"""How often runs of a form may begin anew before it is latched."""

_LATCHED = _RESTARTS + 1

_MUCH = 10
"""A good part of the steps is one in so many."""


class Seen(NamedTuple):
    """An observed run, and the dims that its feeds had."""

    dims: tuple[int, ...]
    observation: Observation


@dataclass(slots=True, eq=False)
class Kept:
    """What is kept for runs of one form.

    Attributes:
        first: A run; dims count from it.
        second: A run with larger dims.
        short: What follows from the two.
        entry: What is known of captures of that; None before the first.
        wild: Values whose dims were other ones than was assumed.
        again: How often a run was no continuation of the first, so that another one became the first.
        weave: What makes strips of a capture's seams.
        folded: The steps, where the key feeds of the form fold branches of them.
    """

    first: Seen | None = None
    second: Seen | None = None
    short: Shortened | None = None
    entry: Entry | None = None
    wild: set[int] = field(default_factory=set)
    again: int = 0
    weave: Weave | None = None
    folded: Program | None = None

    @property
    def latched(self) -> bool:
        """Whether nothing is to be had."""
        return self.again > _RESTARTS

    @property
    def recorded(self) -> bool:
        """Whether there are recordings."""
        return self.entry is not None and self.entry.captured is not None

    def restart(self, seen: Seen) -> None:
        """Let dims count from another run; latches when that has happened too often."""
        self.again += self.first is not None
        self.forget()
        self.first, self.second = seen, None
        if self.latched:
            self.latch()

    def latch(self) -> None:
        """Keep nothing any more."""
        self.forget()
        self.first = self.second = None
        self.again = _LATCHED

    def forget(self) -> None:
        """Give up what followed from the two runs, captures included."""
        if self.entry is not None and self.entry.captured is not None:
            self.entry.captured.close()
        self.short = self.entry = self.weave = None


class Memo:
    """What is kept between runs whose feeds grow; the least recently used form goes first.

    Args:
        forms: Forms that are kept.

    Attributes:
        noted: The form of the last growing run, if that run showed anything that later ones rely on.
    """

    def __init__(self, forms: int = 8) -> None:
        self._limit = forms
        self._last: Signature | None = None
        # The form that grew last, and whether another run came since.
        self._habit: tuple[Form | None, bool] = (None, False)
        self._given: Grown | None = None
        self.noted: Form | None = None
        self._bound: BoundProgram | None = None
        self._kept: OrderedDict[Form, Kept] = OrderedDict()
        self._children: weakref.WeakSet[Memo] = weakref.WeakSet()

    def child(self) -> Memo:
        """The memo of a binding, which ends with it."""
        made = Memo(self._limit)
        self._children.add(made)
        return made

    def bound(self, program: Program, names: frozenset[str], views: Callable[[], Views]) -> BoundProgram:
        """The steps of a binding, less views of what is bound.

        Args:
            program: The full program.
            names: Inputs that are bound to tensors of which all is valid.
            views: Makes an empty view plan.
        """
        found = self._bound
        if found is None or found.source is not program or found.names != names:
            self.unbind()
            found = self._bound = bound_program(program, names, views())
        return found

    def unbind(self) -> None:
        """Hold no views of bound tensors any more."""
        if self._bound is not None:
            self._bound.views.drop()
        self._bound = None

    def captures(self) -> Iterator[Captured]:
        """Captures that are kept, those of bindings too."""
        for kept in self._kept.values():
            if kept.entry is not None and kept.entry.captured is not None:
                yield kept.entry.captured
        for child in tuple(self._children):
            yield from child.captures()

    def follow(self, signature: Signature, *, new: bool = True) -> Grown | None:
        """Note the signature of a run; says what grew when the same dims grew twice.

        One larger run after a smaller one is no habit. Runs may come between that are new themselves, as
        where decodes take turns; signatures that take turns are captured.

        Args:
            signature: Of a run that is not captured.
            new: Whether it came for the first time.
        """
        before, self._last = self._last, signature
        grown = None if before is None or before == signature else grown_since(before, signature)
        form, gap = self._habit
        if grown is None:
            self._habit = (form if new else None, True)
            return None
        self._habit = (grown.form, False)
        return grown if grown.form == form and (new or not gap) else None

    def ongoing(self, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> Grown | None:
        """What grew, when a run is like others whose steps are recorded as far as they do not grow.

        Args:
            outputs: Requested output names.
            fed: Feeds.

        Returns:
            None for any other run, and for one with the same dims as the one before: what comes again is
            captured whole.
        """
        for kept in reversed(self._kept.values()):
            if kept.short is None or kept.short.pace is None or not kept.recorded:
                continue
            grown = kept.short.pace.grown(outputs, fed)
            if grown is not None:
                before, self._given = self._given, grown
                return None if grown == before else grown
        return None

    def latched(self, form: Form) -> bool:
        """Whether nothing is to be had for runs of a form."""
        kept = self._kept.get(form)
        return kept is not None and kept.latched

    def kept(self, form: Form, program: Program, fold: Callable[[Program], Program] | None = None) -> Kept:
        """What is kept for runs of a form.

        Args:
            form: The form.
            program: The full program.
            fold: Folds the branches that key feeds take.
        """
        found = self._kept.get(form)
        if found is None:
            made = program if fold is None or not form[2] else fold(program)
            found = Kept(folded=None if made is program else made)
            self._kept[form] = found
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)[1].forget()
        else:
            self._kept.move_to_end(form)
        return found

    def distrust(self) -> None:
        """The last run's data was bad: what it showed is not relied on."""
        if self.noted is not None:
            kept = self._kept.pop(self.noted, None)
            if kept is not None:
                kept.forget()
        self.noted = None

    def knows_much(self, form: Form) -> bool:
        """Whether a good part of the steps is known beforehand, or may turn out to be."""
        kept = self._kept.get(form)
        return kept is None or kept.short is None or kept.short.dropped * _MUCH >= kept.short.total

    def clear(self) -> None:
        """Drop everything."""
        self.unbind()
        self._last = self._given = None
        self._habit = (None, False)
        for kept in self._kept.values():
            kept.forget()
        self._kept.clear()
        for child in tuple(self._children):
            child.clear()

    def __str__(self) -> str:
        lines = []
        for form, kept in reversed(self._kept.items()):
            state = "latched to eager" if kept.latched else "primed"
            if kept.short is not None:
                short = kept.short
                state = f"{short.dropped} of {short.total} steps are known beforehand"
                state += f", {len(short.views)} of them views of what stays the same" if short.views else ""
            lines.append("\n  ".join((f"growing {described(form)}", state, *_recordings(kept))))
        return "\n\n".join([*lines, *filter(None, map(str, tuple(self._children)))])


def _recordings(kept: Kept) -> Iterator[str]:
    """What of the steps that are left is replayed, and what is not and why."""
    entry = kept.entry
    if entry is None:
        return
    if entry.captured is None:
        if entry.report is not None:
            yield "the others run one by one"
            yield from str(entry.report).splitlines()
        elif entry.latched:
            yield "the others run one by one: none of them can be recorded apart from what grows"
        return
    stages = entry.captured.stages
    segments = [stage for stage in stages if stage.region.is_segment]
    replayed = sum(len(stage.calls) for stage in segments)
    yield f"{replayed} are replayed, in {len(segments)} segment{'' if len(segments) == 1 else 's'}"
    for stage in stages:
        region = stage.region
        if region.reason is not None:
            count, first = len(stage.calls), stage.calls[0].step.node.name
            steps = f"{count} step{'' if count == 1 else 's'}"
            yield f"{steps} from {first!r}: {region.reason.value}, {region.message}"


def shorten(program: Program, kept: Kept, form: Form) -> None:
    """Bind a program again, without the steps whose results are known.

    Args:
        program: The full program.
        kept: Two runs of a form, in which the result is put.
        form: The form.
    """
    first, second = kept.first, kept.second
    assert first is not None and second is not None
    by = second.dims[0] - first.dims[0]
    slopes = [divmod(b - a, by) for a, b in zip(first.dims, second.dims, strict=True)]
    if any(rest for _, rest in slopes):
        kept.restart(second)
        return
    found = find_growth(program.steps, first.observation, second.observation, by, kept.wild)
    kept.forget()
    growing = growing_values(first.observation, second.observation, found, kept.wild)
    kept.short = shortened(program.steps, found, growing)
    rates = tuple(slope for slope, _ in slopes)
    kept.short = replace(kept.short, slopes=rates, pace=pace_of(form, first.dims, rates))
    # Less may be known when it is made again, never more.
    known = found.constant.keys() | found.even.keys()
    kept.first, kept.second = _less(first, known), _less(second, known)


def _less(seen: Seen, wanted: Collection[int]) -> Seen:
    static = {value: held for value, held in seen.observation.static.items() if value in wanted}
    return Seen(seen.dims, replace(seen.observation, static=static))
