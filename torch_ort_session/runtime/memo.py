"""The memo: what stays the same from run to run while the feeds grow, as the caches of a decoder do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from torch_ort_session.errors import SessionError
from torch_ort_session.plan.growth import Even, Growth, find_growth
from torch_ort_session.plan.specs import Observation
from torch_ort_session.plan.steps import Step, Steps, input_params
from torch_ort_session.runtime.execute import BoundStep, Program, Values, bind_steps
from torch_ort_session.runtime.signature import Signature
from torch_ort_session.runtime.views import View, find_views

_RESTARTS = 16
"""How often runs of a form may begin anew before it is latched."""

_MUCH = 10
"""A good part of the steps is one in so many."""

_GROWN = -1
"""In place of a dim that grew."""

Form = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]
"""A signature without the dims that grew: requested outputs, and name, dtype, dims and device of feeds."""


class Grown(NamedTuple):
    """A run whose feeds grew since the run before.

    Attributes:
        form: What did not grow.
        dims: What did: the dims of the feeds, in order.
    """

    form: Form
    dims: tuple[int, ...]


class Seen(NamedTuple):
    """An observed run, and the dims that its feeds had."""

    dims: tuple[int, ...]
    observation: Observation


class Numbers:
    """Numbers that kernels want as such: what a small int64 tensor on the host tells, without the tensor."""

    __slots__ = ("_flat", "shape")

    def __init__(self, shape: tuple[int, ...], flat: list[int]) -> None:
        self.shape = shape
        self._flat = flat

    def numel(self) -> int:
        """How many there are."""
        return len(self._flat)

    def item(self) -> int:
        """The only one."""
        (number,) = self._flat
        return number

    def tolist(self) -> list[int]:
        """All of them; a list of the reader's own."""
        return self._flat.copy()


@dataclass(frozen=True, slots=True, eq=False)
class Shortened:
    """A program without the steps whose results are known.

    Attributes:
        program: The other steps, with what is constant in place; among its calls are checks of what is
            assumed.
        slopes: What each grown dim grows by while the first grows by one.
        even: Numbers to put in place before a run: the value, and whether it is wanted as a tensor.
        dropped: Steps that are not run.
        views: Those of them that would make a view of what stays the same.
    """

    program: Program
    slopes: tuple[int, ...]
    even: tuple[tuple[int, Even, bool], ...]
    dropped: int
    views: tuple[View, ...]

    @property
    def total(self) -> int:
        """Steps of a full run."""
        return len(self.program.steps.items) + self.dropped


@dataclass(slots=True, eq=False)
class Kept:
    """What is kept for runs of one form.

    Attributes:
        first: A run; dims count from it.
        second: A run with larger dims.
        short: What follows from the two.
        wild: Values whose dims did not grow by equal amounts when that was assumed.
        again: How often a run was no continuation of the first, so that another one became the first.
        latched: Whether nothing is to be had.
        random: Whether a run may draw random numbers.
    """

    first: Seen | None = None
    second: Seen | None = None
    short: Shortened | None = None
    wild: set[int] = field(default_factory=set)
    again: int = 0
    latched: bool = False
    random: bool = False

    def restart(self, seen: Seen) -> None:
        """Let dims count from another run; latches when that has happened too often."""
        self.again += self.first is not None
        self.first, self.second, self.short = seen, None, None
        if self.again > _RESTARTS:
            self.latch()

    def latch(self) -> None:
        """Keep nothing any more."""
        self.first = self.second = self.short = None
        self.latched = True


class Otherwise(SessionError):
    """The dims of a value are not what was assumed; caught where the run was begun."""

    def __init__(self, value: int) -> None:
        super().__init__(f"value {value} has other dims than assumed")
        self.value = value


class Memo:
    """What is kept between runs whose feeds grow; the least recently used form goes first.

    Args:
        forms: Forms that are kept.
    """

    def __init__(self, forms: int = 8) -> None:
        self._limit = forms
        self._last: Signature | None = None
        self._grown: Form | None = None
        self._kept: OrderedDict[Form, Kept] = OrderedDict()

    def follow(self, signature: Signature) -> Grown | None:
        """Note the signature of a run; says what grew when the same dims grew twice on end.

        One larger run after a smaller one is no habit: signatures that take turns are captured.
        """
        before, self._last = self._last, signature
        grown = None if before is None or before == signature else grown_since(before, signature)
        form, self._grown = self._grown, None if grown is None else grown.form
        return grown if grown is not None and grown.form == form else None

    def latched(self, form: Form) -> bool:
        """Whether nothing is to be had for runs of a form."""
        kept = self._kept.get(form)
        return kept is not None and kept.latched

    def kept(self, form: Form, program: Program) -> Kept:
        """What is kept for runs of a form."""
        found = self._kept.get(form)
        if found is None:
            stateful = any(step.kernel.state for step in program.steps.items)
            random = any(step.kernel.varies or step.bodies for step in program.steps.items)
            found = self._kept[form] = Kept(latched=stateful, random=random)
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(form)
        return found

    def knows_much(self, form: Form) -> bool:
        """Whether a good part of the steps is known beforehand, or may turn out to be."""
        kept = self._kept.get(form)
        return kept is None or kept.short is None or kept.short.dropped * _MUCH >= kept.short.total

    def clear(self) -> None:
        """Drop everything."""
        self._last = self._grown = None
        self._kept.clear()

    def __str__(self) -> str:
        lines = []
        for (outputs, feeds), kept in reversed(self._kept.items()):
            dims = ", ".join(f"{name}: {_described(form)}" for name, *form in feeds)
            state = "latched to eager" if kept.latched else "primed"
            if kept.short is not None:
                short = kept.short
                state = f"{short.dropped} of {short.total} steps are known beforehand"
                state += f", {len(short.views)} of them views of what stays the same" if short.views else ""
            lines.append(f"growing ({dims}) -> ({', '.join(outputs)})\n  {state}")
        return "\n".join(lines)


def _described(form: list[Any]) -> str:
    if len(form) != 3 or not isinstance(form[0], torch.dtype):
        return str(form[0])
    dims = ", ".join("grows" if dim == _GROWN else str(dim) for dim in form[1])
    return f"{str(form[0]).removeprefix('torch.')}[{dims}]"


def grown_since(before: Signature, after: Signature) -> Grown | None:
    """What grew from one run to another; None when nothing did, a dim shrank, or anything else differs."""
    if before.outputs != after.outputs or before.bound or after.bound:
        return None
    if len(before.feeds) != len(after.feeds):
        return None
    dims: list[int] = []
    forms: list[tuple[Any, ...]] = []
    small: Any = None
    large: Any = None
    shape: tuple[int, ...] = ()
    found: list[int] = []
    for old, new in zip(before.feeds, after.feeds, strict=True):
        if old == new:
            forms.append(new)
            continue
        if len(old) != 4 or len(new) != 4 or old[:2] != new[:2] or old[3] != new[3]:
            return None
        # The caches of all layers have the same dims: those of the feed before are not gone through again.
        if old[2] != small or new[2] != large:
            small, large = old[2], new[2]
            if len(small) != len(large) or any(a > b for a, b in zip(small, large, strict=True)):
                return None
            pairs = list(zip(small, large, strict=True))
            shape = tuple([_GROWN if a < b else b for a, b in pairs])
            found = [b for a, b in pairs if a < b]
        dims += found
        forms.append((new[0], new[1], shape, new[3]))
    return Grown((after.outputs, tuple(forms)), tuple(dims)) if dims else None


def shorten(program: Program, kept: Kept) -> None:
    """Bind a program again, without the steps whose results are known; latches when there are none."""
    first, second = kept.first, kept.second
    assert first is not None and second is not None
    by = second.dims[0] - first.dims[0]
    slopes = [divmod(b - a, by) for a, b in zip(first.dims, second.dims, strict=True)]
    if any(rest for _, rest in slopes):
        kept.restart(second)
        return
    found = find_growth(program.steps, first.observation, second.observation, by, kept.wild)
    if not found.dropped:
        kept.latch()
        return
    kept.short = _bind(program.steps, found, tuple(slope for slope, _ in slopes))
    # Less may be known when it is made again, never more.
    known = found.constant.keys() | found.even.keys()
    kept.first, kept.second = _less(first, known), _less(second, known)


def _less(seen: Seen, wanted: Collection[int]) -> Seen:
    static = {value: held for value, held in seen.observation.static.items() if value in wanted}
    return Seen(seen.dims, replace(seen.observation, static=static))


def _bind(steps: Steps, found: Growth, slopes: tuple[int, ...]) -> Shortened:
    items = tuple(step for place, step in enumerate(steps.items) if place not in found.dropped)
    numbers, tensors = _readers(items, steps.outputs, found)
    template = list(steps.template)
    for value, held in found.constant.items():
        if value in numbers or value in tensors:
            template[value] = held
    program = bind_steps(replace(steps, items=items, template=tuple(template)))
    bound = iter(program.calls)
    calls: list[BoundStep] = []
    for place, step in enumerate(steps.items):
        if place not in found.dropped:
            calls.append(next(bound))
            continue
        if place in found.assumed:
            calls.append(BoundStep(_check(*found.assumed[place]), step.release, step))
        elif calls:
            calls[-1] = replace(calls[-1], release=(*calls[-1].release, *step.release))
    even = tuple(
        (value, numbers_of, value in tensors)
        for value, numbers_of in found.even.items()
        if value in numbers or value in tensors
    )
    views = find_views(steps, found.dropped, found.constant)
    return Shortened(replace(program, calls=tuple(calls)), slopes, even, len(found.dropped), views)


def _readers(items: tuple[Step, ...], outputs: tuple[int, ...], found: Growth) -> tuple[set[int], set[int]]:
    """Known values that are read as numbers, and those that are read as tensors."""
    numbers: set[int] = set()
    tensors: set[int] = set(outputs)
    for step in items:
        for param, value in zip(input_params(step.kernel, len(step.inputs)), step.inputs, strict=True):
            (numbers if param.read else tensors).add(value)
        tensors.update(outside for body in step.bodies.values() for outside, _ in body.captured)
    known = found.constant.keys() | found.even.keys()
    return numbers & known, tensors & known


def _check(value: int, dims: Even) -> Callable[[Values], None]:
    """A call that refuses dims of a value that did not grow as assumed."""
    base, slope = dims.base, dims.slope
    if dims.still:

        def check_still(values: Values) -> None:
            if values[value].shape != base:
                raise Otherwise(value)

        return check_still

    def check(values: Values) -> None:
        by = values[-1]
        if values[value].shape != tuple([a + b * by for a, b in zip(base, slope, strict=True)]):
            raise Otherwise(value)

    return check
