"""Sessions on the fake driver: torch's calls are launches, and what CUDA forbids is an error.

The tensors are the CPU's. While a stream is captured a call makes its results, so that their shapes are
known, and nothing of what it does lasts: results are filled with 0xFF, what it wrote to is as before and so
are random numbers, until a replay runs the calls again. A host that reads a tensor waits for the device,
which a capture forbids.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_driver import Buffer, FakeCuda, FakeGraph, Pool
from runtime.capturelab import injected
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch_ort_session as tos
from torch_ort_session.runtime.engine import engine as engine_module
from torch_ort_session.runtime.recorders.cuda import CudaRecorder

_WAITS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Calls(TorchDispatchMode):
    """Tells the driver of every call as a launch."""

    def __init__(self, driver: FakeTorch) -> None:
        super().__init__()
        self.driver = driver
        self.buffers: dict[int, Buffer] = {}
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.made: list[torch.Tensor] = []
        self.within = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.within:
            return func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if self.waits(func, given):
            self.driver.synchronize()
        written = [leaf for leaf in written_by(func, args, kwargs) if isinstance(leaf, torch.Tensor)]
        if self.driver.capture is not None:
            for tensor in written:
                whole = bytes_of(tensor)
                self.before.setdefault(key(tensor), (whole, whole.clone()))
        results = func(*args, **kwargs)
        known = {key(tensor) for tensor in given}
        fresh = [t for t in tree_leaves(results) if isinstance(t, torch.Tensor) and key(t) not in known]
        if not fresh and not written:
            return results
        reads = [self.buffer(tensor) for tensor in given]
        for tensor in fresh:
            self.buffers[key(tensor)] = self.driver.alloc()
        run = self.again(func, args, kwargs, results, known)
        if self.driver.capture is not None:
            self.made += fresh
        else:
            run = nothing
        self.driver.launch(run, reads, [self.buffer(tensor) for tensor in (*fresh, *written)])
        return results

    def waits(self, func: Any, given: list[torch.Tensor]) -> bool:
        """Whether a call reads data on the host; indexing does so by masks alone."""
        if func is torch.ops.aten.index.Tensor:
            return any(tensor.dtype in (torch.bool, torch.uint8) for tensor in given[1:])
        return not _WAITS.isdisjoint(func.tags)

    def buffer(self, tensor: torch.Tensor) -> Buffer:
        """The buffer of a tensor's storage; of one that the host filled, where it was never seen before."""
        found = self.buffers.get(key(tensor))
        if found is None:
            found = self.buffers[key(tensor)] = Buffer(self.driver, torch.device("cuda", 0), 0.0, None)
        return found

    def again(self, func: Any, args: Any, kwargs: Any, results: Any, known: set[int]) -> Any:
        def run() -> None:
            with self.apart():
                made = func(*args, **kwargs)
                for old, new in zip(tree_leaves(results), tree_leaves(made), strict=True):
                    if isinstance(old, torch.Tensor) and key(old) not in known:
                        old.copy_(new)

        return run

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Calls that the driver is not told of."""
        before, self.within = self.within, True
        try:
            yield
        finally:
            self.within = before

    def undo(self) -> None:
        """Nothing of what was captured has run."""
        with self.apart():
            for tensor in self.made:
                bytes_of(tensor).fill_(0xFF)
            for whole, held in self.before.values():
                whole.copy_(held)
        self.made, self.before = [], {}


def nothing() -> None:
    """What is left to do of a call that has run."""


def key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def written_by(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Arguments that a call writes to."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tree_leaves(args[place] if place < len(args) else kwargs.get(argument.name))


class TorchGraph(FakeGraph):
    """A graph of torch's calls."""

    driver: FakeTorch

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        super().capture_begin(pool, capture_error_mode)
        self.random = torch.get_rng_state()

    def capture_end(self) -> None:
        try:
            super().capture_end()
        finally:
            self.driver.calls.undo()
            torch.set_rng_state(self.random)


class FakeTorch(FakeCuda):
    """The fake driver under torch's calls.

    Attributes:
        calls: Tells of them.
        graphs: Every graph that was made.
        scarce: Whether there is no memory for captures.
    """

    def __init__(self) -> None:
        super().__init__()
        self.room = 1_000_000
        self.calls = Calls(self)
        self.graphs: list[TorchGraph] = []
        self.scarce = False

    def alloc(self, value: float = 0.0) -> Buffer:
        if self.scarce and self.capture is not None:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().alloc(value)

    def CUDAGraph(self) -> TorchGraph:
        self.graphs.append(TorchGraph(self))
        return self.graphs[-1]

    def open_pools(self) -> list[Pool]:
        """Pools to which the allocator is directed."""
        return sorted(self.directed)

    @contextlib.contextmanager
    def watching(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Sessions capture although each call is watched, which else keeps them from it."""
        patch.setattr(engine_module, "stepwise", lambda: False)
        with self.calls:
            yield

    def session(self, proto: Any, **options: Any) -> tos.Session:
        """A session whose recorder has this driver."""
        made = tos.load(proto, device="cpu", options=tos.Options(**options))
        return injected(made, lambda: CudaRecorder(torch.device("cuda", 0), self))
