"""ONNX's own backend interface over a session, so that its test suite and its users can run on it.

Source: https://onnx.ai/onnx/api/backend.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep, Device, DeviceType, namedtupledict

from torch_ort_session.errors import InputError
from torch_ort_session.ir.infer import element_types
from torch_ort_session.ir.types import (
    ElementType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    element_type_of,
)
from torch_ort_session.options import Options
from torch_ort_session.session import Session, load


class PreparedModel(BackendRep):
    """A model made ready by :meth:`Backend.prepare`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run on numpy inputs, in order or by name.

        Args:
            inputs: One array, a sequence of arrays in the order of the model's inputs, or a mapping by name.
            **kwargs: Ignored, as the interface asks.

        Returns:
            Numpy arrays (lists of them for sequences) in the order of the model's outputs, as a named tuple.
        """
        names = [port.name for port in self.session.inputs]
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        else:
            if isinstance(inputs, np.ndarray) and len(names) == 1:
                inputs = [inputs]
            if len(inputs) > len(names):
                raise ValueError(f"{len(inputs)} inputs were given, the model takes {len(names)}")
            feed = dict(zip(names, inputs, strict=False))
        results = self.session.run(None, feed)
        fields = [port.name for port in self.session.outputs]
        kinds = [
            port.type or self._inferred(port.name, value)
            for port, value in zip(self.session.outputs, results, strict=True)
        ]
        arrays = [as_numpy(value, kind) for value, kind in zip(results, kinds, strict=True)]
        named: tuple[Any, ...] = namedtupledict("Outputs", fields)(*arrays)
        return named

    def _inferred(self, name: str, value: Any) -> ValueType | None:
        """The type of an output that the model does not declare, as far as schemas tell it."""
        element = element_types(self.session.graph).get(name)
        if element is None:
            return None
        return SequenceType(TensorType(element)) if isinstance(value, tuple) else TensorType(element)


class Backend(OnnxBackend):
    """``onnx.backend.base.Backend`` over :func:`torch_ort_session.load`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of the model has a kernel."""
        try:
            load(model, device=_torch_device(device))
        except (ValueError, NotImplementedError):
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Load a model.

        Args:
            model: A ``ModelProto``, or whatever :func:`torch_ort_session.load` takes.
            device: ``"CPU"``, ``"CUDA"`` or ``"CUDA:n"``.
            **kwargs: ``base_dir`` and ``options`` are handed to ``load``; others are ignored.
        """
        options = kwargs.get("options")
        return PreparedModel(
            load(
                model,
                device=_torch_device(device),
                options=options if isinstance(options, Options) else None,
                base_dir=kwargs.get("base_dir"),
            )
        )

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Load and run a model once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node on numpy inputs.

        Args:
            node: The node.
            inputs: Values in the order of the node's inputs, those left out skipped, or by name, or the one
                array there is. A list among them is a sequence, None an absent optional.
            device: As in :meth:`prepare`.
            outputs_info: Numpy dtype and shape of each output, where schemas cannot tell its type.
            **kwargs: ``opset_version`` and, for another domain, ``domain_version``, each the newest if it
                is not given; others as in ``prepare``.
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        values = [inputs[name] for name in names] if isinstance(inputs, Mapping) else list(inputs)
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        for info, (dtype, shape) in zip(outputs, outputs_info or (), strict=False):
            info.CopyFrom(_tensor_info(info.name, np.dtype(dtype), shape))
        infos = [_value_info(name, value) for name, value in zip(names, values, strict=True)]
        graph = onnx.helper.make_graph([node], "run_node", infos, outputs)
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        opsets = [onnx.helper.make_opsetid("", version)]
        if node.domain not in ("", "ai.onnx"):
            known = onnx.defs.has(node.op_type, node.domain)
            newest = onnx.defs.get_schema(node.op_type, node.domain).since_version if known else 1
            opsets.append(onnx.helper.make_opsetid(node.domain, kwargs.pop("domain_version", newest)))
        # Without onnx's shape inference, which can end the process on a node that is not well made.
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, values, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a session can run on ``"CPU"``, ``"CUDA"`` or ``"CUDA:n"`` here."""
        try:
            kind = _torch_device(device)
        except InputError:
            return False
        if kind.type == "cpu":
            return True
        return torch.cuda.is_available() and (kind.index or 0) < torch.cuda.device_count()


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device


def _torch_device(device: str) -> torch.device:
    try:
        kind = Device(device)
        return torch.device("cpu") if kind.type == DeviceType.CPU else torch.device("cuda", kind.device_id)
    except (AttributeError, ValueError, RuntimeError) as error:
        text = f"device {device!r} is not supported; use 'CPU', 'CUDA' or 'CUDA:n'"
        raise InputError(text, name="device", got=device) from error


def _value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    if value is None:
        inner = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        return onnx.helper.make_value_info(name, onnx.helper.make_optional_type_proto(inner))
    if isinstance(value, list):
        first = np.asarray(value[0]) if value else np.zeros((), np.float32)
        item = onnx.helper.make_tensor_type_proto(_code(first.dtype), None)
        return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(item))
    array = np.asarray(value)
    return _tensor_info(name, array.dtype, array.shape)


def _tensor_info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, _code(dtype), shape)


def _code(dtype: np.dtype[Any]) -> int:
    if dtype.kind in "OUST":
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype))


def as_numpy(value: Any, kind: ValueType | None = None) -> Any:
    """A run's result as numpy: lists for sequences, ml_dtypes arrays for types that numpy lacks.

    Args:
        value: A tensor, tuple, object array or None.
        kind: Its ONNX type, which tells int4 from int8; None takes the tensor's own dtype.
    """
    if isinstance(kind, OptionalType):
        return None if value is None else as_numpy(value, kind.item)
    if isinstance(value, tuple):
        item = kind.item if isinstance(kind, SequenceType) else None
        return [as_numpy(each, item) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    declared = kind.element if isinstance(kind, TensorType) else ElementType.UNDEFINED
    element = declared if declared.torch_dtype == value.dtype else element_type_of(value.dtype)
    host = value.detach().cpu()
    dtype = onnx.helper.tensor_dtype_to_np_dtype(int(element))
    if element in _BITS:
        return host.contiguous().view(_BITS[element]).numpy().view(dtype).reshape(tuple(host.shape))
    if element is ElementType.FLOAT4E2M1:
        return host.to(torch.float32).numpy().astype(dtype)
    return host.numpy().astype(dtype) if element.is_packed else host.numpy()


_BITS = {
    ElementType.BFLOAT16: torch.uint16,
    ElementType.FLOAT8E4M3FN: torch.uint8,
    ElementType.FLOAT8E4M3FNUZ: torch.uint8,
    ElementType.FLOAT8E5M2: torch.uint8,
    ElementType.FLOAT8E5M2FNUZ: torch.uint8,
    ElementType.FLOAT8E8M0: torch.uint8,
}
