"""The feeds of a command: arrays from files, or random ones of the right type and shape."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from torch_ort_session.cli.common import CommandError
from torch_ort_session.ir.ports import Port
from torch_ort_session.ir.types import describe

Feed = dict[str, object]


def add_feeds(parser: argparse.ArgumentParser) -> None:
    """Arguments that say what is fed."""
    parser.add_argument(
        "--input",
        metavar="NAME=FILE.npy",
        action="append",
        default=[],
        help="feed an array from a file; may be given for each input",
    )
    parser.add_argument(
        "--random",
        action="store_true",
        help="feed the other inputs at random: floats from a normal distribution, integers 0 or 1",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of --random (default 0)")
    parser.add_argument(
        "--dim",
        metavar="SYMBOL=SIZE",
        action="append",
        default=[],
        help="size of a symbolic dimension of random inputs (default 1)",
    )


def make_feed(ports: Sequence[Port], args: argparse.Namespace) -> Feed:
    """The feed that the arguments of :func:`add_feeds` describe.

    Args:
        ports: The inputs of the model.
        args: The parsed arguments.

    Returns:
        An array or tensor for every input.

    Raises:
        CommandError: An argument names no input or dimension, a file is no array, or an input has no feed.
    """
    names = [port.name for port in ports]
    feed: Feed = {}
    for text in args.input:
        name, path = _split(text, names)
        if name in feed:
            raise CommandError(f"--input is given twice for {name!r}")
        feed[name] = _array(path)
    symbols = list(dict.fromkeys(dim for port in ports for dim in port.shape or () if isinstance(dim, str)))
    sizes = dict(_dim(text, symbols) for text in args.dim)
    missing = [port for port in ports if port.name not in feed]
    if missing and not args.random:
        listed = ", ".join(port.name for port in missing)
        raise CommandError(f"nothing is fed to {listed}; give --input NAME=FILE.npy for each, or --random")
    generator = torch.Generator().manual_seed(args.seed)
    for port in missing:
        feed[port.name] = _random(port, sizes, generator)
    return feed


def _split(text: str, names: Sequence[str]) -> tuple[str, str]:
    for name in names:
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    raise CommandError(f"--input {text!r} does not start with NAME= of an input; inputs: {', '.join(names)}")


def _array(path: str) -> object:
    try:
        array = np.load(Path(path), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise CommandError(f"{path}: not an array file of numpy ({error})") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise CommandError(f"{path}: an archive of arrays (.npz); save the one that is meant as .npy")
    return array


def _dim(text: str, symbols: Sequence[str]) -> tuple[str, int]:
    symbol, _, number = text.rpartition("=")
    if not symbol or not number.isdigit():
        raise CommandError(f"--dim {text!r} is not of the form SYMBOL=SIZE")
    if symbol not in symbols:
        listed = ", ".join(symbols) or "none"
        raise CommandError(f"--dim {text!r} names no dimension of the inputs; symbolic dimensions: {listed}")
    return symbol, int(number)


def _random(port: Port, sizes: Mapping[str, int], generator: torch.Generator) -> object:
    if port.shape is None or port.dtype is None:
        kind = describe(port.type)
        raise CommandError(f"input {port.name!r} ({kind}) cannot be made at random; give --input for it")
    shape = [dim if isinstance(dim, int) else sizes.get(dim or "", 1) for dim in port.shape]
    try:
        return _drawn(shape, port.dtype, generator)
    except (RuntimeError, TypeError) as error:
        # What torch says of an absurd size is a C++ backtrace.
        raise CommandError(f"input {port.name!r} cannot be made at random with shape {shape}") from error


def _drawn(shape: list[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex64).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)
