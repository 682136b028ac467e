"""Real models as on a device: shapes wait for nothing, and what does wait is known by name."""

from __future__ import annotations

from typing import Any

import pytest
from plan.onmeta import run_on_meta

from benchmarks import fetch, recipes
from torch_ort_session.errors import KernelError

WAITS = {
    "nakdimon": ("Loop", "its condition counts in a carried value"),
    "kokoro-int8": ("Range", "the predicted durations decide the length of the sound"),
    "wakeword-hey-jarvis": ("If", "the score decides"),
}
"""Models that read data from the device, with the operator that does, and why."""

MODELS = fetch.read_zoo()


@pytest.mark.zoo
@pytest.mark.parametrize("model", MODELS, ids=[model["name"] for model in MODELS])
def test_shapes_wait_for_no_device(model: dict[str, Any]) -> None:
    path = fetch.fetch(model)
    for size in model["sizes"]:
        feed = recipes.feeds(model, size)
        if model["name"] in WAITS:
            op, _ = WAITS[model["name"]]
            with pytest.raises(KernelError) as caught:
                run_on_meta(path, feed)
            assert caught.value.op == f"ai.onnx::{op}"
        else:
            assert run_on_meta(path, feed).mixed == []


def test_the_list_names_models() -> None:
    assert WAITS.keys() <= {model["name"] for model in MODELS}
