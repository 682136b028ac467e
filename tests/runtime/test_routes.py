"""M23, routes: how often mixtures chose each expert, told once a run, where it is asked about its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from onnx import TensorProto, helper, numpy_helper
from runtime.capturelab import counted
from textmodel import message

import torch_ort_session as tos
from torch_ort_session.runtime.validation.validator import ValidationWord

EXPERTS, WIDTH, CHOSEN = 4, 8, 2


def mixtures() -> onnx.ModelProto:
    """Two mixtures, one after the other, between them a Gather that may meet bad data."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in {
            "first": (EXPERTS, WIDTH, WIDTH),
            "second": (EXPERTS, WIDTH, WIDTH),
            "router": (WIDTH, EXPERTS),
        }.items()
    }
    more = {"domain": "com.microsoft", "k": CHOSEN, "activation_type": "relu"}
    nodes = [
        helper.make_node("MatMul", ["x", "router"], ["p"]),
        helper.make_node("MoE", ["x", "p", "first", "", "second"], ["h"], "early", **more),
        helper.make_node("Gather", ["h", "i"], ["g"], "pick"),
        helper.make_node("MatMul", ["g", "router"], ["q"]),
        helper.make_node("MoE", ["g", "q", "first", "", "second"], ["y"], "late", **more),
    ]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", WIDTH]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["n"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])
    made = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", ports, [result], made)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session_of(**options: Any) -> tos.Session:
    return tos.load(mixtures(), options=tos.Options(routes=True, **options))


def feed(seed: int, tokens: int = 3) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(tokens, WIDTH, generator=made), "i": torch.arange(tokens - 1)}


def wanted(given: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """The counts, from the logits that a session without routes shows."""
    shown = tos.load(mixtures(), options=tos.Options(capture="off")).run(["p", "q"], given)
    counts = [torch.bincount(p.topk(CHOSEN).indices.reshape(-1), minlength=EXPERTS) for p in shown]
    return {name: tuple(found.tolist()) for name, found in zip(("early", "late"), counts, strict=True)}


@pytest.mark.parametrize("capture", ["auto", "off"])
@pytest.mark.parametrize("tokens", [2, 9])
def test_m23_each_run_tells_its_own_counts_eager_captured_and_replayed(capture: Any, tokens: int) -> None:
    session = session_of(capture=capture)
    for seed in range(7):
        given = feed(seed, tokens)
        session.run(None, given)
        assert session.routes() == wanted(given)
    if capture == "auto":
        assert counted(session, "captures", "replays") == (1, 4)


def test_m23_what_runs_twice_counts_once() -> None:
    session = session_of(verify=True)
    for seed in range(7):
        session.run(None, feed(seed))
        assert session.routes() == wanted(feed(seed))
    assert counted(session, "probes", "probe mismatches") == (1, 0)


def test_m23_a_capture_that_is_asked_for_counts_its_run_once() -> None:
    binding = (session := session_of()).bind()
    binding.output("y", torch.empty(2, WIDTH))
    assert binding.capture(feed(0)) is None
    assert session.routes() == wanted(feed(0))


def test_m23_they_are_told_once() -> None:
    session = session_of()
    session.run(None, feed(0))
    session.routes()
    assert_expected_inline(
        message(tos.DeviceValidationError, session.routes),
        """\
there are no routes: no run has ended well since they were given; run the model, and ask once
after each run""",
    )
    session.run(None, feed(1))
    session.run(None, feed(2))
    assert session.routes() == wanted(feed(2))


def test_m23_a_run_with_bad_data_and_one_that_failed_tell_none() -> None:
    session = session_of()
    with pytest.raises(tos.DeviceValidationError, match="no routes"):
        session.routes()
    for seed in range(5):
        given = feed(seed)
        session.run(None, given)
        with pytest.raises(tos.DeviceIndexError):
            session.run(None, {**given, "i": torch.tensor([0, 99])})
        with pytest.raises(tos.DeviceValidationError, match="no routes"):
            session.routes()
        with pytest.raises(tos.InputError):
            session.run(None, {"x": given["x"]})
        with pytest.raises(tos.DeviceValidationError, match="no routes"):
            session.routes()
        session.run(None, given)
        assert session.routes() == wanted(given)


def bound(session: tos.Session, given: dict[str, torch.Tensor]) -> tos.Binding:
    binding = session.bind()
    for name, tensor in given.items():
        binding.input(name, tensor)
    binding.output("y", torch.zeros(given["i"].shape[0], WIDTH))
    return binding


def test_m23_deferral_gives_way() -> None:
    session, given = session_of(validate="deferred"), feed(0)
    binding = bound(session, given)
    for seed in range(5):
        given["x"].copy_(feed(seed)["x"])
        binding.run()
        assert session.routes() == wanted(given)
    given["i"].fill_(99)
    with pytest.raises(tos.DeviceIndexError):
        binding.run()


def test_m23_runs_together_are_asked_about_one_by_one() -> None:
    session, given = session_of(), feed(0)
    binding = bound(session, given)
    with binding.together():
        for seed in range(5):
            given["x"].copy_(feed(seed)["x"])
            binding.run()
            assert session.routes() == wanted(given)


def test_m23_off_by_default_and_then_nothing_is_noted() -> None:
    session = tos.load(mixtures())
    session.run(None, feed(0))
    word = session._engine.validation
    assert isinstance(word, ValidationWord) and not word.counting
    assert [key[0] for key in word.numbers] == ["pick"]
    assert_expected_inline(
        message(tos.DeviceValidationError, session.routes),
        """the session counts no routes; load it with Options(routes=True)""",
    )


def test_m23_where_nobody_validates_there_is_no_boundary_to_tell_at() -> None:
    assert_expected_inline(
        message(ValueError, lambda: tos.Options(routes=True, validate="off")),
        """routes are told at the end of a validated run, so that validate must not be "off\"""",
    )
