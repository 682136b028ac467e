"""The door to the compiled extension, with and without a library behind it."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ops import native
from torch_ort_session.ops.native import files as native_files
from torch_ort_session.ops.native.files import BuildTarget

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


def elf(size: int) -> bytes:
    """A library whose one part ends at 4064 bytes and whose table of sections ends at 4096; cut off."""
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 4032, 0, 64, 56, 1, 64, 1, 0)
    )
    part = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 4064, 4064, 4096)
    return (head + part).ljust(4096, b"\0")[:size]


@pytest.mark.parametrize("size", [6, 63, 100, 2000, 4095])
@pytest.mark.parametrize("jit", [True, False])
def test_a_library_whose_end_is_missing_is_never_opened(
    bare: Path, monkeypatch: pytest.MonkeyPatch, size: int, jit: bool
) -> None:
    library = native_files.library_in(bare) if jit else bare / "library.so"
    library.write_bytes(elf(size))
    if not jit:
        monkeypatch.setattr(native_files, "recorded", lambda: (HERE, library))
    monkeypatch.setattr(torch.ops, "load_library", lambda path: pytest.fail("opened"))
    assert f"native ops are off: {library} is damaged: " in warning_of_load()
    library.write_bytes(elf(4096))
    assert native_files.damaged(library) is None


def test_one_built_just_in_time_takes_the_place_of_one_that_cannot_be_used(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, jit = bare / "library.so", native_files.library_in(bare)
    monkeypatch.setattr(native_files, "recorded", lambda: (HERE, library))
    jit.write_bytes(b"good")
    opened: list[str] = []

    def load(path: str) -> None:
        opened.append(path)
        if path != str(jit):
            raise OSError("no library")

    monkeypatch.setattr(torch.ops, "load_library", load)
    monkeypatch.setattr(torch.ops.torch_ort_session, "abi_version", lambda: native.ABI_VERSION, raising=False)
    monkeypatch.setattr(native, "_describe_ops", lambda: None)
    for content, tried in ((b"bad", [str(library), str(jit)]), (elf(100), [str(jit)])):
        library.write_bytes(content)
        opened.clear()
        native._load_once.cache_clear()
        assert native.load()
        assert opened == tried


def test_a_library_that_was_recorded_with_another_abi_is_never_opened(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = bare / "library.so"
    library.write_bytes(b"")
    monkeypatch.setattr(native_files, "recorded", lambda: (HERE, library))
    monkeypatch.setattr(native_files, "recorded_abi", lambda: 1)
    monkeypatch.setattr(torch.ops, "load_library", lambda path: pytest.fail("opened"))
    assert native.status().reason == (
        f"the extension speaks ABI 1, this package speaks ABI {native.ABI_VERSION}"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("TORCH = (", "'(' was never closed"),
        ("TORCH = '2'\nLIBRARY = 'x.so'", "it lacks CUDA, PYTHON"),
        ("TORCH = open('x')", "malformed node or string"),
    ],
)
def test_a_record_that_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    (tmp_path / "_build_info.py").write_text(text)
    monkeypatch.setattr(native_files, "_PACKAGE", tmp_path)
    monkeypatch.setattr(native_files, "library_in", lambda folder: tmp_path / "none.so")
    found, reason = native_files.find()
    assert not found
    assert reason.startswith("the record of what the extension was built for cannot be read: ")
    assert why in reason


def test_the_record_is_what_setup_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_files, "_PACKAGE", tmp_path)
    assert native_files.recorded() is None
    assert native_files.recorded_abi() is None
    text = "LIBRARY = 'x.so'\nTORCH = '2.13.0+cpu'\nCUDA = None\nPYTHON = '3.11'\nABI = 7\n"
    (tmp_path / "_build_info.py").write_text('"""What."""\n' + text)
    assert native_files.recorded() == (HERE, tmp_path / "x.so")
    assert native_files.recorded_abi() == 7


def test_a_build_waits_for_another_one_and_not_for_one_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from torch_ort_session.ops.native import files as native_files\n"
        "with native_files.building(Path(sys.argv[1])) as scratch:\n"
        "    assert not (scratch / 'lock').exists()\n"
        "    (scratch / 'lock').touch()\n"
        "    print('began', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    native_files.library_in(scratch).write_text(sys.argv[2])\n"
    )

    def start(content: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, str(tmp_path), content]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    library = native_files.library_in(tmp_path)
    with start("killed") as killed:
        assert killed.stdout.readline() == "began\n"
        killed.kill()
    assert not library.exists()
    with start("first") as first:
        assert first.stdout.readline() == "began\n"
        with start("second") as second:
            first.communicate("go\n")
            assert library.read_text() == "first"
            assert second.stdout.readline() == "began\n"
            second.communicate("go\n")
    assert library.read_text() == "second"


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
        "assert library.is_file() and native.library().name == library.name\n"
        "from torch_ort_session.runtime.recorders.cuda import recorder_for\n"
        "x = torch.zeros(2)\n"
        "recorder_for(torch.device('cpu')).record(lambda: x.add_(1)).replay()\n"
        "assert x.tolist() == [2, 2]\n"
        "print(torch.ops.torch_ort_session.abi_version())"
    )
    assert run(code) == str(native.ABI_VERSION)
