"""The door to the compiled extension: what was built, whether it fits, and loading it at most once.

Importing this module loads nothing. A library is compared with the running torch before it is opened, because
a wrong build can import silently, and a second library of the same namespace aborts the process.
"""

from __future__ import annotations

import functools
import logging
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.autograd import forward_ad

from torch_ort_session.ops.native import attention as native_attention
from torch_ort_session.ops.native import bytes as native_bytes
from torch_ort_session.ops.native import files as native_files
from torch_ort_session.ops.native import norms as native_norms
from torch_ort_session.ops.native import recurrent as native_recurrent
from torch_ort_session.ops.native import shapes as native_shapes
from torch_ort_session.ops.native import weights as native_weights

_LOG = logging.getLogger(__name__)
_LOCK = threading.Lock()
_BUILD_HINT = "`torch-ort-session build` compiles it for the installed torch"

_RELEASE_ARCHITECTURES = (80, 90, 100)

# Without it torch's own parallel loops run on one thread in the extension's code.
_THREADS = ("-fopenmp",) if sys.platform == "linux" else ()

ABI_VERSION = native_files.ABI_VERSION


@dataclass(frozen=True, slots=True)
class Status:
    """State of the compiled extension in this process.

    Attributes:
        library: The library that fits, None when there is none.
        loaded: Whether it is loaded in this process.
        reason: Why native ops cannot be had; empty when they can.
    """

    library: Path | None
    loaded: bool
    reason: str

    @property
    def usable(self) -> bool:
        """Whether native ops can be had."""
        return not self.reason


def status() -> Status:
    """State that :func:`load` would lead to, without loading or warning."""
    if _load_once.cache_info().currsize:
        reason = _load_once()
        return Status(None if reason else library(), not reason, reason)
    file, reason = native_files.find()
    return Status(file, False, reason)


def load() -> bool:
    """Load the extension if it fits; at most one library a process, at most one warning.

    Returns:
        Whether native ops can be used. If not, a UserWarning on the first call says why.
    """
    with _LOCK:
        return not _load_once()


def library() -> Path | None:
    """The library that is loaded in this process, None when none is."""
    loaded = (Path(str(path)) for path in torch.ops.loaded_libraries)
    return next((p for p in loaded if p.name.startswith(("_native.", native_files.JIT_PREFIX))), None)


def has_kernel(name: str, device: str) -> bool:
    """Whether the loaded library has an op for a type of device, such as ``"cuda"``."""
    if device not in ("cpu", "cuda") or not hasattr(torch.ops.torch_ort_session, name):
        return False
    key = device.upper()
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"torch_ort_session::{name}", key))


def cuda_architectures() -> tuple[str, ...]:
    """Compute capabilities that the loaded library has code for; empty where it has none for CUDA."""
    if not hasattr(torch.ops.torch_ort_session, "cuda_architectures"):
        return ()
    listed = str(torch.ops.torch_ort_session.cuda_architectures()).strip("()").split(",")
    return tuple(f"{int(number) // 100}.{int(number) // 10 % 10}" for number in listed)


def cpu_instructions() -> tuple[str, ...]:
    """Sets of instructions that this CPU has and the loaded library has code for, the widest last."""
    if not hasattr(torch.ops.torch_ort_session, "cpu_instructions"):
        return ()
    return tuple(map(str, torch.ops.torch_ort_session.cpu_instructions()))


def cpu_op(name: str, *tensors: torch.Tensor) -> Callable[..., Any] | None:
    """An op of ``csrc`` by its name for the CPU; None where plain ops have to do instead.

    They have to without the extension, on another device, and under function transforms.

    Args:
        name: As ``csrc/register.cpp`` has it.
        tensors: Plain tensors that the op would be given.
    """
    if not all(t.is_cpu and not torch._C._functorch.is_functorch_wrapped_tensor(t) for t in tensors):
        return None
    if not _load_once.cache_info().currsize and not status().usable:
        return None
    return _op(name) if load() else None


@functools.cache
def _op(name: str) -> Callable[..., Any] | None:
    packet = getattr(torch.ops.torch_ort_session, name, None)
    return None if packet is None else packet.default


def device_op(name: str, *tensors: torch.Tensor | None) -> Callable[..., Any] | None:
    """An op of ``csrc`` by its name for the device of some tensors; None where plain ops have to do instead.

    They have to without the op for that device, where gradients are wanted, and under function transforms.

    Args:
        name: As ``csrc/register.cpp`` has it.
        tensors: Plain tensors that the op would be given, the first of which is there.
    """
    inputs = [t for t in tensors if t is not None]
    device = inputs[0].device
    if device.type not in ("cpu", "cuda") or forward_ad._current_level >= 0:
        return None
    if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
        return None
    if any(t.device != device or torch._C._functorch.is_functorch_wrapped_tensor(t) for t in inputs):
        return None
    if not _load_once.cache_info().currsize and not status().usable:
        return None
    return _op_on(name, device.type) if load() else None


def op_on(name: str, device: str) -> Callable[..., Any] | None:
    """An op of ``csrc`` by its name for a type of device; None where there is none."""
    return _op(name) if status().usable and load() and has_kernel(name, device) else None


@functools.cache
def _op_on(name: str, device: str) -> Callable[..., Any] | None:
    return _op(name) if has_kernel(name, device) else None


def build(*, verbose: bool = False, directory: Path | None = None) -> Path:
    """Compile the extension for the running torch and load it.

    Args:
        verbose: Show the compiler's output.
        directory: Where the build goes; the user's cache folder by default, where :func:`load` looks.

    Returns:
        Path of the library.

    Raises:
        RuntimeError: A library is loaded already, the sources or the compiler are missing, or it failed.
    """
    with _LOCK:
        if _registered():
            raise RuntimeError("the extension is loaded in this process already; build it in a fresh one")
        sources = native_files.translation_units()
        if not sources:
            raise RuntimeError(f"the extension's sources are not in {native_files.source_root()}")
        # Imported here: it pulls in setuptools, which costs more than the whole package.
        from torch.utils import cpp_extension

        compiler = str(cpp_extension.get_cxx_compiler())  # type: ignore[no-untyped-call]
        if shutil.which(compiler.split()[0]) is None:
            raise RuntimeError(f"no C++ compiler ({compiler}) was found; install one, or name one in CXX")
        with_cuda = torch.version.cuda is not None and cpp_extension.CUDA_HOME is not None
        sources = native_files.translation_units(cuda=with_cuda)
        folder = directory if directory is not None else native_files.cache_folder()
        with native_files.building(folder) as scratch:
            cpp_extension.load(
                name=native_files.module_name(),
                sources=[str(p) for p in sources],
                extra_include_paths=[str(native_files.source_root())],
                extra_cflags=["-O2", "-g0", "-fvisibility=hidden", *_THREADS],
                extra_ldflags=list(_THREADS),
                extra_cuda_cflags=["-O2", *(_architecture_flags(cpp_extension) if with_cuda else [])],
                build_directory=str(scratch),
                verbose=verbose,
                with_cuda=with_cuda,
                is_python_module=False,
            )
        _load_once.cache_clear()
        return native_files.library_in(folder)


def _architecture_flags(helpers: ModuleType) -> list[str]:
    """Flags of nvcc where neither TORCH_CUDA_ARCH_LIST nor a device here says what to compile for."""
    try:
        helpers._get_cuda_arch_flags()
    except IndexError:
        real = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in _RELEASE_ARCHITECTURES]
        newest = _RELEASE_ARCHITECTURES[-1]
        return [*real, f"-gencode=arch=compute_{newest},code=compute_{newest}"]
    return []


@functools.cache
def _load_once() -> str:
    """Load the library; the reason it cannot be used, or nothing."""
    fitting, reason = native_files.find()
    for file in () if _registered() else _tries(fitting):
        try:
            torch.ops.load_library(str(file))  # type: ignore[no-untyped-call]
        except OSError as error:
            reason = f"{file} cannot be loaded: {error}"
        else:
            reason = ""
            break
    if not reason:
        abi = int(torch.ops.torch_ort_session.abi_version())
        if abi != ABI_VERSION:
            reason = f"the loaded extension speaks ABI {abi}, this package speaks ABI {ABI_VERSION}"
        else:
            _describe_ops()
    if reason:
        warnings.warn(f"native ops are off: {reason}; {_BUILD_HINT}", UserWarning, stacklevel=3)
    else:
        _LOG.debug("native ops from %s", library())
    return reason


def _tries(fitting: Path | None) -> Iterator[Path]:
    """The library that fits, and behind it one built just in time, in case it cannot be loaded."""
    if fitting is not None:
        yield fitting
        fallback, _ = native_files.just_in_time()
        if fallback is not None and fallback != fitting:
            yield fallback


@functools.cache
def _describe_ops() -> None:
    """Register shapes of the ops' results: for torch.compile and torch.export."""
    for module in (
        native_attention,
        native_bytes,
        native_norms,
        native_recurrent,
        native_shapes,
        native_weights,
    ):
        module.describe(lambda name: hasattr(torch.ops.torch_ort_session, name))


def _registered() -> bool:
    return hasattr(torch.ops.torch_ort_session, "abi_version")
