"""Pages that `torch-ort-session plan --html` writes of a decoder and of real models."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import decoder, fetch, recipes
from torch_ort_session.cli import main


def written(tmp_path: Path, model: str, feed: dict[str, np.ndarray]) -> str:
    """The page of a model, as the command writes it."""
    inputs = []
    for name, array in feed.items():
        np.save(tmp_path / f"{name}.npy", array)
        inputs += ["--input", f"{name}={tmp_path / name}.npy"]
    assert main(("plan", model, *inputs, "--html", str(tmp_path / "out.html"))) == 0
    return (tmp_path / "out.html").read_text(encoding="utf-8")


def assert_stands_alone(text: str) -> None:
    """The page is small, and nothing in it asks for anything from elsewhere."""
    assert len(text.encode()) < 2_000_000
    fetched = r"https?:|//[a-z]|@import|url\(|<link|<img|<iframe|\bsrc=|\bhref=|fetch\(|XMLHttp"
    assert re.findall(fetched, text) == []
    for part in ('class="strip"', 'class="tiles"', "<svg", "<h2>Memory</h2>"):
        assert part in text


def test_the_page_of_a_decoder(tmp_path: Path) -> None:
    size = decoder.Size()
    onnx.save(decoder.make_decoder(size), tmp_path / "decoder.onnx")
    feed = {name: value.numpy() for name, value in decoder.first_feed(size, past=20).items()}
    text = written(tmp_path, str(tmp_path / "decoder.onnx"), feed)
    assert_stands_alone(text)
    assert "There is no seam: a replay is one launch." in text


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("silero-vad", ("key feeds: sr = 16000", "There is no seam: a replay is one launch.")),
        ("kokoro-int8", ("/encoder/Range", "its input &#x27;limit&#x27; is a number that follows from data")),
    ],
)
def test_the_page_of_a_real_model(tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    model = next(each for each in fetch.read_zoo() if each["name"] == name)
    text = written(tmp_path, str(fetch.fetch(model)), recipes.feeds(model, model["sizes"][0]))
    assert_stands_alone(text)
    for each in words:
        assert each in text
