"""Each tutorial runs as a person would run it, outside of the checkout, and shows what it promises."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "tutorials"
KINDS = [
    "png",
    "wav",
    "zip",
    "sqlite",
    "gzip",
    "json",
    "shell",
    "python",
    "html",
    "c",
    "svg",
    "pickle",
    "onnx",
]

sys.path.insert(0, str(TUTORIALS))

import _helpers  # noqa: E402


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # A warning would be a first impression too.
    command = [sys.executable, "-W", "error", str(script), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        command, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_every_tutorial_is_tested_here():
    numbered = sorted(path.name for path in TUTORIALS.glob("[0-9]*.py"))
    assert numbered == [
        "01_run_a_model.py",
        "02_capture_and_replay.py",
        "03_reading_a_plan.py",
        "04_add_a_native_op.py",
    ]


def test_a_bar_and_a_strip():
    assert _helpers.bar(1.0, 4) == "████"
    assert _helpers.bar(0.0, 4) == "    "
    assert _helpers.bar(0.53, 4) == "██▏ "
    assert _helpers.strip([0, 1, 2, 3, 4]) == " ░▒▓█"
    assert _helpers.strip([0, 0]) == "  "


def test_the_files_it_looks_at_are_what_they_are_said_to_be(tmp_path):
    starts = [path.read_bytes()[:4] for path in _helpers.write_disguised_files(tmp_path)]
    assert starts[:5] == [b"\x89PNG", b"RIFF", b"PK\x03\x04", b"SQLi", b"\x1f\x8b\x08\x00"]
    assert len(starts) == len(KINDS) - 1


def test_without_a_network_it_says_what_to_do(tmp_path):
    copy = shutil.copy(TUTORIALS / "01_run_a_model.py", tmp_path)
    shutil.copy(TUTORIALS / "_helpers.py", tmp_path)
    done = run(Path(copy))
    assert done.returncode == 1
    assert done.stderr == (
        f"benchmarks/fetch.py and zoo.toml are not at hand; copy both to {tmp_path.resolve()}, "
        "or give --model PATH\n"
    )


@pytest.mark.zoo
def test_01_run_a_model_names_every_file_by_its_content(tmp_path):
    for source in (
        TUTORIALS / "01_run_a_model.py",
        TUTORIALS / "_helpers.py",
        ROOT / "benchmarks" / "fetch.py",
        ROOT / "benchmarks" / "zoo.toml",
    ):
        shutil.copy(source, tmp_path)
    done = run(tmp_path / "01_run_a_model.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rows = re.findall(r"^  (\S+) +(\S+) +[█▏▎▍▌▋▊▉]+ +(\d+\.\d)%$", done.stdout, re.MULTILINE)
    assert [kind for _, kind, _ in rows] == KINDS
    assert all(float(share) > 50.0 for _, _, share in rows)
    strips = re.findall(r"^  (\S+) +([ ░▒▓█]{64})$", done.stdout, re.MULTILINE)
    assert [name for name, _ in strips] == [name for name, _, _ in rows]
    assert "█" in strips[0][1]
    assert "Results are ordinary tensors: Tensor torch.float32 (13, 214)" in done.stdout


@pytest.mark.zoo
def test_01_run_a_model_on_given_files(tmp_path):
    page = tmp_path / "unknown"
    page.write_text("# Shopping\n\n- milk\n- *bread*\n\n[a list](https://example.org)\n" * 8)
    done = run(TUTORIALS / "01_run_a_model.py", str(page))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  unknown +markdown ", done.stdout, re.MULTILINE)


def test_02_capture_and_replay_decodes_the_same_tokens_three_ways():
    done = run(TUTORIALS / "02_capture_and_replay.py", "--tokens", "40")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "capture() -> None\n" in done.stdout
    row = r"^  (fed, eager|bound, eager|bound, replayed) +[█▏▎▍▌▋▊▉]+ +\d+ µs a token$"
    assert re.findall(row, done.stdout, re.MULTILINE) == ["fed, eager", "bound, eager", "bound, replayed"]
    assert "the same tokens every way: yes" in done.stdout
    # The first step is the capture, and five times 40 tokens replay it.
    assert "The session counted 1 capture and 200 replays." in done.stdout
    said = re.search(r"^  it says: (.+)$", done.stdout, re.MULTILINE)
    assert said is not None and len(set(said[1])) > 8
    assert done.stdout.endswith(
        "After binding other logits: there is nothing to replay: 'logits' was bound anew; "
        "capture() makes one\n"
    )


def test_02_capture_and_replay_says_when_nothing_is_captured(tmp_path):
    source = (TUTORIALS / "02_capture_and_replay.py").read_text()
    first = "session = tos.load(model, device=args.device)"
    assert source.count(first) == 1
    off = first[:-1] + ', options=tos.Options(capture="off"))'
    (tmp_path / "tutorial.py").write_text(source.replace(first, off))
    shutil.copy(TUTORIALS / "_helpers.py", tmp_path)
    done = run(tmp_path / "tutorial.py", "--tokens", "5")
    assert "capture off" in done.stdout
    assert "From here on run() makes every step eagerly" in done.stdout
    assert "the same tokens every way: yes" in done.stdout


def part(text: str, number: int) -> str:
    """What a tutorial prints below its title of this number."""
    found = re.search(rf"^{number}\. [^\n]+\n=+\n(.*?)(?=\n\d\. [^\n]+\n=+\n|\Z)", text, re.M | re.S)
    assert found is not None, number
    return found[1]


@pytest.mark.zoo
def test_03_reading_a_plan_shows_seams_and_how_they_go(tmp_path):
    done = run(TUTORIALS / "03_reading_a_plan.py", "--html", str(tmp_path / "plan.html"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "in 1 segment, 0 in 0 seams" in part(done.stdout, 1)
    assert_expected_inline(
        part(done.stdout, 2).partition("\n\nA seam is")[0].partition("regions\n")[2],
        """\
  segment  59 steps, 38 launches, 34 nodes fused into 8
  seam     places (ai.onnx::NonZero)
           kernel declares a seam: the size of the output depends on the data
           every replay compares the shape of 'places'
  segment  3 steps, 2 launches""",
    )
    assert_expected_inline(
        part(done.stdout, 3),
        """\
  run 1, four files                        4 numbers   ran eagerly
  run 2, four files                        4 numbers   ran eagerly, observed
  run 3, four files                        4 numbers   was captured
  run 4, the same in another order         4 numbers   was replayed
  run 5, other files, other hits           6 numbers   was replayed, and the capture was retired

The result of run 5 is right: what came after the seam ran eagerly. explain() keeps the report:

node    op                reason    message
------  ----------------  --------  ---------------------------------------------------------------
places  ai.onnx::NonZero  diverged  'places' was int64[2, 4] in the warm run and is now int64[2, 6]
""",
    )
    assert_expected_inline(
        part(done.stdout, 4),
        """\
TopK with k as an input, one integer: a key feed, whose value is part of the signature.
71 steps on cpu: 60 in 1 segment, 0 in 0 seams, 11 folded into constants
key feeds: k = 5

regions
  segment  60 steps, 39 launches, 34 nodes fused into 8
  run 1, the 5 best                       20 numbers   ran eagerly
  run 2, the 5 best                       20 numbers   ran eagerly, observed
  run 3, the 5 best                       20 numbers   was captured
  run 4, other files, the 5 best          20 numbers   was replayed
  run 5, the 3 best: another signature    12 numbers   ran eagerly
  runs 6 to 9, with four more values of k: too many to tell captures apart by, so that k is data
  run 10, the 5 best                      20 numbers   ran eagerly, the capture was declined
  run 11, the 5 best                      20 numbers   ran eagerly, observed
  run 12, the 5 best                      20 numbers   was captured
  run 13, the 5 best                      20 numbers   was replayed

regions
  segment  58 steps, 37 launches, 34 nodes fused into 8
  seam     found (ai.onnx::TopK)
           unresolved input shape: its input 'K' is a number that follows from data
           every replay compares the shape of 'found'
  segment  1 step, 1 launch

A constant k has neither limit (key feeds with too many values: k):

71 steps on cpu: 60 in 1 segment, 0 in 0 seams, 11 folded into constants
key feeds: none
  four files, the 5 best                  20 numbers   ran eagerly
  four files, the 5 best                  20 numbers   ran eagerly, observed
  four files, the 5 best                  20 numbers   was captured
  four files, the 5 best                  20 numbers   was replayed
""",
    )
    assert_expected_inline(
        part(done.stdout, 5),
        """\
node    op                reason                  message
------  ----------------  ----------------------  ------------------------------------------
(run)                     nothing capturable      no segment is left to record
places  ai.onnx::NonZero  kernel declares a seam  the size of the output depends on the data

The same for programs: 'kernel declares a seam'
""",
    )
    counted = re.search(r"stats\(\) of the session of part 3: (.+)", part(done.stdout, 6))
    assert counted is not None
    numbers = ast.literal_eval(counted[1])
    assert (numbers["captures"], numbers["replays"], numbers["retirements"]) == (1, 2, 1)
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "the size of the output depends on the data" in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "c++")) is None, reason="no C++ compiler")
def test_04_add_a_native_op_compiles_and_torch_has_nothing_against_it(tmp_path):
    done = run(TUTORIALS / "04_add_a_native_op.py", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert_expected_inline(
        done.stdout,
        """\
compiling ...
registered  tutorial::squared_relu(Tensor x) -> Tensor
serves      tutorial::SquaredRelu, revision 1

Beside plain torch:
  torch.float32   (3, 50)   agrees
  torch.float32   (4, 6)    agrees
  torch.float32   (2, 0)    agrees
  torch.float32   ()        agrees
  torch.bfloat16  (1000,)   agrees
  torch.float64   (5,)      agrees

What torch.library.opcheck says:
  test_schema                                SUCCESS
  test_autograd_registration                 SUCCESS
  test_faketensor                            SUCCESS
  test_aot_dispatch_dynamic                  SUCCESS

Its gradient is that of plain torch.
""",
    )
