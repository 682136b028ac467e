"""The rules on how files stand to each other, and on what one file may hold.

`Tree` is the package as sources; a rule takes one and yields `Finding`s. Every exception stands here with its
reason, and one that is no longer needed is a finding too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from archrules import PACKAGE, Finding, Imported, Source, dotted

ROOMS: dict[str, tuple[str, ...]] = {
    "plan": ("lowering", "analysis", "partition", "memory", "plan", "verify"),
    "runtime": (
        "values",
        "validation",
        "interpreter",
        "recorders",
        "captures",
        "dispatch",
        "dynamic",
        "bindings",
        "engine",
    ),
}
"""The rooms and files of a layer, lowest first: one imports only from those before it."""

PROMISES = {
    "plan/lowering": "Steps made from a graph: nodes bound to kernels, what no kernel serves lowered.",
    "plan/analysis": "What follows from a run that was observed: specs, static values, growth.",
    "plan/partition": "Regions: what is recorded, what runs eagerly between, and why.",
    "plan/memory": "Places in an arena for values that do not live at the same time.",
    "runtime/values": "What users hand in becomes frame values; what they get is theirs.",
    "runtime/validation": "Bad data on a device is noted in one word and told once.",
    "runtime/interpreter": "Runs steps one by one on a frame, and can watch them.",
    "runtime/recorders": "Records a callable's device work and replays it.",
    "runtime/captures": "One signature's captured graph: segments, seams, guards.",
    "runtime/dispatch": "Decides how a run is made; owns entries and session state.",
    "runtime/dynamic": "Runs whose shapes or bodies vary without a capture each.",
    "runtime/bindings": "Caller-owned tensors as inputs, outputs, states.",
    "runtime/engine": "One run, from feeds to results.",
}

MOST_IN_A_FOLDER = 9
MOST_ROOMS_NAMED = 7
SMALL_FILE = 100
MOST_BODY_LINES = 60
MOST_PARAMETERS = 7
LIFETIME = re.compile(r"\blives? (as long|until|while)\b", re.IGNORECASE)

LOADED_ON_USE = {"runtime/interpreter/compiled.py": "imports torch._dynamo, which starting up must not"}
"""Files that their room does not load, and why: they are imported within a function, as modules."""

LONG_FUNCTIONS: dict[str, str] = {
    "ops/kernel.py: kernel": "each keyword is a fact that a kernel declares; a record would be read at once",
}
"""Functions with a longer body or more parameters, as `path: name`, and why."""


@dataclass(frozen=True)
class Tree:
    """The package's files, and which imports which."""

    sources: tuple[Source, ...]

    @cached_property
    def modules(self) -> dict[str, Source]:
        return {source.module: source for source in self.sources}

    def target(self, item: Imported) -> str:
        """The module of the package that an import names, or nothing; not the file of a name offered."""
        if item.name in self.modules and item.name not in self.offered:
            return item.name
        return item.base if item.base in self.modules else ""

    @cached_property
    def offered(self) -> frozenset[str]:
        """The dotted names, at the package, of what its `__init__` imports."""
        return frozenset(
            f"{module}.{item.alias or item.member}"
            for module, source in self.modules.items()
            if source.is_package
            for item in source.imports
            if item.member and item.base != module
        )

    @cached_property
    def imported(self) -> dict[str, list[tuple[str, Imported]]]:
        """What each module imports of the package: the module named, and the import."""
        return {
            module: [(target, item) for item in source.imports if (target := self.target(item))]
            for module, source in self.modules.items()
        }

    @cached_property
    def reexports(self) -> dict[str, str]:
        """The module from which a room's `__init__` has a name, by the dotted name at the room."""
        return {
            f"{module}.{item.alias or item.member}": target
            for module, source in self.modules.items()
            if source.is_package
            for target, item in self.imported[module]
            if item.member
        }

    def importers(self, module: str) -> set[str]:
        """Modules that import this one, or a name of it through a room; its own room's `__init__` aside."""
        room = module.rpartition(".")[0]
        return {
            other
            for other, items in self.imported.items()
            for target, item in items
            if other != room and module in (target, self.reexports.get(item.name))
        }


TreeRule = Callable[[Tree], Iterator[Finding]]


def _room(module: str) -> tuple[str, str] | None:
    """Layer and room of a module, None where it belongs to no layer that has rooms."""
    parts = module.split(".")
    return (parts[1], parts[2]) if len(parts) > 2 and parts[1] in ROOMS else None


def folders_stay_small(tree: Tree) -> Iterator[Finding]:
    """Depth over breadth: at most nine files and folders in each folder of `plan/` and `runtime/`."""
    held: dict[PurePosixPath, set[str]] = {}
    for source in tree.sources:
        path = PurePosixPath(source.path)
        if source.parts[0] in ROOMS:
            for child, folder in zip([path, *path.parents], path.parents, strict=False):
                if child.name != "__init__.py" and len(folder.parts) > 1:
                    held.setdefault(folder, set()).add(child.name)
    for folder, names in sorted(held.items()):
        if len(names) > MOST_IN_A_FOLDER:
            yield Finding(
                str(folder), 1, f"holds {len(names)} files and folders, the limit is {MOST_IN_A_FOLDER}"
            )


def few_rooms_are_named(tree: Tree) -> Iterator[Finding]:
    """A file outside of a layer names at most seven of its rooms."""
    for module, items in tree.imported.items():
        own = tree.modules[module].parts[0]
        for layer in ROOMS.keys() - {own}:
            rooms = {place[1] for target, _ in items if (place := _room(target)) and place[0] == layer}
            if len(rooms) > MOST_ROOMS_NAMED:
                listed = ", ".join(sorted(rooms))
                yield Finding(tree.modules[module].path, 1, f"names {len(rooms)} rooms of {layer}/: {listed}")


def rooms_in_order(tree: Tree) -> Iterator[Finding]:
    """A room imports only from those before it; imports under TYPE_CHECKING and in functions count."""
    for module, items in tree.imported.items():
        place = _room(module)
        if place is None:
            continue
        layer, room = place
        path = tree.modules[module].path
        if room not in ROOMS[layer]:
            yield Finding(path, 1, f"{room!r} is no room of {layer}/; name it in ROOMS")
            continue
        for target, item in items:
            other = _room(target)
            if other is None or other[0] != layer or other[1] not in ROOMS[layer]:
                continue
            if ROOMS[layer].index(other[1]) > ROOMS[layer].index(room):
                yield Finding(path, item.line, f"{room} must not import {other[1]}: it comes after it")


def no_circles(tree: Tree) -> Iterator[Finding]:
    """No file imports itself by way of others; imports under TYPE_CHECKING and in functions count."""
    edges = {module: sorted({t for t, _ in items} - {module}) for module, items in tree.imported.items()}
    for circle in _circles(edges):
        path = tree.modules[circle[0]].path
        yield Finding(path, 1, "files import each other: " + ", ".join(circle))


def _circles(edges: dict[str, list[str]]) -> Iterator[list[str]]:
    """Strongly connected components of more than one node, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in edges[node]:
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            start = stack.index(node)
            if len(stack) - start > 1:
                circles.append(sorted(stack[start:]))
            del stack[start:]

    for node in edges:
        if node not in order:
            visit(node)
    yield from circles


def rooms_state_their_promise(tree: Tree) -> Iterator[Finding]:
    """A room's `__init__` begins with its promise; its `__all__` is all that it imports."""
    for source in tree.sources:
        if len(source.parts) != 2 or source.parts[0] not in ROOMS or not source.is_package:
            continue
        promise = PROMISES.get("/".join(source.parts))
        first = (ast.get_docstring(source.tree) or "").partition("\n")[0]
        if promise is None:
            yield Finding(source.path, 1, "a room without a promise; write it in PROMISES")
        elif first != promise:
            yield Finding(source.path, 1, f"the docstring does not begin with the promise: {promise}")
        offered = [ast.literal_eval(node.value) for node in source.of(ast.Assign) if _is_all(node)]
        names = [item.alias or item.member for item in source.imports if item.base != "__future__"]
        if len(offered) != 1 or sorted(offered[0]) != sorted(names):
            yield Finding(source.path, 1, "__all__ is not what is imported")


def _is_all(node: ast.Assign) -> bool:
    return [dotted(target) for target in node.targets] == ["__all__"]


def rooms_are_imported_whole(tree: Tree) -> Iterator[Finding]:
    """What lies outside of a room imports from the room, not from one of its files."""
    for module, items in tree.imported.items():
        breaches: dict[Finding, None] = {}
        for target, item in items:
            place, inner = _room(target), tree.modules[target].parts
            if place is None or len(inner) == 2 or place == _room(module):
                continue
            if not _is_loaded_on_use(tree, module, target, item):
                message = f"import from {PACKAGE}.{'.'.join(place)}, not from its file {inner[-1]}"
                breaches[Finding(tree.modules[module].path, item.line, message)] = None
        yield from breaches
    yield from _unneeded(tree, LOADED_ON_USE, {f"{'/'.join(s.parts)}.py" for s in tree.sources})


def _is_loaded_on_use(tree: Tree, module: str, target: str, item: Imported) -> bool:
    """Whether a file that is loaded on use is imported as a module, within a function."""
    if not tree.modules[target].within(*LOADED_ON_USE):
        return False
    top = {node.lineno for node in tree.modules[module].tree.body}
    return item.name == target and item.line not in top


def small_files_join(tree: Tree) -> Iterator[Finding]:
    """A file under 100 lines with one importer, in its own room, is part of that file."""
    for module, source in tree.modules.items():
        place = _room(module)
        lines = source.text.count("\n")
        if place is None or len(source.parts) < 3 or source.is_package or lines >= SMALL_FILE:
            continue
        importers = tree.importers(module)
        if len(importers) == 1 and _room(min(importers)) == place and not source.within(*LOADED_ON_USE):
            other = tree.modules[min(importers)].path
            yield Finding(source.path, 1, f"{lines} lines with one importer: part of {other}")


def functions_stay_short(tree: Tree) -> Iterator[Finding]:
    """A body has at most 60 lines and, kernels aside, 7 parameters; above that a record."""
    needed: set[str] = set()
    for source in tree.sources:
        kernels = set(_kernels(source))
        for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef):
            breaches = [*_body_breach(node), *_parameter_breach(node, kernels)]
            name = f"{source.path.removeprefix(f'{PACKAGE}/')}: {node.name}"
            if breaches and name in LONG_FUNCTIONS:
                needed.add(name)
                continue
            for breach in breaches:
                yield Finding(source.path, node.lineno, f"{node.name} has {breach}")
    yield from _unneeded(tree, LONG_FUNCTIONS, needed)


def _body_breach(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
    if lines > MOST_BODY_LINES:
        yield f"a body of {lines} lines, the limit is {MOST_BODY_LINES}"


def _parameter_breach(node: ast.FunctionDef | ast.AsyncFunctionDef, kernels: set[str]) -> Iterator[str]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    count = sum(a.arg not in ("self", "cls") for a in arguments)
    if count > MOST_PARAMETERS and node.name not in kernels:
        yield f"{count} parameters, the limit is {MOST_PARAMETERS}: a record"


def _kernels(source: Source) -> Iterator[str]:
    """Functions whose signature is a schema: those of kernels, and of the shapes of native ops."""
    for node in source.of(ast.FunctionDef):
        calls = [d for d in node.decorator_list if isinstance(d, ast.Call)]
        if any(dotted(call.func).split(".")[-1] == "kernel" for call in calls):
            yield node.name
    for call in source.of(ast.Call):
        if isinstance(call.func, ast.Call) and dotted(call.func.func).split(".")[-1] == "kernel":
            yield from (dotted(argument) for argument in call.args)
    if source.within("ops/native/"):
        tops = [node for node in source.tree.body if getattr(node, "name", "") == "describe"]
        yield from (name.id for top in tops for name in ast.walk(top) if isinstance(name, ast.Name))


def no_splatted_tuples(tree: Tree) -> Iterator[Finding]:
    """No `f(*(a, b))`, nor `parts = (a, b)` and then `f(*parts)`: the arguments are written where they go."""
    for source in tree.sources:
        calls = [(c, a.value) for c in source.of(ast.Call) for a in c.args if isinstance(a, ast.Starred)]
        if not calls:
            continue
        for call, value in calls:
            if isinstance(value, ast.Tuple) or (
                isinstance(value, ast.Name) and value.id in _tuples_around(source, call)
            ):
                text = ast.unparse(value)
                yield Finding(source.path, call.lineno, f"{dotted(call.func)}(*{text}) hides its arguments")


def _tuples_around(source: Source, call: ast.Call) -> set[str]:
    """Local names that are bound to a tuple display in the innermost function around a call."""
    around = [
        node
        for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef)
        if node.lineno <= call.lineno <= (node.end_lineno or 0)
    ]
    inner = max(around, key=lambda node: node.lineno, default=source.tree)
    return {
        target.id
        for node in ast.walk(inner)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def state_has_a_lifetime(tree: Tree) -> Iterator[Finding]:
    """A class with state in `plan/` and `runtime/` says how long it lives: `Lives as long as ...`."""
    for source in tree.sources:
        if source.parts[0] not in ROOMS:
            continue
        for node in source.of(ast.ClassDef):
            says = LIFETIME.search(" ".join((ast.get_docstring(node) or "").split()))
            if _has_state(node) and says is None:
                yield Finding(source.path, node.lineno, f"{node.name} has state: how long does it live?")


def _has_state(node: ast.ClassDef) -> bool:
    """Whether methods other than the constructor assign to the object, or any field may be assigned."""
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if dotted(call).split(".")[-1] == "dataclass" and "frozen=True" not in ast.unparse(decorator):
            return True
    return any(
        _assigns(item, item.args.args[0].arg)
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        if item.name not in ("__init__", "__new__", "__post_init__") and item.args.args
        if not any(dotted(d) in ("staticmethod", "classmethod") for d in item.decorator_list)
    )


def _assigns(function: ast.AST, name: str) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            base = node.value if isinstance(node, ast.Subscript) else node
            if isinstance(base, ast.Attribute) and dotted(base.value) == name:
                return True
    return False


def _unneeded(tree: Tree, exceptions: dict[str, str], needed: set[str]) -> Iterator[Finding]:
    """Exceptions of a file that is read, but in which nothing needs them any more."""
    paths = {source.path.removeprefix(f"{PACKAGE}/"): source.path for source in tree.sources}
    for name in exceptions.keys() - needed:
        path = name.partition(":")[0]
        if path in paths or f"{PACKAGE}/__init__.py" in paths.values():
            yield Finding(paths.get(path, path), 1, f"the exception {name!r} is not needed any more")


TREE_RULES: tuple[TreeRule, ...] = (
    folders_stay_small,
    few_rooms_are_named,
    rooms_in_order,
    no_circles,
    rooms_state_their_promise,
    rooms_are_imported_whole,
    small_files_join,
    functions_stay_short,
    no_splatted_tuples,
    state_has_a_lifetime,
)
