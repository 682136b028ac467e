"""Results: their names, and memory that is theirs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import torch
import torch.utils._pytree as pytree

from torch_ort_session.errors import InputError


class Outputs(tuple[Any, ...]):
    """Results in order: ``out[0]``, ``out["name"]``, ``out.name``, or unpacked."""

    _names: tuple[str, ...]

    def __new__(cls, names: Sequence[str], values: Sequence[Any]) -> Self:
        """Pair names with values."""
        self = super().__new__(cls, values)
        self._names = tuple(names)
        return self

    def keys(self) -> tuple[str, ...]:
        """The output names."""
        return self._names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._names:
                raise KeyError(f"no output {key!r}; there are {', '.join(map(repr, self._names))}")
            return super().__getitem__(self._names.index(key))
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._names:
            return self[name]
        raise AttributeError(f"no output {name!r}; there are {', '.join(map(repr, self._names))}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Outputs, (self._names, tuple(self)))

    def __repr__(self) -> str:
        return "Outputs(" + ", ".join(f"{n}={v!r}" for n, v in zip(self._names, self, strict=True)) + ")"


# Function transforms and torch.export take results apart and put them together again.
pytree.register_pytree_node(
    Outputs,
    lambda outputs: (list(outputs), outputs.keys()),
    lambda values, names: Outputs(names, list(values)),
    serialized_type_name="torch_ort_session.Outputs",
)


def wanted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of results as they were asked for, checked.

    Raises:
        InputError: They are no list of names, or one of them is no name.
    """
    if isinstance(names, str):
        raise InputError(f"output_names is a list of names; write [{names!r}]", name=names)
    if not isinstance(names, Iterable) or isinstance(names, set | frozenset):
        kind = type(names).__name__
        raise InputError(f"output_names is a list of names or None; got {kind}", got=kind)
    listed = tuple(names)
    for name in listed:
        if not isinstance(name, str) or not name:
            raise InputError(f"output names are non-empty strings, not {name!r}", got=repr(name))
    return listed


def storages(values: Iterable[Any]) -> set[int]:
    """Addresses of the memory behind tensors, those inside of sequences included."""
    addresses: set[int] = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            storage = _storage(value)
            if storage is not None:
                addresses.add(storage.data_ptr())
        elif isinstance(value, tuple):
            addresses |= storages(value)
    return addresses


def _storage(value: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory behind a tensor; None for those of a function transform or a tracer, which show none."""
    try:
        storage = value.untyped_storage()
        storage.data_ptr()
    except (NotImplementedError, RuntimeError):
        return None
    return storage


def storage_ids(values: Iterable[Any]) -> set[int]:
    """Identities of the storages behind tensors: they stay when a replay changes a storage's memory."""
    identities: set[int] = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            identities.add(value.untyped_storage()._cdata)
        elif isinstance(value, tuple):
            identities |= storage_ids(value)
    return identities


def apart(results: Iterable[Any], lasting: frozenset[int]) -> list[Any]:
    """Copy those results that lie in storages which later runs write."""
    return [_apart(result, lasting) for result in results]


def _apart(value: Any, lasting: frozenset[int]) -> Any:
    if isinstance(value, torch.Tensor):
        return cloned(value) if value.untyped_storage()._cdata in lasting else value
    if isinstance(value, tuple):
        return tuple(_apart(item, lasting) for item in value)
    return value


def own(
    results: Iterable[Any], constants: frozenset[int], fed: Iterable[Any], device: torch.device
) -> list[Any]:
    """Give results memory of their own, and no more than that, where they alias or overlap anything.

    What comes out is contiguous.

    Args:
        results: Values of the run.
        constants: Memory addresses of the weights.
        fed: Values that were fed.
        device: Where results belong.

    Returns:
        The results, copied only where they had to be.
    """
    if torch.compiler.is_compiling():
        # Tensors of torch.compile show no memory: it may drop a copy that turns out to be needless.
        return [_copied(result) for result in results]
    taken = storages(fed)
    return [_owned(result, constants, taken, device) for result in results]


def cloned(value: torch.Tensor) -> torch.Tensor:
    """A contiguous copy: images may have their channels last inside of a run."""
    return value.clone(memory_format=torch.contiguous_format)


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_copied(item) for item in value)
    return cloned(value) if isinstance(value, torch.Tensor) else value


def _owned(value: Any, constants: frozenset[int], taken: set[int], device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        if value.device != device:
            return value.to(device)
        storage = _storage(value)
        if storage is None:
            return cloned(value)
        pointer = storage.data_ptr()
        shared = pointer in taken or pointer in constants
        # A slice would hold all of the memory that it is a part of; an expanded tensor cannot be written to.
        partial = storage.nbytes() != value.nbytes
        if shared or partial or value.is_inference():
            return cloned(value)
        taken.add(pointer)
        return value.contiguous()
    if isinstance(value, tuple):
        return tuple(_owned(item, constants, taken, device) for item in value)
    return value.copy() if isinstance(value, np.ndarray) else value


Owned: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""Gives results memory of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """What a binding adds to a run.

    Attributes:
        form: Its part of the signature.
        in_place: Inputs that recordings read where they are.
        deliver: Takes the results of a run, and what gives memory to those that are not bound. Until then no
            bound tensor was written, so that a run can be given up, or made again, at any time.
    """

    form: tuple[Any, ...]
    in_place: frozenset[str]
    deliver: Callable[[Sequence[Any], Owned], list[Any]]
