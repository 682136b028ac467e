"""Models that torch.onnx exports, run here, by onnxruntime and by the module itself.

    python benchmarks/exported.py --python ~/exporting/bin/python --only llama bert --opsets 18 24

`--python` names a Python with torch and onnxscript, and with transformers, timm, torchvision and diffusers
for the models that need them (`--list` says which); without it this one exports. Each model of
exported_recipes.py is exported at each opset, loaded, and run on feeds of several sizes: node by node, and
as a session chooses, so that it is captured, replayed with other values, and run on other sizes in between.
Results have to be those of onnxruntime, or those of the module where onnxruntime does not know the opset.
Where the exporter cannot produce an opset the row says so, and matches if the recipe foresees that error.
Rows show both errors, the most segments and seams of a plan, and the CPU time of a replay over
onnxruntime's.
`--check` exits with 1 and names the rows that do not match.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import agreement
import harness
import nodewise
import numpy as np
from exported_recipes import RECIPES, Recipe

Feed = tuple[dict[str, Any], dict[str, Any]]

NODE_TOLERANCE = 1e-5
"""Of what a node makes of the same inputs, where nodes are compared alone."""


@dataclass(frozen=True)
class Row:
    """One model at one opset: how far it is from onnxruntime and from the module, and how it runs."""

    name: str
    opset: int
    reason: str = ""
    onnxruntime: agreement.Agreement | None = None
    module: agreement.Agreement | None = None
    regions: tuple[int, int] | None = None
    seams: Mapping[str, str] = field(default_factory=dict)
    replays: int = 0
    times: tuple[harness.Timing, harness.Timing] | None = None
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} opset {self.opset}"

    def as_json(self) -> dict[str, Any]:
        errors = {"onnxruntime": self.onnxruntime, "module": self.module}
        return {
            "model": self.name,
            "opset": self.opset,
            "reason": self.reason,
            "note": self.note,
            "errors": {who: found and found.error for who, found in errors.items()},
            "regions": self.regions and {"segments": self.regions[0], "seams": self.regions[1]},
            "seams": dict(self.seams),
            "replays": self.replays,
            "replay_over_onnxruntime": self.times and harness.ratio(*self.times),
        }


def read(place: Path) -> list[Feed]:
    """The feeds of an exported model and what the module makes of them."""
    found = []
    for path in sorted(place.glob("feed*.npz")):
        with np.load(path) as arrays:
            parts = [
                {key.split(":", 1)[1]: arrays[key] for key in arrays.files if key.startswith(prefix)}
                for prefix in ("in:", "out:")
            ]
        found.append((parts[0], parts[1]))
    return found


def measure(name: str, opset: int, place: Path, seconds: float) -> Row:
    """Runs one exported model in all ways; what fails is said in the row."""
    import torch

    import torch_ort_session as tos

    recipe = RECIPES[name]
    path = place / "model.onnx"
    failed = place / "failed.json"
    refused = recipe.refused.get(opset)
    if failed.exists():
        error = json.loads(failed.read_text())["error"]
        note = f"not exported: {_short(error)}"
        return Row(name, opset, note=note) if refused and refused in error else Row(name, opset, reason=note)
    if refused:
        return Row(name, opset, reason=f"exported, though the recipe says that it cannot be: {refused}")
    feeds = read(place)
    theirs, note = _onnxruntime(path)
    try:
        eager = tos.load(path, options=tos.Options(capture="off"))
        session = tos.load(path)
        names = [port.name for port in session.inputs]
        if set(names) != set(feeds[0][0]):
            feeds = [({key: inputs[key] for key in names}, outputs) for inputs, outputs in feeds]
        runs = list(_runs(session, eager, feeds))
        regions, seams = _regions(session, feeds)
    except Exception as error:
        return Row(name, opset, f"{type(error).__name__}: {_short(error)}", note=note)
    outputs = [port.name for port in session.outputs]
    worst: dict[str, agreement.Agreement] = {}
    known: dict[int, list[Any] | None] = {}
    for index, got in runs:
        inputs, expected = feeds[index]
        if index not in known:
            known[index] = _ask(theirs, inputs)
        for who, wanted in (("onnxruntime", known[index]), ("module", list(expected.values()))):
            if wanted is not None:
                found = agreement.compare(outputs, got, wanted, recipe.tolerance)
                worst[who] = agreement.worse(worst.get(who, found), found)
    missing = [feeds[index][0] for index, answer in known.items() if answer is None]
    if theirs is not None and missing:
        note = f"onnxruntime cannot run {len(missing)} of {len(feeds)} feeds"
    judge = "onnxruntime" if "onnxruntime" in worst else "module"
    reason = worst[judge].reason and f"against {judge}: {worst[judge].reason}"
    if recipe.nodes and theirs is not None:
        found_alone = [nodewise.compare(path, inputs, NODE_TOLERANCE) for inputs, _ in feeds]
        alone = nodewise.summarise([node for nodes in found_alone for node in nodes])
        reason = reason or (alone.reason and f"nodes alone: {alone.reason}")
        note = note or f"nodes alone: {alone.error:.1e} of onnxruntime's"
    times = None
    if theirs is not None and not missing:
        inputs = feeds[0][0]
        tensors = {key: torch.from_numpy(value) for key, value in inputs.items()}
        timed = harness.interleave(
            {"ours": partial(session.run, None, tensors), "theirs": partial(theirs.run, None, inputs)},
            seconds=seconds,
            least=3,
            warmup=3,
            # Both run on this thread: what others do at the same time does not count.
            clock=time.process_time,
        )
        times = (timed["ours"], timed["theirs"])
    return Row(
        name,
        opset,
        reason,
        worst.get("onnxruntime"),
        worst.get("module"),
        regions,
        seams,
        session.stats()["replays"],
        times,
        note,
    )


def _onnxruntime(path: Path) -> tuple[Any, str]:
    """A session of onnxruntime, or None and why there is none."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), ""
    except Exception as error:
        return None, f"onnxruntime: {_short(error)}"


def _ask(theirs: Any, inputs: Mapping[str, Any]) -> list[Any] | None:
    if theirs is None:
        return None
    try:
        return theirs.run(None, dict(inputs))
    except Exception:
        return None


def _runs(session: Any, eager: Any, feeds: Sequence[Feed]) -> Iterator[tuple[int, list[Any]]]:
    """Every feed eagerly; then each until it is replayed, and all of them in turn."""
    import torch

    tensors = [{key: torch.from_numpy(value) for key, value in inputs.items()} for inputs, _ in feeds]
    for index, feed in enumerate(tensors):
        yield index, [value.numpy() for value in eager.run(None, feed)]
    order = [index for index in range(len(feeds)) for _ in range(3)]
    for index in order + list(range(len(feeds))) + list(reversed(range(len(feeds)))):
        yield index, [value.numpy() for value in session.run(None, tensors[index])]


def _regions(session: Any, feeds: Sequence[Feed]) -> tuple[tuple[int, int], dict[str, str]]:
    """The most segments and seams that a plan has, and the seams by node."""
    from torch_ort_session.explain.explain import facts

    most, seams = (0, 0), {}
    for inputs, _ in feeds:
        regions = facts(session.plan(inputs))["regions"]
        kinds = [region["kind"] for region in regions]
        most = max(most, (kinds.count("segment"), kinds.count("seam")))
        for region in regions:
            if region["kind"] == "seam":
                seams[f"{region['node']} ({region['op']})"] = f"{region['reason']}: {region['message']}"
    return most, seams


def _short(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " | ".join(lines[:3])[:300]


def export(python: str, folder: Path, name: str, opsets: Sequence[int]) -> str:
    """Has another Python export a model; what it says when it fails."""
    script = Path(__file__).with_name("exported_make.py")
    command = [python, str(script), str(folder), name, "--opsets", *map(str, opsets)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else (found.stderr.strip().splitlines() or ["failed"])[-1]


HEADERS = ("model", "opset", "of ort", "of torch", "segments", "seams", "replays", "over ort", "")


def as_cells(row: Row) -> tuple[str, ...]:
    errors = ["-" if found is None else f"{found.error:.1e}" for found in (row.onnxruntime, row.module)]
    regions = ("-", "-") if row.regions is None else tuple(map(str, row.regions))
    ratio = f"{harness.ratio(*row.times):.2f}x" if row.times else "-"
    return (row.name, str(row.opset), *errors, *regions, str(row.replays), ratio, row.reason or row.note)


def main(argv: Sequence[str] | None = None) -> int:
    root = harness.parser(__doc__.splitlines()[0])
    root.add_argument("--python", default=sys.executable, help="exports the models (this Python)")
    root.add_argument("--only", nargs="+", choices=RECIPES, metavar="NAME", help="only these models")
    root.add_argument("--opsets", nargs="+", type=int, metavar="N", help="only these opsets")
    root.add_argument("--folder", type=Path, help="where models are kept, and taken from when there")
    root.add_argument("--seconds", type=float, default=0.3, help="time of each row (0.3)")
    root.add_argument("--seams", action="store_true", help="print each seam and its reason")
    root.add_argument("--list", action="store_true", help="print the models, and what exporting them needs")
    args = root.parse_args(argv)
    if args.list:
        cells = [(name, " ".join(map(str, recipe.opsets)), *recipe.needs) for name, recipe in RECIPES.items()]
        print(
            "\n".join("  ".join((name.ljust(26), opsets.ljust(18), *needs)) for name, opsets, *needs in cells)
        )
        return 0
    import torch

    torch.set_num_threads(1)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        for name, recipe in RECIPES.items():
            if args.only and name not in args.only:
                continue
            opsets = [opset for opset in args.opsets or recipe.opsets if opset in recipe.opsets]
            rows += _rows(name, recipe, opsets, folder, args)
    misses = [f"{row.title}: {row.reason}" for row in rows if row.reason]
    text = harness.table(HEADERS, [as_cells(row) for row in rows])
    if args.seams:
        text += "".join(f"\n{row.title}  {node}: {why}" for row in rows for node, why in row.seams.items())
    return harness.finish(
        "exported", text=text, rows=[row.as_json() for row in rows], misses=misses, args=args
    )


def _rows(name: str, recipe: Recipe, opsets: Sequence[int], folder: Path, args: Any) -> Iterator[Row]:
    places = {opset: folder / f"{name}-opset{opset}" for opset in opsets}
    wanted = [opset for opset, place in places.items() if not place.exists()]
    failed = export(args.python, folder, name, wanted) if wanted else ""
    for opset, place in places.items():
        if failed and opset in wanted:
            yield Row(name, opset, f"{args.python} cannot export it: {failed}")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield measure(name, opset, place, args.seconds)


if __name__ == "__main__":
    raise SystemExit(main())
