"""The policy: the only place that decides how a run is made."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.report import DeclineReport, Reason
from torch_ort_session.runtime.capture import Captured, Warm
from torch_ort_session.runtime.signature import Signature, is_key, key_value, signature_of


class Decision(enum.Enum):
    """How a run is made."""

    EAGER = "eager"
    OBSERVE = "eager, and observed"
    CAPTURE = "captured"
    REPLAY = "replayed"


@dataclass(slots=True)
class Entry:
    """What is known of one signature.

    Attributes:
        runs: Runs so far.
        warm: What the observed run showed; None before it.
        captured: The capture; None when there is none.
        report: Why it is latched to eager, or why the last capture was declined or retired.
        latched: Whether no capture is tried again.
        captures: Numbers of the runs at which captures were made, for the budget.
        failures: Captures that broke off.
    """

    runs: int = 0
    warm: Warm | None = None
    captured: Captured | None = None
    report: DeclineReport | None = None
    latched: bool = False
    captures: list[int] = field(default_factory=list)
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers the policy goes by.

    Attributes:
        plans: Signatures that are kept; the least recently used goes first.
        warm_up: Runs of a signature before the one that captures; the last of them is observed.
        key_values: Values of a key feed after which it is data.
        recaptures: Captures of a signature after the first ...
        window: ... in so many runs, before it latches to eager.
    """

    plans: int = 8
    warm_up: int = 2
    key_values: int = 4
    recaptures: int = 3
    window: int = 100


class Policy:
    """Entries by signature, and what was learnt about operators and key feeds."""

    def __init__(self, limits: Limits, counters: dict[str, int]) -> None:
        self.limits = limits
        self.counters = counters
        self.entries: OrderedDict[Signature, Entry] = OrderedDict()
        self.quarantined: set[tuple[str, str]] = set()
        self.key_values: dict[str, set[int | bool]] = {}
        self.demoted: set[str] = set()

    def entry(
        self, outputs: tuple[str, ...], fed: Mapping[str, Value], keys: frozenset[str]
    ) -> tuple[Signature, Entry]:
        """The entry of a run, made when it is new; the oldest one goes when there are too many."""
        active = [name for name in sorted(keys - self.demoted) if name in fed]
        for name in active:
            self._note_key(name, fed[name])
        signature = signature_of(outputs, fed, [name for name in active if name not in self.demoted])
        found = self.entries.get(signature)
        if found is None:
            found = self.entries[signature] = Entry()
            while len(self.entries) > self.limits.plans:
                _, old = self.entries.popitem(last=False)
                self.count("evictions" if old.captured is not None else "forgotten")
                self._close(old)
        else:
            self.entries.move_to_end(signature)
        return signature, found

    def decide(self, entry: Entry) -> Decision:
        """How the next run of an entry is made."""
        if entry.captured is not None:
            return Decision.REPLAY
        if entry.latched or entry.runs < self.limits.warm_up - 1:
            return Decision.EAGER
        if entry.warm is None:
            return Decision.OBSERVE
        return Decision.CAPTURE

    def captured(self, entry: Entry, captured: Captured) -> None:
        """Install a capture."""
        entry.captured = captured
        entry.report = None
        entry.captures.append(entry.runs)
        self.count("captures")

    def declined(self, entry: Entry, report: DeclineReport) -> None:
        """Note a declined capture: the signature stays eager, since the next try would end the same.

        Only shapes that came out otherwise than in the warm run may settle: then it warms up again.
        """
        if any(row.reason is Reason.DIVERGED for row in report.rows):
            self.count("declines")
            self.failed(entry, report)
            return
        entry.report = report
        entry.latched = True
        self.count("declines")

    def failed(self, entry: Entry, report: DeclineReport) -> None:
        """Note that a capture broke off: the signature warms up again, but not for ever."""
        entry.warm = None
        entry.report = report
        entry.failures += 1
        entry.latched = entry.failures > self.limits.recaptures
        self.count("failed captures")

    def retire(self, entry: Entry, report: DeclineReport) -> None:
        """Drop a capture; the signature warms up again, or latches when that has happened too often."""
        self._close(entry)
        entry.warm = None
        entry.report = report
        self.count("retirements")
        recent = [run for run in entry.captures if run > entry.runs - self.limits.window]
        if len(recent) > self.limits.recaptures:
            entry.latched = True
            message = f"captured {len(recent)} times in {self.limits.window} runs; it stays eager"
            entry.report = DeclineReport((*report.rows, *DeclineReport.of(Reason.LATCHED, message).rows))

    def release(self) -> None:
        """Drop every capture and everything learnt by signature."""
        for entry in self.entries.values():
            self._close(entry)
        self.entries.clear()

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self.counters[name] = self.counters.get(name, 0) + by

    def _note_key(self, name: str, value: Value) -> None:
        if not is_key(value):
            return
        values = self.key_values.setdefault(name, set())
        values.add(key_value(value))
        if len(values) > self.limits.key_values:
            self.demoted.add(name)
            self.count("demoted key feeds")

    def _close(self, entry: Entry) -> None:
        if entry.captured is not None:
            entry.captured.close()
            entry.captured = None
