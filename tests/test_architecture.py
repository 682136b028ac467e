"""The rules of the package, checked on its sources; every rule is first shown a snippet that breaks it."""

from __future__ import annotations

import archrules
import hookrules
import kernelscan
import pytest
import roomrules
from archrules import PACKAGE, Finding, Rule, Source
from hookrules import HookRule
from roomrules import Tree, TreeRule

SOURCES = archrules.python_sources()
TREE = Tree(tuple(SOURCES))


def listed(findings: list[Finding]) -> str:
    return "\n".join(str(f) for f in findings)


def messages(rule: Rule, path: str, text: str) -> list[str]:
    return [f.message for f in rule(Source(path, text))]


@pytest.mark.parametrize("rule", archrules.RULES, ids=lambda rule: rule.__name__)
def test_package_keeps(rule: Rule) -> None:
    findings = [f for source in SOURCES for f in rule(source)]
    assert not findings, "\n" + listed(findings)


@pytest.mark.parametrize("rule", roomrules.TREE_RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps(rule: TreeRule) -> None:
    findings = list(rule(TREE))
    assert not findings, "\n" + listed(findings)


@pytest.mark.parametrize("rule", hookrules.HOOK_RULES, ids=lambda rule: rule.__name__)
def test_names_and_hooks_keep(rule: HookRule) -> None:
    findings = list(rule(SOURCES))
    assert not findings, "\n" + listed(findings)


def test_package_was_read() -> None:
    assert {"torch_ort_session/__init__.py", "torch_ort_session/_version.py"} <= {s.path for s in SOURCES}


def test_runtime_is_nine_rooms_of_few_files() -> None:
    files = [source.parts for source in SOURCES if source.parts[0] == "runtime" and not source.is_package]
    assert {parts[1] for parts in files} == set(roomrules.ROOMS["runtime"])
    assert len(files) <= 45


def test_a_session_names_few_things_of_the_runtime() -> None:
    names = [
        i.name for _, i in TREE.imported[f"{PACKAGE}.session"] if i.base.startswith(f"{PACKAGE}.runtime")
    ]
    assert 0 < len(names) <= 7, names


def test_kernels_read_no_data_on_the_host() -> None:
    findings = kernelscan.scan(SOURCES)
    assert not findings, "\n" + listed(findings)


def test_test_files_can_be_read() -> None:
    findings = [f for source in archrules.test_sources() for f in archrules.file_length(source)]
    assert not findings, "\n" + listed(findings)


def test_native_sources_keep_the_rules() -> None:
    sources = archrules.native_sources()
    assert sources
    findings = [f for source in sources for f in archrules.native_source(source)]
    assert not findings, "\n" + listed(findings)
    assert not archrules.duplicate_names([s.path for s in sources])


BAD = [
    (archrules.imports_point_left, "torch_ort_session/ir/a.py", "from torch_ort_session.ops import registry"),
    (archrules.imports_point_left, "torch_ort_session/ir/a.py", "from ..ops.registry import find"),
    (archrules.imports_point_left, "torch_ort_session/ir/__init__.py", "from ..plan import steps"),
    (archrules.imports_point_left, "torch_ort_session/errors.py", "from .ir import types"),
    (
        archrules.imports_point_left,
        "torch_ort_session/ops/onnx/m.py",
        "def f():\n    import torch_ort_session.runtime",
    ),
    (archrules.imports_point_left, "torch_ort_session/plan/a.py", "from torch_ort_session import load"),
    (archrules.imports_point_left, "torch_ort_session/plan/a.py", "import torch_ort_session"),
    (archrules.imports_point_left, "torch_ort_session/novel/a.py", "import math"),
    (archrules.onnx_only_in_ir, "torch_ort_session/ops/onnx/math.py", "import onnx"),
    (archrules.onnx_only_in_ir, "torch_ort_session/session.py", "from onnx import ModelProto"),
    (archrules.onnx_only_in_ir, "torch_ort_session/cli/compare.py", "import onnx"),
    (archrules.onnx_only_in_ir, "torch_ort_session/compat/onnxruntime.py", "import onnx.helper as h"),
    (archrules.no_oracles, "torch_ort_session/ir/load.py", "from onnx import reference"),
    (archrules.no_oracles, "torch_ort_session/compat/onnxruntime.py", "import onnxruntime"),
    (archrules.no_oracles, "torch_ort_session/cli/run.py", "importlib.import_module('onnxruntime')"),
    (
        archrules.cuda_graphs_only_in_record,
        "torch_ort_session/runtime/captures/capture.py",
        "g = torch.cuda.CUDAGraph()",
    ),
    (
        archrules.cuda_graphs_only_in_record,
        "torch_ort_session/session.py",
        "from torch.cuda import CUDAGraph",
    ),
    (archrules.environment_only_in_options, "torch_ort_session/cli/run.py", "x = os.environ['A']"),
    (archrules.environment_only_in_options, "torch_ort_session/session.py", "x = os.getenv('A')"),
    (archrules.environment_only_in_options, "torch_ort_session/ir/load.py", "from os import environ"),
    (archrules.print_only_in_cli, "torch_ort_session/session.py", "print(1)"),
    (archrules.no_evaluation, "torch_ort_session/ir/load.py", "eval('1')"),
    (archrules.no_evaluation, "torch_ort_session/ir/load.py", "def f():\n    exec('1')"),
    (archrules.no_star_imports, "torch_ort_session/ops/onnx/a.py", "from torch import *"),
    (archrules.extension_only_in_native, "torch_ort_session/session.py", "torch.ops.load_library(path)"),
    (
        archrules.extension_only_in_native,
        "torch_ort_session/session.py",
        "from torch_ort_session import _native",
    ),
    (
        archrules.extension_only_in_native,
        "torch_ort_session/cli/build.py",
        "from torch.utils import cpp_extension",
    ),
    (
        archrules.extension_only_in_native,
        "torch_ort_session/ops/onnx/a.py",
        "torch.ops.torch_ort_session.abi()",
    ),
    (archrules.file_length, "torch_ort_session/plan/memory/slots.py", "x = 1\n" * 801),
    (archrules.file_length, "tests/test_a.py", "x = 1\n" * 801),
    (archrules.file_length, "torch_ort_session/ops/onnx/math_2.py", ""),
    (archrules.native_source, "csrc/linear/gemv/gemv.cpp", "#include <torch/extension.h>\n"),
    (archrules.native_source, "csrc/linear/gemv/gemv.cpp", "PYBIND11_MODULE(a, m) {}\n"),
    (archrules.native_source, "csrc/linear/gemv/gemv.cpp", "\n" * 801),
]


@pytest.mark.parametrize(("rule", "path", "text"), BAD, ids=lambda v: getattr(v, "__name__", None))
def test_rule_refuses(rule: Rule, path: str, text: str) -> None:
    assert messages(rule, path, text)


GOOD = [
    (
        archrules.imports_point_left,
        "torch_ort_session/ops/onnx/a.py",
        "from ..common import b\nfrom ...ir import c",
    ),
    (archrules.imports_point_left, "torch_ort_session/__init__.py", "from .session import Session"),
    (
        archrules.imports_point_left,
        "torch_ort_session/cli/run.py",
        "import torch_ort_session as tos\nimport torch",
    ),
    (archrules.imports_point_left, "torch_ort_session/errors.py", "from torch_ort_session import _version"),
    (archrules.onnx_only_in_ir, "torch_ort_session/ir/load.py", "import onnx\nfrom onnx import defs"),
    (archrules.onnx_only_in_ir, "torch_ort_session/compat/backend.py", "import onnx"),
    (archrules.onnx_only_in_ir, "torch_ort_session/ops/math.py", "from .onnx import math\nimport onnxscript"),
    (archrules.no_oracles, "torch_ort_session/cli/compare.py", "import onnxruntime, onnx.reference"),
    (
        archrules.no_oracles,
        "torch_ort_session/cli/run.py",
        "from ..compat.onnxruntime import InferenceSession",
    ),
    (
        archrules.cuda_graphs_only_in_record,
        "torch_ort_session/runtime/recorders/cuda.py",
        "torch.cuda.CUDAGraph()",
    ),
    (archrules.environment_only_in_options, "torch_ort_session/options.py", "os.getenv('A')"),
    (archrules.print_only_in_cli, "torch_ort_session/cli/run.py", "print(1)"),
    (archrules.no_evaluation, "torch_ort_session/module.py", "module.eval()\nre.compile('a')"),
    (archrules.file_length, "torch_ort_session/ops/registry.py", "x = 1\n" * 800),
    (archrules.native_source, "csrc/tape/module.cpp", "PYBIND11_MODULE(a, m) {}\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), GOOD, ids=lambda v: getattr(v, "__name__", None))
def test_rule_allows(rule: Rule, path: str, text: str) -> None:
    assert not messages(rule, path, text)


def test_base_names_of_translation_units_are_unique() -> None:
    assert archrules.duplicate_names(["csrc/norm/a.cpp", "csrc/index/a.cu", "csrc/norm/a.cuh"]) == ["a"]


ROOM = f"{PACKAGE}.runtime.values"
PROMISE = f'"""{roomrules.PROMISES["runtime/values"]}"""\n'
OFFERED = f'{PROMISE}from {ROOM}.results import own\n__all__ = ["own"]\n'


def tree(files: dict[str, str]) -> Tree:
    return Tree(tuple(Source(f"{PACKAGE}/{path}", text) for path, text in files.items()))


def lines(count: int) -> str:
    return "    x = 1\n" * count


def rooms(count: int) -> dict[str, str]:
    names = roomrules.ROOMS["runtime"][:count]
    text = "".join(f"from {PACKAGE}.runtime import {name}\n" for name in names)
    return {"session.py": text, **{f"runtime/{name}/__init__.py": "" for name in names}}


BREACHES: list[tuple[TreeRule, dict[str, str]]] = [
    (roomrules.folders_stay_small, {f"plan/memory/{name}.py": "" for name in "abcdefghij"}),
    (roomrules.folders_stay_small, {f"runtime/{name}/a.py": "" for name in "abcdefghij"}),
    (roomrules.few_rooms_are_named, rooms(8)),
    (
        roomrules.rooms_in_order,
        {
            "runtime/values/a.py": f"from {PACKAGE}.runtime.engine import run",
            "runtime/engine/__init__.py": "",
        },
    ),
    (
        roomrules.rooms_in_order,
        {
            "runtime/values/a.py": f"if TYPE_CHECKING:\n    from {PACKAGE}.runtime.engine.run import Run",
            "runtime/engine/run.py": "",
        },
    ),
    (
        roomrules.rooms_in_order,
        {
            "plan/lowering/a.py": "def f():\n    from ..memory import slots",
            "plan/memory/slots.py": "",
        },
    ),
    (
        roomrules.rooms_in_order,
        {"plan/memory/a.py": f"from {PACKAGE}.plan.plan import Plan", "plan/plan.py": ""},
    ),
    (roomrules.rooms_in_order, {"runtime/cellar/a.py": ""}),
    (
        roomrules.no_circles,
        {"a.py": f"from {PACKAGE}.b import x", "b.py": f"def f():\n    import {PACKAGE}.a"},
    ),
    (
        roomrules.no_circles,
        {
            "a.py": "from .b import x",
            "b.py": "from .c import x",
            "c.py": "if TYPE_CHECKING:\n    from .a import x",
        },
    ),
    (roomrules.rooms_state_their_promise, {"runtime/values/__init__.py": '"""Things."""\n__all__ = []\n'}),
    (roomrules.rooms_state_their_promise, {"runtime/values/__init__.py": PROMISE}),
    (roomrules.rooms_state_their_promise, {"runtime/cellar/__init__.py": '"""Wine."""\n__all__ = []\n'}),
    (
        roomrules.rooms_state_their_promise,
        {"runtime/values/__init__.py": OFFERED.replace('["own"]', '["own", "lent"]')},
    ),
    (
        roomrules.rooms_are_imported_whole,
        {"session.py": f"from {ROOM}.results import own", "runtime/values/results.py": ""},
    ),
    (
        roomrules.rooms_are_imported_whole,
        {"runtime/engine/a.py": f"from {ROOM} import results", "runtime/values/results.py": ""},
    ),
    (
        roomrules.rooms_are_imported_whole,
        {
            "module.py": f"from {PACKAGE}.runtime.interpreter import compiled",
            "runtime/interpreter/compiled.py": "",
        },
    ),
    (
        roomrules.small_files_join,
        {"runtime/values/a.py": "x = 1\n", "runtime/values/b.py": f"from {ROOM}.a import x"},
    ),
    (
        roomrules.small_files_join,
        {
            "runtime/values/a.py": "x = 1\n",
            "runtime/values/b.py": f"from {ROOM}.a import x",
            "runtime/values/__init__.py": f"from {ROOM}.a import x",
        },
    ),
    (roomrules.functions_stay_short, {"ir/a.py": f"def f():\n{lines(61)}"}),
    (
        roomrules.functions_stay_short,
        {"ir/a.py": "class A:\n    async def f(self, a, b, c, d, *, e, g, h, i): ..."},
    ),
    (roomrules.functions_stay_short, {"ops/onnx/a.py": f"@kernel('Add')\ndef f():\n{lines(61)}"}),
    (roomrules.no_splatted_tuples, {"ir/a.py": "f(*(a, b))"}),
    (roomrules.no_splatted_tuples, {"ir/a.py": "def g():\n    parts = (a, b)\n    f(1, *parts)"}),
    (roomrules.state_has_a_lifetime, {"plan/a.py": "class A:\n    def f(self):\n        self.x = 1"}),
    (roomrules.state_has_a_lifetime, {"plan/a.py": "class A:\n    def f(self):\n        self.seen[1] = 1"}),
    (roomrules.state_has_a_lifetime, {"runtime/a.py": "@dataclass(slots=True)\nclass A:\n    x: int"}),
    (roomrules.state_has_a_lifetime, {"runtime/a.py": "@dataclass\nclass A:\n    x: int"}),
]


@pytest.mark.parametrize(("rule", "files"), BREACHES, ids=lambda v: getattr(v, "__name__", None))
def test_tree_rule_refuses(rule: TreeRule, files: dict[str, str]) -> None:
    assert [f.message for f in rule(tree(files))]


NEAR_MISSES: list[tuple[TreeRule, dict[str, str]]] = [
    (roomrules.folders_stay_small, {f"plan/memory/{name}.py": "" for name in ("__init__", *"abcdefghi")}),
    (roomrules.folders_stay_small, {f"cli/{name}.py": "" for name in "abcdefghij"}),
    (roomrules.few_rooms_are_named, rooms(7)),
    (
        roomrules.rooms_in_order,
        {"runtime/engine/a.py": f"from {ROOM} import own", "runtime/values/__init__.py": ""},
    ),
    (
        roomrules.rooms_in_order,
        {"plan/plan.py": f"from {PACKAGE}.plan.memory import pack", "plan/memory/__init__.py": ""},
    ),
    (
        roomrules.no_circles,
        {"a.py": "from .b import x", "b.py": "from .c import x", "c.py": "from .d import x"},
    ),
    (
        roomrules.no_circles,
        {
            "runtime/values/__init__.py": OFFERED,
            "runtime/values/results.py": f"from {ROOM}.feeds import x",
            "runtime/values/feeds.py": "",
        },
    ),
    (roomrules.rooms_state_their_promise, {"runtime/values/__init__.py": OFFERED}),
    (
        roomrules.rooms_state_their_promise,
        {"runtime/recorders/tape/__init__.py": '"""A folder of a room."""'},
    ),
    (
        roomrules.rooms_are_imported_whole,
        {
            "session.py": f"from {ROOM} import own",
            "runtime/values/__init__.py": OFFERED,
            "runtime/values/results.py": "",
        },
    ),
    (
        roomrules.rooms_are_imported_whole,
        {"runtime/values/a.py": f"from {ROOM}.results import own", "runtime/values/results.py": ""},
    ),
    (
        roomrules.rooms_are_imported_whole,
        {
            "module.py": f"def f():\n    from {PACKAGE}.runtime.interpreter import compiled",
            "runtime/interpreter/compiled.py": "",
        },
    ),
    (
        roomrules.small_files_join,
        {
            "runtime/values/a.py": "x = 1\n",
            "runtime/values/b.py": f"from {ROOM}.a import x",
            "runtime/values/__init__.py": f"from {ROOM}.a import x",
            "session.py": f"from {ROOM} import x",
        },
    ),
    (
        roomrules.small_files_join,
        {"runtime/values/a.py": "x = 1\n" * 100, "runtime/values/b.py": f"from {ROOM}.a import x"},
    ),
    (
        roomrules.functions_stay_short,
        {"ir/a.py": f'def f(a, b, c, d, e, g, h):\n    """Text."""\n{lines(60)}'},
    ),
    (roomrules.functions_stay_short, {"ops/onnx/a.py": "@kernel('Add')\ndef f(a, b, c, d, e, f, g, h): ..."}),
    (
        roomrules.functions_stay_short,
        {"ops/onnx/a.py": "def f(a, b, c, d, e, f, g, h): ...\nkernel('Add')(f)"},
    ),
    (
        roomrules.functions_stay_short,
        {"ops/native/a.py": "def describe():\n    use(_f)\ndef _f(a, b, c, d, e, f, g, h): ..."},
    ),
    (
        roomrules.no_splatted_tuples,
        {"ir/a.py": "def g(*parts):\n    f(1, *parts, *sizes(), *(x for x in parts))"},
    ),
    (roomrules.no_splatted_tuples, {"ir/a.py": "def g():\n    parts = (a, b)\ndef h(parts):\n    f(*parts)"}),
    (
        roomrules.state_has_a_lifetime,
        {"plan/a.py": '@dataclass\nclass A:\n    """Notes. Lives as long as\n    a run."""\n    x: int'},
    ),
    (
        roomrules.state_has_a_lifetime,
        {"plan/a.py": "@dataclass(frozen=True)\nclass A:\n    def f(self):\n        return self.x"},
    ),
    (roomrules.state_has_a_lifetime, {"plan/a.py": "class A:\n    def __init__(self):\n        self.x = 1"}),
    (roomrules.state_has_a_lifetime, {"ir/a.py": "class A:\n    def f(self):\n        self.x = 1"}),
]


@pytest.mark.parametrize(("rule", "files"), NEAR_MISSES, ids=lambda v: getattr(v, "__name__", None))
def test_tree_rule_allows(rule: TreeRule, files: dict[str, str]) -> None:
    assert not listed(list(rule(tree(files))))


NAMES_AND_HOOKS: list[tuple[HookRule, dict[str, str], dict[str, str]]] = [
    (
        hookrules.public_names_mean_one_thing,
        {"plan/a.py": "class Call: ...", "runtime/values/a.py": "Call = int"},
        {
            "plan/a.py": "class Call: ...",
            "runtime/values/a.py": f"from {PACKAGE}.plan.a import Call\n_Call = int",
        },
    ),
    (
        hookrules.hooks_have_callers,
        {"plan/a.py": "def f(x, mode=0): ...\nf(1)"},
        {"plan/a.py": "def f(x, mode=0): ...\nf(1, mode=2)"},
    ),
]


@pytest.mark.parametrize(
    ("rule", "breach", "near"), NAMES_AND_HOOKS, ids=lambda v: getattr(v, "__name__", None)
)
def test_name_and_hook_rules(rule: HookRule, breach: dict[str, str], near: dict[str, str]) -> None:
    assert len(list(rule(tree(breach).sources))) == 1
    assert not listed(list(rule(tree(near).sources)))


def test_an_exception_that_nothing_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(roomrules.LONG_FUNCTIONS, "ir/a.py: f", "it was long once")
    (finding,) = roomrules.functions_stay_short(tree({"ir/a.py": "def f(): ..."}))
    assert finding.message == "the exception 'ir/a.py: f' is not needed any more"
    assert not list(roomrules.functions_stay_short(tree({"ir/a.py": f"def f():\n{lines(61)}"})))
