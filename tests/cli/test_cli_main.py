"""The command line as a whole: usage, errors, the build subcommand, signs of life."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import onnx
import pytest
from expecttest import assert_expected_inline
from onnx import TensorProto, helper

from torch_ort_session import __version__
from torch_ort_session.cli import build, common, inspect, main
from torch_ort_session.cli.extend import output_names, value_names, with_outputs
from torch_ort_session.errors import ModelError
from torch_ort_session.ir.text import byte_size
from torch_ort_session.ops.native import Status


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_ort_session", "--version"], capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == (__version__, "")


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["run"], ["ops", "--missing", "--check", "Add"]])
def test_wrong_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: torch-ort-session" in capsys.readouterr().err


def test_debug_raises(dense: str) -> None:
    with pytest.raises(common.CommandError):
        main(["--debug", "run", dense])


def test_an_unexpected_error_is_one_message_too(command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(inspect, "load_model", fail)
    outcome = command("inspect", "a.onnx")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: KeyError: 'lost'
(`torch-ort-session --debug ...` shows where)
""",
    )


def test_names_that_the_terminal_cannot_show(folder: Path) -> None:
    of = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("é", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["é"], ["y"])], "g", of[:1], of[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), "m.onnx")
    done = subprocess.run(
        [sys.executable, "-m", "torch_ort_session", "inspect", "m.onnx"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert b"\\xe9  float32[2]" in done.stdout


def test_a_backtrace_is_no_message(command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise RuntimeError("no room\nException raised from here (most recent call first):\nframe #0")

    monkeypatch.setattr(inspect, "load_model", fail)
    assert "frame" not in command("inspect", "a.onnx").err


def test_an_interrupt_ends_quietly(command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "load_model", fail)
    assert command("inspect", "a.onnx") == type(command("ops"))(130, "", "")


def test_a_reader_that_leaves_is_no_error(dense: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "torch_ort_session", "inspect", dense],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_build_does_nothing_when_a_library_fits(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.native, "load", lambda: True)
    monkeypatch.setattr(build.native, "status", lambda: Status(Path("native.so"), False, ""))
    monkeypatch.setattr(build.native_files, "running", lambda: "torch 9")
    monkeypatch.setattr(build.native, "build", lambda **_: pytest.fail("built"))
    assert command("build").out == "nothing to do: native.so fits torch 9\n"
    assert command("build", "--status").out == "native.so\n"


def test_build_replaces_what_cannot_be_loaded(command, monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([Status(Path("native.so"), False, ""), Status(None, False, "native.so cannot be loaded")])
    monkeypatch.setattr(build.native, "status", lambda: next(told))
    monkeypatch.setattr(build.native, "load", lambda: warnings.warn("native ops are off", stacklevel=2))
    monkeypatch.setattr(build.native_files, "running", lambda: "torch 9")
    monkeypatch.setattr(build.native, "build", lambda **_: Path("new.so"))
    assert command("build").out == "building for torch 9\nbuilt new.so\n"


def test_build_reports_what_it_did(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.native, "status", lambda: Status(None, False, "extension not built"))
    monkeypatch.setattr(build.native_files, "running", lambda: "torch 9")
    monkeypatch.setattr(build.native, "build", lambda **_: Path("native.so"))
    assert command("build").out == "building for torch 9\nbuilt native.so\n"
    outcome = command("build", "--status")
    assert (outcome.code, outcome.out) == (1, "not usable: extension not built\n")


def test_build_says_why_it_failed(command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*, verbose: bool) -> Path:
        raise RuntimeError("Ninja is required")

    monkeypatch.setattr(build.native, "status", lambda: Status(None, False, "extension not built"))
    monkeypatch.setattr(build.native, "build", fail)
    outcome = command("build")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: the extension could not be built: Ninja is required
""",
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_wait_is_shown_and_wiped() -> None:
    stream = Terminal()
    with common.waiting("loading big.onnx", stream=stream, quiet=0.01):
        deadline = time.monotonic() + 10
        while not stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert stream.getvalue().startswith("\rloading big.onnx, 0 s")
    assert stream.getvalue().endswith("\r\033[K")


def test_a_short_wait_is_not_shown() -> None:
    stream = Terminal()
    with common.waiting("loading small.onnx", stream=stream, quiet=60):
        pass
    assert stream.getvalue() == ""


def test_nothing_is_shown_where_nobody_watches() -> None:
    stream = io.StringIO()
    with common.waiting("loading big.onnx", stream=stream, quiet=0.001):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_sizes() -> None:
    shown = [byte_size(n) for n in (0, 999, 1000, 1_500_000, 2_000_000_000, 10**13)]
    assert shown == ["0 B", "999 B", "1.0 KB", "1.5 MB", "2.0 GB", "10000.0 GB"]


def test_further_outputs_are_written_behind_a_model(dense: str) -> None:
    data = Path(dense).read_bytes()
    assert (value_names(data), output_names(data)) == (("m", "y"), ("y",))
    assert output_names(with_outputs(data, ["m"])) == ("y", "m")
    long = "a" * 300
    assert output_names(with_outputs(data, [long]))[-1] == long


@pytest.mark.parametrize("data", [b"\xff" * 12, b"\x3b", b"\x3a\x80"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ModelError):
        value_names(data)
