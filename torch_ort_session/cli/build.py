"""``torch-ort-session build``: compile the native extension for the installed torch."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

from torch_ort_session.cli.common import CommandError
from torch_ort_session.ops import native
from torch_ort_session.ops.native import files as native_files


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser("build", help="compile the native extension for the installed torch")
    parser.add_argument("--verbose", action="store_true", help="show the compiler's output")
    parser.add_argument("--status", action="store_true", help="only say whether there is one that fits")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Build the extension, or say what there is."""
    status = native.status()
    if status.usable:
        # Whether it can be loaded is known only then; a warning would advise to do what is being done.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            native.load()
        status = native.status()
    if args.status:
        print(status.library if status.usable else f"not usable: {status.reason}")
        return 0 if status.usable else 1
    if status.usable:
        print(f"nothing to do: {status.library} fits {native_files.running()}")
        return 0
    print(f"building for {native_files.running()}", flush=True)
    try:
        library = native.build(verbose=args.verbose)
    except (RuntimeError, OSError) as error:
        raise CommandError(f"the extension could not be built: {error}") from error
    print(f"built {library}")
    return 0
