"""Memory that a load takes, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ir.irmodels import external, model_of, value, write
from onnx import TensorProto, numpy_helper

SIZE = 500 << 20
COUNT = 25
ROOT = Path(__file__).parents[2]

PROBE = """
import json, sys, onnx
from torch_ort_session.ir.load import load_model

def status():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssFile", "VmHWM", "VmRSS")}

before = status()
model = load_model(sys.argv[1])
loaded = status()
total = sum(float(weight.data.sum()) for weight in model.graph.initializers.values())
read = status()
print(json.dumps([before, loaded, read, total]))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]


def measure(path: Path) -> dict[str, float]:
    """Growth as a share of the weights: after the load, at its peak, and once every weight was read."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    before, loaded, read, total = json.loads(run.stdout)
    assert total == SIZE // 4
    return {
        "anonymous": (loaded["RssAnon"] - before["RssAnon"]) / SIZE,
        "resident": (loaded["VmRSS"] - before["VmRSS"]) / SIZE,
        "peak": (loaded["VmHWM"] - before["VmRSS"]) / SIZE,
        "anonymous once read": (read["RssAnon"] - before["RssAnon"]) / SIZE,
        "resident once read": (read["VmRSS"] - before["VmRSS"]) / SIZE,
    }


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    for path in tmp_path.iterdir():
        path.unlink()  # pytest keeps temporary folders of the last runs


def outputs():
    return [value(f"w{i}", TensorProto.FLOAT, None) for i in range(COUNT)]


def test_external_data_is_mapped(folder):
    each = SIZE // COUNT
    np.ones(SIZE // 4, np.float32).tofile(folder / "w.bin")
    weights = [external(f"w{i}", "w.bin", (each // 4,), offset=i * each, length=each) for i in range(COUNT)]
    found = measure(write(model_of([], [], outputs(), weights), folder / "m.onnx"))
    assert found["anonymous"] < 0.02, found
    assert found["resident"] < 0.1, found
    assert found["anonymous once read"] < 0.05, found
    assert found["resident once read"] < 1.1, found


@pytest.mark.parametrize("shift", [0, 1])
def test_weights_in_the_file_are_held_once(folder, shift):
    """Mapped where the message happens to align them, else read straight into place."""
    array = np.ones(SIZE // COUNT // 4, np.float32)
    weights = [numpy_helper.from_array(array, f"w{i}") for i in range(COUNT)]
    model = model_of([], [], outputs(), weights)
    model.producer_name = "p" * (4 + shift)
    found = measure(write(model, folder / "m.onnx"))
    assert found["peak"] < 1.1, found
    assert found["resident"] < 1.1, found
    assert found["resident once read"] < 1.2, found
