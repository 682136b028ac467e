"""Loads models with little memory, and tells what came of it: one line of JSON a model.

A process of its own, because a crash must not take the tests along. The line that announces a model comes
before it is loaded, so that whoever reads knows which model a crash or a hang belongs to.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import torch_ort_session as tos
from torch_ort_session.errors import ModelError, UnsupportedOpError
from torch_ort_session.ir.load import load_model

# Address space on top of what is mapped already.
MEMORY = 2 << 30

opened: list[str] = []
watching = False


def audit(event: str, args: tuple[object, ...]) -> None:
    if watching and event == "open" and isinstance(args[0], str | bytes):
        opened.append(os.fsdecode(args[0]))


def outcome(load, path: str) -> tuple[str, str]:
    try:
        load(path)
    except (ModelError, UnsupportedOpError) as error:
        return type(error).__name__, str(error)
    except BaseException as error:
        return f"WRONG {type(error).__name__}", str(error)
    return "loads", ""


def outside(path: str) -> list[str]:
    """Files that were opened and do not lie in the model's folder; the model itself may be a link."""
    allowed = os.path.realpath(os.path.dirname(path))
    real = [os.path.realpath(item) for item in opened if item != path]
    return [item for item in real if os.path.commonpath((allowed, item)) != allowed]


def main(paths: list[str]) -> None:
    global watching
    warm = Path(paths[0]).parent / "warm.onnx"
    outcome(tos.load, str(warm))  # what is imported late is imported now
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    sys.addaudithook(audit)
    for path in paths:
        print(json.dumps({"start": path}), flush=True)
        opened.clear()
        start = time.perf_counter()
        watching = True
        first = outcome(load_model, path)
        second = outcome(tos.load, path)
        watching = False
        line = {
            "path": path,
            "load_model": first,
            "load": second,
            "seconds": time.perf_counter() - start,
            "outside": outside(path),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
