"""The rules on hooks and names: what is declared has a caller in the package, and a name means one thing.

A rule takes all sources of the package and yields `Finding`s. Every exception stands here with its reason,
and one that is no longer needed is a finding too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from archrules import PACKAGE, Finding, Source, dotted

LAYERS = ("plan/", "runtime/")
"""Where parameters, protocol methods and public names are looked at."""

UNPASSED = {
    "runtime/recorders/cuda.py: CudaRecorder(driver)": "tests drive the recorder where there is no device",
    "runtime/dispatch/policy.py: Rules(window)": "tests let a signature latch within ten runs",
}
"""Hooks that nothing in the package uses, as `path: name`, and why they stay."""

SHARED_NAMES: dict[str, str] = {}
"""Public names that two files may define, and why."""


@dataclass
class _Calls:
    """How the package calls what has a name. Lives as long as one look at all sources.

    Attributes:
        keywords: Keyword arguments given.
        positional: The most positional arguments given.
        opened: Whether a call opens a tuple into its arguments.
        named: Whether a call opens a dict into its arguments.
        functions: Whether the name stands by itself outside of a call: somebody else may call it.
        methods: Whether it stands behind a dot outside of a call.
        stored: Whether a field of that name is assigned to.
    """

    keywords: set[str] = field(default_factory=set)
    positional: int = 0
    opened: bool = False
    named: bool = False
    functions: bool = False
    methods: bool = False
    stored: bool = False

    def note(self, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        self.positional = max(self.positional, len(arguments))
        self.keywords |= {keyword.arg for keyword in keywords if keyword.arg is not None}
        self.opened |= any(isinstance(argument, ast.Starred) for argument in arguments)
        self.named |= any(keyword.arg is None for keyword in keywords)

    def passes(self, place: int | None, name: str) -> bool:
        """Whether a call gives a parameter, by name or at its place among positional ones."""
        if self.named or name in self.keywords:
            return True
        return place is not None and (self.opened or place < self.positional)


def hooks_have_callers(sources: Iterable[Source]) -> Iterator[Finding]:
    """Whatever is declared to be passed, given, called or read is so somewhere in the package."""
    listed = tuple(sources)
    needed: set[str] = set()
    for name, finding in _hooks(listed):
        if name in UNPASSED:
            needed.add(name)
        else:
            yield finding
    yield from _unneeded(listed, UNPASSED, needed)


def _hooks(sources: tuple[Source, ...]) -> Iterator[tuple[str, Finding]]:
    uses = {source.path: list(_uses(source.tree)) for source in sources}
    calls = _calls(uses.values())
    asked = {path: set(_asked(used)) for path, used in uses.items()}
    anywhere = set().union(*asked.values())
    for source in sources:
        if source.within(*LAYERS):
            yield from _unpassed(source, calls)
            yield from _uncalled(source, anywhere)
        if source.within("ops/kernel.py"):
            yield from _ungiven(source, calls)
        if source.within("options.py"):
            others = (names for path, names in asked.items() if path != source.path)
            yield from _unread(source, set().union(*others))


class _Use(NamedTuple):
    """A call or a name, and where it stands.

    Attributes:
        node: The call or the name.
        around: The innermost class.
        function: Name of the innermost function.
    """

    node: ast.Call | ast.Name | ast.Attribute
    around: ast.ClassDef | None
    function: str


def _uses(tree: ast.AST) -> Iterator[_Use]:
    stack: list[tuple[ast.AST, ast.ClassDef | None, str]] = [(tree, None, "")]
    while stack:
        node, around, function = stack.pop()
        if isinstance(node, ast.Call | ast.Name | ast.Attribute):
            yield _Use(node, around, function)
        elif isinstance(node, ast.ClassDef):
            around = node
        elif isinstance(node, ast.FunctionDef):
            function = node.name
        stack += [(child, around, function) for child in ast.iter_child_nodes(node)]


def _calls(files: Iterable[list[_Use]]) -> dict[str, _Calls]:
    """How everything is called, by the last part of its name; a class by its own name."""
    known: dict[str, _Calls] = defaultdict(_Calls)
    for uses in files:
        called: set[int] = set()
        for node, around, _ in uses:
            if isinstance(node, ast.Call):
                targets, arguments = _branches(node.func), node.args
                called.update(map(id, targets))
                if _last(node.func) == "partial" and arguments:
                    targets, arguments = _branches(arguments[0]), arguments[1:]
                    called.update(map(id, targets))
                for name in (name for target in targets for name in _names_of(target, around)):
                    known[name].note(arguments, node.keywords)
        for node, _, _ in uses:
            if isinstance(node, ast.Name) and id(node) not in called:
                known[node.id].functions |= isinstance(node.ctx, ast.Load)
            elif isinstance(node, ast.Attribute) and id(node) not in called:
                known[node.attr].stored |= isinstance(node.ctx, ast.Store)
                known[node.attr].methods |= isinstance(node.ctx, ast.Load)
    return known


def _branches(target: ast.expr) -> list[ast.expr]:
    """What is called: one of two where that hangs on a condition."""
    if isinstance(target, ast.IfExp):
        return [*_branches(target.body), *_branches(target.orelse)]
    return [target]


def _names_of(target: ast.expr, around: ast.ClassDef | None) -> list[str]:
    """The names that a call goes by: a class's own, and those of its bases where it is `super().__init__`."""
    name = _last(target)
    if around is not None and name == "__init__":
        return [_last(base) for base in around.bases]
    return [around.name if around is not None and name == "cls" else name]


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "?")


def _unpassed(source: Source, calls: dict[str, _Calls]) -> Iterator[tuple[str, Finding]]:
    """Parameters with a default that no call passes, and fields of records that are never anything else."""
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    owners = {id(item): node for node in classes for item in node.body}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            owner = owners.get(id(node))
            name = owner.name if owner is not None and node.name in ("__init__", "__new__") else node.name
            static = any(dotted(d) == "staticmethod" for d in node.decorator_list)
            known = calls[name]
            if name.startswith("__") or (known.functions if owner is None else known.methods):
                continue
            for place, parameter in _defaulted(node, int(owner is not None and not static)):
                if not known.passes(place, parameter):
                    yield _finding(source, node, f"{name}({parameter})", "no call passes it")
        elif isinstance(node, ast.ClassDef) and _is_record(node):
            for place, item in enumerate(_fields(node)):
                known = calls[node.name]
                changed = any(item.name in calls[name].keywords for name in ("replace", "_replace"))
                state = calls[item.name].stored
                if item.default and not (known.passes(place, item.name) or changed or state):
                    yield _finding(source, node, f"{node.name}({item.name})", "no call passes it")


def _defaulted(node: ast.FunctionDef | ast.AsyncFunctionDef, skip: int) -> Iterator[tuple[int | None, str]]:
    """Parameters with a default, with their place among positional arguments."""
    positional = [*node.args.posonlyargs, *node.args.args]
    first = len(positional) - len(node.args.defaults)
    for place, argument in enumerate(positional):
        if place >= first:
            yield place - skip, argument.arg
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None:
            yield None, argument.arg


class _Field(NamedTuple):
    """A field of a record.

    Attributes:
        name: Its name.
        default: Whether it has one that is no fresh object.
    """

    name: str
    default: bool


def _is_record(node: ast.ClassDef) -> bool:
    decorators = {_last(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}
    return "dataclass" in decorators or "NamedTuple" in {_last(base) for base in node.bases}


def _fields(node: ast.ClassDef) -> list[_Field]:
    return [
        _Field(item.target.id, item.value is not None and "default_factory" not in ast.unparse(item.value))
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        if "ClassVar" not in ast.unparse(item.annotation)
    ]


def _uncalled(source: Source, asked: set[str]) -> Iterator[tuple[str, Finding]]:
    """Methods of protocols that nothing asks for; passing one on in a method of that name is no use of it."""
    protocols = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and any(_last(base) == "Protocol" for base in node.bases)
    ]
    for protocol in protocols:
        for method in protocol.body:
            if not isinstance(method, ast.FunctionDef) or method.name.startswith("__"):
                continue
            if method.name not in asked:
                yield _finding(source, method, f"{protocol.name}.{method.name}", "nothing calls it")


def _asked(uses: list[_Use]) -> Iterator[str]:
    """Names behind a dot that are read, and of `getattr`, outside of functions of that name."""
    for node, _, function in uses:
        if isinstance(node, ast.Attribute) and node.attr != function and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Call) and _last(node.func) == "getattr" and len(node.args) > 1:
            yield str(getattr(node.args[1], "value", ""))


def _ungiven(source: Source, calls: dict[str, _Calls]) -> Iterator[tuple[str, Finding]]:
    """Arguments of `@kernel` that no kernel gives."""
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "kernel":
            for place, parameter in _defaulted(node, 0):
                if not calls["kernel"].passes(place, parameter):
                    yield _finding(source, node, f"@kernel({parameter})", "no kernel gives it")


def _unread(source: Source, asked: set[str]) -> Iterator[tuple[str, Finding]]:
    """Fields of options that nothing reads."""
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and _is_record(node):
            for item in _fields(node):
                if item.name not in asked:
                    yield _finding(source, node, f"{node.name}.{item.name}", "nothing reads it")


def _finding(source: Source, node: ast.AST, name: str, message: str) -> tuple[str, Finding]:
    path = source.path.removeprefix(f"{PACKAGE}/")
    return f"{path}: {name}", Finding(source.path, getattr(node, "lineno", 1), f"{name}: {message}")


def public_names_mean_one_thing(sources: Iterable[Source]) -> Iterator[Finding]:
    """A public name at the top of a file of `plan/` or `runtime/` is defined in no other one."""
    listed = tuple(sources)
    places: dict[str, list[tuple[Source, int]]] = {}
    for source in listed:
        if source.within(*LAYERS):
            for name, line in _defined(source.tree.body):
                places.setdefault(name, []).append((source, line))
    needed: set[str] = set()
    for name, defined in sorted(places.items()):
        paths = sorted({source.path for source, _ in defined})
        if len(paths) > 1 and name in SHARED_NAMES:
            needed.add(name)
        elif len(paths) > 1:
            source, line = defined[-1]
            yield Finding(source.path, line, f"{name} is defined in {', '.join(paths)}")
    yield from _unneeded(listed, SHARED_NAMES, needed)


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Public names that statements of a module define; what it imports is defined elsewhere."""
    for node in body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            names = [part.id for part in parts if isinstance(part.ctx, ast.Store)]
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined([*node.body, *node.orelse])
        yield from ((name, node.lineno) for name in names if not name.startswith("_"))


def _unneeded(sources: tuple[Source, ...], exceptions: dict[str, str], needed: set[str]) -> Iterator[Finding]:
    """Exceptions that nothing needs any more, where the whole package is read."""
    if any(source.parts == ("__init__",) for source in sources):
        for name in sorted(exceptions.keys() - needed):
            yield Finding(PACKAGE, 1, f"the exception {name!r} is not needed any more")


HookRule = Callable[[Iterable[Source]], Iterator[Finding]]

HOOK_RULES: tuple[HookRule, ...] = (hooks_have_callers, public_names_mean_one_thing)
