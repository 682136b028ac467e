"""Single ops with random attributes, shapes and optional inputs: rows of generators, and the one check."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from opcase import OpCase, assert_matches

import torch_ort_session as tos
from differential.tallied import Compared

Generator = np.random.Generator


@dataclass(frozen=True)
class Row:
    """One op's generator.

    Attributes:
        make: A case of one dtype from a generator of random numbers; it names its own oracle.
        dtypes: The dtypes that are drawn.
        trials: Cases a dtype.
        seam: Whether the op is never captured.
    """

    make: Callable[[Generator], OpCase]
    dtypes: tuple[str, ...] = ("float32",)
    trials: int = 12
    seam: bool = False


FEW = 4
"""Cases a dtype where not all are asked for."""


def cases_of(name: str, row: Row, most: int | None = None) -> list[tuple[str, OpCase]]:
    """The seeded cases of a row, each with its dtype: the first ones of a dtype, where there is a most."""
    trials = row.trials if most is None else min(most, row.trials)
    return [
        (dtype, row.make(np.random.default_rng([zlib.crc32(name.encode()), number])))
        for dtype in row.dtypes
        for number in range(trials)
    ]


def check(case: OpCase, dtype: str, draws: tuple[int, ...] = (0, 1, 2, 3)) -> int:
    """Run a case eagerly and as a session chooses, with fresh data each time; return how many replays."""
    opset = case.variants()[0][1]
    eager = tos.load(case.model(dtype, opset), options=tos.Options(capture="off"))
    auto = tos.Session(eager.model, eager.device, tos.Options())
    ask = case.ask(dtype, opset)
    for draw in draws:
        feeds = case.feeds(dtype, draw)
        wanted = ask(feeds)
        for session in (eager, auto):
            got = session.run(None, feeds)
            assert len(got) == len(wanted)
            for ours, theirs in zip(got, wanted, strict=True):
                assert_matches(ours, theirs, case.tol)
    return int(auto.stats().get("replays", 0))


def check_row(name: str, row: Row, compared: Compared, most: int | None = None) -> Mapping[str, int]:
    """Check every case of a row, or the first ones of each dtype, and note it.

    Returns:
        How many ``cases`` and ``replays`` there were.

    Raises:
        AssertionError: A result differs; it names the case.
    """
    replays = 0
    found = cases_of(name, row, most)
    for number, (dtype, case) in enumerate(found):
        try:
            replays += check(case, dtype)
        except Exception as error:
            shapes = [
                getattr(item, "shape", item and np.shape(getattr(item, "data", ()))) for item in case.inputs
            ]
            raise AssertionError(
                f"{name} {number}: {case.op} {dtype} {case.attrs} {shapes}: {error}"
            ) from error
        compared.note(case.model(dtype, case.variants()[0][1]))
    return {"cases": len(found), "replays": replays}
