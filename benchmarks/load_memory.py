"""Memory after loading a 500 MB model whose weights are external data, and what importing costs over torch.

Writes the model, loads and runs it in a fresh process and reads the kernel's account of that process
(/proc/self/smaps_rollup, Linux). `--check` exits with 1 when anonymous memory grows by 0.2 x the weights or
more, resident memory by 1.2 x or more, or the import takes 1 s or more on top of torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

WIDTH = 2560
LAYERS = 20
ANONYMOUS_BOUND = 0.2
RESIDENT_BOUND = 1.2
IMPORT_BOUND_S = 1.0

LOAD = """
import json, sys, time
started = time.perf_counter()
import torch
middle = time.perf_counter()
import torch_ort_session
ended = time.perf_counter()
torch.set_num_threads(1)

def account():
    with open("/proc/self/smaps_rollup") as lines:
        fields = dict(line.split(":", 1) for line in list(lines)[1:])
    return {name: int(fields[name].split()[0]) * 1024 for name in ("Rss", "Anonymous")}

found = {"torch_s": middle - started, "import_s": ended - middle}
if len(sys.argv) > 1:
    # One tiny run first: what the first use of torch allocates is not the model's.
    torch.ones(1, 8) @ torch.ones(8, 8)
    found["before"] = account()
    loading = time.perf_counter()
    session = torch_ort_session.load(sys.argv[1])
    found["load_s"] = time.perf_counter() - loading
    found["loaded"] = account()
    y = session.run(None, {"x": torch.ones(1, int(sys.argv[2]))})[0]
    found["sum"] = float(y.double().sum())
    found["ran"] = account()
print(json.dumps(found))
"""


def write_model(folder: Path, *, width: int = WIDTH, layers: int = LAYERS) -> tuple[Path, int]:
    """Writes a chain of square MatMuls with one external data file.

    Returns:
        The model's path and the bytes of its weights.
    """
    import onnx
    import torch
    from onnx import TensorProto, helper

    generator = torch.Generator().manual_seed(0)
    size = width * width * 4
    initializers, nodes = [], []
    with (folder / "weights.bin").open("wb") as data:
        for layer in range(layers):
            weight = torch.rand(width, width, generator=generator) / width
            data.write(weight.numpy().data)
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[width, width])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", layer * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            initializers.append(tensor)
            nodes.append(
                helper.make_node(
                    "MatMul", ["x" if layer == 0 else f"h{layer}", f"w{layer}"], [f"h{layer + 1}"]
                )
            )
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, width]) for n in ("x", f"h{layers}")]
    graph = helper.make_graph(nodes, "weights", ports[:1], ports[1:], initializers)
    path = folder / "model.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
        ).SerializeToString()
    )
    onnx.checker.check_model(str(path))
    return path, size * layers


def fresh(*arguments: str) -> dict[str, Any]:
    """Runs `LOAD` in a new process and returns what it found."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the measured process failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure_memory(*, width: int = WIDTH, layers: int = LAYERS) -> list[dict[str, Any]]:
    """A row after loading and one after a run that reads every weight."""
    with tempfile.TemporaryDirectory() as folder:
        path, weights = write_model(Path(folder), width=width, layers=layers)
        found = fresh(str(path), str(width))
    rows = []
    for moment in ("loaded", "ran"):
        grown = {name: found[moment][name] - found["before"][name] for name in ("Rss", "Anonymous")}
        rows.append(
            {
                "moment": moment,
                "weights": weights,
                "anonymous": grown["Anonymous"],
                "resident": grown["Rss"],
                "anonymous_share": grown["Anonymous"] / weights,
                "resident_share": grown["Rss"] / weights,
                "load_s": found["load_s"],
            }
        )
    return rows


def measure_import(rounds: int = 5) -> dict[str, Any]:
    """The median time of importing the package where torch is imported already, after one warm-up process."""
    found = [fresh() for _ in range(rounds + 1)][1:]
    taken = harness.summarise([each["import_s"] for each in found])
    return {"torch_s": statistics.median(each["torch_s"] for each in found), **taken.as_json()}


def judge(memory: Sequence[dict[str, Any]], importing: dict[str, Any]) -> list[str]:
    """A line for each bound that does not hold."""
    misses = []
    for row in memory:
        for kind, bound in (("anonymous", ANONYMOUS_BOUND), ("resident", RESIDENT_BOUND)):
            if not row[f"{kind}_share"] < bound:
                misses.append(
                    f"{row['moment']}: {kind} memory grew by {row[f'{kind}_share']:.2f} x the weights, "
                    f"not below {bound}"
                )
    if not importing["median_s"] < IMPORT_BOUND_S:
        misses.append(f"import: {importing['median_s']:.2f} s over torch, not below {IMPORT_BOUND_S:g} s")
    return misses


def as_text(memory: Sequence[dict[str, Any]], importing: dict[str, Any]) -> str:
    cells = [
        (
            f"after {'loading' if row['moment'] == 'loaded' else 'a run'}",
            f"{row['anonymous'] / 1e6:.1f} MB ({row['anonymous_share']:.2f}x)",
            f"{row['resident'] / 1e6:.1f} MB ({row['resident_share']:.2f}x)",
        )
        for row in memory
    ]
    return (
        f"{memory[0]['weights'] / 1e6:.0f} MB of weights as external data, loaded in "
        f"{memory[0]['load_s'] * 1e3:.0f} ms; growth of memory:\n"
        f"{harness.table(('moment', 'anonymous', 'resident'), cells)}\n"
        f"import: {importing['median_s']:.2f} s ±{importing['spread']:.0%} on top of torch "
        f"({importing['torch_s']:.2f} s)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    args: argparse.Namespace = parser.parse_args(argv)
    if not Path("/proc/self/smaps_rollup").exists():
        print("load_memory needs /proc/self/smaps_rollup, which Linux has", file=sys.stderr)
        return 2
    memory, importing = measure_memory(), measure_import()
    return harness.finish(
        "load_memory",
        text=as_text(memory, importing),
        rows=[*memory, {"moment": "import", **importing}],
        misses=judge(memory, importing),
        args=args,
    )


if __name__ == "__main__":
    sys.exit(main())
