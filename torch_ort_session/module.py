"""A session as a ``torch.nn.Module``: weights are Parameters and buffers, runs are differentiable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import nn

from torch_ort_session.errors import ModelError, UnsupportedOp, UnsupportedOpError
from torch_ort_session.ir.graph import Graph, Node, Weight
from torch_ort_session.ops import registry
from torch_ort_session.plan.lowering import is_small
from torch_ort_session.runtime.engine import Engine, ModuleRun

_TRAIN_OPS = ("BatchNormalization", "Dropout")
_TRAIN = "train mode is not supported for operators that behave differently in it:"
_EVAL = "Stay in eval mode: gradients flow there too, with the stored statistics and without dropout."


class SessionModule(nn.Module):
    """A model with weights of its own; made by :meth:`Session.module`.

    Names of initializers become names in the ``state_dict``, a dot opening a submodule, as torch's exporter
    wrote them. Float initializers are Parameters when the module is trainable; statistics of
    BatchNormalization, quantization scales and integers are buffers. What decides shapes is a buffer that
    cannot be changed. Constants, which have no name of their own, belong to the program and not to its state,
    unless the model has no float initializers: then its exporter wrote the weights as constants.
    """

    def __init__(self, engine: Engine, source: str, *, trainable: bool) -> None:
        super().__init__()
        self._engine = engine
        self._source = source
        self._paths: dict[str, str] = {}
        self._bound: dict[str, str] = {}
        self._run = ModuleRun(engine, ())
        on_host, statistics = _read_on_host(engine.graph), _statistics(engine.graph)
        for name, weight in _stored(engine.graph):
            if not isinstance(weight.data, torch.Tensor):
                continue
            bound = name in on_host or (is_small(weight) and not weight.data.is_floating_point())
            learnt = trainable and weight.element.is_float and not bound and name not in statistics
            data = weight.data.detach().clone().to(engine.device)
            paths = self._bound if bound else self._paths
            paths[name] = _register(self, name, data, learnt)
        self._run = ModuleRun(engine, tuple(self._paths))
        self.register_load_state_dict_post_hook(_check_bound)  # type: ignore[no-untyped-call]
        super().train(False)

    def train(self, mode: bool = True) -> Self:
        """Set train mode.

        Raises:
            UnsupportedOpError: The model has ops that behave differently in training (BatchNormalization,
                Dropout), which is not supported: gradients flow in eval mode too, with the stored statistics
                and without dropout.
        """
        if mode:
            refused = _train_ops(self._engine.graph)
            if refused:
                raise UnsupportedOpError(refused, heading=_TRAIN, advice=_EVAL)
        return super().train(mode)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run on positional inputs, keyword inputs or one mapping, with the module's current weights.

        Returns:
            The output of a model with one, else :class:`Outputs`; differentiable when grad mode is on and a
            Parameter or feed requires grad.
        """
        state = self._state()
        weights = [state[path] for paths in (self._paths, self._bound) for path in paths.values()]
        if not torch.compiler.is_dynamo_compiling():
            return self._run(weights, *args, **kwargs)
        from torch_ort_session.runtime.interpreter import compiled

        return compiled.call(self._run.handle, weights, *args, **kwargs)

    def _state(self) -> dict[str, torch.Tensor]:
        parameters = dict(self.named_parameters(remove_duplicate=False))
        return {**parameters, **dict(self.named_buffers(remove_duplicate=False))}

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        for value in self._state().values():
            moved = fn(torch.empty(0, dtype=value.dtype))
            if moved.dtype != value.dtype:
                raise TypeError(
                    f"the weights cannot become {moved.dtype}: the model declares {value.dtype} for them, "
                    "its inputs and its casts; convert the ONNX model and load that"
                )
        self._run.programs.clear()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        """The model it was made from."""
        return repr(self._source)


def _register(root: nn.Module, name: str, data: torch.Tensor, learnt: bool) -> str:
    """Put a weight under its name, a dot opening a submodule; returns its path in the ``state_dict``."""
    *scopes, leaf = [part or "_" for part in name.split(".")]
    owner = root
    path = []
    for scope in scopes:
        while (
            scope in owner._parameters
            or scope in owner._buffers
            or (scope not in owner._modules and hasattr(owner, scope))
        ):
            scope += "_"
        if scope not in owner._modules:
            owner.add_module(scope, nn.Module())
        path.append(scope)
        child = owner._modules[scope]
        assert child is not None
        owner = child
    while hasattr(owner, leaf):
        leaf += "_"
    if learnt:
        owner.register_parameter(leaf, nn.Parameter(data))
    else:
        owner.register_buffer(leaf, data)
    return ".".join((*path, leaf))


def _weights(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Weight]]:
    """Every weight under its qualified name, those of control-flow bodies included."""
    for name, weight in graph.initializers.items():
        yield prefix + name, weight
    for node in graph.nodes:
        for attribute, body in node.subgraphs():
            yield from _weights(body, f"{prefix}{node.name}/{attribute}/")


def _stored(graph: Graph) -> list[tuple[str, Weight]]:
    """The weights that are state rather than program."""
    weights = list(_weights(graph))
    if any(weight.name and weight.element.is_float for _, weight in weights):
        return [(name, weight) for name, weight in weights if weight.name]
    return [
        (name, weight)
        for name, weight in weights
        if weight.name or (weight.element.is_float and math.prod(weight.shape) > 1)
    ]


def _readers(
    graph: Graph, prefix: str = "", outer: dict[str, str] | None = None
) -> Iterator[tuple[Node, list[str]]]:
    """Every node with the qualified names of the weights at its inputs (empty where it is none)."""
    weights = {**(outer or {}), **{name: prefix + name for name in graph.initializers}}
    for node in graph.nodes:
        yield node, [weights.get(name, "") for name in node.inputs]
        for attribute, body in node.subgraphs():
            yield from _readers(body, f"{prefix}{node.name}/{attribute}/", weights)


def _read_on_host(graph: Graph) -> frozenset[str]:
    """Weights that a kernel wants as Python numbers: they decide shapes, and are bound once."""
    read: set[str] = set()
    for node, names in _readers(graph):
        kernel = registry.find(node.op, node.domain, node.since)
        params = () if kernel is None else kernel.signature.inputs
        read.update(name for param, name in zip(params, names, strict=False) if param.host and name)
    return frozenset(read)


def _check_bound(module: SessionModule, incompatible: object) -> None:
    """Refuse a state that changes what decides shapes."""
    state, weights = module._state(), dict(_weights(module._engine.graph))
    for name, path in module._bound.items():
        weight, value = weights[name].data, state[path]
        if isinstance(weight, torch.Tensor) and not value.is_meta and not torch.equal(value.cpu(), weight):
            raise ModelError(
                "the state changes it, and it is a part of the program: it decides shapes or indices; load a "
                "model that has the other value",
                place=f"weight {name!r}",
            )


def _statistics(graph: Graph) -> frozenset[str]:
    """Float weights that are no parameters in the source framework either."""
    statistics: set[str] = set()
    for node, names in _readers(graph):
        if node.op == "BatchNormalization":
            statistics.update(names[3:5])
        elif node.op in ("QuantizeLinear", "DequantizeLinear"):
            statistics.update(names[1:3])
    return frozenset(statistics)


def _train_ops(graph: Graph) -> list[UnsupportedOp]:
    nodes: dict[tuple[str, int], list[str]] = {}
    for node in graph.all_nodes():
        if node.op in _TRAIN_OPS and node.domain == "":
            nodes.setdefault((node.op, node.since), []).append(node.name)
    return [
        UnsupportedOp(op, "ai.onnx", since, tuple(names), reason="") for (op, since), names in nodes.items()
    ]
