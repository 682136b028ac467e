"""What the wheel and the source archive hold, with and without torch at build time; all offline."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from archrules import ROOT, native_sources

COPIED = ("csrc", "torch_ort_session", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md")
# A build without isolation sees torch; this one is as blind as an isolated one.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
BUILD = """
import runpy, sys
sys.argv = ["setup.py", "-q", *{arguments!r}]
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, with a library and its record left over from a build in place."""
    target = tmp_path / "tree"
    target.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "_build_info.py")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignore)
        else:
            shutil.copy2(source, target / name)
    (target / "torch_ort_session" / "_build_info.py").write_text("TORCH = 'stale'\n")
    (target / "torch_ort_session" / "_native.stale.so").write_bytes(b"stale")
    return target


def build(tree: Path, *arguments: str, torch: bool) -> tuple[Path, str]:
    """Run setup.py; gives what it put into dist/ and what it said."""
    code = ("" if torch else WITHOUT_TORCH) + BUILD.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = (tree / "dist").iterdir()
    return made, done.stderr


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def shipped_sources() -> set[str]:
    return {f"torch_ort_session/{s.path}" for s in native_sources()}


def test_without_torch_the_wheel_is_pure_and_says_so(tree: Path) -> None:
    wheel, said = build(tree, "bdist_wheel", torch=False)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "torch is not importable here: the native extension is left out (pure-Python package)" in said
    held = names(wheel)
    assert {"torch_ort_session/py.typed", "torch_ort_session/__main__.py"} <= held
    assert shipped_sources() and shipped_sources() <= held
    assert not [n for n in held if n.endswith((".so", "_build_info.py"))]
    assert not [n for n in held if n.startswith(("tests/", "benchmarks/", "tutorials/", "csrc/"))]


def test_the_metadata_names_what_users_need(tree: Path) -> None:
    wheel, _ = build(tree, "bdist_wheel", torch=False)
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (
            archive.read(n).decode() for n in archive.namelist() if n.endswith("dist-info/METADATA")
        )
        (scripts,) = (archive.read(n).decode() for n in archive.namelist() if n.endswith("entry_points.txt"))
    lines = metadata.splitlines()
    assert {"License-Expression: BSD-3-Clause", "License-File: LICENSE", "Requires-Python: >=3.11"} <= set(
        lines
    )
    assert {f"Provides-Extra: {extra}" for extra in ("dev", "tutorials", "image")} <= set(lines)
    required = {line for line in lines if line.startswith("Requires-Dist") and "extra" not in line}
    assert {line.split()[1].split(">")[0] for line in required} == {"torch", "onnx", "numpy"}
    assert "torch-ort-session = torch_ort_session.cli:main" in scripts


def test_torch_is_no_build_requirement() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    assert [r.split(">")[0] for r in requires] == ["setuptools"]


def test_the_source_archive_is_complete_and_clean(tree: Path) -> None:
    archive, _ = build(tree, "sdist", torch=False)
    with tarfile.open(archive) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    assert {s.path for s in native_sources()} <= held
    assert {"LICENSE", "README.md", "setup.py", "pyproject.toml", "torch_ort_session/py.typed"} <= held
    assert not [n for n in held if n.endswith((".so", "_build_info.py"))]


@pytest.mark.slow
def test_with_torch_the_wheel_holds_the_library_and_its_record(tree: Path) -> None:
    wheel, said = build(tree, "bdist_wheel", torch=True)
    held = names(wheel)
    if "the native extension is left out" in said:
        pytest.skip(f"this machine cannot compile: {said}")
    libraries = [n for n in held if n.startswith("torch_ort_session/_native")]
    assert len(libraries) == 1 and "stale" not in libraries[0]
    assert not wheel.name.endswith("-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("torch_ort_session/_build_info.py").decode()
    assert Path(libraries[0]).name in record and "stale" not in record
    assert shipped_sources() <= held


def test_without_a_compiler_the_wheel_is_pure_and_says_so(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    wheel, said = build(tree, "bdist_wheel", torch=True)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "no C++ compiler (no-such-compiler) was found" in said
