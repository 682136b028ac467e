"""Takes the real models named in zoo.toml out of their packages into a cache folder.

A model is named by package, version, the file inside the package and the file's sha256. Only named files
are written, each through a temporary file that gets its final name once the checksum holds. Uses the
standard library alone, so that a tutorial can carry this file and zoo.toml without anything else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

REGISTRIES = ("pypi", "npm", "installed")
ZOO_TOML = Path(__file__).with_name("zoo.toml")


class FetchError(RuntimeError):
    """A model file could not be had; the text names the model, the cause and what to do."""


@dataclass(frozen=True)
class Member:
    """One file inside one release of one package."""

    registry: str
    package: str
    version: str
    file: str

    @property
    def release(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class ModelFile:
    """A file of the cache: its place below the cache folder, its checksum, the members joined to make it."""

    target: str
    sha256: str
    members: tuple[Member, ...]


def default_cache() -> Path:
    """The folder for model files: `~/.cache/torch_ort_session/zoo`."""
    return Path.home() / ".cache" / "torch_ort_session" / "zoo"


def read_zoo(path: Path = ZOO_TOML) -> list[dict[str, Any]]:
    """The `[[model]]` tables of zoo.toml, in its order."""
    with path.open("rb") as stream:
        models: list[dict[str, Any]] = tomllib.load(stream)["model"]
    return models


def files_of(model: Mapping[str, Any]) -> tuple[ModelFile, ...]:
    """The files of one `[[model]]` table, the .onnx file first, then those that must lie beside it.

    Raises:
        FetchError: the registry is unknown, or a path would leave the cache folder.
    """
    registry = model.get("registry", "pypi")
    if registry not in REGISTRIES:
        raise FetchError(f"{model['name']}: registry {registry!r} is not one of {', '.join(REGISTRIES)}")
    if "parts" in model:
        members = tuple(Member(registry, p["package"], p["version"], p["file"]) for p in model["parts"])
        return (ModelFile(safe_path(f"{model['name']}/{model['file']}"), model["sha256"], members),)
    package, version = model["package"], model["version"]
    entries = [{"file": model["file"], "sha256": model["sha256"]}, *model.get("extra", ())]
    return tuple(
        ModelFile(
            safe_path(f"{package}-{version}/{entry['file']}"),
            entry["sha256"],
            (Member(registry, package, version, entry["file"]),),
        )
        for entry in entries
    )


def safe_path(name: str) -> str:
    """Returns `name` when it is a plain relative path.

    Raises:
        FetchError: it is absolute, climbs with `..`, or uses a drive or a backslash.
    """
    path = PurePosixPath(name)
    plain = name and "\\" not in name and "\0" not in name and name[1:2] != ":"
    if not plain or path.is_absolute() or ".." in path.parts:
        raise FetchError(
            f"{name!r} is not a plain relative path: refused, it could be written outside of the cache"
        )
    return str(path)


def fetch(model: Mapping[str, Any], cache: Path | None = None, downloads: Path | None = None) -> Path:
    """Makes sure that a model's files are in the cache and returns the path of its .onnx file.

    Args:
        model: a table of zoo.toml.
        cache: the folder for model files, `default_cache()` when None.
        downloads: a folder for archives that several models share; a temporary one when None.

    Raises:
        FetchError: a package cannot be downloaded, lacks the file, or carries another one of that name.
    """
    root = (cache or default_cache()).expanduser()
    files = files_of(model)
    for entry in files:
        target = root / entry.target
        if not (target.is_file() and sha256_of(target) == entry.sha256):
            _make(model["name"], entry, root, downloads)
    return root / files[0].target


def fetch_named(name: str, cache: Path | None = None, zoo: Path = ZOO_TOML) -> Path:
    """`fetch` for the model of this name in zoo.toml."""
    models = {model["name"]: model for model in read_zoo(zoo)}
    if name not in models:
        raise FetchError(f"no model {name!r} in {zoo.name}; it has: {', '.join(models)}")
    return fetch(models[name], cache)


def sha256_of(path: Path) -> str:
    """The sha256 of a file as lower-case hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _make(name: str, entry: ModelFile, root: Path, downloads: Path | None) -> None:
    target = root / entry.target
    target.parent.mkdir(parents=True, exist_ok=True)
    # A link inside the cache must not carry the write somewhere else.
    if not target.parent.resolve().is_relative_to(root.resolve()):
        raise FetchError(f"{name}: {target.parent} leads out of the cache folder {root}")
    with tempfile.TemporaryDirectory(prefix="tos-fetch-", dir=root) as scratch:
        joined = Path(scratch) / "joined"
        digest = hashlib.sha256()
        with joined.open("wb") as out:
            for member in entry.members:
                with _open_member(name, member, target, entry.sha256, downloads or Path(scratch)) as stream:
                    while chunk := stream.read(1 << 20):
                        digest.update(chunk)
                        out.write(chunk)
        if digest.hexdigest() != entry.sha256:
            releases = " + ".join(member.release for member in entry.members)
            raise FetchError(
                f"{name}: {entry.members[0].file} of {releases} is not the named file\n"
                f"  sha256 expected {entry.sha256}\n"
                f"  sha256 found    {digest.hexdigest()}\n"
                f"Nothing was kept. Check the entry in zoo.toml and the release."
            )
        os.replace(joined, target)


@contextmanager
def _open_member(name: str, member: Member, target: Path, sha256: str, folder: Path) -> Iterator[IO[bytes]]:
    safe_path(member.file)
    if member.registry == "installed":
        spec = importlib.util.find_spec(member.package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(place).parent / member.file
            if path.is_file() and sha256_of(path) == sha256:
                with path.open("rb") as stream:
                    yield stream
                return
    archive = download(member, folder, hint=f"{name}: needs {target}\n  (sha256 {sha256})")
    with open_in_archive(archive, member) as stream:
        yield stream


def download(member: Member, folder: Path, *, hint: str) -> Path:
    """Downloads one release with the registry's own client and returns the archive's path below `folder`.

    Raises:
        FetchError: the client is missing or fails; `hint` opens the text.
    """
    place = folder / f"{member.package}-{member.version}"
    if not place.exists():
        place.mkdir(parents=True)
        if member.registry == "npm":
            client = [
                shutil.which("npm") or "npm",
                "pack",
                "--loglevel",
                "error",
                "--pack-destination",
                str(place),
            ]
            _run_client([*client, f"{member.package}@{member.version}"], "npm pack", member, hint)
        else:
            client = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(place)]
            _run_client([*client, member.release], "pip download", member, hint)
    archives = sorted(path for path in place.iterdir() if path.is_file())
    if len(archives) != 1:
        raise FetchError(f"{hint}\n{member.release} came as {len(archives)} files instead of one archive")
    return archives[0]


def _run_client(command: Sequence[str], title: str, member: Member, hint: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        reason = _reason(f"{done.stderr}\n{done.stdout}", done.returncode) if done.returncode else ""
    except OSError as error:
        reason = f"{error.strerror}: {command[0]}"
    if reason:
        raise FetchError(
            f"{hint}\n"
            f"{title} of {member.release} failed: {reason}\n"
            f"Connect to the package registry and try again, or put the file there yourself."
        )


def _reason(said: str, status: int) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # pip ends with its verdict, npm begins with it.
    verdicts = [line for line in lines if line.startswith("npm error")][:1] or lines[-1:]
    return verdicts[0].removeprefix("ERROR: ") if verdicts else f"exit status {status}"


@contextmanager
def open_in_archive(archive: Path, member: Member) -> Iterator[IO[bytes]]:
    """Opens one file inside a wheel, a source archive or an npm package; nothing is extracted by name.

    Raises:
        FetchError: the archive cannot be read, has no such file, or has a name that leaves its folder.
    """
    wanted = safe_path(member.file)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as bundle:
            names = {safe_path(info.filename.rstrip("/")): info for info in bundle.infolist()}
            if wanted not in names:
                raise FetchError(f"{member.release}: no file {member.file!r} in {archive.name}")
            with bundle.open(names[wanted]) as stream:
                yield stream
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as bundle_tar:
            # Source archives and npm packages keep everything below one folder of their own.
            entries = {safe_path(info.name).partition("/")[2]: info for info in bundle_tar if info.isreg()}
            opened = bundle_tar.extractfile(entries[wanted]) if wanted in entries else None
            if opened is None:
                raise FetchError(f"{member.release}: no file {member.file!r} in {archive.name}")
            with opened:
                yield opened
    else:
        raise FetchError(f"{member.release}: {archive.name} is neither a zip nor a tar archive")
