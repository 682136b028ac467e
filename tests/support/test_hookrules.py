"""The rules on hooks and public names, on snippets: what they must refuse and what they must let through."""

from __future__ import annotations

import pytest
from archrules import PACKAGE, Source
from hookrules import SHARED_NAMES, UNPASSED, hooks_have_callers, public_names_mean_one_thing


def package(files: dict[str, str]) -> list[Source]:
    return [Source(f"{PACKAGE}/{path}", text) for path, text in files.items()]


BREACHES = {
    "a parameter": {"plan/a.py": "def f(x, mode=0): ...\nf(1)"},
    "a keyword": {"runtime/a/b.py": "def f(x, *, mode=0): ...\nf(1, other=2)\nf(*xs)"},
    "of a method": {"plan/a.py": "class A:\n    def f(self, x, mode=0): ...\nA().f(1)"},
    "of a static method": {"plan/a.py": "class A:\n    @staticmethod\n    def f(x, mode=0): ...\nA.f(1)"},
    "of a constructor": {"plan/a.py": "class A:\n    def __init__(self, mode=0): ...\nA()\nx: A"},
    "of either function": {"plan/a.py": "def f(x, mode=0): ...\ndef g(x, mode): ...\n(f if y else g)(1)"},
    "of a partial": {"plan/a.py": "def f(x, mode=0): ...\nfunctools.partial(f, 1)"},
    "by its own file alone": {"plan/a.py": "def f(x, mode=0): ...", "ir/b.py": "f(1)\ng(1, mode=2)"},
    "a field": {"plan/a.py": "@dataclass(frozen=True)\nclass A:\n    x: int\n    mode: int = 0\nA(1)"},
    "of a named tuple": {"plan/a.py": "class A(NamedTuple):\n    x: int\n    mode: int = 0\nA(1)"},
    "a method of a protocol": {"runtime/a.py": "class A(Protocol):\n    def f(self): ..."},
    "that is passed on": {
        "runtime/a.py": "class A(Protocol):\n    def f(self): ...\nclass B:\n    def f(self): self.a.f()"
    },
    "of a kernel": {
        "ops/kernel.py": "def kernel(op, *, state=''): ...",
        "ops/onnx/a.py": "@kernel('Add')\ndef f(x): ...",
    },
    "an option": {"options.py": "@dataclass\nclass Options:\n    fuse: bool = True\n\nx.fuse"},
}


@pytest.mark.parametrize("files", BREACHES.values(), ids=BREACHES)
def test_a_hook_without_a_caller_is_found(files: dict[str, str]) -> None:
    assert len(list(hooks_have_callers(package(files)))) == 1


KEPT = {
    "by place": {"plan/a.py": "def f(x, mode=0): ...", "session.py": "a.f(1, 2)"},
    "by name": {"plan/a.py": "def f(x, mode=0): ...", "cli/a.py": "f(1, mode=2)"},
    "opened": {"plan/a.py": "def f(x, mode=0): ...\nf(*xs)"},
    "opened by name": {"plan/a.py": "def f(x, *, mode=0): ...\nf(1, **xs)"},
    "handed on": {"plan/a.py": "def f(x, mode=0): ...\nuse(f)"},
    "through a subclass": {
        "plan/a.py": "class A:\n    def __init__(self, mode=0): ...",
        "plan/b.py": "class B(A):\n    def __init__(self):\n        super().__init__(1)",
    },
    "by its own class": {
        "plan/a.py": "class A:\n    def __init__(self, mode=0): ...\n    def f(cls):\n        return cls(1)"
    },
    "a field that is replaced": {
        "plan/a.py": "@dataclass\nclass A:\n    mode: int = 0\nreplace(a, mode=1)",
    },
    "a field that is state": {"plan/a.py": "@dataclass\nclass A:\n    runs: int = 0\na.runs += 1"},
    "a method that is called": {"plan/a.py": "class A(Protocol):\n    def f(self): ...", "ir/b.py": "x.f()"},
    "a method by its name": {
        "plan/a.py": "class A(Protocol):\n    def f(self): ...",
        "ir/b.py": "getattr(x, 'f')",
    },
    "elsewhere": {"ir/a.py": "def f(x, mode=0): ...\nf(1)"},
    "of a kernel": {
        "ops/kernel.py": "def kernel(op, *, state=''): ...",
        "ops/onnx/a.py": "@kernel('Add', state='x')\ndef f(x): ...",
    },
    "an option": {"options.py": "@dataclass\nclass Options:\n    fuse: bool = True", "session.py": "o.fuse"},
}


@pytest.mark.parametrize("files", KEPT.values(), ids=KEPT)
def test_a_hook_with_a_caller_is_none(files: dict[str, str]) -> None:
    assert [str(finding) for finding in hooks_have_callers(package(files))] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(): ...", "def f(): ..."),
        ("class A: ...", "A = int"),
        ("A: int = 1", "class A: ..."),
        ("a, A = 1, 2", "A, b = 1, 2"),
        ("if x:\n    A = 1", "A = 2"),
    ],
)
def test_a_name_of_two_meanings_is_found(one: str, other: str) -> None:
    found = list(public_names_mean_one_thing(package({"plan/a.py": one, "runtime/a/b.py": other})))
    assert len(found) == 1 and "plan/a.py" in found[0].message and "runtime/a/b.py" in found[0].message
    assert list(public_names_mean_one_thing(package({"plan/a.py": one, "ir/b.py": other}))) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(): ...", "from torch_ort_session.plan.a import f"),
        ("_a = 1", "_a = 2"),
        ("def f():\n    a = 1", "def g():\n    a = 1"),
        ("class A:\n    def f(self): ...", "def f(): ..."),
        ("a.b = 1", "a.b = 2"),
        ("a[A] = 1", "a[A] = 2"),
    ],
)
def test_a_name_of_one_meaning_is_none(one: str, other: str) -> None:
    assert list(public_names_mean_one_thing(package({"plan/a.py": one, "runtime/a/b.py": other}))) == []


def test_an_exception_that_is_not_needed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UNPASSED, "plan/a.py: f(mode)", "it stays")
    monkeypatch.setitem(SHARED_NAMES, "A", "they are alike")
    breach = {"plan/a.py": "A = 1\ndef f(x, mode=0): ...\nf(1)", "plan/b.py": "A = 2", "__init__.py": ""}
    clean = {"plan/a.py": "A = 1\ndef f(x): ...\nf(1)", "__init__.py": ""}
    for rule, name in ((hooks_have_callers, "f(mode)"), (public_names_mean_one_thing, "'A'")):
        needed = [finding.message for finding in rule(package(breach))]
        unneeded = [finding.message for finding in rule(package(clean))]
        assert not any(name in message for message in needed)
        assert any(name in message and "not needed" in message for message in unneeded)
