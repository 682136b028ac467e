"""docs/architecture.md: what it names is there, and a reader finds the places that are asked for most."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from archrules import PACKAGE, ROOT, Source, python_sources

PAGE = ROOT / "docs" / "architecture.md"
HEADINGS = (
    "Where a feed is checked",
    "Where a segment is recorded",
    "Where the CUDA graph is made",
    "Where a bad index is told",
    "How a capture comes about",
)
INSTANCES = {"session": "Session", "binding": "Binding", "module": "SessionModule"}
"""What a lower-case name stands for where a method follows."""


def members(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Names that are bound at the top of a file or a class, each with its statement."""
    names: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update({target.id: node for target in targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.ImportFrom):
            names.update({alias.asname or alias.name: node for alias in node.names})
        elif isinstance(node, ast.If):
            names.update(members(node.body))
    return names


def has(source: Source, dotted: str) -> bool:
    """Whether a file binds a name, or a class of it has a member of that name."""
    first, _, rest = dotted.partition(".")
    node = members(source.tree.body).get(first)
    if not rest or node is None:
        return node is not None
    if not isinstance(node, ast.ClassDef):
        return False
    assigned = {
        item.attr
        for item in ast.walk(node)
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)
    }
    return rest in members(node.body) or rest in assigned


@cache
def sources() -> list[Source]:
    return python_sources()


@cache
def modules() -> dict[str, list[Source]]:
    """Files by the last part of their module's name: `values`, `session`, `run`."""
    by_name: dict[str, list[Source]] = {}
    for source in sources():
        by_name.setdefault(source.module.rsplit(".", 1)[-1], []).append(source)
    return by_name


@cache
def defined() -> dict[str, list[Source]]:
    """Files by the names at their top."""
    by_name: dict[str, list[Source]] = {}
    for source in sources():
        for name in members(source.tree.body):
            by_name.setdefault(name, []).append(source)
    return by_name


def place(path: str) -> Path | None:
    """A path of the repository, or of the package."""
    return next((at for at in (ROOT / path, ROOT / PACKAGE / path) if at.exists()), None)


def exists(token: str) -> bool:
    """Whether there is such a path, `path: name`, dotted name or name."""
    path, colon, name = token.partition(": ")
    if "/" in path or path.endswith((".py", ".md")):
        at = place(path)
        if at is None or not colon:
            return at is not None
        if at.suffix != ".py":
            return re.search(rf"\b{re.escape(name)}\b", at.read_text(encoding="utf-8")) is not None
        return has(Source(at.relative_to(ROOT).as_posix(), at.read_text(encoding="utf-8")), name)
    dotted = re.sub(r"\(.*\)$", "", token)
    first, _, rest = dotted.partition(".")
    if not rest:
        return first in defined() or first in modules() or place(first) is not None
    if first == PACKAGE:
        return any(has(source, rest) for source in modules()[PACKAGE])
    owner = INSTANCES.get(first, first)
    return any(has(source, f"{owner}.{rest}") for source in defined().get(owner, ())) or any(
        has(source, rest) for source in modules().get(first, ())
    )


def missing(text: str) -> list[str]:
    """Names between backticks that do not exist; fenced blocks are not looked at."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [token for token in re.findall(r"`([^`\n]+)`", prose) if not exists(token)]


def test_everything_that_is_named_exists() -> None:
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_the_page_has_the_headings_that_are_asked_for() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(HEADINGS) <= set(headings)


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert [t for t in targets if not t.startswith("http") and not (PAGE.parent / t).exists()] == []


@pytest.mark.parametrize(
    "token",
    [
        "runtime/values/gone.py",
        "session.py: Sessions",
        "session.py: Session.fly",
        "gone_name",
        "Session.fly",
        "session.fly()",
        "torch_ort_session.fly",
        "csrc/tape/replay.cpp: gone_name",
    ],
)
def test_what_does_not_exist_is_noticed(token: str) -> None:
    assert missing(f"See `{token}`.") == [token]


@pytest.mark.parametrize(
    "token",
    [
        "runtime/values/",
        "csrc/tape/replay.cpp",
        "session.py: Session.explain",
        "session.explain()",
        "torch_ort_session.load",
        "Session",
        "errors",
    ],
)
def test_what_exists_is_let_through(token: str) -> None:
    assert missing(f"See `{token}`.") == []
