"""What `import torch_ort_session` brings along, what it offers, and what it leaves alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

from archrules import ROOT, Source, python_sources
from expecttest import assert_expected_inline

import torch_ort_session
from torch_ort_session.ops import native

HEAVY = (
    "onnxruntime",
    "onnx.reference",
    "onnx.backend",
    "torch.utils.cpp_extension",
    "torch._dynamo",
    "torch._inductor",
    "setuptools",
    "PIL",
    "expecttest",
)
ONE_SYSTEM_ONLY = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "winreg", "msvcrt", "_winapi"}

PROBE = """
import json, sys, torch
before = set(sys.modules)
{body}
loaded = globals().get("loaded", torch.ops.loaded_libraries)
libraries = [p for p in loaded if "torch_ort_session" in p or "tos_native" in p]
new = sorted(set(sys.modules) - before)
registered = hasattr(torch.ops.torch_ort_session, "abi_version")
print(json.dumps(dict(new=new, libraries=libraries, registered=registered)))
"""
RUN = """
import torch_ort_session
from onnx import TensorProto, helper
info = helper.make_tensor_value_info
graph = helper.make_graph(
    [helper.make_node("Add", ["x", "x"], ["y"])], "main",
    [info("x", TensorProto.FLOAT, [2])], [info("y", TensorProto.FLOAT, [2])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
session = torch_ort_session.load(model)
loaded = list(torch.ops.loaded_libraries)
assert session(torch.ones(2)).tolist() == [2, 2]
"""


def probe(body: str) -> dict[str, object]:
    """Run `body` behind an import of torch, with warnings as errors, and see what came of it."""
    code = PROBE.format(body=body)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "said": done.stderr}


def heavy(modules: object) -> list[str]:
    assert isinstance(modules, list)
    return [m for m in modules if any(m == h or m.startswith(h + ".") for h in HEAVY)]


def test_an_import_loads_nothing_heavy_and_nothing_compiled() -> None:
    found = probe("import torch_ort_session")
    assert "torch_ort_session" in str(found["new"])
    assert (heavy(found["new"]), found["said"]) == ([], "")
    assert (found["libraries"], found["registered"]) == ([], False)


def test_m22_a_run_loads_nothing_heavy_and_the_extension_with_its_session() -> None:
    found = probe(RUN)
    assert (heavy(found["new"]), found["said"]) == ([], "")
    usable = native.status().usable
    assert (len(found["libraries"]), found["registered"]) == (int(usable), usable)  # type: ignore[arg-type]


def test_the_probe_sees_what_it_looks_for() -> None:
    assert heavy(probe("import torch.utils.cpp_extension")["new"])


def test_the_names_offered() -> None:
    assert_expected_inline(
        "\n".join(torch_ort_session.__all__),
        """\
BackendReport
Binding
Bucket
CaptureError
DeclineReport
DeviceIndexError
DeviceValidationError
InputError
KernelError
Limits
ModelError
Options
Outputs
Plan
PlanError
Port
Session
SessionError
Snapshot
UnsupportedOpError
__version__
load""",
    )
    assert sorted(torch_ort_session.__all__) == list(torch_ort_session.__all__)
    assert all(hasattr(torch_ort_session, name) for name in torch_ort_session.__all__)


def test_the_version_has_one_source() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "torch_ort_session._version.__version__"
    }
    literals = [s.path for s in python_sources() if f'"{torch_ort_session.__version__}"' in s.text]
    assert literals == ["torch_ort_session/_version.py"]


def test_types_are_shipped() -> None:
    package = Path(torch_ort_session.__file__).parent
    assert (package / "py.typed").is_file()


def one_system_only(source: Source) -> list[str]:
    """Imports at the top of a file that exist on some systems only."""
    found = []
    for node in source.tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        found += [name for name in names if name.split(".")[0] in ONE_SYSTEM_ONLY]
    return found


def test_nothing_is_imported_that_exists_on_one_system_only() -> None:
    assert {s.path: one_system_only(s) for s in python_sources() if one_system_only(s)} == {}


def test_an_import_for_one_system_is_noticed() -> None:
    assert one_system_only(Source("torch_ort_session/a.py", "import fcntl")) == ["fcntl"]
    assert one_system_only(Source("torch_ort_session/a.py", "from resource import getrusage")) == ["resource"]
    assert one_system_only(Source("torch_ort_session/a.py", "def f():\n    import fcntl")) == []
