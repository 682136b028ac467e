"""Recordings as CUDA graphs; the only place that touches them.

A recorder runs a body once and gives back what replays it; :mod:`.api` says what it promises.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch

from torch_ort_session.plan.memory import MemoryLayout
from torch_ort_session.runtime.recorders.api import Finished, RecordingStats, Refused, Shared
from torch_ort_session.runtime.validation import FLAGS


class _CaptureLock:
    """A lock for captures: a process has one at a time. Lives as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise RuntimeError("a body that is being captured cannot capture another one")
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *exception: object) -> None:
        self._owner = 0
        self._lock.release()


_CAPTURING = _CaptureLock()


class CudaRecorder:
    """Records as CUDA graphs, which replay on the current stream.

    One recorder serves one plan: its graphs share a memory pool and the stream that they were captured on, so
    they replay in the order of their capture, never at the same time, and are closed together.

    Args:
        device: The device; without an index, the current one.
        driver: What stands for :mod:`torch.cuda`: a test's stand-in where there is no device.
    """

    def __init__(self, device: torch.device, driver: Any = torch.cuda) -> None:
        index = device.index if device.index is not None else driver.current_device()
        self._lane = _Lane(driver, torch.device("cuda", index))

    def record(self, body: Callable[[], None]) -> CudaRecording:
        """Capture ``body`` and replay it once; see :class:`~.api.Recorder`.

        What the body raises leaves no capture behind. Running out of memory comes as it is, and so does an
        error that has nothing to do with capturing.

        Raises:
            Refused: Something in the body cannot be captured; the body's exception is the cause.
        """
        lane = self._lane
        with _CAPTURING, lane.driver.device(lane.device):
            recording = CudaRecording(lane, lane.capture(body))
            recording.replay()
        return recording


class CudaRecording:
    """A captured CUDA graph; see :class:`~.api.Recording`. Lives as long as its capture."""

    def __init__(self, lane: _Lane, graph: Any) -> None:
        self._lane = lane
        self._graph = graph
        self._generation = lane.generation
        self._held: tuple[torch.Tensor, ...] = ()
        self._retired = ""

    @property
    def stats(self) -> RecordingStats:
        """One launch; its memory belongs to the pool."""
        return RecordingStats(calls=1)

    def finish_all(
        self,
        regions: Sequence[CudaRecording | None],
        shared: Sequence[Shared],
        block: Callable[[int], torch.Tensor],
    ) -> Finished:
        """Hold what others read: the pool would hand its bytes to the next capture otherwise."""
        held = tuple(one.tensor for one in shared)
        recordings = [stage for stage in regions if stage is not None]
        for recording in recordings:
            recording._held = held
        # A launch, or a seam, is a position.
        starts, calls = tuple(range(len(regions) + 1)), len(recordings)
        layout = MemoryLayout(calls, starts, pool=self._lane.reserved)
        return Finished(RecordingStats(calls=calls), frozenset(), layout)

    def donate(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Refused: a graph writes to the same bytes each time."""
        raise RuntimeError("results of a graph are copied")

    def replay(self, word: torch.Tensor | None = None) -> bool:
        """Launch the graph on the current stream; see :meth:`~.api.Recording.replay`."""
        if not self._retired and self._generation != self._lane.generation:
            self._retired = "another one of its plan was closed or failed"
        if self._retired:
            raise RuntimeError(f"this recording is retired: {self._retired}")
        try:
            if word is not None:
                word.zero_()
            self._lane.replay(self._graph)
        except BaseException:
            self._retired = "a replay failed"
            raise
        # Reading it waits for the device.
        return word is not None and bool(word[FLAGS].item())

    def close(self) -> None:
        """Free the graph once its last replay is done."""
        if self._graph is not None:
            self._lane.drop(self._graph)
        self._graph, self._held = None, ()
        self._retired = self._retired or "closed"


class _Lane:
    """Stream and pool that the graphs of one plan share. Lives as long as the last of them.

    Attributes:
        stream: Where they are captured. cuBLAS keeps a workspace a stream, which the graphs bake in.
        pool: Where their allocations come from.
        last: Stream of the last replay, which the next one has to come after.
        reserved: Bytes that the allocator took from the device while it filled the pool.
        generation: Changes when a graph is freed: the workspace that its stream's other graphs baked in may
            go with it (pytorch #193402), so they are retired, and the next capture takes another stream.
    """

    def __init__(self, driver: Any, device: torch.device) -> None:
        self.driver = driver
        self.device = device
        self.stream: Any = None
        self.pool: Any = None
        self.last: Any = None
        self.reserved = 0
        self.generation = 0

    def capture(self, body: Callable[[], None]) -> Any:
        """A graph of what ``body`` launches; nothing has run yet."""
        driver = self.driver
        if self.stream is None:
            # Once a plan: memory that the cache holds cannot be had from within a capture.
            driver.synchronize(self.device)
            driver.empty_cache()
            self.stream, self.pool = driver.Stream(self.device), driver.graph_pool_handle()
        current = driver.current_stream(self.device)
        self.stream.wait_stream(current)
        graph = driver.CUDAGraph()
        failure: BaseException | None = None
        before = driver.memory_reserved(self.device)
        with driver.stream(self.stream):
            try:
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                body()
            except BaseException as error:
                failure = error
            invalid = self._end(graph)
        current.wait_stream(self.stream)
        if failure is None and invalid is None:
            # What is allocated while a graph is captured comes from segments of the pool alone.
            self.reserved += driver.memory_reserved(self.device) - before
            return graph
        with contextlib.suppress(RuntimeError):
            graph.reset()
        self._renew()
        cause = failure if failure is not None else cast(BaseException, invalid)
        verdict = self._verdict(cause, invalid)
        if verdict is cause:
            raise verdict
        raise verdict from cause

    def replay(self, graph: Any) -> None:
        """Launch on the current stream, after what this lane launched before."""
        driver = self.driver
        with driver.device(self.device):
            current = driver.current_stream(self.device)
            if self.last is not None and self.last != current:
                current.wait_stream(self.last)
            graph.replay()
            self.last = current

    def drop(self, graph: Any) -> None:
        """Wait for the last replay, then free the graph."""
        with self.driver.device(self.device):
            if self.last is not None:
                self.last.synchronize()
            graph.reset()
        self._renew()

    def _renew(self) -> None:
        self.stream = self.pool = None
        self.reserved = 0
        self.generation += 1

    def _end(self, graph: Any) -> Exception | None:
        """End the capture; gives what was wrong with it."""
        try:
            graph.capture_end()
        except Exception as error:
            self._reopen_allocator()
            return error
        return None

    def _reopen_allocator(self) -> None:
        # A capture that ends badly leaves the allocator directing to the pool (pytorch #180395).
        memory, index = self.driver.memory, self.device.index
        with contextlib.suppress(RuntimeError):
            memory._cuda_endAllocateToPool(index, self.pool)
            memory._cuda_releasePool(index, self.pool)

    def _verdict(self, error: BaseException, invalid: Exception | None) -> BaseException:
        """The exception to raise for a capture that came to ``error``."""
        if not isinstance(error, Exception):
            return error
        try:
            self.driver.synchronize(self.device)
        except Exception as broken:
            # The device itself is in error: nothing that comes after could work.
            return broken
        causes = list(_chain(error))
        if any(isinstance(cause, torch.OutOfMemoryError) for cause in causes):
            return error
        if invalid is None and not any("captur" in str(cause).lower() for cause in causes):
            return error
        reason = str(causes[-1]).strip().partition("\n")[0]
        return Refused(f"it cannot be captured: {reason}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it came of, the first cause last."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__
