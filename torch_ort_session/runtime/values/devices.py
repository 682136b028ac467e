"""Devices: from what a user names to one that exists; and tensors that are on none."""

from __future__ import annotations

import torch

from torch_ort_session.errors import InputError

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
