"""Which native ops a kernel may use, read from its source: from the calls that it and its helpers make."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torch_ort_session.ops import native

_PACKAGE = __name__.partition(".")[0]
_DOORS = (native.cpu_op, native.device_op)
"""What hands out an op by the name that comes first."""
_CHECK = "check_"
"""How those ops are named that a run's validation has methods of the same name for."""


@functools.cache
def native_ops(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the native ops that a function of this package may use, sorted.

    Args:
        fn: A kernel's function. Whether an op is there, and fits the tensors of a run, is asked at each call.
    """
    found: set[str] = set()
    seen: set[Callable[..., Any]] = set()
    ahead: list[Callable[..., Any]] = [fn]
    while ahead:
        each = ahead.pop()
        if each not in seen:
            seen.add(each)
            ops, called = _read(each)
            found.update(ops)
            ahead.extend(called)
    return tuple(sorted(found))


@functools.cache
def _read(fn: Callable[..., Any]) -> tuple[frozenset[str], tuple[Callable[..., Any], ...]]:
    """The ops that a function names itself, and the functions of this package that it names."""
    code = inspect.unwrap(fn).__code__
    node = _definitions(code.co_filename).get(code.co_firstlineno)
    if node is None:
        return frozenset(), ()
    ops: set[str] = set()
    called: list[Callable[..., Any]] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and _named(part.func, fn) in _DOORS:
            first = part.args[0]
            if isinstance(first, ast.Constant):
                ops.add(str(first.value))
        elif isinstance(part, ast.Attribute) and part.attr.startswith(_CHECK):
            owner = part.value
            if "validation" in (getattr(owner, "id", ""), getattr(owner, "attr", "")):
                ops.add(part.attr)
        called.extend(_functions(_named(part, fn)))
    return frozenset(ops), tuple(called)


def _named(node: ast.AST, fn: Callable[..., Any]) -> Any:
    """What a name, or a name within a module, stands for in a function."""
    known = inspect.unwrap(fn).__globals__
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = known.get(node.value.id)
        return getattr(owner, node.attr, None) if isinstance(owner, ModuleType) else None
    return None


def _functions(value: Any) -> Iterator[Callable[..., Any]]:
    """A function of this package, or the methods of a class of it."""
    if not str(getattr(value, "__module__", "")).startswith(_PACKAGE) or value in _DOORS:
        return
    if isinstance(value, type):
        yield from (each for each in vars(value).values() if isinstance(each, FunctionType))
    elif isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
        yield value


@functools.cache
def _definitions(path: str) -> dict[int, ast.AST]:
    """The functions of a file by their first line, where it can be read."""
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return {}
    nodes = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))
    return {min([n.lineno, *(d.lineno for d in getattr(n, "decorator_list", ()))]): n for n in nodes}
