"""Calls: the ATen calls that a step comes to, noted without the tensors that they were made on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ort_session.plan.lowering.steps import NOTHING
from torch_ort_session.runtime.recorders.tape.aten import facts_of


class Place(NamedTuple):
    """In the place of a tensor: what a step read, by id; or a result, by its call and its place there."""

    value: int
    call: int = -1
    result: int = -1


class Call(NamedTuple):
    """An ATen call that took place, without its tensors.

    Attributes:
        name: Its op.
        arguments: Its arguments with defaults filled in.
        results: Where each result is.
    """

    name: tuple[str, str]
    arguments: list[Any]
    results: list[Place]


class Seen(NamedTuple):
    """What a step came to: its calls; where what it made is, and its dims, by id."""

    calls: list[Call]
    made: dict[int, tuple[Place, tuple[int, ...]]]


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the calls that take place.

    Attributes:
        calls: Of each its op, its arguments with defaults filled in, and its results; None where one of the
            calls cannot be repeated.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[tuple[str, str], list[Any], list[torch.Tensor]]] | None = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping it would import the compiler and wrap every call, and nothing compiles here.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = func(*args, **(kwargs or {}))
        facts = facts_of(func)
        results = list(given) if isinstance(given, list | tuple) else [given]
        if facts.refusal or facts.random or not all(isinstance(r, torch.Tensor) for r in results):
            self.calls = None
        elif self.calls is not None:
            arguments = facts.full(args, kwargs or {})
            if facts.dtype >= 0 and arguments[facts.dtype] is None and not _tensors(arguments):
                # Else the default dtype of a later run would decide.
                arguments[facts.dtype] = results[0].dtype
            self.calls.append((facts.name, arguments, results))
        return given


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def seen_of(
    calls: list[tuple[tuple[str, str], list[Any], list[torch.Tensor]]] | None,
    read: dict[int, torch.Tensor],
    made: dict[int, Any],
) -> Seen | None:
    """What a step came to, without its tensors: none of them is held.

    Args:
        calls: Its calls, with their tensors; None where one of them cannot be repeated.
        read: What it read, by id.
        made: What it made, by id.

    Returns:
        None where the step cannot be repeated.
    """
    places = {id(tensor): Place(value) for value, tensor in read.items()}
    if len(places) < len(read):
        # Which of two inputs a call was given is not to be told when both are one tensor.
        return None
    found = []
    for at, (name, arguments, results) in enumerate(calls or ()):
        told = [_placed(argument, places) for argument in arguments]
        for number, result in enumerate(results):
            places.setdefault(id(result), Place(NOTHING, at, number))
        found.append(Call(name, told, [places[id(result)] for result in results]))
    if calls is None or any(id(tensor) not in places for tensor in made.values()):
        return None
    return Seen(found, {v: (places[id(tensor)], tuple(tensor.shape)) for v, tensor in made.items()})


def _placed(argument: Any, places: dict[int, Place]) -> Any:
    """An argument with places for tensors; what is none of the run's, such as an attribute, stays."""
    if isinstance(argument, torch.Tensor):
        return places.get(id(argument), argument)
    if isinstance(argument, list | tuple):
        return [_placed(item, places) for item in argument]
    return argument


def handed_on(seen: Seen) -> list[int]:
    """Values that a step read and handed on to a call, or gave back as they were; by id."""
    given = [place for call in seen.calls for place in _flat(call.arguments)]
    given += [place for place, _ in seen.made.values()]
    return [place.value for place in given if place.call < 0]


def _flat(values: Sequence[Any]) -> list[Place]:
    found: list[Place] = []
    for value in values:
        if isinstance(value, Place):
            found.append(value)
        elif isinstance(value, list):
            found += _flat(value)
    return found
