"""A scan of the kernels' sources for the native ops that they call, themselves or by helpers."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torch_ort_session.ops import native

PACKAGE = "torch_ort_session"
DOORS = (native.cpu_op, native.device_op)
"""What hands out an op by the name that comes first."""
CHECK = "check_"
"""How those ops are named that a run's validation has methods of the same name for."""
GENERATED = "<string>"
"""Where the methods that a dataclass generates say they are from."""


def native_ops(fn: Callable[..., Any], package: str = PACKAGE) -> tuple[str, ...]:
    """Names of the native ops that a function calls, sorted.

    Args:
        fn: A kernel's function.
        package: Modules whose functions are followed, by the beginning of their names.
    """
    ops: set[str] = set()
    seen: set[Callable[..., Any]] = set()
    todo: list[Callable[..., Any]] = [fn]
    while todo:
        function = todo.pop()
        if function not in seen:
            seen.add(function)
            named, values = _read(function)
            ops.update(named)
            todo.extend(called for value in values for called in _functions(value, package))
    return tuple(sorted(ops))


@functools.cache
def _read(fn: Callable[..., Any]) -> tuple[frozenset[str], tuple[Any, ...]]:
    """The ops that a function names itself, and the global values that it names."""
    code = inspect.unwrap(fn).__code__
    if code.co_filename == GENERATED:
        return frozenset(), ()
    node = _definitions(code.co_filename)[code.co_firstlineno]
    ops: set[str] = set()
    values: list[Any] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and _value(part.func, fn) in DOORS:
            name = part.args[0]
            assert isinstance(name, ast.Constant), f"{code.co_filename}:{part.lineno}: an op has a fixed name"
            ops.add(str(name.value))
        elif isinstance(part, ast.Attribute) and part.attr.startswith(CHECK):
            owner = part.value
            if "validation" in (getattr(owner, "id", ""), getattr(owner, "attr", "")):
                ops.add(part.attr)
        values.append(_value(part, fn))
    return frozenset(ops), tuple(value for value in values if value is not None)


def _value(node: ast.AST, fn: Callable[..., Any]) -> Any:
    """What a name, or a name within a module, stands for in a function."""
    names = inspect.unwrap(fn).__globals__
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = names.get(node.value.id)
        return getattr(owner, node.attr, None) if isinstance(owner, ModuleType) else None
    return None


def _functions(value: Any, package: str) -> Iterator[Callable[..., Any]]:
    """A function of the package, or the methods of a class of it."""
    if not str(getattr(value, "__module__", "")).startswith(package) or value in DOORS:
        return
    if isinstance(value, type):
        yield from (member for member in vars(value).values() if isinstance(member, FunctionType))
    elif isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
        yield value


@functools.cache
def _definitions(path: str) -> dict[int, ast.AST]:
    """The functions of a file by their first line."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    nodes = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))
    return {min([n.lineno, *(d.lineno for d in getattr(n, "decorator_list", ()))]): n for n in nodes}
