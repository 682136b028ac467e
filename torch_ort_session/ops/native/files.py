"""Files of the compiled extension: its sources, and libraries that fit this process; none is loaded."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from torch_ort_session._version import __version__

JIT_PREFIX = "tos_native_torch_"
"""Beginning of the names of libraries that are built just in time."""

ABI_VERSION = 5
"""Version of the ops' schemas and meanings that this package drives, as in `csrc/core/abi.h`."""

_PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class BuildTarget:
    """Versions that a library is built for.

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
    """The library that fits, or why there is none; one built just in time where setup.py built none."""
    try:
        beside, reason = _beside()
    except (OSError, ValueError, SyntaxError) as error:
        beside, reason = None, f"the record of what the extension was built for cannot be read: {error}"
    if beside is not None:
        return beside, ""
    library, damage = just_in_time()
    return (None, damage or reason) if library is None else (library, "")


def just_in_time() -> tuple[Path | None, str]:
    """The library that was built just in time, None with what is wrong with it, if anything is.

    It is looked for only where it is needed: its name takes a look at all of the sources.
    """
    library = library_in(cache_folder())
    if not library.is_file():
        return None, ""
    damage = damaged(library)
    return (library, "") if damage is None else (None, damage)


def _beside() -> tuple[Path | None, str]:
    record, target = recorded(), running()
    if record is None:
        return None, "extension not built"
    built_for, library = record
    if built_for != target:
        return None, f"the extension was built for {built_for}, this process runs {target}"
    if not library.is_file():
        return None, "extension not built"
    abi = recorded_abi()
    if abi not in (None, ABI_VERSION):
        return None, f"the extension speaks ABI {abi}, this package speaks ABI {ABI_VERSION}"
    damage = damaged(library)
    return (library, "") if damage is None else (None, damage)


def damaged(library: Path) -> str | None:
    """Damage of a library whose end is missing, None where it is whole; loading it would end the process.

    Args:
        library: A file. One that is no ELF file is for the system to refuse.
    """
    size = library.stat().st_size
    with library.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return None
        try:
            programs, sections = struct.unpack_from("<QQ", head, 32)
            each, count, section, sections_count = struct.unpack_from("<4H", head, 54)
            file.seek(programs)
            table = file.read(each * count)
            parts = [struct.unpack_from("<QQQQQ", table, each * i + 8) for i in range(count)]
        except struct.error:
            return f"{library} is damaged: it ends after {size} bytes"
    needed = max([sections + section * sections_count, *(part[0] + part[3] for part in parts)])
    return None if size >= needed else f"{library} is damaged: {size} of {needed} bytes are there"


def recorded() -> tuple[BuildTarget, Path] | None:
    """Record that setup.py put beside the library that it built, None for a pure-Python package.

    Raises:
        ValueError: The record is not one.
    """
    record = _record()
    if record is None:
        return None
    missing = [name for name in ("LIBRARY", "TORCH", "CUDA", "PYTHON") if name not in record]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    cuda = record["CUDA"]
    target = BuildTarget(str(record["TORCH"]), None if cuda is None else str(cuda), str(record["PYTHON"]))
    return target, _PACKAGE / str(record["LIBRARY"])


def recorded_abi() -> int | None:
    """The ABI of the library that setup.py built, None where the record does not have it."""
    abi = (_record() or {}).get("ABI")
    return abi if isinstance(abi, int) else None


def _record() -> dict[str, object] | None:
    path = _PACKAGE / "_build_info.py"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    # It is read, not imported: a record that is half written would be a SyntaxError at an unexpected place.
    record: dict[str, object] = {}
    for item in ast.parse(text).body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            record[item.targets[0].id] = ast.literal_eval(item.value)
    return record


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Folder to build a library in for another, which gets it whole or not at all: others look for it there.

    One build at a time: the others wait. What a build left that was killed holds none of them up.

    Args:
        folder: Created where it is missing.
    """
    scratch = folder / "build"
    scratch.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as file:
        if _alone_with(file):
            # torch's own lock is a file: it outlives whoever made it.
            (scratch / "lock").unlink(missing_ok=True)
        yield scratch
        built, target = library_in(scratch), library_in(folder)
        whole = target.with_suffix(".whole")
        shutil.copyfile(built, whole)
        whole.replace(target)


def _alone_with(file: IO[str]) -> bool:
    """Wait until no other process holds a file; False where the system cannot: torch's lock has to do."""
    try:
        import fcntl
    except ImportError:
        return False
    fcntl.flock(file, fcntl.LOCK_EX)
    return True


def source_root() -> Path:
    """Folder of the sources: in the installed package, or in a checkout beside it."""
    installed = _PACKAGE / "csrc"
    return installed if installed.is_dir() else _PACKAGE.parent / "csrc"


def source_files() -> list[Path]:
    """Every source and header, sorted."""
    return sorted(p for p in source_root().rglob("*") if p.suffix in {".cpp", ".cu", ".cuh", ".h"})


def translation_units(*, cuda: bool = False) -> list[Path]:
    """What a compiler is given, sorted; kernels for CUDA and what binds them where `cuda` says so."""
    units = [p for p in source_files() if p.suffix in {".cpp", ".cu"}]
    return [p for p in units if cuda or not (p.suffix == ".cu" or p.stem.endswith("_bind"))]


def module_name() -> str:
    """Name of a library built just in time: one for each torch, Python and state of the sources."""
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(path.relative_to(source_root()).as_posix().encode() + b"\0" + path.read_bytes())
    target = running()
    words = f"{JIT_PREFIX}{target.torch}_py_{target.python}_{digest.hexdigest()[:12]}"
    return "".join(c if c.isalnum() else "_" for c in words)


def cache_folder() -> Path:
    """Folder of a library for this process that was built just in time."""
    return Path.home() / ".cache" / "torch_ort_session" / __version__ / module_name()


def library_in(folder: Path) -> Path:
    """Path of the library that a build into a folder makes."""
    return folder / f"{module_name()}{'.pyd' if sys.platform == 'win32' else '.so'}"
