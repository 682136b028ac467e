"""The door to the compiled extension, with and without a library behind it."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ops import native, native_files
from torch_ort_session.ops.native_files import BuildTarget

OTHER = BuildTarget("2.12.1+cu130", "13.0", "3.12")
HERE = BuildTarget("2.13.0+cpu", None, "3.11")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A process that runs `HERE`, with no library built, none loaded and an empty cache folder."""
    monkeypatch.setattr(native_files, "running", lambda: HERE)
    monkeypatch.setattr(native_files, "recorded", lambda: None)
    monkeypatch.setattr(native, "_registered", lambda: False)
    monkeypatch.setattr(native_files, "cache_folder", lambda: tmp_path)
    native._load_once.cache_clear()
    yield tmp_path
    native._load_once.cache_clear()


def warning_of_load() -> str:
    """The warning's text, one statement a line."""
    with pytest.warns(UserWarning) as caught:
        assert not native.load()
    (warning,) = caught
    return re.sub(r"(;|,) (?=`|this)", r"\1\n", str(warning.message))


def test_without_an_extension_one_warning_says_what_to_do(bare: Path) -> None:
    assert_expected_inline(
        warning_of_load(),
        """\
native ops are off: extension not built;
`torch-ort-session build` compiles it for the installed torch""",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not native.load()


def test_status_is_silent_and_loads_nothing(bare: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.status() == native.Status(None, False, "extension not built")
    assert not native.status().usable
    assert not native._load_once.cache_info().currsize


def test_a_library_for_another_torch_is_never_opened(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = bare / "library.so"
    library.write_bytes(b"")
    monkeypatch.setattr(native_files, "recorded", lambda: (OTHER, library))
    monkeypatch.setattr(torch.ops, "load_library", lambda path: pytest.fail("opened"))
    assert_expected_inline(
        warning_of_load(),
        """\
native ops are off: the extension was built for torch 2.12.1+cu130, CUDA 13.0, Python 3.12,
this process runs torch 2.13.0+cpu, CUDA none, Python 3.11;
`torch-ort-session build` compiles it for the installed torch""",
    )


def test_a_recorded_library_that_is_gone_counts_as_not_built(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_files, "recorded", lambda: (HERE, bare / "gone.so"))
    assert native.status().reason == "extension not built"


def test_a_library_that_cannot_be_opened_is_reported(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = bare / "library.so"
    library.write_bytes(b"not a library")
    monkeypatch.setattr(native_files, "recorded", lambda: (HERE, library))
    assert native.status() == native.Status(library, False, "")
    assert f"native ops are off: {library} cannot be loaded: " in warning_of_load()
    assert native.status().library is None


def test_a_library_of_another_abi_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = bare / "library.so"
    library.write_bytes(b"")
    monkeypatch.setattr(native_files, "recorded", lambda: (HERE, library))
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    monkeypatch.setattr(torch.ops.torch_ort_session, "abi_version", lambda: 99, raising=False)
    told = f"the loaded extension speaks ABI 99,\nthis package speaks ABI {native.ABI_VERSION};"
    assert told in warning_of_load()


def test_a_library_built_just_in_time_is_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_files, "recorded", lambda: (OTHER, bare / "other.so"))
    built = native_files.library_in(bare)
    built.write_bytes(b"")
    assert native.status() == native.Status(built, False, "")


def test_the_name_of_a_build_carries_torch_python_and_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_files, "running", lambda: HERE)
    name = native_files.module_name()
    assert name.startswith("tos_native_torch_2_13_0_cpu_py_3_11_")
    assert len({p.name for p in native_files.source_files()} & {"register.cpp", "abi.h"}) == 2
    monkeypatch.setattr(native_files, "source_files", list)
    assert native_files.module_name() != name


def test_a_loaded_extension_is_not_built_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_registered", lambda: True)
    with pytest.raises(RuntimeError) as caught:
        native.build()
    assert_expected_inline(
        str(caught.value),
        """the extension is loaded in this process already; build it in a fresh one""",
    )


def test_a_build_without_sources_says_where_they_should_be(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_files, "source_root", lambda: bare / "csrc")
    with pytest.raises(RuntimeError) as caught:
        native.build()
    assert str(caught.value) == f"the extension's sources are not in {bare / 'csrc'}"


def test_a_build_without_a_compiler_says_so_before_it_starts(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_registered", lambda: False)
    monkeypatch.setenv("CXX", "no-such-compiler -std=c++20")
    with pytest.raises(RuntimeError) as caught:
        native.build(directory=bare / "build")
    assert_expected_inline(
        str(caught.value),
        """\
no C++ compiler (no-such-compiler -std=c++20) was found; install one, or name one in CXX""",
    )
    assert not (bare / "build").exists()


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_this_installation_does_what_its_status_says() -> None:
    """Loads the real library where there is one; elsewhere the status gives a reason and load agrees."""
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from torch_ort_session.ops import native\n"
        "before = native.status()\n"
        "assert native.load() == before.usable and native.load() == before.usable\n"
        "after = native.status()\n"
        "assert after.loaded == before.usable and after.reason == before.reason, after\n"
        "assert native.library() == before.library\n"
        "import torch\n"
        "print(torch.ops.torch_ort_session.abi_version() if before.usable else native.ABI_VERSION)"
    )
    assert run(code) == str(native.ABI_VERSION)


@pytest.mark.slow
def test_a_build_just_in_time_compiles_and_loads(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "import torch\n"
        "from torch_ort_session.ops import native\n"
        f"library = native.build(directory=Path({str(tmp_path)!r}))\n"
        "assert library.is_file() and native.library() == library\n"
        "from torch_ort_session.runtime.record import recorder_for\n"
        "x = torch.zeros(2)\n"
        "recorder_for(torch.device('cpu')).record(lambda: x.add_(1)).replay()\n"
        "assert x.tolist() == [2, 2]\n"
        "print(torch.ops.torch_ort_session.abi_version())"
    )
    assert run(code) == str(native.ABI_VERSION)
