"""Small models written in ONNX's own text form."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import torch_ort_session as tos
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import Kernel, kernel, kernels_of

OPSET = 21


def model(
    text: str, *, opset: int = OPSET, ir: int = 10, weights: dict[str, Any] | None = None
) -> onnx.ModelProto:
    """A model from ``name (inputs) => (outputs) <weights> { nodes }``, more weights from numpy or torch."""
    header = f'<ir_version: {ir}, opset_import: ["" : {opset}, "tests" : 1]>\n'
    proto = onnx.parser.parse_model(header + text)
    for name, value in (weights or {}).items():
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def load(text: str, **kwargs: Any) -> tos.Session:
    """A session on a model of :func:`model`."""
    return tos.load(model(text, **kwargs))


def message(error: type[BaseException], call: Callable[[], Any]) -> str:
    """The text of the error that a call raises, its long lines wrapped."""
    with pytest.raises(error) as caught:
        call()
    return wrapped(str(caught.value))


def wrapped(text: str) -> str:
    """Text whose lines fit into a source file; no word is broken."""
    fill = functools.partial(textwrap.fill, width=96, break_long_words=False, break_on_hyphens=False)
    return "\n".join(
        fill(line, subsequent_indent=" " * (len(line) - len(line.lstrip()))) for line in text.split("\n")
    )


@contextmanager
def operator(*functions: Callable[..., Any]) -> Iterator[None]:
    """Kernels of the domain ``tests``, known while the context lasts."""
    extra: dict[str, Kernel] = {k.op: k for fn in functions for k in kernels_of(fn)}
    find = registry.find

    def found(op: str, domain: str, since: int) -> Kernel | None:
        return extra.get(op) if domain == "tests" else find(op, domain, since)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "find", found)
        yield


def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of the domain ``tests`` named as its function."""
    return kernel(fn.__name__, since=(1,), domain="tests")(fn)
