"""What a CUDA build printed, as a table: ptxas.py LOG

Registers, shared memory and spills of each kernel, then the compilers' warnings on our own files. Exits with
1 where a kernel spills, where there is a warning, or where the log holds no kernel at all.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """What a kernel takes on one architecture; bytes but for the registers."""

    kernel: str
    architecture: str
    registers: int
    shared: int
    stack: int
    spills: int


def usages(lines: Iterable[str]) -> list[Usage]:
    """The kernels that `-Xptxas -v` tells of."""
    found: list[Usage] = []
    name = architecture = ""
    stack = spills = 0
    for line in lines:
        if entry := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
            name, architecture = entry.groups()
            stack = spills = 0
        elif memory := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill", line
        ):
            stack, stores, loads = map(int, memory.groups())
            spills = stores + loads
        elif name and (used := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            size = int(shared[1]) if shared else 0
            found.append(Usage(name, architecture, int(used[1]), size, stack, spills))
            name = ""
    return found


def warnings(lines: Iterable[str]) -> list[str]:
    """What the compilers say of files of ours; torch's and CUDA's own headers are not held to it."""
    told = (line.strip() for line in lines if re.search(r"\bwarning\b", line))
    ours = re.compile(r"^ptxas warning|(^|/)csrc/(?!.*site-packages)\S*[:(]\d+")
    return sorted({line for line in told if ours.search(line) and "site-packages" not in line.split(" ")[0]})


def readable(names: Sequence[str]) -> list[str]:
    """Mangled names as they were written, without their parameters."""
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return list(names)
    done = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=True)
    plain = (re.sub(r"\(anonymous namespace\)::|^void ", "", name) for name in done.stdout.splitlines())
    return [re.sub(r"tos::cuda::", "", name.partition("(")[0]) for name in plain]


def main(path: str) -> int:
    """Print the table; 1 where something does not hold."""
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    kernels = usages(lines)
    names = readable([k.kernel for k in kernels])
    print(f"{'kernel':44}{'device':>8}{'registers':>11}{'shared':>8}{'stack':>7}{'spills':>8}")
    for name, k in sorted(zip(names, kernels, strict=True), key=lambda pair: (pair[0], pair[1].architecture)):
        print(f"{name:44}{k.architecture:>8}{k.registers:>11}{k.shared:>8}{k.stack:>7}{k.spills:>8}")
    told = warnings(lines)
    print("\n".join(told) if told else "no warning")
    spilling = sum(k.spills > 0 for k in kernels)
    print(f"{len(kernels)} kernels, {spilling} of them spill, {len(told)} warnings")
    return 0 if kernels and not spilling and not told else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
