"""What differs between two signatures, and why a replay is not made, in words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch_ort_session.errors import CaptureError
from torch_ort_session.plan.partition.report import DeclineReport, Reason
from torch_ort_session.runtime.values.signature import Signature

_WORDS = ("name", "role", "dtype", "shape", "valid part", "stride", "address", "size", "device")


def changes(old: Signature, new: Signature) -> list[str]:
    """One text a difference; empty when the two are equal."""
    found: list[str] = []
    if old.outputs != new.outputs:
        found.append(f"the outputs were {', '.join(old.outputs)} and are {', '.join(new.outputs)}")
    found += _bound(old, new)
    found += _feeds(old, new, {form.name for form in (*old.bound, *new.bound)})
    keys = dict(new.keys)
    found += [
        f"key feed {name!r} was {value} and is {keys.get(name, 'none')}"
        for name, value in old.keys
        if keys.get(name) != value
    ]
    return found


def _bound(old: Signature, new: Signature) -> list[str]:
    found: list[str] = []
    was = {(form.role, form.name): form for form in old.bound}
    now = {(form.role, form.name): form for form in new.bound}
    for (role, name), before in was.items():
        after = now.get((role, name))
        if after is None:
            found.append(f"{role} {name!r} is no longer bound")
            continue
        found += [
            f"{word} of {role} {name!r} was {_said(a)} and is {_said(b)}"
            for word, a, b in zip(_WORDS, before, after, strict=True)
            if a != b
        ]
    return found + [f"{role} {name!r} is bound" for role, name in now if (role, name) not in was]


def _feeds(old: Signature, new: Signature, bound: Collection[str]) -> list[str]:
    was = {name: form for name, *form in old.feeds if name not in bound}
    now = {name: form for name, *form in new.feeds if name not in bound}
    found = [
        f"feed {name!r} was {_form(form)} and is {_form(now[name]) if name in now else 'left out'}"
        for name, form in was.items()
        if now.get(name) != form
    ]
    return found + [f"feed {name!r} is new" for name in now if name not in was]


def _form(form: list[Any]) -> str:
    return " ".join(map(_said, form))


def _said(part: Any) -> str:
    return str(list(part)) if isinstance(part, tuple) else str(part).removeprefix("torch.")


def not_replayed(found: tuple[Signature, Signature] | DeclineReport | None, gone: str) -> CaptureError:
    """The error of a replay that was not made.

    Args:
        found: The captured signature and the one asked for; why the capture was retired; None where nothing
            was captured.
        gone: What became of the last capture.
    """
    if isinstance(found, DeclineReport):
        return CaptureError(f"the capture cannot be replayed and was retired:\n{found}", report=found)
    if found is None:
        why = f"there is nothing to replay: {gone}; capture() makes one"
    else:
        told = "; ".join(changes(*found)) or "the order of the feeds changed"
        why = f"the capture is no longer valid and was retired: {told}; capture() makes another"
    return CaptureError(why, report=DeclineReport.of(Reason.NO_CAPTURE, why))
