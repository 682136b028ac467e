"""Files of the compiled extension: its sources, and the library that fits this process; none is opened."""

from __future__ import annotations

import hashlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from torch_ort_session._version import __version__

JIT_PREFIX = "tos_native_torch_"
"""How the names of libraries begin that are built just in time."""

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class BuildTarget:
    """What a library is built for.

    Attributes:
        torch: torch's version with its local part, such as ``2.13.0+cpu``.
        cuda: CUDA version of that torch, None for a CPU build.
        python: Python's major and minor version.
    """

    torch: str
    cuda: str | None
    python: str

    def __str__(self) -> str:
        return f"torch {self.torch}, CUDA {self.cuda or 'none'}, Python {self.python}"


def running() -> BuildTarget:
    """The target that a library must have been built for to fit this process."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return BuildTarget(str(torch.__version__), torch.version.cuda, python)


def find() -> tuple[Path | None, str]:
    """The library that fits, or why there is none; nothing is opened."""
    target = running()
    beside = recorded()
    reason = "extension not built"
    if beside is not None:
        built_for, library = beside
        if built_for == target and library.is_file():
            return library, ""
        if built_for != target:
            reason = f"the extension was built for {built_for}, this process runs {target}"
    jit = library_in(cache_folder())
    return (jit, "") if jit.is_file() else (None, reason)


def recorded() -> tuple[BuildTarget, Path] | None:
    """What setup.py recorded beside the library that it built, None for a pure-Python package."""
    try:
        info = importlib.import_module("torch_ort_session._build_info")
    except ModuleNotFoundError:
        return None
    return BuildTarget(info.TORCH, info.CUDA, info.PYTHON), _PACKAGE / str(info.LIBRARY)


def source_root() -> Path:
    """Where the sources are: in the installed package, or in a checkout beside it."""
    installed = _PACKAGE / "csrc"
    return installed if installed.is_dir() else _PACKAGE.parent / "csrc"


def source_files() -> list[Path]:
    """Every source and header, sorted."""
    return sorted(p for p in source_root().rglob("*") if p.suffix in {".cpp", ".cu", ".cuh", ".h"})


def module_name() -> str:
    """Name of a library built just in time: one for each torch, Python and state of the sources."""
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(path.relative_to(source_root()).as_posix().encode() + b"\0" + path.read_bytes())
    target = running()
    words = f"{JIT_PREFIX}{target.torch}_py_{target.python}_{digest.hexdigest()[:12]}"
    return "".join(c if c.isalnum() else "_" for c in words)


def cache_folder() -> Path:
    """Where a library for this process lies that was built just in time."""
    return Path.home() / ".cache" / "torch_ort_session" / __version__ / module_name()


def library_in(folder: Path) -> Path:
    """What the library is called that a build into a folder makes."""
    return folder / f"{module_name()}{'.pyd' if sys.platform == 'win32' else '.so'}"
