"""Sessions in children of ``os.fork``, such as the workers of a DataLoader."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref

import pytest
import torch
from textmodel import load

import torch_ort_session as tos

X = torch.tensor([1.0, -2.0])


@pytest.fixture
def session() -> tos.Session:
    return load("g (float[2] x) => (float[2] y) { a = Neg(x) y = Exp(a) }")


def child_fares(session: tos.Session) -> bool:
    """Whether a forked child runs the session, several times, and gets what is right."""
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        right = all(torch.equal(session(X + i), (-X - i).exp()) for i in range(6))
        os._exit(0 if right else 1)
    return os.waitpid(pid, 0)[1] == 0


# Python warns of what this is about: a process that has threads is forked.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")


def test_a_child_runs_a_captured_session(session: tos.Session) -> None:
    for _ in range(5):
        session(X)
    assert child_fares(session)
    assert torch.equal(session(X), (-X).exp())


def test_a_child_does_not_wait_for_a_run_of_another_thread(session: tos.Session) -> None:
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with session._engine.lock:
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        inside.wait(60)
        assert child_fares(session)
    finally:
        done.set()
        thread.join()
    assert torch.equal(session(X), (-X).exp())


def test_a_sessions_memory_goes_with_it(session: tos.Session) -> None:
    gc.collect()
    gc.disable()
    try:
        one = load("g (float[2] x) => (float[2] y) { y = Neg(x) }")
        for _ in range(5):
            one(X)
        module = one.module()
        module(X)
        seen = weakref.ref(one)
        del one, module
        assert seen() is None
    finally:
        gc.enable()
