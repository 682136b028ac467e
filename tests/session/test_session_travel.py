"""Sessions cross processes and threads."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import declare, load, message, model, operator

import torch_ort_session as tos

TEXT = (
    'g (float[n, 2] x, bool c) => (float[n, 3] y, string[2] s) <string[2] s = {"a", "b"}> { y = If (c)'
    " <then_branch = t () => (float[n, 3] a) { a = MatMul(x, w) }, else_branch = e () => (float[n, 3] b)"
    " <float[1] k = {2}> { m = MatMul(x, w) b = Mul(m, k) }> }"
)
WEIGHTS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
X = torch.arange(8.0).reshape(4, 2)


def session() -> tos.Session:
    return load(TEXT, weights=WEIGHTS)


def check(one: tos.Session) -> None:
    for flag, factor in ((True, 1), (False, 2)):
        out = one(X, flag)
        assert torch.equal(out.y, X @ torch.from_numpy(WEIGHTS["w"]) * factor)
        assert out.s.tolist() == ["a", "b"]


def run_elsewhere(one: tos.Session) -> list[Any]:
    """Called in another process."""
    return [one(X, True).y.tolist(), repr(one)]


@pytest.mark.parametrize("protocol", [2, 5])
def test_pickle(protocol: int) -> None:
    one = session()
    one(X, True)
    other = pickle.loads(pickle.dumps(one, protocol))
    assert repr(other) == repr(one)
    check(other)


def test_deepcopy_and_torch_save() -> None:
    one = session()
    check(copy.deepcopy(one))
    check(copy.deepcopy({"nested": [one]})["nested"][0])
    buffer = io.BytesIO()
    torch.save(one, buffer)
    buffer.seek(0)
    check(torch.load(buffer, weights_only=False))


def test_options_and_device_travel() -> None:
    one = tos.load(model(TEXT, weights=WEIGHTS), device="cpu", options=tos.Options(num_threads=1))
    other = pickle.loads(pickle.dumps(one))
    assert other.device == torch.device("cpu")
    assert copy.deepcopy(one).device == torch.device("cpu")
    assert (other.options, copy.deepcopy(one).options) == (one.options, one.options)


def test_a_session_of_a_file_needs_the_file_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        model(TEXT, weights=WEIGHTS), path, save_as_external_data=True, location="w.bin", size_threshold=0
    )
    one = pickle.loads(pickle.dumps(tos.load(path)))
    os.remove(tmp_path / "w.bin")
    os.remove(path)
    check(one)


def test_spawn() -> None:
    one = session()
    expected = run_elsewhere(one)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(run_elsewhere, (one,)) == expected


def test_parallel_loads() -> None:
    data = model(TEXT, weights=WEIGHTS).SerializeToString()
    with ThreadPoolExecutor(8) as pool:
        for one in pool.map(lambda _: tos.load(data), range(24)):
            check(one)


def test_one_session_from_many_threads() -> None:
    one = session()

    def work(seed: int) -> None:
        x = torch.full((seed % 5, 2), float(seed))
        for flag in (True, False) * 10:
            got = one(x, flag).y
            assert torch.equal(got, x @ torch.from_numpy(WEIGHTS["w"]) * (1 if flag else 2))
            names = ["y", "w"][: 1 + seed % 2]
            assert len(one.run(names, {"x": x, "c": flag})) == len(names)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(32)))


def test_runs_of_one_session_take_turns() -> None:
    inside, most = 0, 0

    @declare
    def Count(x: torch.Tensor) -> torch.Tensor:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.01)
        inside -= 1
        return x + 1

    with operator(Count):
        one = load("g (float[n] x) => (float[n] y) { y = tests.Count(x) }")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: one(torch.zeros(1)), range(8)))
    assert most == 1


def test_independent_sessions_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=20)

    @declare
    def Meet(x: torch.Tensor) -> torch.Tensor:
        meeting.wait()
        return x + 1

    with operator(Meet):
        both = [load("g (float[n] x) => (float[n] y) { y = tests.Meet(x) }") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda one: one(torch.zeros(1)).item(), both))
    assert results == [1, 1]


def test_a_kernel_may_run_its_own_session() -> None:
    text = "g (float[n] x, bool deep) => (float[n] y) { y = tests.Again(x, deep) }"
    one: tos.Session

    @declare
    def Again(x: torch.Tensor, deep: torch.Tensor) -> torch.Tensor:
        return one(x, False) + 1 if deep else x + 1

    with operator(Again):
        one = load(text)
    assert one(torch.zeros(1), True).item() == 2


def test_modes_of_one_thread_do_not_reach_another() -> None:
    one = load("g (float[n] x) => (float[n] y) { y = Mul(x, x) }")
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad(), ThreadPoolExecutor(1) as pool:
        assert one(x).requires_grad is False
        assert pool.submit(lambda: one(x).requires_grad).result() is True


def test_sources(tmp_path: Path) -> None:
    proto = model(TEXT, weights=WEIGHTS)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    before = proto.SerializeToString()
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), proto):
        check(tos.load(source))
    assert proto.SerializeToString() == before


def test_repr_and_ports(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    text = (
        "g (float[n, 2] x, bool c, seq(int64[k]) q, optional(float16[1]) o, string[] t, float[?, 3] u)"
        " => (float[n, 3] y, string[2] s, seq(int64[k]) r)"
    )
    text += TEXT[TEXT.index(" <string") :].removesuffix(" }") + " r = Identity(q) }"
    path.write_bytes(model(text, weights=WEIGHTS).SerializeToString())
    one = tos.load(path)
    assert_expected_inline(
        repr(one).replace(str(tmp_path), "FOLDER"),
        """\
Session('FOLDER/tiny.onnx', device='cpu')
  input  x: float32[n, 2]
  input  c: bool[]
  input  q: sequence(int64[k])
  input  o: optional(float16[1])
  input  t: string[...]
  input  u: float32[?, 3]
  output y: float32[n, 3]
  output s: string[2]
  output r: sequence(int64[k])
  5 nodes, 44 B of weights""",
    )
    assert_expected_inline(
        "\n".join(map(repr, one.inputs)),
        """\
Port(name='x', dtype=torch.float32, shape=('n', 2))
Port(name='c', dtype=torch.bool, shape=())
Port(name='q', dtype=torch.int64, shape=None)
Port(name='o', dtype=torch.float16, shape=(1,))
Port(name='t', dtype=None, shape=None)
Port(name='u', dtype=torch.float32, shape=(None, 3))""",
    )
    assert_expected_inline(
        "\n".join(map(str, one.outputs)),
        """\
y: float32[n, 3]
s: string[2]
r: sequence(int64[k])""",
    )
    assert one.outputs[2].dtype is torch.int64
    assert one.outputs[2].shape is None


def test_devices() -> None:
    proto = model(TEXT, weights=WEIGHTS)
    assert tos.load(proto, device="cpu").device == torch.device("cpu")
    assert tos.load(proto, device=torch.device("cpu", 0)).device == torch.device("cpu")
    assert_expected_inline(
        message(tos.InputError, lambda: tos.load(proto, device="mps")),
        """device 'mps' is not supported; use 'cpu' or 'cuda'""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: tos.load(proto, device="nonsense")),
        """device 'nonsense' is not supported; use 'cpu' or 'cuda'""",
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_cuda_where_there_is_none() -> None:
    proto = model(TEXT, weights=WEIGHTS)
    assert_expected_inline(
        message(tos.InputError, lambda: tos.load(proto, device="cuda")),
        """\
device 'cuda' was asked for and this torch finds no CUDA device; load with device='cpu', or
install a CUDA build of torch on a machine with a GPU""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: tos.load(proto, device="cuda:7")),
        """\
device 'cuda' was asked for and this torch finds no CUDA device; load with device='cpu', or
install a CUDA build of torch on a machine with a GPU""",
    )


def test_the_public_names() -> None:
    assert_expected_inline(
        "\n".join(tos.__all__),
        """\
BackendReport
Binding
Bucket
CaptureError
DeclineReport
DeviceIndexError
DeviceValidationError
InputError
KernelError
Limits
ModelError
Options
Outputs
Plan
PlanError
Port
Session
SessionError
Snapshot
UnsupportedOpError
__version__
load""",
    )
    assert all(hasattr(tos, name) for name in tos.__all__)
