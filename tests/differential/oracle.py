"""onnxruntime in a process of its own: some models end the process that runs them (a GRU over no steps)."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any

import onnxruntime


def serve(link: Connection) -> None:
    """Answer until the other end is closed: a model replaces the session, a feed is run."""
    # What onnxruntime writes when it ends the process is not of this run.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    session = None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    while True:
        try:
            asked = link.recv()
        except EOFError:
            return
        try:
            if isinstance(asked, bytes):
                session = None
                session = onnxruntime.InferenceSession(asked, options, providers=["CPUExecutionProvider"])
                link.send(True)
            else:
                link.send(None if session is None else session.run(None, asked))
        except Exception:
            link.send(None)


class OnnxRuntime:
    """A process that runs one model at a time; a new one is started when it dies."""

    def __init__(self) -> None:
        self._process: Any = None
        self._link: Any = None

    def ask(self, what: bytes | dict[str, Any]) -> Any:
        """Load a model (True where that works) or run a feed; None where onnxruntime cannot."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._link, other = context.Pipe()
            self._process = context.Process(target=serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        try:
            self._link.send(what)
            return self._link.recv()
        except (EOFError, OSError):
            self.close()
            return None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._link.close()
            self._process.join()
            self._process = None
