"""The rules of the house as functions over parsed sources; `test_architecture.py` applies them.

A rule takes one `Source` and yields `Finding`s. It works on the text and its syntax tree alone, so that it
can be tried on a snippet that does not exist on disk: each rule has such a test and so can fail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "torch_ort_session"
ROOT = Path(__file__).resolve().parent.parent

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
BEHAVIOUR_FIELDS = 8
RECORD_FIELDS = 12


@dataclass(frozen=True)
class Source:
    """One Python file: its path relative to the repository root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

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
    """One imported dotted name, absolute."""

    name: str
    line: int
    star: bool = False


def imports(source: Source) -> Iterator[Imported]:
    """Every import of the file, wherever it stands, with relative ones resolved and members joined on."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = _import_base(source, node)
            for alias in node.names:
                star = alias.name == "*"
                yield Imported(base if star else f"{base}.{alias.name}", node.lineno, star)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith(("import_module", "__import__")):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Imported(first.value, node.lineno)


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
    for node in ast.walk(source.tree):
        name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
        if name in {"CUDAGraph", "graph_pool_handle", "make_graphed_callables"}:
            yield Finding(
                source.path,
                getattr(node, "lineno", 1),
                "CUDA graphs are touched only in runtime/recorders/cuda.py",
            )


def environment_only_in_options(source: Source) -> Iterator[Finding]:
    if source.within("options.py"):
        return
    banned = {"environ", "environb", "getenv", "getenvb", "putenv"}
    for node in ast.walk(source.tree):
        found = isinstance(node, ast.Attribute) and node.attr in banned and dotted(node.value) == "os"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            found = any(alias.name in banned for alias in node.names)
        if found:
            yield Finding(
                source.path, getattr(node, "lineno", 1), "the environment is read only in options.py"
            )


def print_only_in_cli(source: Source) -> Iterator[Finding]:
    if not source.within("cli/"):
        yield from _calls(source, {"print"}, "print belongs to cli/; use the module's logger")


def no_evaluation(source: Source) -> Iterator[Finding]:
    yield from _calls(source, {"eval", "exec", "compile", "__import__"}, "text is never evaluated")


def _calls(source: Source, names: set[str], message: str) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
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
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in {"load_library", "load_inline", "load_dynamic"}:
            yield Finding(source.path, node.lineno, message)
        if isinstance(node, ast.Attribute) and dotted(node) == f"torch.ops.{PACKAGE}":
            yield Finding(source.path, node.lineno, message)


def line_limit(path: str) -> int | None:
    """The most lines that a file may have, None where no limit holds."""
    if path.startswith("tests/"):
        return 500 if path.endswith((".py", ".cpp", ".h")) else None
    if re.match(rf"{PACKAGE}/ops/\w+/.*\.py$", path):
        return 300
    if path.startswith((f"{PACKAGE}/", "csrc/")):
        return 400 if path.endswith((".py", ".cpp", ".cu", ".cuh", ".h")) else None
    return None


def file_size(source: Source) -> Iterator[Finding]:
    limit = line_limit(source.path)
    lines = source.text.count("\n")
    if limit is not None and lines > limit:
        yield Finding(source.path, lines, f"{lines} lines, the limit is {limit}: split it by meaning")
    if re.search(r"_\d+$", Path(source.path).stem):
        yield Finding(source.path, 1, "a file is split by meaning, never by number")


def class_fields(source: Source) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef) or _is_enum(node):
            continue
        fields = fields_of(node)
        limit = RECORD_FIELDS if _is_record(node) else BEHAVIOUR_FIELDS
        if sum(fields.values()) > limit:
            listed = ", ".join(
                name if weight == 1 else f"{name} (counts {weight})" for name, weight in fields.items()
            )
            count = sum(fields.values())
            message = f"class {node.name} has {count} fields, the limit is {limit}: {listed}"
            yield Finding(source.path, node.lineno, message)


def fields_of(node: ast.ClassDef) -> dict[str, int]:
    """The fields of a class and what each counts: annotations, `__slots__`, `self.x = ...` in methods."""
    fields: dict[str, int] = {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if "ClassVar" not in ast.unparse(item.annotation):
                fields[item.target.id] = _weight(item.annotation)
        elif isinstance(item, ast.Assign) and any(dotted(t) == "__slots__" for t in item.targets):
            for text in ast.walk(item.value):
                if (
                    isinstance(text, ast.Constant)
                    and isinstance(text.value, str)
                    and text.value != "__dict__"
                ):
                    fields.setdefault(text.value, 1)
        elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.args.args:
            for name, weight in _assigned_on(item, item.args.args[0].arg):
                fields[name] = max(weight, fields.get(name, 0))
    return fields


def _assigned_on(
    function: ast.FunctionDef | ast.AsyncFunctionDef, self_name: str
) -> Iterator[tuple[str, int]]:
    for node in ast.walk(function):
        weight = _weight(node.annotation) if isinstance(node, ast.AnnAssign) else 1
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [t for target in node.targets for t in getattr(target, "elts", [target])]
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and dotted(target.value) == self_name:
                yield target.attr, weight


def _weight(annotation: ast.expr) -> int:
    """3 for a catch-all mapping, in which any number of further fields would hide; else 1."""
    text = ast.unparse(annotation).replace("typing.", "").replace("'", "").replace('"', "")
    return 3 if re.search(r"\b(dict|Dict|Mapping|MutableMapping)(\[str, (Any|object)\]|$| \|)", text) else 1


def _is_enum(node: ast.ClassDef) -> bool:
    return any(
        dotted(base).split(".")[-1] in {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
        for base in node.bases
    )


def _is_record(node: ast.ClassDef) -> bool:
    if any(dotted(base).split(".")[-1] in {"NamedTuple", "TypedDict"} for base in node.bases):
        return True
    for item in node.decorator_list:
        if isinstance(item, ast.Call) and dotted(item.func).split(".")[-1] == "dataclass":
            return any(k.arg == "frozen" and getattr(k.value, "value", False) is True for k in item.keywords)
    return False


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
    file_size,
    class_fields,
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
    yield from file_size(source)


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
