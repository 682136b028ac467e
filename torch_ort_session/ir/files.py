"""Files a model may name, opened so that reading them can neither leave the folder nor hang.

Source: https://onnx.ai/onnx/repo-docs/ExternalData.html
"""

from __future__ import annotations

import io
import mmap
import os
import stat
from dataclasses import dataclass

import torch

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.convert import shown

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A regular file, open, with a private map: what is written to the map never reaches the file.

    Attributes:
        path: Where it was found, for messages.
        size: Its bytes.
        file: The open file, unbuffered; None once it is closed.
        map: The map; None for an empty file, or where the file system cannot map.
    """

    path: str
    size: int
    file: io.FileIO
    map: mmap.mmap | None

    def tensor(self, offset: int, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        """A span as a flat tensor: a view of the map where its address is aligned for ``dtype``, "
        "else a copy."""
        if self.map is not None and offset % dtype.itemsize == 0 and nbytes:
            count = nbytes // dtype.itemsize
            return torch.frombuffer(self.map, dtype=dtype, count=count, offset=offset)
        return self.copy(offset, nbytes).view(dtype)

    def copy(self, offset: int, nbytes: int) -> torch.Tensor:
        """A span as bytes in memory of its own; read, not mapped, so that the map's pages stay "
        "out of memory."""
        data = torch.empty(nbytes, dtype=torch.uint8)
        view = data.numpy().data
        self.file.seek(offset)
        done = 0
        while done < nbytes:
            # One read is kept well below 2 GiB: some systems read no more at once.
            got = self.file.readinto(view[done : done + (1 << 28)])
            if not got:
                raise ModelError(
                    f"the file became shorter while it was read (wanted {nbytes} bytes at {offset})",
                    place=f"file {self.path!r}",
                )
            done += got
        return data

    def close(self) -> None:
        """Close the file; maps that tensors hold stay."""
        self.file.close()


def open_file(path: str, place: str, *, limit: int, follow: bool = True) -> MappedFile:
    """Open a regular file for reading; nothing else is ever opened, so that nothing can block.

    Args:
        path: The path.
        place: What errors name.
        limit: The most bytes that it may have.
        follow: Whether the last part of the path may be a symbolic link.

    Raises:
        ModelError: It does not exist, cannot be read, is no regular file, or is too large.
    """
    if "\0" in path:
        raise ModelError(f"the path {path!r} holds a NUL character", place=place)
    try:
        _refuse_special(os.stat(path), path, place)
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        flags |= getattr(os, "O_CLOEXEC", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise ModelError(f"there is no file {path!r} (working directory {_here()!r})", place=place) from None
    except ModelError:
        raise
    except (OSError, ValueError) as error:
        raise ModelError(f"{path!r} cannot be opened: {_reason(error)}", place=place) from error
    file = io.FileIO(descriptor, "rb")
    try:
        found = os.fstat(descriptor)
        _refuse_special(found, path, place)
        if found.st_size > limit:
            raise ModelError(
                f"{path!r} has {found.st_size} bytes, the limit is {limit}: pass "
                "Limits(file_bytes=...) to raise it",
                place=place,
            )
        return MappedFile(path, found.st_size, file, _map(descriptor, found.st_size))
    except BaseException:
        file.close()
        raise


def _map(descriptor: int, size: int) -> mmap.mmap | None:
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) if size else None
    except (OSError, ValueError, OverflowError):
        return None


def _refuse_special(found: os.stat_result, path: str, place: str) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = next((name for test, name in _KINDS if test(found.st_mode)), "no regular file")
    raise ModelError(f"{path!r} is {kind}, a model needs a regular file{_inside(path, found)}", place=place)


def _inside(path: str, found: os.stat_result) -> str:
    if not stat.S_ISDIR(found.st_mode):
        return ""
    try:
        models = sorted(name for name in os.listdir(path) if name.endswith(".onnx"))
    except OSError:
        return ""
    return f"; it holds {models[0]!r}: pass that path" if models else ""


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "?"


def folders_of(path: str) -> tuple[str, ...]:
    """The folders that external data of a model file may lie in: that of the path, and that of its real path.

    The second is for caches whose files are symbolic links to a folder of blobs.
    """
    given = os.path.dirname(os.path.abspath(path))
    real = os.path.dirname(os.path.realpath(path))
    return (given,) if real == given else (given, real)


def contained(location: str, folders: tuple[str, ...], place: str) -> str:
    """The real path of an external data file.

    Args:
        location: What the model says: a relative path with forward slashes.
        folders: Folders that it may lie in.
        place: What errors name.

    Raises:
        ModelError: The location is no plain relative path, does not exist, or leads out of the folders.
    """
    advice = "external data must be a relative path to a file beside the model"
    if not location:
        raise ModelError("it has no location: the file is damaged", place=place)
    if "\0" in location:
        raise ModelError(f"the location {shown(location)} holds a NUL character", place=place)
    parts = location.replace("\\", "/").split("/")
    if location.startswith(("/", "\\")) or os.path.isabs(location) or parts[0][1:2] == ":":
        raise ModelError(f"the location {shown(location)} is an absolute path; {advice}", place=place)
    if ".." in parts:
        raise ModelError(
            f"the location {shown(location)} leads out of the folder by '..'; {advice}", place=place
        )
    try:
        roots = [os.path.realpath(folder) for folder in folders]
        for folder in folders:
            candidate = os.path.join(folder, *location.split("/"))
            if not os.path.lexists(candidate):
                continue
            real = os.path.realpath(candidate)
            if any(os.path.commonpath((root, real)) == root for root in roots):
                return real
            raise ModelError(
                f"the location {shown(location)} is a link that leads out of the model's folder, to "
                f"{shown(real)}; copy that file beside the model if it is meant",
                place=place,
            )
    except ModelError:
        raise
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the location {shown(location)} cannot be looked up: {_reason(error)}",
            place=place,
        ) from error
    raise ModelError(
        f"there is no file {shown(location)} in {folders[0]!r}: fetch the data file that belongs to the "
        "model and put it there",
        place=place,
    )
