"""The command line: ``torch-ort-session`` and ``python -m torch_ort_session``.

One file a subcommand; each has ``add(subparsers)``, which declares its arguments and its ``run``.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from torch_ort_session._version import __version__
from torch_ort_session.cli.build import add as add_build
from torch_ort_session.cli.compare import add as add_compare
from torch_ort_session.cli.inspect import add as add_inspect
from torch_ort_session.cli.ops import add as add_ops
from torch_ort_session.cli.plan import add as add_plan
from torch_ort_session.cli.run import add as add_run
from torch_ort_session.errors import SessionError

_SUBCOMMANDS = (add_run, add_inspect, add_plan, add_compare, add_ops, add_build)
_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    top = argparse.ArgumentParser(
        prog="torch-ort-session", description="Run and look at ONNX models inside PyTorch."
    )
    top.add_argument("--version", action="version", version=__version__)
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in _SUBCOMMANDS:
        add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; the process's own by default.

    Returns:
        The exit code: 0, or 1 for an error, which is printed as one message. Wrong usage exits with 2.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names in a model may hold what the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    args = parser().parse_args(argv)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough; the interpreter must not flush into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if args.debug:
            raise
        print(f"torch-ort-session: error: {_message(error)}", file=sys.stderr)
        return 1


def _message(error: Exception) -> str:
    if isinstance(error, SessionError):
        return str(error)
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    # torch puts a C++ backtrace behind some of its messages.
    text = str(error).partition("\nException raised from")[0]
    return f"{type(error).__name__}: {text}\n(`torch-ort-session --debug ...` shows where)"
