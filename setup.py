"""Builds the native extension when torch and a compiler are at hand, the pure-Python package otherwise.

torch is never a build requirement: under build isolation pip would fetch another torch and build against that
one. An isolated build therefore sees no torch and leaves the extension out.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = "torch_ort_session"
RELEASE_ARCHITECTURES = "8.0;9.0;10.0+PTX"
CSRC_SUFFIXES = {".cpp", ".cu", ".cuh", ".h"}


def say(text: str) -> None:
    print(f"{PACKAGE}: {text}", file=sys.stderr)


def obstacle() -> str | None:
    """Why the native extension cannot be built here, None when it can."""
    try:
        import torch.utils.cpp_extension  # noqa: F401
    except ImportError:
        return "torch is not importable here"
    compilers = [os.environ["CXX"].split()[0]] if os.environ.get("CXX") else ["c++", "g++"]
    if not any(map(shutil.which, compilers)):
        return f"no C++ compiler ({' or '.join(compilers)}) was found"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python.h was not found"
    return None


def cpp_extension() -> Any:
    """torch's build helpers, or None when the extension has to be left out (which is said)."""
    reason = obstacle()
    if reason is not None:
        say(f"{reason}: the native extension is left out (pure-Python package)")
        return None
    from torch.utils import cpp_extension as helpers

    return helpers


def wants_cuda(helpers: Any) -> bool:
    """Whether to build CUDA code: it exists, and torch and a toolkit have CUDA, or FORCE_CUDA=1 says so."""
    import torch

    if not list((ROOT / "csrc").rglob("*.cu")):
        return False
    found = torch.version.cuda is not None and helpers.CUDA_HOME is not None
    return found or os.environ.get("FORCE_CUDA") == "1"


def architectures() -> None:
    """Names the devices to compile for where neither the environment nor a device here does."""
    import torch

    if not os.environ.get("TORCH_CUDA_ARCH_LIST") and torch.cuda.device_count() == 0:
        os.environ["TORCH_CUDA_ARCH_LIST"] = RELEASE_ARCHITECTURES


def extensions(helpers: Any, cuda: bool) -> list[Any]:
    # Without CUDA its kernels are left out, and what binds them: that is C++ which includes CUDA's headers.
    units = (p.relative_to(ROOT) for p in (ROOT / "csrc").rglob("*") if p.suffix in {".cpp", ".cu"})
    sources = sorted(str(p) for p in units if cuda or not (p.suffix == ".cu" or p.stem.endswith("_bind")))
    if cuda:
        architectures()
    kind = helpers.CUDAExtension if cuda else helpers.CppExtension
    # Without it torch's own parallel loops run on one thread in the extension's code.
    threads = ["-fopenmp"] if sys.platform == "linux" else []
    flags = {"cxx": ["-O2", "-g0", "-fvisibility=hidden", *threads], "nvcc": ["-O2"]}
    return [
        kind(
            f"{PACKAGE}._native",
            sources,
            include_dirs=[str(ROOT / "csrc")],
            extra_compile_args=flags,
            extra_link_args=threads,
        )
    ]


class BuildPy(build_py):
    """Ships csrc/ inside the package, and never a build record or library left over in the work tree."""

    def find_package_modules(self, package: str, package_dir: str) -> list[Any]:
        modules = super().find_package_modules(package, package_dir)
        return [m for m in modules if m[1] != "_build_info"]

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self._native_sources().items():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *self._native_sources().values()]

    def _native_sources(self) -> dict[str, str]:
        files = (p for p in (ROOT / "csrc").rglob("*") if p.suffix in CSRC_SUFFIXES)
        return {str(p): str(Path(self.build_lib, PACKAGE, p.relative_to(ROOT))) for p in sorted(files)}


def abi_version() -> int:
    """What the sources say that the library speaks."""
    text = (ROOT / "csrc" / "core" / "abi.h").read_text(encoding="utf-8")
    found = re.search(r"kAbiVersion = (\d+);", text)
    assert found is not None
    return int(found[1])


def recording(base: type[Any]) -> type[Any]:
    """`base` (torch's build_ext), which afterwards writes what the library was built for next to it."""

    class RecordingBuildExt(base):  # type: ignore[misc]
        def run(self) -> None:
            super().run()
            import torch

            library = Path(self.get_ext_fullpath(f"{PACKAGE}._native"))
            (library.parent / "_build_info.py").write_text(
                '"""What the native library beside this file was built for; written by the build."""\n\n'
                f"LIBRARY = {library.name!r}\n"
                f"TORCH = {torch.__version__!r}\n"
                f"CUDA = {torch.version.cuda!r}\n"
                f"PYTHON = {'.'.join(map(str, sys.version_info[:2]))!r}\n"
                f"ABI = {abi_version()}\n",
                encoding="utf-8",
            )

    return RecordingBuildExt


helpers = cpp_extension()
setup(
    ext_modules=extensions(helpers, wants_cuda(helpers)) if helpers else [],
    cmdclass={
        "build_py": BuildPy,
        "build_ext": recording(helpers.BuildExtension) if helpers else build_ext,
    },
)
