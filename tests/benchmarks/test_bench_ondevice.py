"""benchmarks/cuda.py and ondevice.py: tables on the CPU, the bound, and what is said without a device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ondevice
import pytest
import torch
from expecttest import assert_expected_inline

import torch_ort_session as tos


def test_every_table_is_filled_and_its_results_are_torchs(capsys: pytest.CaptureFixture[str]) -> None:
    status = ondevice.main(["--device", "cpu", "--seconds", "0", "--json"])
    found = json.loads(capsys.readouterr().out)
    variants = {(row["table"], row["variant"]) for row in found["rows"]}
    assert status == 0
    assert variants == {
        *(("chain", variant) for variant in ("torch", "eager", "replay")),
        *(("decoder", variant) for variant in ("torch", "eager", "default")),
        *(("gathers", variant) for variant in ("run", "off")),
    }
    assert all(row["median_s"] > 0 and row["ratio"] > 0 for row in found["rows"])
    # Without time there is one short chain to judge, which a busy machine may slow down.
    assert [miss for miss in found["misses"] if "replayed in" not in miss] == []


def test_a_replay_slower_than_torch_is_named() -> None:
    rows = [
        {"name": "10 nodes", "variant": variant, "ratio": ratio}
        for variant, ratio in (("torch", 1.0), ("eager", 2.5), ("replay", 1.25))
    ]
    assert ondevice.judge(rows) == ["10 nodes: replayed in 1.25 x the time of the torch calls"]
    assert ondevice.judge(rows[:2]) == []


def test_another_result_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tos.Session.run
    monkeypatch.setattr(tos.Session, "run", lambda *args: [value + 1 for value in run(*args)])
    _, misses = ondevice.chain(torch.device("cpu"), 0.0)
    assert [miss.split(": ")[0] for miss in misses if "replayed in" not in miss] == [
        "chain, eager",
        "chain, replay",
    ]
    _, misses = ondevice.gathers(4, torch.device("cpu"), 0.0)
    assert "gathers, 4 indices, validate='run': another result than torch's" in misses


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_nothing_is_measured() -> None:
    with pytest.raises(SystemExit) as caught:
        ondevice.main([])
    assert_expected_inline(
        str(caught.value),
        """this machine has no CUDA device, so there is nothing to measure; --device cpu tries it out""",
    )


def test_the_bindings_of_cuda_are_found_behind_the_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "bindings.py").write_text("found = True\n")
    benchmarks = Path(ondevice.__file__).parent
    code = f"import sys; sys.path[:0] = [{str(benchmarks)!r}]; sys.path.append({str(tmp_path)!r})\n"
    code += "import cuda.bindings; assert cuda.bindings.found, cuda\n"
    code += "assert cuda.__file__.endswith('benchmarks/cuda.py')"
    subprocess.run([sys.executable, "-c", code], check=True)
