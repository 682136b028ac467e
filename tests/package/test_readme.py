"""The README's Python, run in order on a small model, and the text it shows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from archrules import ROOT
from onnx import TensorProto, helper, numpy_helper, save

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def write_model(path: Path) -> None:
    """A small image classifier with the names and sizes that the README shows."""
    rng = np.random.default_rng(0)
    weights = {
        "conv.weight": rng.normal(0, 0.2, (16, 3, 3, 3)),
        "conv.bias": np.zeros(16),
        "head.weight": rng.normal(0, 0.2, (10, 16)),
        "head.bias": np.zeros(10),
    }
    nodes = [
        helper.make_node("Conv", ["image", "conv.weight", "conv.bias"], ["features"], strides=[2, 2]),
        helper.make_node("Relu", ["features"], ["hidden"]),
        helper.make_node("GlobalAveragePool", ["hidden"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "head.weight", "head.bias"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def loader(sizes: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(n, 3, 32, 32, generator=generator), torch.randint(0, 10, (n,), generator=generator))
        for n in sizes
    ]


def test_what_the_readme_points_to_is_there() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert "docs/plan.png" in targets
    missing = [target for target in targets if not target.startswith("http") and not (ROOT / target).exists()]
    assert missing == []


def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model.onnx")
    first, *others = blocks("python")
    assert len(others) == 5
    # One batch over and over, so that the loop of the README has something to learn.
    scope: dict[str, object] = {"train_loader": loader([8]) * 30, "test_loader": loader([8, 3])}
    exec(first, scope)
    assert capsys.readouterr().out == blocks("text")[0]
    losses: list[float] = []
    true_loss = torch.nn.functional.cross_entropy

    def watched(*args: torch.Tensor) -> torch.Tensor:
        loss = true_loss(*args)
        losses.append(loss.item())
        return loss

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", watched)
    for block in others:
        exec(block, scope)
    assert scope["hidden"].shape == (2, 16, 15, 15)  # type: ignore[attr-defined]
    assert len(losses) == 30 and losses[-1] < losses[0]
    assert scope["seen"] == 11
    explained, _, accuracy = capsys.readouterr().out.rpartition("accuracy ")
    assert re.fullmatch(r"\d+\.\d%\n", accuracy)
    assert "(image: float32[2, 3, 32, 32]) -> (logits)" in explained
    assert scope["binding"].read("logits").shape == (2, 10)  # type: ignore[attr-defined]


def test_the_commands_of_the_readme_exist() -> None:
    from torch_ort_session.cli import parser

    shell = "\n".join(blocks("sh"))
    commands = re.findall(r"^torch-ort-session (.*?)(?: +#.*)?$", shell, flags=re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        parser().parse_args(command.split())


def test_the_make_targets_that_are_named_exist() -> None:
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"^make (\w+)", text, flags=re.MULTILINE))
    assert {"demo", "test", "lint", "full", "ext"} <= named
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in named)


def test_the_files_that_are_linked_exist() -> None:
    for name in ("README.md", "CONTRIBUTING.md"):
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8"))
        assert [link for link in links if not (ROOT / link).exists()] == []
