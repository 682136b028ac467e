"""The modes a run is made under."""

from __future__ import annotations

import contextlib
from types import TracebackType

import torch
from torch.autograd import forward_ad

from torch_ort_session.errors import InputError

_HOST = ("cpu",)
# Small steps of a run on a device take place on the host.
_AUTOCAST = {"cuda": ("cuda", "cpu")}


class RunModes:
    """No inference mode, autocast or default device, grad as asked; the caller's modes are back afterwards.

    It lives while one run is made.

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
    """Whether a run has to be made step by step: a mode or transform watches, or gradients flow forward."""
    return forward_ad._current_level >= 0 or watched()


def watched() -> bool:
    """Whether the caller's function transform or dispatch mode has to see every call of a run."""
    modes: int = torch._C._len_torch_dispatch_stack()
    return modes > 0 or transformed()


def transformed() -> bool:
    """Whether a function transform of the caller's is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


FEW = 1 << 40
"""Bytes that no tensor has as many of; nearly all memory lies above, which one comparison tells."""


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The device that a session runs on.

    Args:
        device: A device or its name; None is torch's default device.

    Returns:
        The CPU, or a CUDA device with its index.

    Raises:
        InputError: The device does not exist here, or is neither.
    """
    try:
        target = torch.get_default_device() if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        text = f"device {device!r} is not supported; use 'cpu' or 'cuda'"
        raise InputError(text, name="device", got=repr(device)) from error
    if target.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                "device 'cuda' was asked for and this torch finds no CUDA device; load with device='cpu', or "
                "install a CUDA build of torch on a machine with a GPU",
                name="device",
                got=str(target),
            )
        index = torch.cuda.current_device() if target.index is None else target.index
        if index >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise InputError(f"device {target} does not exist; there are {count}", name="device")
        return torch.device("cuda", index)
    if target.type != "cpu":
        raise InputError(
            f"device {str(target)!r} is not supported; use 'cpu' or 'cuda'", name="device", got=str(target)
        )
    return torch.device("cpu")


def emptied(tensor: torch.Tensor) -> bool:
    """Whether a tensor has elements and no memory, as after ``untyped_storage().resize_(0)``.

    torch reads where the memory was, or would be, which ends the process. No pointer of such a tensor is as
    large as :data:`FEW`: it is the offset in a storage that begins nowhere.
    """
    if not tensor.numel() or tensor.is_meta or not torch._C._has_storage(tensor):
        return False
    nbytes = tensor.untyped_storage().nbytes()
    # While torch.export traces it is no number, and asking would take part in the trace.
    return isinstance(nbytes, int) and not nbytes
