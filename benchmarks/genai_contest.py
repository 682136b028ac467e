"""A model run here and by onnxruntime: node by node, captured, and bound, prompt and tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from genai_feeds import Feed, Feeder, Turn, ports_of, turns
from onnx import numpy_helper

import torch_ort_session as tos

ROOM = 20
"""Places of caches that keep their size."""

KINDS = ((1, None), (2, None), (1, ROOM), (2, ROOM))

ALIKE = 1e-5
"""How far captured runs of float32 may be from those node by node; narrower floats 100 times as far."""

Row = dict[str, Any]
Tensors = Mapping[str, torch.Tensor]


class Reference:
    """onnxruntime on the CPU, fed and read as torch tensors.

    Args:
        model: The model, serialized.
        level: What quantized matrices are multiplied with where the model does not say: 1 for float32.
    """

    def __init__(self, model: bytes, level: int | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        if level is not None:
            options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", str(level))
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._names = [port.name for port in self._session.get_outputs()]
        kinds = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16}
        self._dtypes = {port.name: kinds.get(port.type) for port in self._session.get_inputs()}

    def run(self, feed: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Results by name; feeds of a narrower dtype are widened to what it takes."""
        arrays = {}
        for name, value in feed.items():
            if name in self._dtypes:
                arrays[name] = value.to(self._dtypes[name] or value.dtype).numpy()
        results: Sequence[Any] = self._session.run(None, arrays)
        return dict(zip(self._names, map(torch.from_numpy, results), strict=True))


def widened(model: onnx.ModelProto) -> bool:
    """Have a model of bfloat16 compute with float32, on the same weights; says whether it was one."""
    narrow, wide = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    nodes = model.graph.node
    held = [attribute.t for node in nodes for attribute in node.attribute if attribute.name == "value"]
    changed = [tensor for tensor in (*model.graph.initializer, *held) if tensor.data_type == narrow]
    for tensor in changed:
        array = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type == narrow:
            info.type.tensor_type.elem_type = wide
    del model.graph.value_info[:]
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        if attribute.name == "to" and attribute.i == narrow:
            attribute.i = wide
    return bool(changed)


def exact(model: onnx.ModelProto) -> bool:
    """Have a model multiply quantized matrices with float32; says whether it did otherwise before."""
    changed = False
    for node in model.graph.node:
        changed |= node.op_type == "DequantizeLinear"
        for attribute in node.attribute:
            if node.op_type == "MatMulNBits" and attribute.name == "accuracy_level" and attribute.i != 1:
                attribute.i, changed = 1, True
    return changed


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference as a share of the largest magnitude of the second.

    It is infinite where forms differ, and where anything is not finite.
    """
    if one.shape != other.shape:
        return float("inf")
    if not other.numel():
        return 0.0
    a, b = one.double(), other.double()
    largest, apart = float(b.abs().max()), float((a - b).abs().max())
    if not math.isfinite(apart):
        return float("inf")
    return apart / largest if largest else apart


@dataclass
class Worst:
    """The largest distances of a model's results.

    Attributes:
        prompt: In runs of a prompt, from the reference.
        token: In runs of a token, from the reference.
        rounding: Between the reference and itself with float32 in place of integers.
        captured: Of captured and bound runs, from eager ones.
        seams: Why regions of the last run's plan are not recorded.
        reasons: What misses its bound.
    """

    prompt: float = 0.0
    token: float = 0.0
    rounding: float = 0.0
    captured: float = 0.0
    seams: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


class Contest:
    """One model, here and in onnxruntime.

    Args:
        path: The model.
        other: What onnxruntime runs: the same file, or another form of the same network.
        allowed: The bound of distances, without what rounding explains.

    Attributes:
        path: The model.
        ports: What it takes and gives.
        widened: Whether onnxruntime runs it in float32, for it has no kernels for bfloat16.
        theirs: What results should be.
        rounded: The same without integers; None where there are none.
        allowed: The bound, without what rounding explains.
        found: What was found.
        eager: Runs it node by node.
    """

    def __init__(self, path: Path, other: Path, allowed: float) -> None:
        self.path = path
        self.ports = ports_of(onnx.load(path, load_external_data=False))
        self.allowed = allowed
        self.found = Worst()
        self.eager = self._load("off")
        model = onnx.load(other)
        self.widened = widened(model)
        self.theirs = Reference(model.SerializeToString())
        self.rounded = Reference(model.SerializeToString(), level=1) if exact(model) else None

    def run(self, kinds: Sequence[tuple[int, int | None]] = KINDS) -> Row:
        """Decode in every way; what this came to.

        Args:
            kinds: Rows, and places of the caches, None where they grow; models without GroupQueryAttention
                have no other caches.
        """
        stats: dict[str, int] = {}
        for rows, room in kinds:
            if room and not self.ports.grouped:
                continue
            for name, count in self._decode(rows, room).items():
                stats[name] = stats.get(name, 0) + count
        found = self.found
        return {
            "prompt": found.prompt,
            "token": found.token,
            "rounding": found.rounding,
            "allowed": self.allowed,
            "widened": self.widened,
            "captured": found.captured,
            "seams": found.seams,
            "captures": stats["captures"],
            "replays": stats["replays"] + stats["growing runs replayed"],
            "ineligible": stats["growing runs ineligible"],
            "reasons": list(dict.fromkeys(found.reasons)),
        }

    def _decode(self, rows: int, room: int | None) -> dict[str, int]:
        eager, captured = self.eager, self._load("auto")
        binding = None
        feeder, caches = Feeder(self.ports, rows), {}
        for turn in turns(rows, room, self.ports):
            feed = feeder.feed(turn, caches)
            want = self.theirs.run(feed)
            ours = self._named(eager.run(None, feed))
            self._compare(feeder, turn, ours, want, feed)
            self._alike("captured", feeder, turn, self._named(captured.run(None, feed)), ours)
            if room:
                binding = binding or self._bound(feed)
                self._run_bound(binding, feed, feeder, turn, eager)
            caches = feeder.caches(feed, {name: self._narrow(name, value) for name, value in want.items()})
        self.found.seams = [region.message for region in captured.plan(feed).seams]
        stats = captured.stats()
        if room and not stats["replays"]:
            self.found.reasons.append("tokens behind caches of fixed size were not replayed")
        return stats

    def _load(self, capture: Any) -> tos.Session:
        return tos.load(self.path, options=tos.Options(capture=capture, num_threads=1))

    def _named(self, results: Sequence[torch.Tensor]) -> Tensors:
        return dict(zip(self.ports.outputs, results, strict=True))

    def _narrow(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A result as the cache that it becomes."""
        into = [past for past, present in self.ports.pairs.items() if present == name]
        return value.to(self.ports.inputs[into[0]][0]) if into else value

    def _compare(self, feeder: Feeder, turn: Turn, ours: Tensors, want: Tensors, feed: Feed) -> None:
        other = self.rounded.run(feed) if self.rounded is not None else want
        error = rounding = 0.0
        for name, value in ours.items():
            expected = feeder.valid(name, want[name], turn)
            error = max(error, distance(feeder.valid(name, value, turn), expected))
            rounding = max(rounding, distance(feeder.valid(name, other[name], turn), expected))
        found = self.found
        found.rounding = max(found.rounding, rounding)
        if turn.length > 1:
            found.prompt = max(found.prompt, error)
        else:
            found.token = max(found.token, error)
        # One tie in the 8 bits of a row moves a result as far as rounding does: of olmo-int4's 16 turns 15
        # are onnxruntime's to five digits, and one is 1.1 x its rounding away.
        if not error <= self.allowed + 1.5 * rounding:
            what = f"{len(turn.counts)} rows of {turn.length} behind {turn.past}"
            found.reasons.append(f"{what}: error {error:.2g}, {rounding:.2g} of it explained")

    def _alike(self, what: str, feeder: Feeder, turn: Turn, ours: Tensors, eager: Tensors) -> None:
        for name, value in ours.items():
            apart = distance(feeder.valid(name, value, turn), feeder.valid(name, eager[name], turn))
            self.found.captured = max(self.found.captured, apart)
            if not apart <= (ALIKE if value.dtype is torch.float32 else 100 * ALIKE):
                self.found.reasons.append(f"{what} runs are {apart:.2g} from eager ones in {name}")

    def _bound(self, feed: Feed) -> tos.Binding:
        binding = self._load("auto").bind()
        for past, present in self.ports.pairs.items():
            binding.state(past, present, feed[past].clone())
        return binding

    def _run_bound(
        self, binding: tos.Binding, feed: Feed, feeder: Feeder, turn: Turn, eager: tos.Session
    ) -> None:
        """A turn that goes on from the binding's own caches, beside an eager run on copies of them."""
        others = {name: value for name, value in feed.items() if name not in self.ports.pairs}
        states = {past: binding.read(past) for past in self.ports.pairs}
        binding.run(others)
        ours = {name: binding.read(name) for name in self.ports.outputs}
        self._alike("bound", feeder, turn, ours, self._named(eager.run(None, {**others, **states})))
