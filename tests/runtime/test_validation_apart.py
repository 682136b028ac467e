"""Whose word it is: copies of sessions and modules, threads, and child processes."""

from __future__ import annotations

import copy
import os
import pickle
import threading

import pytest
import torch
from runtime.capturelab import session_on
from runtime.test_validation import BAD, GOOD, PICK, X, feed, told, word_of

import torch_ort_session as tos


def test_m11_copies_have_words_of_their_own() -> None:
    session = session_on(PICK, validate="deferred")
    session.run(None, feed(GOOD))
    binding = session.bind()
    binding.output("y", torch.zeros(3))
    for _ in range(3):
        binding.run(feed(GOOD))
        binding.read("y")
    binding.run(feed(BAD))
    assert word_of(session).ticket is not None
    for other in (copy.deepcopy(session), pickle.loads(pickle.dumps(session))):
        assert word_of(other) is not word_of(session)
        other.check()
        assert other.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]
        told(lambda other=other: other.run(None, feed(BAD)))
    told(session.check)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_m11_the_mode_in_which_it_was_made_or_runs_does_not_matter(mode: type) -> None:
    session = session_on(PICK)
    with mode():
        made = copy.deepcopy(session)
    for _ in range(5):
        told(lambda: made.run(None, feed(BAD)))
        assert made.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]
        with mode():
            told(lambda: made.run(None, feed(BAD)))
            assert made.run(None, feed(GOOD))[0].tolist() == [0, 4, 3]


def test_m11_threads_of_one_session_have_one_ticket_at_a_time() -> None:
    session, failures = session_on(PICK), []

    def many(index: torch.Tensor, bad: bool) -> None:
        for _ in range(40):
            try:
                session.run(None, feed(index))
                if bad:
                    failures.append("bad data passed")
            except tos.DeviceIndexError as error:
                if not bad:
                    failures.append(str(error))
            except Exception as error:
                failures.append(repr(error))

    workers = [threading.Thread(target=many, args=(i, b)) for i, b in ((GOOD, False), (BAD, True)) * 2]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_m11_a_child_process_is_not_held_up_by_a_run_of_another_thread() -> None:
    session = session_on(PICK)
    session.run(None, feed(GOOD))
    word = word_of(session)
    started, over = threading.Event(), threading.Event()

    def hold() -> None:
        with session._engine.lock:
            word.begin()
            started.set()
            over.wait(30)
            assert word.ticket is not None
            word.read(word.ticket)

    holder = threading.Thread(target=hold)
    holder.start()
    started.wait(30)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            told(lambda: session.run(None, feed(BAD)))
            code = 0 if session.run(None, feed(GOOD))[0].tolist() == [0, 4, 3] else 2
        finally:
            os._exit(code)
    over.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.run(None, feed(GOOD))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_m18_a_binding_goes_on_in_a_child_process_of_a_run_of_another_thread() -> None:
    session = session_on(PICK)
    binding, y = session.bind(), torch.zeros(3)
    binding.output("y", y)
    for _ in range(4):
        binding.run(feed(GOOD))
    started, over = threading.Event(), threading.Event()

    def hold() -> None:
        with session._engine.lock, session._engine.state.reentrancy.alone("a run"):
            started.set()
            over.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    started.wait(30)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(4):
                y.zero_()
                binding.run(feed(GOOD))
            code = 0 if y.tolist() == session.run(None, feed(GOOD))[0].tolist() == [0, 4, 3] else 2
        finally:
            os._exit(code)
    over.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    binding.run(feed(GOOD))
    assert y.tolist() == [0, 4, 3]


def test_m11_a_module_is_validated_where_torch_would_not_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on(PICK)
    with pytest.raises(tos.KernelError, match="index"):
        session.module()(X, BAD)
    monkeypatch.setattr("torch_ort_session.runtime.engine.module_run._REFUSING", ("meta",))
    module, failures = session.module(), []
    told(lambda: module(X, BAD))

    def many(index: torch.Tensor) -> None:
        for _ in range(30):
            try:
                assert module(X, index).tolist() == [0, 4, 3]
            except tos.DeviceIndexError:
                failures.append(index is BAD)

    workers = [threading.Thread(target=many, args=(index,)) for index in (GOOD, BAD) * 2]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == [True] * 60
    assert copy.deepcopy(module)(X, GOOD).tolist() == [0, 4, 3]
    assert pickle.loads(pickle.dumps(module))(X, GOOD).tolist() == [0, 4, 3]
