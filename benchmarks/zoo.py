"""Real models, run here and by onnxruntime: `python benchmarks/zoo.py compare|fetch|list`.

`compare` runs every model of zoo.toml on the inputs of its recipe, on each of its sizes, and prints how far
the outputs are from onnxruntime's, how long loading takes and how long a run takes (interleaved; median and
interquartile range). Rows that end in "each node" give the worst node instead, see zoo.toml. `--check` exits
with 1 and names the rows that do not match.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import agreement
import fetch
import harness
import nodewise
import numpy as np
import recipes
import weights

Model = Mapping[str, Any]
Capture = Literal["auto", "off", "required"]


@dataclass(frozen=True)
class Row:
    """One model on one of its sizes."""

    name: str
    sizes: Mapping[str, Any]
    tolerance: float
    agreement: agreement.Agreement
    load: tuple[float, float] | None = None
    times: tuple[harness.Timing, harness.Timing] | None = None
    compared: str = "outputs"

    @property
    def title(self) -> str:
        return title(self.name, self.sizes)

    @property
    def ratio(self) -> float | None:
        return self.times[0].median / self.times[1].median if self.times else None

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "sizes": dict(self.sizes),
            "tolerance": self.tolerance,
            "compared": self.compared,
            # JSON has no infinity.
            "error": self.agreement.error if self.agreement.error < float("inf") else None,
            "differing": self.agreement.differing,
            "matches": self.agreement.holds,
            "reason": self.agreement.reason,
            "load_s": self.load and {"ours": self.load[0], "onnxruntime": self.load[1]},
            "run": self.times
            and {
                "ours": self.times[0].as_json(),
                "onnxruntime": self.times[1].as_json(),
                "ratio": self.ratio,
            },
        }


def failed(model: Model, sizes: Mapping[str, Any], what: str, error: Exception) -> Row:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{what}: {type(error).__name__}: {' | '.join(lines[:6])}"
    return Row(
        model["name"],
        sizes,
        agreement.TOLERANCES[model["tolerance"]],
        agreement.Agreement(float("inf"), 0, text),
    )


def compare_model(
    model: Model, path: Path, *, threads: int, seconds: float, seed: int, capture: Capture = "auto"
) -> Iterator[Row]:
    """Rows for the sizes of one model; what fails becomes a row that says why."""
    import onnxruntime
    import torch

    import torch_ort_session

    source = weights.filled(path) if model.get("weights") == "random" else str(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    started = time.perf_counter()
    theirs = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    middle = time.perf_counter()
    try:
        ours = torch_ort_session.load(source, options=torch_ort_session.Options(capture=capture))
    except Exception as error:
        yield failed(model, {}, "load", error)
        return
    load = (time.perf_counter() - middle, middle - started)
    names = [port.name for port in theirs.get_outputs()]
    tolerance = agreement.TOLERANCES[model["tolerance"]]
    for sizes in model["sizes"]:
        arrays = recipes.feeds(model, sizes, seed)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        expected = theirs.run(None, arrays)
        other = {
            name: torch.from_numpy(array) for name, array in recipes.feeds(model, sizes, seed + 1).items()
        }
        try:
            first = [value.numpy() for value in ours.run(None, tensors)]
            timed = harness.interleave(
                {"ours": partial(ours.run, None, tensors), "theirs": partial(theirs.run, None, arrays)},
                seconds=seconds,
                least=3,
                warmup=3,
            )
            # Other values in between: what a session keeps of one run must not show in the next.
            elsewhere = [value.numpy() for value in ours.run(None, other)]
            again = [value.numpy() for value in ours.run(None, tensors)]
        except Exception as error:
            yield failed(model, sizes, "run", error)
            continue
        if model.get("compare") == "nodes":
            found = nodewise.summarise(nodewise.compare(path, arrays, tolerance))
        else:
            found = agreement.worse(
                agreement.compare(names, first, expected, tolerance),
                agreement.compare(names, again, expected, tolerance),
            )
            if found.holds and all(map(np.array_equal, first, elsewhere)):
                found = replace(found, reason="other inputs give the same outputs: nothing is compared")
        times = (timed["ours"], timed["theirs"])
        yield Row(model["name"], sizes, tolerance, found, load, times, model.get("compare", "outputs"))


HEADERS = ("model", "error", "load", "(ort)", "run", "(ort)", "ratio", "")
WIDTHS = (8, 8, 8, 13, 13, 6)


def title(name: str, sizes: Mapping[str, Any]) -> str:
    return name + "".join(f" {key}={value}" for key, value in sizes.items())


def line(cells: Sequence[str], wide: int) -> str:
    first, *rest = cells
    columns = [cell.rjust(width) for cell, width in zip(rest, WIDTHS, strict=False)]
    return "  ".join([first.ljust(wide), *columns, *rest[len(WIDTHS) :]]).rstrip()


def as_line(row: Row, wide: int) -> str:
    error = f"{row.agreement.error:.1e}" if row.agreement.error < float("inf") else "-"
    verdict = "NO MATCH" if not row.agreement.holds else "each node" if row.compared == "nodes" else ""
    if row.load is None or row.times is None:
        return line((row.title, error, "-", "-", "-", "-", "-", verdict), wide)
    loads = [f"{seconds * 1e3:.0f} ms" for seconds in row.load]
    runs = [harness.milliseconds(timing) for timing in row.times]
    return line((row.title, error, *loads, *runs, f"{row.ratio:.2f}x", verdict), wide)


def warm_up(path: Path) -> None:
    """Loads a model once here, so that no row's load time has the first use of torch in it."""
    import torch_ort_session

    # Why it cannot be loaded is said in its row.
    with contextlib.suppress(Exception):
        torch_ort_session.load(path)


def compare(args: argparse.Namespace) -> int:
    import torch

    torch.set_num_threads(args.threads)
    rows: list[Row] = []
    models = chosen(args.only)
    wide = max(len(title(model["name"], sizes)) for model in models for sizes in model["sizes"])
    if not args.json:
        print(line(HEADERS, wide))
    with tempfile.TemporaryDirectory() as downloads:
        warm_up(fetch.fetch(models[0], args.cache, Path(downloads)))
        for model in models:
            path = fetch.fetch(model, args.cache, Path(downloads))
            for row in compare_model(
                model,
                path,
                threads=args.threads,
                seconds=args.seconds,
                seed=args.seed,
                capture=args.capture,
            ):
                rows.append(row)
                if not args.json:
                    print(as_line(row, wide), flush=True)
            gc.collect()
    misses = [f"{row.title}: {row.agreement.reason}" for row in rows if not row.agreement.holds]
    text = f"\n{len(rows) - len(misses)} of {len(rows)} rows match onnxruntime"
    return harness.finish("zoo", text=text, rows=[row.as_json() for row in rows], misses=misses, args=args)


def fetch_all(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as downloads:
        for model in chosen(args.only):
            print(f"{model['name']}  {fetch.fetch(model, args.cache, Path(downloads))}", flush=True)
    return 0


def list_all(args: argparse.Namespace) -> int:
    root = args.cache or fetch.default_cache()
    rows = []
    for model in chosen(args.only):
        files = fetch.files_of(model)
        releases = dict.fromkeys(member.release for entry in files for member in entry.members)
        cached = all((root / entry.target).is_file() for entry in files)
        rows.append((model["name"], " ".join(releases), "cached" if cached else "-", model["what"]))
    print("\n".join("  ".join((row[0].ljust(24), row[2].ljust(6), row[3], f"[{row[1]}]")) for row in rows))
    return 0


def chosen(only: Sequence[str] | None) -> list[dict[str, Any]]:
    """The models of these names, all when None.

    Raises:
        FetchError: a name is not in zoo.toml.
    """
    models = fetch.read_zoo()
    unknown = sorted(set(only or ()) - {model["name"] for model in models})
    if unknown:
        raise fetch.FetchError(f"no model {', '.join(unknown)} in zoo.toml; `zoo.py list` prints the names")
    return [model for model in models if not only or model["name"] in only]


def main(argv: Sequence[str] | None = None) -> int:
    root = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    for name, call, text in (
        ("compare", compare, "run each model here and by onnxruntime"),
        ("fetch", fetch_all, "download what is not cached yet"),
        ("list", list_all, "print the models"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(call=call)
        command.add_argument("--only", nargs="+", metavar="NAME", help="only these models")
        command.add_argument("--cache", type=Path, help=f"folder for model files ({fetch.default_cache()})")
        if call is compare:
            harness.add_output_options(command)
            command.add_argument(
                "--capture", choices=("auto", "off", "required"), default="auto", help="as in Options (auto)"
            )
            command.add_argument("--threads", type=int, default=1, help="threads for both (1)")
            command.add_argument("--seconds", type=float, default=1.0, help="time for a row (1)")
            command.add_argument("--seed", type=int, default=0, help="of the inputs (0)")
    args = root.parse_args(argv)
    try:
        status: int = args.call(args)
    except fetch.FetchError as error:
        print(error, file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
