"""The rules of the package as functions over parsed sources; `test_architecture.py` applies them.

A rule takes one `Source` and yields `Finding`s; the rules of `roomrules.py` take the whole `Tree`. Both work
on texts and their syntax trees alone, so that they can be tried on a snippet that does not exist on disk:
each rule has such a test and so can fail. A source is parsed and walked once, whatever the number of rules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)

PACKAGE = "torch_ort_session"
ROOT = Path(__file__).resolve().parents[2]

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"_version", "_build_info", "errors", "options", "trace"}),
    frozenset({"ir"}),
    frozenset({"ops"}),
    frozenset({"plan"}),
    frozenset({"runtime"}),
    frozenset({"explain"}),
    frozenset({"session", "binding", "module", "__init__"}),
    frozenset({"compat", "cli", "__main__"}),
)
MOST_LINES = 800


@dataclass(frozen=True)
class Source:
    """One Python file: its path relative to the repository root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        """Every node of the tree by its type, in the order of `ast.walk`."""
        nodes: dict[type[ast.AST], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            nodes.setdefault(type(node), []).append(node)
        return nodes

    def of(self, *kinds: type[N]) -> list[N]:
        """The nodes of these types."""
        return [node for kind in kinds for node in self.nodes.get(kind, ())]  # type: ignore[misc]

    @cached_property
    def imports(self) -> tuple[Imported, ...]:
        """Every import of the file, wherever it stands, with relative ones resolved and members joined on."""
        return tuple(_imports(self))

    @property
    def parts(self) -> tuple[str, ...]:
        """Module path below the package, such as `("ops", "onnx", "math")`, less a nested `__init__`."""
        parts = Path(self.path).with_suffix("").parts
        inner = parts[1:] if parts[0] == PACKAGE else parts
        return inner[:-1] if len(inner) > 1 and inner[-1] == "__init__" else inner

    @property
    def module(self) -> str:
        inner = self.parts
        return PACKAGE if inner == ("__init__",) else ".".join((PACKAGE, *inner))

    @property
    def is_package(self) -> bool:
        return Path(self.path).name == "__init__.py"

    def within(self, *places: str) -> bool:
        """Whether the file is one of `places`: files of the package, folders where they end with a slash."""
        inner = self.path.removeprefix(f"{PACKAGE}/")
        return any(inner.startswith(p) if p.endswith("/") else inner == p for p in places)


@dataclass(frozen=True)
class Finding:
    """One breach of one rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[Source], Iterator[Finding]]


@dataclass(frozen=True)
class Imported:
    """One imported dotted name, absolute: `base` and, where it is imported from there, its `member`."""

    name: str
    line: int
    base: str
    member: str = ""
    alias: str = ""

    @property
    def star(self) -> bool:
        return self.member == "*"


def imports(source: Source) -> tuple[Imported, ...]:
    return source.imports


def _imports(source: Source) -> Iterator[Imported]:
    for node in source.of(ast.Import):
        for alias in node.names:
            yield Imported(alias.name, node.lineno, alias.name, alias=alias.asname or "")
    for origin in source.of(ast.ImportFrom):
        base = _import_base(source, origin)
        for alias in origin.names:
            name = base if alias.name == "*" else f"{base}.{alias.name}"
            yield Imported(name, origin.lineno, base, alias.name, alias.asname or "")
    for call in source.of(ast.Call):
        first = call.args[0] if call.args else None
        named = isinstance(first, ast.Constant) and dotted(call.func).endswith(
            ("import_module", "__import__")
        )
        if named and isinstance(first.value, str):
            yield Imported(first.value, call.lineno, first.value)


def _import_base(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    here = source.module.split(".")
    keep = len(here) - node.level + (1 if source.is_package else 0)
    return ".".join([*here[:keep], *([node.module] if node.module else [])])


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text for a chain of names, with `?` for any other base."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def _names(name: str, *modules: str) -> bool:
    return any(name == m or name.startswith(m + ".") for m in modules)


def layer_of(part: str) -> int | None:
    return next((i for i, names in enumerate(LAYERS) if part in names), None)


def imports_point_left(source: Source) -> Iterator[Finding]:
    own = layer_of(source.parts[0])
    if own is None:
        yield Finding(source.path, 1, f"{source.parts[0]!r} belongs to no layer; name it in LAYERS")
        return
    for item in imports(source):
        if not _names(item.name, PACKAGE):
            continue
        inner = item.name.split(".")[1:]
        part = inner[0] if inner else "__init__"
        target = layer_of(part)
        if target is None:
            target, part = layer_of("__init__"), f"{PACKAGE} itself"
        if target is not None and target > own:
            yield Finding(
                source.path, item.line, f"{source.parts[0]} must not import {part}: it lies to its right"
            )


def onnx_only_in_ir(source: Source) -> Iterator[Finding]:
    if source.within("ir/", "compat/backend.py"):
        return
    for item in imports(source):
        reference = _names(item.name, "onnx.reference") and source.within("cli/compare.py")
        if _names(item.name, "onnx") and not reference:
            yield Finding(source.path, item.line, "onnx is imported only in ir/ and compat/backend.py")


def no_oracles(source: Source) -> Iterator[Finding]:
    if source.within("cli/compare.py"):
        return
    for item in imports(source):
        if _names(item.name, "onnx.reference", "onnxruntime", "onnxruntime_genai"):
            yield Finding(source.path, item.line, f"{item.name} may be imported in cli/compare.py only")


def cuda_graphs_only_in_record(source: Source) -> Iterator[Finding]:
    if source.within("runtime/recorders/cuda.py"):
        return
    banned = {"CUDAGraph", "graph_pool_handle", "make_graphed_callables"}
    message = "CUDA graphs are touched only in runtime/recorders/cuda.py"
    named = [(node.attr, node.lineno) for node in source.of(ast.Attribute)]
    named += [(node.id, node.lineno) for node in source.of(ast.Name)]
    named += [(item.member, item.line) for item in source.imports]
    for name, line in named:
        if name in banned:
            yield Finding(source.path, line, message)


def environment_only_in_options(source: Source) -> Iterator[Finding]:
    if source.within("options.py"):
        return
    banned = {"environ", "environb", "getenv", "getenvb", "putenv"}
    named = [(n.attr, n.lineno) for n in source.of(ast.Attribute) if dotted(n.value) == "os"]
    named += [(item.member, item.line) for item in source.imports if item.base == "os"]
    for name, line in named:
        if name in banned:
            yield Finding(source.path, line, "the environment is read only in options.py")


def print_only_in_cli(source: Source) -> Iterator[Finding]:
    if not source.within("cli/"):
        yield from _calls(source, {"print"}, "print belongs to cli/; use the module's logger")


def no_evaluation(source: Source) -> Iterator[Finding]:
    yield from _calls(source, {"eval", "exec", "compile", "__import__"}, "text is never evaluated")


def _calls(source: Source, names: set[str], message: str) -> Iterator[Finding]:
    for node in source.of(ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in names:
            yield Finding(source.path, node.lineno, message)


def no_star_imports(source: Source) -> Iterator[Finding]:
    for item in imports(source):
        if item.star:
            yield Finding(source.path, item.line, f"star import of {item.name}")


def extension_only_in_native(source: Source) -> Iterator[Finding]:
    """Nothing but `ops/native/__init__.py` and `runtime/recorders/cuda.py` loads or builds compiled code."""
    if source.within("ops/native/__init__.py", "runtime/recorders/cuda.py"):
        return
    message = "compiled code is loaded only in ops/native/__init__.py and runtime/recorders/cuda.py"
    for item in imports(source):
        if _names(item.name, f"{PACKAGE}._native", "torch.utils.cpp_extension", "ctypes", "cffi"):
            yield Finding(source.path, item.line, message)
    for node in source.of(ast.Attribute):
        if node.attr in {"load_library", "load_inline", "load_dynamic"}:
            yield Finding(source.path, node.lineno, message)
        if node.attr == PACKAGE and dotted(node) == f"torch.ops.{PACKAGE}":
            yield Finding(source.path, node.lineno, message)


def file_length(source: Source) -> Iterator[Finding]:
    """150 to 500 lines are the aim; what no reader holds together is refused."""
    lines = source.text.count("\n")
    if lines > MOST_LINES:
        yield Finding(source.path, lines, f"{lines} lines, the limit is {MOST_LINES}: split it by meaning")
    if re.search(r"_\d+$", Path(source.path).stem):
        yield Finding(source.path, 1, "a file is split by meaning, never by number")


RULES: tuple[Rule, ...] = (
    imports_point_left,
    onnx_only_in_ir,
    no_oracles,
    cuda_graphs_only_in_record,
    environment_only_in_options,
    print_only_in_cli,
    no_evaluation,
    no_star_imports,
    extension_only_in_native,
    file_length,
)


def native_source(source: Source) -> Iterator[Finding]:
    """The rules that hold for C++ and CUDA files."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if re.match(r"\s*#\s*include\s*[<\"]torch/extension\.h", line):
            yield Finding(
                source.path, number, "include torch/library.h and single ATen ops, not torch/extension.h"
            )
        if "PYBIND11_MODULE" in line and not source.path.startswith("csrc/tape/"):
            yield Finding(source.path, number, "only the tape's file includes pybind")
    yield from file_length(source)


def duplicate_names(paths: list[str]) -> list[str]:
    """Base names that two translation units share: their object files would collide."""
    stems = [Path(p).stem for p in paths if p.endswith((".cpp", ".cu"))]
    return sorted({stem for stem in stems if stems.count(stem) > 1})


def python_sources() -> list[Source]:
    """The package's files as they lie on disk."""
    return [_read(p) for p in sorted((ROOT / PACKAGE).rglob("*.py")) if p.name != "_build_info.py"]


def test_sources() -> list[Source]:
    return [_read(p) for p in sorted((ROOT / "tests").rglob("*.py"))]


def native_sources() -> list[Source]:
    return [_read(p) for p in sorted((ROOT / "csrc").rglob("*")) if p.suffix in {".cpp", ".cu", ".cuh", ".h"}]


def _read(path: Path) -> Source:
    return Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
