"""The emulation itself: what is undefined on a device is an error, and what depends on luck is found."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline
from hostcuda import ROOT, ROOTS, SOURCES, LaunchError, included, launch, needs_compiler, poisoned
from textmodel import message

pytestmark = needs_compiler


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def provoke(what: str, *args: torch.Tensor | float | None, **options: object) -> list[list[torch.Tensor]]:
    return launch("provoking_kernels", f"provoke_{what}", *args, **options)  # type: ignore[arg-type]


def refusal(what: str, *args: torch.Tensor | float | None) -> str:
    told = message(LaunchError, lambda: provoke(what, *args, orders=("forward",)))
    return re.sub(r"in line \d+", "in line N", told)


def test_a_barrier_that_a_thread_left_before_is_an_error() -> None:
    assert_expected_inline(
        refusal("divergent", 40, ints(40)),
        """\
threads wait for each other: threads 0 to 0 left; threads 1 to 39 at __syncthreads in line N
(forward)""",
    )


def test_two_barriers_are_not_one() -> None:
    assert_expected_inline(
        refusal("two_barriers", 4, ints(4)),
        """\
threads wait for each other: threads 0 to 1 at __syncthreads in line N; threads 2 to 3 at
__syncthreads in line N (forward)""",
    )


def test_a_lane_that_a_shuffle_names_has_to_come() -> None:
    assert_expected_inline(
        refusal("absent_lane", 32, ints(32)),
        """\
threads wait for each other: threads 0 to 6 at __shfl_xor_sync in line N for lanes ffffffff;
threads 7 to 7 left; threads 8 to 31 at __shfl_xor_sync in line N for lanes ffffffff (forward)""",
    )


def test_a_shuffle_names_the_lane_that_calls_it() -> None:
    assert_expected_inline(
        refusal("foreign_mask", 32, ints(32)), """thread 4: __shfl_sync without its own lane (forward)"""
    )


@pytest.mark.parametrize("threads", [32, 33, 256])
def test_a_race_in_shared_memory_is_found(threads: int) -> None:
    out = ints(threads)
    provoke("neighbour", threads, out, 1)
    assert out.tolist() == [*range(1, threads), 0]
    assert "a race: argument 1 of provoke_neighbour is not the same backward and forward" in message(
        LaunchError, lambda: provoke("neighbour", threads, ints(threads), 0)
    )


def test_what_happens_between_reading_and_an_atomic_is_found() -> None:
    out = ints(2)
    provoke("count", 64, out, 1)
    assert out.tolist() == [128, 0]
    # Neither order alone shows it: each thread runs to its end.
    provoke("count", 64, ints(2), 0, orders=("forward", "backward"))
    assert "a race" in message(LaunchError, lambda: provoke("count", 64, ints(2), 0))


@pytest.mark.parametrize("threads", [1, 31, 64])
def test_shared_memory_that_was_not_written_is_nan(threads: int) -> None:
    out = torch.zeros(2, threads)
    provoke("unwritten", threads, out)
    written = torch.arange(threads) % 2 == 0
    assert torch.equal(out.isnan(), ~written.expand(2, -1))


def test_dynamic_shared_memory_is_poisoned_before_each_block() -> None:
    out = torch.zeros(2, 33)
    provoke("unwritten_dynamic", 33, out)
    odd = torch.arange(33) % 2 == 1
    assert torch.equal(out.isnan(), torch.stack((odd, ~odd)))


def test_what_is_written_past_shared_memory_is_an_error() -> None:
    assert "writes past its dynamic shared memory" in refusal("overrun", 3)


def test_what_is_written_past_a_tensor_is_an_error() -> None:
    assert "writes behind argument 1 of provoke_neighbour" in refusal("neighbour", 32, ints(31), 1)


def test_an_atomic_needs_its_alignment() -> None:
    assert "an atomic at a place that is not aligned" in refusal("misaligned", 1, ints(4))


@pytest.mark.parametrize("threads", [1, 7, 32, 33, 70])
def test_lanes_of_whole_and_partial_warps_exchange(threads: int) -> None:
    out = ints(2, threads, 4)
    provoke("collectives", threads, out)
    for thread in range(threads):
        warp = range(thread - thread % 32, min(thread - thread % 32 + 32, threads))
        first, last = warp[0], warp[-1]
        down = thread + 3 if thread % 32 + 3 < 32 else thread
        row = [
            thread ^ 1 if (thread ^ 1) <= last else -1,
            down if down <= last else -1,
            first + 2 if first + 2 <= last else -1,
            sum(1 << lane for lane, number in enumerate(warp) if number % 2),
        ]
        assert torch.equal(out[:, thread].to(torch.int64) & 0xFFFFFFFF, torch.tensor([row, row]) & 0xFFFFFFFF)


def test_parts_of_a_warp_go_their_own_way() -> None:
    out = ints(32)
    provoke("halves", 32, out)
    turned = [t ^ 1 ^ 2 for t in range(16)] + [t ^ 1 for t in range(16, 32)]
    assert out.tolist() == [turned[t ^ 16] for t in range(32)]


@pytest.mark.parametrize(("threads", "answer"), [(40, 200), (41, 201), (64, 321)])
def test_a_block_votes(threads: int, answer: int) -> None:
    out = ints(threads)
    provoke("votes", threads, out)
    assert out.tolist() == [answer] * threads


def test_blocks_and_threads_of_three_dims_are_each_run_once() -> None:
    out = ints(12, 30)
    provoke("places", out)
    assert out.tolist() == [list(range(1, 31))] * 12


@pytest.mark.parametrize(
    ("threads", "shared", "why"),
    [(0, 0, "1 to 1024 threads"), (1025, 0, "1 to 1024 threads"), (1, 1 << 20, "more shared memory")],
)
def test_a_launch_that_no_device_takes_is_an_error(threads: int, shared: int, why: str) -> None:
    assert why in refusal("size", threads, shared)


def test_poison_is_nan_and_minus_one() -> None:
    assert poisoned(3).isnan().all() and poisoned(2, dtype=torch.int32).tolist() == [-1, -1]


@pytest.mark.parametrize("name", ["check_index", "elementwise_chain", "provoking_kernels"])
def test_a_library_depends_on_what_the_compiler_reads(name: str) -> None:
    source = SOURCES / f"{name}.cpp"
    torch_include = Path(torch.__file__).parent / "include"
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-MM", *(f"-I{p}" for p in ROOTS)]
    command += ["-isystem", str(torch_include), str(source)]
    rule = subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition(":")[2]
    read = {Path(path).resolve() for path in rule.replace("\\\n", " ").split()}
    assert source in read and read == set(included(source))
    chain = ROOT / "csrc" / "elementwise" / "chain" / "chain.h"
    assert (chain in read) == (name == "elementwise_chain")
