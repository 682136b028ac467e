"""Values that a kernel makes of its attributes once, and keeps as long as its step lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from torch_ort_session.ops.kernel import KernelContext

_R = TypeVar("_R")

# A context belongs to one step of one session, so what is kept goes when the session goes.
_MADE: WeakKeyDictionary[KernelContext, dict[str, Any]] = WeakKeyDictionary()


def prepared(ctx: KernelContext, make: Callable[[], _R], name: str = "") -> _R:
    """Result of ``make`` for this step; it is called on first use, which is never within a capture.

    Args:
        ctx: The context of the step.
        make: Makes tensors on the context's device from attributes alone.
        name: Tells several things of one step apart.
    """
    kept = _MADE.get(ctx)
    if kept is None:
        kept = _MADE.setdefault(ctx, {})
    if name not in kept:
        kept[name] = make()
    return cast(_R, kept[name])
