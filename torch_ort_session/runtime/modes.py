"""The modes a run is made under."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_HOST = ("cpu",)
# Small steps of a run on a device take place on the host.
_AUTOCAST = {"cuda": ("cuda", "cpu")}


@contextlib.contextmanager
def run_modes(device: torch.device, grad: bool, num_threads: int | None) -> Iterator[None]:
    """No inference mode, autocast or default device, grad as asked; the caller's modes are back afterwards.

    Args:
        device: Where the run takes place; it is made current.
        grad: Whether autograd records.
        num_threads: Threads of torch's CPU kernels; None leaves them.
    """
    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(grad))
        if torch._C._len_torch_function_stack():
            # A default device of the caller's would take the host's small tensors away from it.
            stack.enter_context(torch.device("cpu"))
        for kind in _AUTOCAST.get(device.type, _HOST):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        if num_threads is not None:
            before = torch.get_num_threads()
            torch.set_num_threads(num_threads)
            stack.callback(torch.set_num_threads, before)
        yield


def watched() -> bool:
    """Whether the caller's function transform or dispatch mode has to see every call of a run."""
    modes: int = torch._C._len_torch_dispatch_stack()
    return modes > 0 or torch._C._functorch.peek_interpreter_stack() is not None
