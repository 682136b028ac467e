"""Models of onnxruntime-genai's model builder and of optimum, made on the spot, run here and by onnxruntime.

`python benchmarks/genai.py --builder PYTHON --optimum PYTHON` makes small networks with random weights in the
forms that the two makers have, and decodes with each: a prompt and tokens, one row and two of which one is
padded, with caches that grow and, where the model has GroupQueryAttention, with caches of fixed size. The two
options name Pythons that have torch, transformers and onnxruntime-genai, or optimum-onnx: a folder named with
`--models` keeps what they made, and without an option only what lies there is compared.

The columns are the largest differences as shares of the largest magnitude: of prompts and of tokens, run node
by node, from onnxruntime on the same feeds; "rounding" of onnxruntime from itself when it multiplies
quantized matrices with float32 in place of integers (accuracy_level 4), which may be added to the bound;
"captured" of captured and of bound runs from node by node ones. "seams" is how many regions of a token's plan
are not recorded, "replays" what was replayed. Where onnxruntime's CPU has no kernels for a form, the row says
which form it ran instead, and models of bfloat16 it runs in float32. `--check` exits with 1 and names the
rows that miss their bound.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import agreement
import genai_recipes
import harness
import torch
from genai_contest import Contest, Row
from genai_recipes import Made


def make_all(models: Sequence[Made], folder: Path, pythons: Mapping[str, str | None]) -> dict[str, str]:
    """Have what is not there yet made; says why, by name, where that failed."""
    failed: dict[str, str] = {}
    script = Path(__file__).with_name("genai_make.py")
    for maker, python in pythons.items():
        missing = [m.name for m in models if m.maker == maker and not any((folder / m.name).glob("*.onnx"))]
        if python is None or not missing:
            continue
        found = subprocess.run(
            [python, str(script), str(folder), *missing], capture_output=True, text=True, check=False
        )
        lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
        told = {line["name"]: line["why"] for line in lines}
        last = next(iter(reversed(found.stderr.strip().splitlines())), "nothing was said")
        failed |= {name: told.get(name, last) for name in missing if told.get(name, last)}
    return failed


def compare(made: Made, folder: Path) -> Iterator[Row]:
    """Rows for the files of one model; what fails becomes a row that says why."""
    tolerance = made.tolerance
    allowed = agreement.TOLERANCES[tolerance] if isinstance(tolerance, str) else tolerance
    for path in sorted((folder / made.name).glob("*.onnx")):
        name = f"{made.name}/{path.stem}"
        other = folder / made.against / path.name if made.against else path
        try:
            yield {"model": name, "against": made.against, **Contest(path, other, allowed).run()}
        except Exception as error:
            first = " | ".join(str(error).strip().splitlines()[:3])
            yield {"model": name, "against": made.against, "reasons": [f"{type(error).__name__}: {first}"]}


HEADERS = ("model", "prompt", "token", "rounding", "captured", "seams", "replays", "")
WIDTHS = (8, 8, 8, 8, 5, 7)


def line(cells: Sequence[str], wide: int) -> str:
    first, *rest = cells
    columns = [cell.rjust(width) for cell, width in zip(rest, WIDTHS, strict=False)]
    return "  ".join([first.ljust(wide), *columns, *rest[len(WIDTHS) :]]).rstrip()


def as_line(row: Row, wide: int) -> str:
    verdict = f"beside {row['against']}" if row["against"] else "in float32" if row.get("widened") else ""
    verdict = "MISSES" if row["reasons"] else verdict
    if "prompt" not in row:
        return line((row["model"], *["-"] * len(WIDTHS), verdict), wide)
    errors = [f"{row[key]:.1e}" for key in ("prompt", "token", "rounding", "captured")]
    return line((row["model"], *errors, str(len(row["seams"])), str(row["replays"]), verdict), wide)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--builder", metavar="PYTHON", help="a Python that has onnxruntime-genai")
    parser.add_argument("--optimum", metavar="PYTHON", help="a Python that has optimum-onnx")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="where models are kept")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="models whose name has one of these in it")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    models = list(genai_recipes.chosen(args.only))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.models or Path(temporary)).resolve()
        pythons = {"builder": args.builder, "optimum": args.optimum}
        failed = make_all(models, folder, pythons)
        there = [made for made in models if any((folder / made.name).glob("*.onnx"))]
        if not there and not failed:
            parser.error("there is no model to compare: name a Python that makes them, see --help")
        wide = max(len(made.name) for made in models) + len("/decoder_with_past_model")
        rows += [
            {"model": name, "against": "", "reasons": [f"not made: {why}"]} for name, why in failed.items()
        ]
        if not args.json:
            print(line(HEADERS, wide))
        for made in there:
            for row in compare(made, folder):
                rows.append(row)
                if not args.json:
                    print(as_line(row, wide), flush=True)
    misses = [f"{row['model']}: {'; '.join(row['reasons'])}" for row in rows if row["reasons"]]
    text = f"\n{len(rows) - len(misses)} of {len(rows)} rows match"
    return harness.finish("genai", text=text, rows=rows, misses=misses, args=args)


if __name__ == "__main__":
    sys.exit(main())
