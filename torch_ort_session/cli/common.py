"""Parts that the subcommands share: arguments, tables, JSON, and a sign of life on long loads."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from torch_ort_session.errors import SessionError

_QUIET_SECONDS = 1.0


class CommandError(SessionError):
    """The command cannot do what its arguments ask."""


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model argument."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The switch between text and JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def print_json(value: object) -> None:
    """Print JSON that any reader takes: NaN and infinities are written as null by the caller."""
    print(json.dumps(value, indent=2, allow_nan=False))


def table(rows: Iterable[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Rows as aligned lines, columns two spaces apart."""
    listed = [tuple(row) for row in rows]
    if not listed:
        return []
    widths = [max(len(row[i]) for row in listed) for i in range(len(listed[0]))]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in listed
    ]


def count(number: int, noun: str) -> str:
    """A number with its noun, such as ``1 node`` and ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@contextmanager
def waiting(text: str, *, stream: TextIO | None = None, quiet: float = _QUIET_SECONDS) -> Iterator[None]:
    """Show ``text`` and the seconds gone by while the block runs, if it takes long and somebody watches.

    Args:
        text: What is being done, such as ``loading model.onnx``.
        stream: Where to show it; standard error by default. Nothing is shown unless it is a terminal.
        quiet: Seconds before anything is shown.
    """
    shown = stream if stream is not None else sys.stderr
    if shown is None or not shown.isatty():
        yield
        return
    done = threading.Event()
    started = time.monotonic()

    def show() -> None:
        while not done.wait(quiet):
            shown.write(f"\r{text}, {time.monotonic() - started:.0f} s")
            shown.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if time.monotonic() - started >= quiet:
            shown.write("\r\033[K")
            shown.flush()
