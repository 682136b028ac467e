"""CUDA kernels run on the CPU: what `tests/csrc/emulated/` holds, compiled and called.

A kernel is launched once in every order that the emulation knows, on copies of its tensors that lie between
fences. Results that depend on the order, and bytes written outside of a tensor, fail. Under the address
sanitizer (`make sanitize`) bytes read outside of one do too.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "csrc" / "emulated"
ROOTS = (SOURCES, ROOT / "csrc")
"""Folders from which includes name files."""
_FENCE = 512
"""Bytes before and behind each tensor."""
_POISON = 0xFF

LAUNCHED: Counter[tuple[str, str]] = Counter()
"""How often each entry of each file was launched, for the line at the end of a run."""

ORDERS = {"forward": 0, "backward": 1, "interleaved": 2}

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "c++")) is None, reason="no C++ compiler to emulate kernels with"
)


class LaunchError(AssertionError):
    """The emulation refused a launch, or what it left does not hold."""


def compiled(name: str) -> ctypes.CDLL:
    """`emulated/<name>.cpp` as a library, compiled once for each state of what it includes.

    Raises:
        LaunchError: It does not compile.
    """
    library = _compiled(name)
    if isinstance(library, str):
        raise LaunchError(library)
    return library


def included(source: Path) -> list[Path]:
    """A source and every file of ours that it includes, directly or not, sorted.

    Conditions are not looked at: what is included only for a device counts too.
    """
    closure: set[Path] = set()
    pending = [source]
    while pending:
        path = pending.pop()
        if path in closure:
            continue
        closure.add(path)
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
            # What lies nowhere is for the compiler to refuse.
            candidates = [folder / name for folder in (path.parent, *ROOTS)]
            pending += [c for c in candidates if c.is_file()][:1]
    return sorted(closure)


@functools.cache
def _compiled(name: str) -> ctypes.CDLL | str:
    """The library, or what the compiler says: it is asked once."""
    torch_include = Path(torch.__file__).parent / "include"
    source = SOURCES / f"{name}.cpp"
    flags = ["-O1", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
    flags += os.environ.get("CXXFLAGS", "").split()
    digest = hashlib.sha256(f"{torch.__version__} {flags}".encode())
    for path in included(source):
        digest.update(path.read_bytes())
    folder = ROOT / "build" / "emulated"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{name}_{digest.hexdigest()[:16]}.so"
    if not library.exists():
        for old in folder.glob(f"{name}_*.so"):
            old.unlink(missing_ok=True)
        fresh = library.with_suffix(f".{os.getpid()}")
        # torch's own headers are not held to our warnings.
        paths = [f"-I{p}" for p in ROOTS] + ["-isystem", str(torch_include)]
        compiler = os.environ.get("CXX", "c++")
        command = [compiler, *flags, *paths, str(source), "-o", str(fresh)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{' '.join(command)}\n{done.stderr}"
        fresh.replace(library)
    return ctypes.CDLL(str(library))


def launch(
    source: str,
    entry: str,
    *args: torch.Tensor | float | None,
    free: Collection[int] = (),
    skew: int = 0,
    orders: Sequence[str] = tuple(ORDERS),
) -> list[list[torch.Tensor]]:
    """Launch a kernel in every order; its contiguous tensors then hold what the first order left in them.

    Args:
        source: Name of the file in `emulated/`.
        entry: The function there; it takes the order first.
        args: What else it takes: tensors (their address), int64, float, None for no address.
        free: Places in `args` of tensors that may depend on the order.
        skew: Bytes by which tensors are moved off their alignment.
        orders: Those to launch in.

    Returns:
        The tensors after each launch.

    Raises:
        LaunchError: A launch failed, wrote outside of a tensor, or left what depends on the order.
    """
    function = getattr(compiled(source), entry)
    function.restype = ctypes.c_char_p
    kept: list[list[torch.Tensor]] = []
    for order in orders:
        fenced = [_fenced(a, skew) if isinstance(a, torch.Tensor) else None for a in args]
        numbers = [_argument(a, place) for a, place in zip(args, fenced, strict=True)]
        LAUNCHED[source, entry] += 1
        with _forbidden([f for f in fenced if f is not None], skew):
            failure = function(ctypes.c_int64(ORDERS[order]), *numbers)
        if failure is not None:
            raise LaunchError(f"{failure.decode()} ({order})")
        tensors = [(i, a, f) for i, (a, f) in enumerate(zip(args, fenced, strict=True)) if f is not None]
        for i, tensor, place in tensors:
            assert isinstance(tensor, torch.Tensor)
            _require_fences(place, tensor, skew, f"argument {i} of {entry} ({order})")
        kept.append([_taken(f, a, skew) for _, a, f in tensors if isinstance(a, torch.Tensor)])
        for (i, _, _), first, now in zip(tensors, kept[0], kept[-1], strict=True):
            if i not in free and not torch.equal(_bytes(first), _bytes(now)):
                raise LaunchError(f"a race: argument {i} of {entry} is not the same {order} and {orders[0]}")
    targets = [a for a in args if isinstance(a, torch.Tensor)]
    for target, result in zip(targets, kept[0], strict=True):
        if target.numel():
            _bytes(target).copy_(_bytes(result))
    return kept


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of bytes that no kernel has written: NaN, or -1."""
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.numel():
        _bytes(tensor).fill_(_POISON)
    return tensor


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _fenced(tensor: torch.Tensor, skew: int) -> torch.Tensor:
    assert tensor.is_contiguous(), "kernels are given contiguous tensors"
    place = torch.full((2 * _FENCE + skew + tensor.nbytes,), _POISON, dtype=torch.uint8)
    place[_FENCE + skew : _FENCE + skew + tensor.nbytes] = _bytes(tensor)
    return place


def _taken(place: torch.Tensor, like: torch.Tensor, skew: int) -> torch.Tensor:
    start = _FENCE + skew
    return place[start : start + like.nbytes].clone().view(like.dtype).reshape(like.shape)


def _require_fences(place: torch.Tensor, tensor: torch.Tensor, skew: int, name: str) -> None:
    start = _FENCE + skew
    if bool((place[:start] != _POISON).any()):
        raise LaunchError(f"writes before {name}")
    if bool((place[start + tensor.nbytes :] != _POISON).any()):
        raise LaunchError(f"writes behind {name}")
    # Kernels may ask for wide loads only where the address allows them.
    assert place.data_ptr() % 16 == 0


@functools.cache
def _sanitizer(what: str) -> Callable[[ctypes.c_void_p, ctypes.c_size_t], None] | None:
    """A function of the address sanitizer, None where the process runs without it."""
    function = getattr(ctypes.CDLL(None), f"__asan_{what}_memory_region", None)
    if function is not None:
        function.restype = None
    return function


@contextmanager
def _forbidden(places: Sequence[torch.Tensor], skew: int) -> Iterator[None]:
    """Inside of it the address sanitizer, where there is one, reports whoever touches a fence."""
    forbid, allow = _sanitizer("poison"), _sanitizer("unpoison")
    if forbid is None or allow is None:
        yield
        return
    for place in places:
        start, size = place.data_ptr(), place.nbytes
        forbid(ctypes.c_void_p(start), ctypes.c_size_t(_FENCE + skew))
        forbid(ctypes.c_void_p(start + size - _FENCE), ctypes.c_size_t(_FENCE))
    try:
        yield
    finally:
        for place in places:
            allow(ctypes.c_void_p(place.data_ptr()), ctypes.c_size_t(place.nbytes))


def _argument(value: torch.Tensor | float | None, place: torch.Tensor | None) -> object:
    if place is not None:
        skew = place.numel() - 2 * _FENCE - value.nbytes if isinstance(value, torch.Tensor) else 0
        return ctypes.c_void_p(place.data_ptr() + _FENCE + skew)
    if value is None:
        return ctypes.c_void_p(None)
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int64(int(value))
