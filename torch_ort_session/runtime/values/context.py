"""The modes a run is made under."""

from __future__ import annotations

import contextlib
from types import TracebackType

import torch
from torch.autograd import forward_ad

_HOST = ("cpu",)
# Small steps of a run on a device take place on the host.
_AUTOCAST = {"cuda": ("cuda", "cpu")}


class RunModes:
    """No inference mode, autocast or default device, grad as asked; the caller's modes are back afterwards.

    Attributes:
        device: Where the run takes place; it is made current.
        grad: Whether autograd records.
        num_threads: Threads of torch's CPU kernels; None leaves them.
        before: The caller's grad mode.
        stack: The other modes that had to be changed; None in the common case, which costs a run the least.
    """

    __slots__ = ("before", "device", "grad", "num_threads", "stack")

    def __init__(self, device: torch.device, grad: bool, num_threads: int | None) -> None:
        self.device = device
        self.grad = grad
        self.num_threads = num_threads
        self.before = grad
        self.stack: contextlib.ExitStack | None = None

    def __enter__(self) -> None:
        if (
            self.num_threads is not None
            or self.device.type != "cpu"
            or torch.is_autocast_enabled("cpu")
            or torch.is_inference_mode_enabled()
            or torch._C._len_torch_function_stack()
        ):
            self.stack = self._changed()
        self.before = torch.is_grad_enabled()
        if self.before is not self.grad:
            torch._C._set_grad_enabled(self.grad)

    def _changed(self) -> contextlib.ExitStack:
        with contextlib.ExitStack() as stack:
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            if torch._C._len_torch_function_stack():
                # A default device of the caller's would take the host's small tensors away from it.
                stack.enter_context(torch.device("cpu"))
            for kind in _AUTOCAST.get(self.device.type, _HOST):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            if self.device.type == "cuda":
                stack.enter_context(torch.cuda.device(self.device))
            if self.num_threads is not None:
                stack.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(self.num_threads)
            return stack.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.before is not self.grad:
            torch._C._set_grad_enabled(self.before)
        if self.stack is not None:
            self.stack.__exit__(kind, error, trace)


def stepwise() -> bool:
    """Whether a run has to be made step by step: somebody watches, or gradients flow forward through it."""
    return forward_ad._current_level >= 0 or watched()


def watched() -> bool:
    """Whether the caller's function transform or dispatch mode has to see every call of a run."""
    modes: int = torch._C._len_torch_dispatch_stack()
    return modes > 0 or transformed()


def transformed() -> bool:
    """Whether a function transform of the caller's is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None
