"""Tensors that end where memory ends: a read behind one of them kills the process that runs the test."""

from __future__ import annotations

import subprocess
import sys
import textwrap

GUARDED = """
import ctypes, mmap, sys
import torch
from torch_ort_session.ops import native

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
kept = []

def at_the_end(tensor):
    '''A copy whose last byte is the last one that may be read.'''
    size = tensor.numel() * tensor.element_size()
    pages = -(-size // mmap.PAGESIZE) or 1
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    kept.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if libc.mprotect(start + pages * mmap.PAGESIZE, mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno())
    if size == 0:
        return tensor
    offset = pages * mmap.PAGESIZE - size
    view = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
    return view.reshape(tensor.shape).copy_(tensor)

native.load()
ops = torch.ops.torch_ort_session
"""


def guarded(body: str) -> None:
    """Run in a process of its own, which ends at once when memory behind a tensor is touched."""
    script = GUARDED + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr[-2000:]
