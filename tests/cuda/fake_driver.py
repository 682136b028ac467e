"""A stand-in for `torch.cuda` that computes nothing fast and forbids what CUDA forbids.

It keeps streams with vector clocks, so that work which is not ordered after what it reads is an error and not
a race; a capture that a wrong call invalidates, and an allocator that such a capture leaves directed to its
pool; pools whose graphs replay in order and never at once; workspaces that a freed graph takes away from the
others of its stream; devices; memory that runs out; a device that breaks.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

Pool = tuple[int, int]
SEGMENT = 1 << 21
NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
INVALIDATED = "CUDA error: operation failed due to a previous error during capture"


class FakeError(RuntimeError):
    """What the fake raises where CUDA would give a wrong result or crash."""


class Stream:
    """Work in order. `clock` says how much of each stream's work is done before what comes next here."""

    def __init__(self, driver: FakeCuda, device: torch.device, number: int) -> None:
        self.driver, self.device, self.number = driver, device, number
        self.clock: dict[int, int] = {number: 0}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        return self.number

    def wait_stream(self, other: Stream) -> None:
        capturing = self.driver.capture
        if capturing is not None and capturing.stream in (self, other) and self is not other:
            raise self.driver.invalidate(NOT_PERMITTED)
        for number, count in other.clock.items():
            self.clock[number] = max(self.clock.get(number, 0), count)

    def synchronize(self) -> None:
        self.driver.forbid_while_capturing()
        self.driver.host.update({n: max(c, self.driver.host.get(n, 0)) for n, c in self.clock.items()})


class Buffer:
    """A tensor of one number."""

    def __init__(self, driver: FakeCuda, device: torch.device, value: float, pool: Pool | None) -> None:
        self.driver, self.device, self.value, self.pool = driver, device, value, pool
        self.written = (0, 0)


class FakeGraph:
    """`torch.cuda.CUDAGraph`: launches recorded between `capture_begin` and `capture_end`."""

    def __init__(self, driver: FakeCuda) -> None:
        self.driver = driver
        self.launches: list[tuple[Callable[[], None], list[Buffer], list[Buffer]]] = []
        self.state = "new"
        self.pool_id: Pool | None = None
        self.stream: Stream = driver.current_stream()
        self.outer: Stream = self.stream
        self.thread = 0
        self.mode = ""

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        driver = self.driver
        if self.state != "new":
            raise FakeError("a graph object captures once")
        if driver.capture is not None:
            raise FakeError("two captures in one process")
        stream = driver.current_stream()
        if stream.number in driver.default.values():
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if stream.device.index != driver.current_device():
            raise FakeError("the capture's device is not current")
        assert pool in driver.pools, "the pool was not made by graph_pool_handle"
        outer = self.outer = driver.outer_stream()
        if stream.clock.get(outer.number, 0) < outer.clock[outer.number]:
            raise FakeError("the capture's stream does not wait for what came before")
        self.pool_id, self.stream, self.mode = pool, stream, capture_error_mode
        self.thread, self.state = threading.get_ident(), "capturing"
        driver.capture = self
        driver.directed.add(pool)

    def capture_end(self) -> None:
        driver = self.driver
        if driver.capture is not self:
            raise FakeError("capture_end without capture_begin")
        if driver.current_stream() != self.stream:
            raise RuntimeError("Capture must end on the same stream it began on.")
        driver.capture = None
        self.stream.clock[self.stream.number] += 1
        driver.unjoined.setdefault(self.outer.number, {}).update(self.stream.clock)
        if self.state == "invalid":
            raise torch.AcceleratorError(INVALIDATED)
        assert self.pool_id is not None
        driver.directed.discard(self.pool_id)
        driver.pools[self.pool_id].append(self)
        self.state = "captured"

    def replay(self) -> None:
        driver = self.driver
        driver.check_device()
        driver.forbid_while_capturing()
        if self.state != "captured" or self.pool_id is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if self.stream.number in driver.freed:
            raise FakeError("the graph's workspace was freed with another graph of its stream")
        if driver.fail_replay:
            raise torch.AcceleratorError(driver.fail_replay)
        if driver.current_device() != self.stream.device.index:
            raise FakeError("a replay with another device current")
        graphs, stream = driver.pools[self.pool_id], driver.current_stream()
        last, where, when = driver.replayed.get(self.pool_id, (-1, stream.number, 0))
        place = graphs.index(self)
        if place <= last and place != 0 and place != last:
            raise FakeError("graphs of one pool replay in the order of their capture")
        if stream.clock.get(where, 0) < when:
            raise FakeError("graphs of one pool replay at the same time")
        for run, reads, writes in self.launches:
            driver.order(stream, reads, writes)
            run()
        driver.replayed[self.pool_id] = (place, stream.number, stream.clock[stream.number])

    def reset(self) -> None:
        driver = self.driver
        if self.state == "captured" and self.pool_id is not None:
            where = driver.replayed.get(self.pool_id, (0, 0, 0))[1:]
            if driver.host.get(where[0], 0) < where[1]:
                raise FakeError("a graph is freed while it may be running")
            driver.freed.add(self.stream.number)
        self.state, self.launches = "reset", []

    def pool(self) -> Pool:
        assert self.pool_id is not None
        return self.pool_id


class FakeCuda:
    """What a `CudaRecorder` uses of `torch.cuda`, and what a test's body launches."""

    def __init__(self, devices: int = 2) -> None:
        numbers = itertools.count(1)
        self.numbers = numbers
        self.default = {index: next(numbers) for index in range(devices)}
        self.streams = [Stream(self, torch.device("cuda", i), n) for i, n in self.default.items()]
        self.here = threading.local()
        self.host: dict[int, int] = {}
        self.capture: FakeGraph | None = None
        self.pools: dict[Pool, list[FakeGraph]] = {}
        self.directed: set[Pool] = set()
        self.replayed: dict[Pool, tuple[int, int, int]] = {}
        self.unjoined: dict[int, dict[int, int]] = {}
        self.flushes = 0
        self.room = 1000
        self.cached = 0
        self.segments = 0
        self.broken = ""
        self.fail_replay = ""
        self.freed: set[int] = set()
        self.memory = SimpleNamespace(
            _cuda_endAllocateToPool=self.end_allocate, _cuda_releasePool=self.release_pool
        )

    # What torch.cuda offers.

    def CUDAGraph(self) -> FakeGraph:
        return FakeGraph(self)

    def Stream(self, device: torch.device) -> Stream:
        self.forbid_while_capturing()
        stream = Stream(self, device, next(self.numbers))
        self.streams.append(stream)
        return stream

    def graph_pool_handle(self) -> Pool:
        pool = (0, len(self.pools) + 1)
        self.pools[pool] = []
        return pool

    def current_device(self) -> int:
        return getattr(self.here, "device", 0)

    def current_stream(self, device: torch.device | None = None) -> Stream:
        index = self.current_device() if device is None else device.index
        chosen: dict[int, Stream] = self.here.__dict__.setdefault("streams", {})
        return chosen.get(index) or next(s for s in self.streams if s.number == self.default[index])

    @contextlib.contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before = self.current_device()
        self.here.device = device.index
        try:
            yield
        finally:
            self.here.device = before

    def outer_stream(self) -> Stream:
        """The stream that was current before this one."""
        outer: list[Stream] = self.here.__dict__.setdefault("outer", [])
        return outer[-1] if outer else self.current_stream()

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        index = stream.device.index
        before = self.current_stream(stream.device)
        self.here.__dict__.setdefault("streams", {})[index] = stream
        self.here.__dict__.setdefault("outer", []).append(before)
        with self.device(stream.device):
            try:
                yield
            finally:
                self.here.outer.pop()
                self.here.streams[index] = before

    def synchronize(self, device: torch.device | None = None) -> None:
        self.check_device()
        self.forbid_while_capturing()
        for stream in self.streams:
            stream.synchronize()

    def empty_cache(self) -> None:
        self.forbid_while_capturing()
        if self.directed:
            raise FakeError("the cache is emptied while the allocator is directed to a pool")
        self.flushes += 1
        self.room, self.cached = self.room + self.cached, 0

    def memory_reserved(self, device: torch.device | None = None) -> int:
        """Bytes that were taken for the pools of graphs: a segment each allocation."""
        return self.segments * SEGMENT

    def end_allocate(self, device: int, pool: Pool) -> None:
        if pool not in self.directed:
            raise RuntimeError("the pool is not being allocated to")
        self.directed.discard(pool)

    def release_pool(self, device: int, pool: Pool) -> None:
        assert pool in self.pools

    # What a body does.

    def alloc(self, value: float = 0.0) -> Buffer:
        """Memory on the current device, out of the pool while its stream is captured."""
        self.check_device()
        capture = self.capture
        device = torch.device("cuda", self.current_device())
        if self.room == 0 and self.cached and capture is not None:
            # The cache would be given back to the driver, and not even that may be asked in a capture.
            raise self.invalidate(NOT_PERMITTED)
        if self.room == 0:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.room -= 1
        if capture is None:
            return Buffer(self, device, value, None)
        if capture.thread != threading.get_ident():
            if capture.mode == "global":
                self.invalidate(NOT_PERMITTED)
            return Buffer(self, device, value, None)
        if self.current_stream() != capture.stream:
            raise self.invalidate(NOT_PERMITTED)
        self.segments += 1
        return Buffer(self, device, value, capture.pool_id)

    def launch(self, run: Callable[[], None], reads: list[Buffer], writes: list[Buffer]) -> None:
        self.check_device()
        stream, capture = self.current_stream(), self.capture
        if capture is not None and capture.stream == stream:
            if capture.state == "invalid":
                raise torch.AcceleratorError(INVALIDATED)
            capture.launches.append((run, reads, writes))
            return
        self.order(stream, reads, writes)
        run()

    def read(self, buffer: Buffer) -> float:
        """A host read, which waits for everything."""
        self.synchronize()
        return buffer.value

    # The rules.

    def order(self, stream: Stream, reads: list[Buffer], writes: list[Buffer]) -> None:
        for number, count in self.unjoined.get(stream.number, {}).items():
            if stream.clock.get(number, 0) < count:
                raise FakeError("work goes on before the capture's stream is waited for")
        for buffer in (*reads, *writes):
            number, count = buffer.written
            known = max(stream.clock.get(number, 0), self.host.get(number, 0))
            if known < count:
                raise FakeError("work is not ordered after what it depends on")
        stream.clock[stream.number] += 1
        for buffer in writes:
            buffer.written = (stream.number, stream.clock[stream.number])

    def forbid_while_capturing(self) -> None:
        capture = self.capture
        if capture is not None and (capture.mode == "global" or capture.thread == threading.get_ident()):
            raise self.invalidate(NOT_PERMITTED)

    def invalidate(self, message: str) -> Exception:
        assert self.capture is not None
        self.capture.state = "invalid"
        return torch.AcceleratorError(message)

    def check_device(self) -> None:
        if self.broken:
            raise torch.AcceleratorError(self.broken)


class FakeLab:
    """The tests' bodies on the fake."""

    def __init__(self) -> None:
        self.driver: Any = FakeCuda()
        self.second = torch.device("cuda", 1)

    def tensor(self, value: float) -> Buffer:
        """Memory that the host filled before anything else."""
        return self.driver.alloc(value)

    def add_(self, target: Buffer, other: Buffer | float) -> None:
        def run() -> None:
            target.value += other.value if isinstance(other, Buffer) else other

        self.driver.launch(run, [other] if isinstance(other, Buffer) else [], [target])

    def plus(self, source: Buffer, number: float) -> Buffer:
        result = self.driver.alloc()

        def run() -> None:
            result.value = source.value + number

        self.driver.launch(run, [source], [result])
        return result

    def fill_(self, target: Buffer, value: float) -> None:
        def run() -> None:
            target.value = value

        self.driver.launch(run, [], [target])

    def read(self, source: Buffer) -> float:
        return self.driver.read(source)

    def foreign_memory(self) -> object:
        """Allocate outside of the capture's stream."""
        stream = self.driver.streams[self.driver.current_device()]
        with self.driver.stream(stream):
            return self.driver.alloc()
