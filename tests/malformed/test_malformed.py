"""No malformed model crashes, hangs, reads what is not its own, or gives any other error."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from malformed.corpus import CANARY, damaged, large, recurrent, small, write_corpus
from opgroups import check_each

from torch_ort_session.ir.load import load_model

ROOT = Path(__file__).parents[2]
PROBE = Path(__file__).with_name("probe.py")
SECONDS = 10.0
BATCH = 320
ESCAPES = ("link_to_canary", "hard_link", "linked_folder", "external_parent", "link_of_links")
ALLOWED = {"ModelError", "UnsupportedOpError", "loads"}

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory limits and /proc of Linux"
)


def run(paths: list[Path]) -> list[dict[str, object]]:
    """What came of each model; one that ends or hangs its process is reported, and the rest goes on."""
    found: list[dict[str, object]] = []
    left = [str(path) for path in paths]
    while left:
        process = subprocess.Popen(
            [sys.executable, str(PROBE), *left],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        )
        try:
            # A hang is caught by the watchdog; ten seconds a model are judged from the times.
            out, err = process.communicate(timeout=30 + 0.5 * len(left))
            ended = f"exit {process.returncode}: {err[-500:]}"
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            ended = "hangs"
        lines = [json.loads(line) for line in out.splitlines()]
        found += [line for line in lines if "path" in line]
        if lines and "start" in lines[-1]:
            wrong = ["WRONG", ended]
            line = {"path": lines[-1]["start"], "load_model": wrong, "load": wrong}
            found.append({**line, "seconds": 0.0, "outside": []})
        elif process.returncode != 0:
            raise AssertionError(ended)
        left = left[sum("start" in line for line in lines) :]
    return found


Results = list[dict[str, Any]]


def outcomes(folder: Path) -> Results:
    """What came of every model of the corpus."""
    paths = write_corpus(folder)
    (folder / "models" / "warm.onnx").write_bytes(small().SerializeToString())
    found: Results = []
    for start in range(0, len(paths), BATCH):
        found += run(paths[start : start + BATCH])
    assert [line["path"] for line in found] == [str(path) for path in paths]
    return found


def name(line: dict[str, object]) -> str:
    path = Path(str(line["path"]))
    return path.stem if path.stem != "model" else path.parent.name


def the_corpus_is_large_and_always_the_same(results: Results) -> None:
    assert len(results) > 600
    first = [data for _, data in damaged()]
    assert first == [data for _, data in damaged()] and first != [data for _, data in damaged(1)]
    for make in (small, large, recurrent):
        load_model(make())


def every_model_loads_or_gives_an_error_of_ours(results: Results) -> None:
    wrong = [
        (name(line), line[key])
        for line in results
        for key in ("load_model", "load")
        if line[key][0] not in ALLOWED
    ]
    assert not wrong, "\n".join(map(str, wrong))
    # Most are refused: a corpus that loads would show nothing.
    refused = sum(line["load_model"][0] == "ModelError" for line in results)
    assert refused > 400, refused


def every_error_names_a_place_and_is_short(results: Results) -> None:
    for line in results:
        for key in ("load_model", "load"):
            kind, text = line[key]
            if kind == "ModelError":
                assert ": " in text and len(text) < 5000, (name(line), text[:500])


def nothing_hangs(results: Results) -> None:
    slow = [(name(line), line["seconds"]) for line in results if line["seconds"] > SECONDS]
    assert not slow, slow


def no_file_outside_is_opened_and_nothing_of_it_shows(results: Results) -> None:
    leaks = [(name(line), line["outside"]) for line in results if line["outside"]]
    assert not leaks, leaks
    shown = [name(line) for line in results if CANARY.decode() in json.dumps(line)]
    assert not shown, shown


def escapes_are_refused(results: Results) -> None:
    for prefix in ESCAPES:
        lines = [line for line in results if name(line).startswith(prefix)]
        assert lines and {line["load_model"][0] for line in lines} == {"ModelError"}, prefix


CHECKS = (
    the_corpus_is_large_and_always_the_same,
    every_model_loads_or_gives_an_error_of_ours,
    every_error_names_a_place_and_is_short,
    nothing_hangs,
    no_file_outside_is_opened_and_nothing_of_it_shows,
    escapes_are_refused,
)


def test_a_malformed_model_is_refused_and_reads_nothing_else(tmp_path: Path) -> None:
    # One test: the processes that share the tests would each run the corpus.
    results = outcomes(tmp_path)
    check_each((check.__name__, partial(check, results)) for check in CHECKS)
