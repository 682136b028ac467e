"""A scan of the kernels' sources for reads of tensor data on the host.

Such a read is invisible to a recording: it would bake one run's data into every replay. A kernel that needs
one says so with `seam=`. A helper that reads is reached from such kernels only; a helper that nothing with a
seam names is taken for one that any kernel may call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from archrules import PACKAGE, Finding, Source, dotted, imports

FAMILIES = ("ops/onnx/", "ops/microsoft/", "ops/ml/", "ops/common/")
STRINGS = "ops/common/strings.py"
"""Strings are numpy arrays on the host, so a step that moves them is never recorded; this file moves them."""
READS = frozenset(
    {"item", "tolist", "numpy", "cpu", "nonzero", "masked_select", "argwhere", "__array__", "__dlpack__"}
)
TORCH_READS = frozenset(
    {"nonzero", "masked_select", "argwhere", "unique", "unique_consecutive", "equal", "allclose"}
)
NUMPY_NAMES = frozenset({"np", "numpy"})
NUMPY_KINDS = frozenset({"dtype", "issubdtype", "iinfo", "finfo", "bool_", "object_", "str_"})
_FLOAT_MATHS = """
abs add arccos arccosh arcsin arcsinh arctan arctanh average ceil convolve cos cosh cross cumsum divide dot
einsum exp exp2 expm1 floor inner interp linspace log log10 log1p log2 matmul mean median multiply outer power
prod rint round sin sinh sqrt square std subtract sum tan tanh tensordot trapezoid true_divide var
"""
NUMPY_FLOAT_MATHS = frozenset(_FLOAT_MATHS.split())


@dataclass
class _Function:
    """A top-level function: the reads in it, the numpy in it, what it names, and what kernel says of it."""

    source: Source
    node: ast.AST
    seams: list[bool] = field(default_factory=list)
    refers: frozenset[str] = frozenset()


def scan(sources: list[Source]) -> list[Finding]:
    """Findings in the op families of `sources`, which are files of the package."""
    families = [s for s in sources if s.within(*FAMILIES) and not s.within(STRINGS)]
    functions = _functions(families)
    loose = _reached(functions, seam=False)
    sealed = _reached(functions, seam=True)
    findings: list[Finding] = []
    for name, function in sorted(functions.items()):
        is_sealed = name in sealed and name not in loose
        for line, what in _reads(function.node):
            if not is_sealed:
                findings.append(
                    Finding(function.source.path, line, f"{_short(name)} reads data on the host: {what}")
                )
        for line, what in _numpy_calls(function.node):
            if not is_sealed:
                findings.append(
                    Finding(function.source.path, line, f"{_short(name)} leaves torch for numpy: {what}")
                )
            elif what.split(".")[1] in NUMPY_FLOAT_MATHS:
                findings.append(
                    Finding(function.source.path, line, f"{_short(name)} does maths in numpy: {what}")
                )
    return findings


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _functions(sources: list[Source]) -> dict[str, _Function]:
    """Every top-level function and class of the families by dotted name, kernels marked."""
    found: dict[str, _Function] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[_free_name(found, f"{source.module}.{node.name}")] = _Function(source, node)
    for source in sources:
        scope = _scope(source)
        for name, function in found.items():
            if function.source is source:
                function.refers = frozenset(_references(function.node, scope)) - {name}
                function.seams = [_has_seam(call) for call in _kernel_decorators(function.node)]
        for call, argument in _kernel_applications(source.tree):
            for reference in _references(argument, scope):
                if reference in found:
                    found[reference].seams.append(_has_seam(call))
            if isinstance(argument, ast.Lambda):
                name = _free_name(found, f"{source.module}.<lambda line {argument.lineno}>")
                refers = frozenset(_references(argument, scope))
                found[name] = _Function(source, argument, [_has_seam(call)], refers)
    return found


def _free_name(found: dict[str, _Function], name: str) -> str:
    """A name of its own for a function that another of the same name shadows."""
    while name in found:
        name += "'"
    return name


def _scope(source: Source) -> dict[str, str]:
    """What a plain name at the top of the file stands for, as a dotted name."""
    scope: dict[str, str] = {}
    for item in imports(source):
        if item.name.startswith(PACKAGE):
            scope[item.name.rsplit(".", 1)[-1]] = item.name
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname and alias.name in scope:
                    scope[alias.asname] = scope[alias.name]
    for node in source.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            scope[node.name] = f"{source.module}.{node.name}"
    return scope


def _references(node: ast.AST, scope: dict[str, str]) -> Iterator[str]:
    body = node.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else [node]
    for part in body:
        for inner in ast.walk(part):
            if isinstance(inner, ast.Name) and inner.id in scope:
                yield scope[inner.id]
            elif isinstance(inner, ast.Attribute):
                head, _, rest = dotted(inner).partition(".")
                if head in scope:
                    yield f"{scope[head]}.{rest}"


def _kernel_decorators(node: ast.AST) -> list[ast.Call]:
    decorators = getattr(node, "decorator_list", [])
    return [d for d in decorators if isinstance(d, ast.Call) and dotted(d.func).split(".")[-1] == "kernel"]


def _kernel_applications(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """`kernel(...)(function)` written out, in a loop or over a factory's result."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and node.args:
            if dotted(node.func.func).split(".")[-1] != "kernel":
                continue
            yield node.func, node.args[0]


def _has_seam(call: ast.Call) -> bool:
    return any(
        k.arg == "seam" and not (isinstance(k.value, ast.Constant) and k.value.value in (None, ""))
        for k in call.keywords
    )


def _reached(functions: dict[str, _Function], *, seam: bool) -> set[str]:
    """Names of the kernels with (or without) a seam, and of all that they lead to."""
    todo = [name for name, f in functions.items() if seam in f.seams]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(r for r in functions[name].refers if r in functions)
    return seen


def _reads(node: ast.AST) -> Iterator[tuple[int, str]]:
    tensors = _tensor_parameters(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = dotted(inner.func)
            last = name.rsplit(".", 1)[-1]
            method = isinstance(inner.func, ast.Attribute)
            if (method and last in READS) or (name.startswith("torch.") and last in TORCH_READS):
                yield inner.lineno, f"{name}()"
            elif method and last == "to" and _names_cpu(inner):
                yield inner.lineno, f'{name}("cpu")'
            elif name == "torch.where" and len(inner.args) == 1:
                yield inner.lineno, "torch.where(condition) alone"
            elif name in {"int", "float", "bool"} and inner.args and dotted(inner.args[0]) in tensors:
                yield inner.lineno, f"{name}({dotted(inner.args[0])})"
        elif isinstance(inner, ast.Subscript) and _is_mask(inner.slice):
            yield inner.lineno, f"boolean mask {ast.unparse(inner)}"
        elif isinstance(inner, (ast.If, ast.IfExp, ast.While)) and dotted(inner.test) in tensors:
            yield inner.lineno, f"truth of {dotted(inner.test)}"


def _tensor_parameters(node: ast.AST) -> set[str]:
    """Parameters annotated as plain tensors: host inputs are lists of ints, optional ones may be tested."""
    if not isinstance(node, ast.FunctionDef):
        return set()
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return {
        a.arg for a in arguments if a.annotation and ast.unparse(a.annotation) in {"Tensor", "torch.Tensor"}
    }


def _names_cpu(call: ast.Call) -> bool:
    values = [*call.args, *(k.value for k in call.keywords if k.arg == "device")]
    return any(isinstance(v, ast.Constant) and v.value == "cpu" for v in values)


def _is_mask(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(p, ast.Compare) or (isinstance(p, ast.UnaryOp) and isinstance(p.op, ast.Invert))
        for p in parts
    )


def _numpy_calls(node: ast.AST) -> Iterator[tuple[int, str]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = dotted(inner.func)
            head, _, rest = name.partition(".")
            if head in NUMPY_NAMES and rest and rest.split(".")[0] not in NUMPY_KINDS:
                yield inner.lineno, name
