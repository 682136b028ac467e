"""The dispatcher: the only place that decides how a run is made."""

from __future__ import annotations

import enum
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition import DeclineReport, Reason
from torch_ort_session.runtime.captures import CapturedGraph, PlannedProgram
from torch_ort_session.runtime.recorders import UNKNOWN, Stamp
from torch_ort_session.runtime.values import Allowed, BoundForm, Padding, Signature, signature_of
from torch_ort_session.trace import counters

BucketSizes: TypeAlias = tuple[tuple[str, int], ...]
"""Symbolic dims with the sizes that they are padded to."""


class Decision(enum.Enum):
    """How a run is made."""

    EAGER = "eager"
    OBSERVE = "eager, and observed"
    CAPTURE = "captured"
    REPLAY = "replayed"
    GROW = "growing"


@dataclass(slots=True, eq=False)
class GraphEntry:
    """What is known of one signature; it lives until its dispatcher forgets it.

    Attributes:
        runs: Runs so far.
        planned: The plan, made after the observed run; None before it.
        captured: The capture; None when there is none.
        report: Why it is latched to eager, or why the last capture was declined or retired.
        latched: Whether no capture is tried again.
        captures: Numbers of the runs at which captures were made, for the budget.
        failures: Captures that broke off.
        proven: Whether a replay on other feeds than the captured ones was compared with an eager run.
    """

    runs: int = 0
    planned: PlannedProgram | None = None
    captured: CapturedGraph | None = None
    report: DeclineReport | None = None
    latched: bool = False
    captures: list[int] = field(default_factory=list)
    failures: int = 0
    proven: bool = False

    @property
    def state(self) -> str:
        """``cold``, ``warm``, ``captured`` or ``latched``."""
        if self.captured is not None:
            return "captured"
        return "latched" if self.latched else "cold" if self.planned is None else "warm"

    @property
    def unlisted(self) -> bool:
        """Whether the user named what may be captured, and this is none of it."""
        return self.latched and self.report is not None and self.report.rows[0].reason is Reason.UNLISTED


@dataclass(frozen=True, slots=True)
class Rules:
    """What a dispatcher goes by.

    Attributes:
        allowed: What may be captured; None allows everything.
        padding: How runs are padded; None where none is.
        stamp: What the session was found to run with when it was loaded.
        plans: Captures that are kept; the least recently used goes first.
        waiting: Signatures without a capture that are kept, for each of those; they hold little memory, and
            signatures that never come again must not cost others their captures.
        warm_up: Runs of a signature before the one that captures; the last of them is observed.
        key_values: Values of a key feed after which it is data.
        recaptures: Captures of a signature after the first ...
        window: ... in so many runs, before it latches to eager.
        fuse: Whether captures fuse elementwise steps.
    """

    allowed: Allowed | None = None
    padding: Padding | None = None
    stamp: Stamp = UNKNOWN
    plans: int = 8
    waiting: int = 4
    warm_up: ClassVar[int] = 2
    key_values: ClassVar[int] = 4
    recaptures: ClassVar[int] = 3
    window: int = 100
    fuse: bool = True


@dataclass(slots=True, eq=False)
class Learnt:
    """What a session has learnt about its model, whatever the signature; it lives as long as the session.

    Attributes:
        quarantined: (domain, operator) pairs of which a recording failed; it only grows.
        unstable: Nodes whose results changed their shape between runs of one signature too often: they, and
            what hangs on those shapes, run eagerly. It only grows.
        key_values: Values that key feeds had.
        demoted: Key feeds that had too many.
        proven: BucketSizes of buckets with which a padded run was compared with an unpadded one.
        refused: Those that are not used, and why.
    """

    quarantined: set[tuple[str, str]] = field(default_factory=set)
    unstable: set[str] = field(default_factory=set)
    key_values: dict[str, set[int | bool]] = field(default_factory=dict)
    demoted: set[str] = field(default_factory=set)
    proven: set[BucketSizes] = field(default_factory=set)
    refused: dict[BucketSizes, DeclineReport] = field(default_factory=dict)


class Dispatcher:
    """Entries by signature, and what was learnt about operators and key feeds.

    It lives as long as the session, the binding or the body whose runs it decides.

    Attributes:
        rules: What it goes by.
        counters: What took place so far; see :mod:`.counters`.
        entries: The least recently used one first.
        recent: The last of them, which most runs ask for again.
        learnt: What holds for every signature.
        children: Policies of bindings; see :meth:`child`.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.counters = counters.zeros()
        self.entries: OrderedDict[Signature, GraphEntry] = OrderedDict()
        self.recent: GraphEntry | None = None
        self.learnt = Learnt()
        self.children: weakref.WeakSet[Dispatcher] = weakref.WeakSet()

    @property
    def quarantined(self) -> frozenset[tuple[str, str]]:
        """(domain, operator) pairs that run eagerly because a recording of one failed."""
        return frozenset(self.learnt.quarantined)

    @property
    def demoted(self) -> frozenset[str]:
        """Key feeds that are data by now."""
        return frozenset(self.learnt.demoted)

    @property
    def unstable(self) -> frozenset[str]:
        """Nodes that run eagerly because the shape of their results does not settle."""
        return frozenset(self.learnt.unstable)

    def child(self) -> Dispatcher:
        """A dispatcher that counts and learns with this one; its entries are its own, and end with it."""
        child = Dispatcher(self.rules)
        child.counters, child.learnt = self.counters, self.learnt
        self.children.add(child)
        return child

    def entry(
        self,
        outputs: tuple[str, ...],
        fed: Mapping[str, Value],
        keys: frozenset[str],
        bound: tuple[BoundForm, ...] = (),
    ) -> tuple[Signature, GraphEntry]:
        """The entry of a run, made when it is new; the oldest one goes when there are too many."""
        signature = signature_of(outputs, fed, self.active(keys) if keys else (), bound)
        entry = self.entries.get(signature)
        if entry is not None:
            if entry is not self.recent:
                self.entries.move_to_end(signature)
                self.recent = entry
            return signature, entry
        if self._note_keys(signature.keys):
            return self.entry(outputs, fed, keys, bound)
        entry = self.recent = self.entries[signature] = GraphEntry()
        why = "" if self.rules.allowed is None else self.rules.allowed.refusal(fed)
        if why:
            entry.latched, entry.report = True, DeclineReport.of(Reason.UNLISTED, why)
            self.count(counters.UNLISTED)
        self._forget()
        return signature, entry

    def everything(self) -> Iterator[tuple[Signature, GraphEntry]]:
        """Every entry, those of children last; of each dispatcher the most recently used one first."""
        yield from reversed(self.entries.items())
        for child in tuple(self.children):
            yield from child.everything()

    def latest_capture(self) -> tuple[Signature, GraphEntry] | None:
        """The capture that was used last; None when there is none."""
        captured = (
            (key, entry) for key, entry in reversed(self.entries.items()) if entry.captured is not None
        )
        return next(captured, None)

    def active(self, keys: Iterable[str]) -> list[str]:
        """Those key feeds that are part of signatures."""
        return sorted(name for name in keys if name not in self.learnt.demoted)

    def decide(self, entry: GraphEntry, *, growing: bool = False, much: bool = True) -> Decision:
        """How the next run of an entry is made.

        Args:
            entry: Of which signature.
            growing: Whether its feeds grew as they did before.
            much: Whether so much is known beforehand of growing runs that a signature which comes again need
                not be captured.
        """
        if entry.captured is not None:
            return Decision.REPLAY
        if growing and (much or entry.latched or entry.runs < self.rules.warm_up - 1):
            return Decision.GROW
        if entry.latched or entry.runs < self.rules.warm_up - 1:
            return Decision.EAGER
        if entry.planned is None:
            return Decision.OBSERVE
        return Decision.CAPTURE

    def captured(self, entry: GraphEntry, captured: CapturedGraph) -> None:
        """Install a capture; the least recently used one goes when there are too many."""
        entry.captured = captured
        entry.report = None
        entry.proven = False
        entry.captures.append(entry.runs)
        self.count(counters.CAPTURES)
        held = [other for other in self.entries.values() if other.captured is not None and other is not entry]
        for other in held[: max(0, len(held) + 1 - self.rules.plans)]:
            self.count(counters.EVICTIONS)
            self._close(other)
            other.planned = None
            self._latch_when_worn(other, DeclineReport(()))

    def declined(self, entry: GraphEntry, report: DeclineReport, *, lasting: bool) -> None:
        """Note a declined capture.

        Args:
            entry: Whose.
            report: Why.
            lasting: Whether the next try would end the same, so that the signature stays eager; else it warms
                up again, but not for ever.
        """
        self.count(counters.DECLINES)
        entry.planned = None
        entry.report = report
        if lasting:
            self._latch(entry)
            return
        self.count(counters.BROKEN)
        entry.failures += 1
        if entry.failures > self.rules.recaptures:
            if self._loosen(report):
                entry.failures = 0
                return
            self._latch(entry, f"{entry.failures} captures broke off; it stays eager")

    def retire(self, entry: GraphEntry, report: DeclineReport) -> None:
        """Drop a capture; the signature warms up again, or latches when that has happened too often."""
        self._close(entry)
        entry.planned = None
        entry.report = report
        self.count(counters.RETIREMENTS)
        self._latch_when_worn(entry, report)

    def excuse(self, entry: GraphEntry) -> None:
        """The retirement before was due to bad feeds: it does not count for the budget."""
        if entry.captures:
            entry.captures.pop()
        if entry.latched:
            entry.latched = False
            self.count(counters.LATCHES, -1)

    def distrust(self) -> None:
        """The last run's data was bad: what an eager run showed is not relied on."""
        entry = self.recent
        if entry is not None and entry.captured is None:
            entry.planned = None

    def refuse(self, entry: GraphEntry, report: DeclineReport) -> None:
        """Drop a capture that is wrong: the signature stays eager."""
        self._close(entry)
        self.count(counters.RETIREMENTS)
        self.declined(entry, report, lasting=True)

    def refuse_bucket(self, sizes: BucketSizes, report: DeclineReport) -> None:
        """Pad to these sizes no more."""
        self.learnt.refused[sizes] = report
        self.count(counters.REFUSED)

    def quarantine(self, domain: str, op: str) -> bool:
        """Run an operator eagerly from now on; False when that is so already."""
        if (domain, op) in self.learnt.quarantined:
            return False
        self.learnt.quarantined.add((domain, op))
        self.count(counters.QUARANTINED)
        return True

    def release(self) -> None:
        """Drop every capture and everything learnt by signature, in children too."""
        for child in tuple(self.children):
            child.release()
        for entry in self.entries.values():
            self._close(entry)
        self.entries.clear()
        self.recent = None

    def abandon(self) -> None:
        """Forget every capture unclosed, in children too: in a child process, another may be in a replay."""
        for child in tuple(self.children):
            child.abandon()
        self.entries.clear()
        self.recent = None

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self.counters[name] += by

    def _note_keys(self, keys: tuple[tuple[str, int | bool], ...]) -> bool:
        """Note the values of key feeds; says whether one has had too many, and is data from now on."""
        learnt, before = self.learnt, len(self.learnt.demoted)
        for name, number in keys:
            values = learnt.key_values.setdefault(name, set())
            values.add(number)
            if len(values) > self.rules.key_values:
                learnt.demoted.add(name)
                self.count(counters.DEMOTED)
                for signature in [s for s in self.entries if any(name == key for key, _ in s.keys)]:
                    self._close(self.entries.pop(signature))
        return len(learnt.demoted) > before

    def _forget(self) -> None:
        """Drop the oldest entries without a capture where there are too many; the newest one stays."""
        waiting = [signature for signature, entry in self.entries.items() if entry.captured is None]
        for signature in waiting[: max(0, len(waiting) - self.rules.plans * self.rules.waiting)]:
            del self.entries[signature]
            self.count(counters.FORGOTTEN)

    def _latch_when_worn(self, entry: GraphEntry, report: DeclineReport) -> None:
        recent = [run for run in entry.captures if run > entry.runs - self.rules.window]
        if len(recent) > self.rules.recaptures:
            if self._loosen(report):
                entry.captures.clear()
                return
            entry.report = report
            self._latch(entry, f"captured {len(recent)} times in {self.rules.window} runs; it stays eager")

    def _loosen(self, report: DeclineReport) -> bool:
        """Run the nodes eagerly whose shapes did not settle; False when that would help none."""
        nodes = {row.node for row in report.rows if row.node and row.reason is Reason.DIVERGED}
        nodes_now = nodes - self.learnt.unstable
        self.learnt.unstable |= nodes_now
        self.count(counters.LOOSENED, len(nodes_now))
        return bool(nodes_now)

    def _latch(self, entry: GraphEntry, message: str = "") -> None:
        entry.latched = True
        self.count(counters.LATCHES)
        if message:
            rows = () if entry.report is None else entry.report.rows
            entry.report = DeclineReport((*rows, *DeclineReport.of(Reason.LATCHED, message).rows))

    def _close(self, entry: GraphEntry) -> None:
        captured, entry.captured = entry.captured, None
        if captured is not None:
            captured.close()
