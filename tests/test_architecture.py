"""The shape of the house, checked on the sources; every rule is first shown a snippet that breaks it."""

from __future__ import annotations

import archrules
import kernelscan
import pytest
from archrules import Finding, Rule, Source

SOURCES = archrules.python_sources()


def listed(findings: list[Finding]) -> str:
    return "\n".join(str(f) for f in findings)


def messages(rule: Rule, path: str, text: str) -> list[str]:
    return [f.message for f in rule(Source(path, text))]


@pytest.mark.parametrize("rule", archrules.RULES, ids=lambda rule: rule.__name__)
def test_package_keeps(rule: Rule) -> None:
    findings = [f for source in SOURCES for f in rule(source)]
    assert not findings, "\n" + listed(findings)


def test_package_was_read() -> None:
    assert {"torch_ort_session/__init__.py", "torch_ort_session/_version.py"} <= {s.path for s in SOURCES}


def test_kernels_read_no_data_on_the_host() -> None:
    findings = kernelscan.scan(SOURCES)
    assert not findings, "\n" + listed(findings)


def test_test_files_stay_small() -> None:
    findings = [f for source in archrules.test_sources() for f in archrules.file_size(source)]
    assert not findings, "\n" + listed(findings)


def test_native_sources_keep_the_rules() -> None:
    sources = archrules.native_sources()
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
    (archrules.file_size, "torch_ort_session/plan/memory/slots.py", "x = 1\n" * 401),
    (archrules.file_size, "torch_ort_session/ops/onnx/math.py", "x = 1\n" * 301),
    (archrules.file_size, "torch_ort_session/ops/common/math.py", "x = 1\n" * 301),
    (archrules.file_size, "tests/test_a.py", "x = 1\n" * 501),
    (archrules.file_size, "csrc/linear/gemv/gemv.cpp", "\n" * 401),
    (archrules.file_size, "torch_ort_session/ops/onnx/math_2.py", ""),
    (archrules.native_source, "csrc/linear/gemv/gemv.cpp", "#include <torch/extension.h>\n"),
    (archrules.native_source, "csrc/linear/gemv/gemv.cpp", "PYBIND11_MODULE(a, m) {}\n"),
    (archrules.native_source, "csrc/linear/gemv/gemv.cpp", "\n" * 401),
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
    (archrules.file_size, "torch_ort_session/ops/registry.py", "x = 1\n" * 400),
    (archrules.native_source, "csrc/tape/module.cpp", "PYBIND11_MODULE(a, m) {}\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), GOOD, ids=lambda v: getattr(v, "__name__", None))
def test_rule_allows(rule: Rule, path: str, text: str) -> None:
    assert not messages(rule, path, text)


def test_base_names_of_translation_units_are_unique() -> None:
    assert archrules.duplicate_names(["csrc/norm/a.cpp", "csrc/index/a.cu", "csrc/norm/a.cuh"]) == ["a"]


NINE = "abcdefghi"


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n" + "".join(f"    {c}: int\n" for c in NINE),
        "@dataclass\nclass A:\n" + "".join(f"    {c}: int = 0\n" for c in NINE),
        "class A:\n    def __init__(self):\n" + "".join(f"        self.{c} = 0\n" for c in NINE),
        "class A:\n    def set(self):\n        " + ", ".join(f"self.{c}" for c in NINE) + " = range(9)\n",
        f"class A:\n    __slots__ = {tuple(NINE)}\n",
        "class A:\n    rest: dict[str, Any]\n" + "".join(f"    {c}: int\n" for c in NINE[:6]),
        "class A:\n    def __init__(self):\n        self.rest: dict[str, object] = {}\n"
        + "".join(f"        self.{c} = 0\n" for c in NINE[:6]),
        "@dataclass(frozen=True)\nclass A:\n" + "".join(f"    {c}: int\n" for c in "abcdefghijklm"),
        "class A(NamedTuple):\n    rest: 'dict[str, Any]'\n"
        + "".join(f"    {c}: int\n" for c in "abcdefghij"),
    ],
)
def test_a_class_with_too_many_fields_is_refused(text: str) -> None:
    assert messages(archrules.class_fields, "torch_ort_session/session.py", text)


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    kind: ClassVar[int] = 1\n" + "".join(f"    {c}: int\n" for c in NINE[:8]),
        "@dataclass(frozen=True, slots=True)\nclass A:\n"
        + "".join(f"    {c}: int\n" for c in "abcdefghijkl"),
        "class A(enum.Enum):\n" + "".join(f"    {c}: int = 0\n" for c in NINE),
        "class A:\n    known: dict[str, Tensor]\n" + "".join(f"    {c}: int\n" for c in NINE[:7]),
    ],
)
def test_a_class_within_its_limits_passes(text: str) -> None:
    assert not messages(archrules.class_fields, "torch_ort_session/session.py", text)


def test_the_message_names_the_fields() -> None:
    text = "class A:\n    rest: dict[str, Any]\n" + "".join(f"    {c}: int\n" for c in NINE[:6])
    (message,) = messages(archrules.class_fields, "torch_ort_session/session.py", text)
    assert message == "class A has 9 fields, the limit is 8: rest (counts 3), a, b, c, d, e, f"
