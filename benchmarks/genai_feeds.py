"""Feeds of exported models, turn by turn: a prompt, then tokens behind the caches of the turn before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch

Array = np.ndarray[Any, np.dtype[Any]]
Feed = dict[str, torch.Tensor]

PROMPT, TOKENS = 7, 5
_SIZES = {"kv_cache_dim": 32, "num_channels": 3, "height": 32, "width": 32}
_ENCODED = 6
_PARTS = (("past_key_values", "present"), ("past_", "present_"), ("past.", "present."))


@dataclass(frozen=True)
class Ports:
    """What a model takes and gives.

    Attributes:
        inputs: Dtype and dims by name.
        outputs: Dims by name.
        pairs: Outputs by the input that they become in the next turn.
        grouped: Whether it has GroupQueryAttention: caches may be larger than what is valid of them, and
            shorter rows are padded behind.
        window: Places of caches that hold the last positions only; 0 where there are none.
    """

    inputs: Mapping[str, tuple[torch.dtype, tuple[int | str, ...]]]
    outputs: Mapping[str, tuple[int | str, ...]]
    pairs: Mapping[str, str]
    grouped: bool
    window: int

    @property
    def words(self) -> int:
        """How many words there are, as far as the model tells it."""
        last = self.outputs.get("logits", (500,))[-1]
        return last if isinstance(last, int) else 500

    @property
    def decodes(self) -> bool:
        """Whether it has caches."""
        return bool(self.pairs)


_DTYPES = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.BFLOAT16: torch.bfloat16,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.BOOL: torch.bool,
}


def ports_of(model: onnx.ModelProto) -> Ports:
    """Read them from a model."""

    def dims(info: onnx.ValueInfoProto) -> tuple[int | str, ...]:
        return tuple(dim.dim_param or int(dim.dim_value) for dim in info.type.tensor_type.shape.dim)

    inputs = {info.name: (_DTYPES[info.type.tensor_type.elem_type], dims(info)) for info in model.graph.input}
    outputs = {info.name: dims(info) for info in model.graph.output}
    named = {name: next((name.replace(*p) for p in _PARTS if p[0] in name), "") for name in inputs}
    pairs = {name: other for name, other in named.items() if other in outputs}
    groups = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    given = [{a.name: a.i for a in node.attribute} for node in groups]
    windows = (found["local_window_size"] for found in given if found.get("sliding_window_cache"))
    return Ports(inputs, outputs, pairs, bool(groups), max(windows, default=0))


@dataclass(frozen=True)
class Turn:
    """One run.

    Attributes:
        counts: New tokens of each row that are not padding.
        before: Tokens of each row that the caches hold.
        length: New tokens, with padding.
        past: Places of the caches that are fed.
        total: Places that the mask covers.
    """

    counts: tuple[int, ...]
    before: tuple[int, ...]
    length: int
    past: int
    total: int


def turns(rows: int, room: int | None, ports: Ports) -> Iterator[Turn]:
    """A prompt whose later rows are shorter, and tokens; without caches, runs of one size.

    Args:
        rows: Number of rows.
        room: Places of caches that keep their size; None for caches that grow.
        ports: What the model takes.
    """
    # onnxruntime takes no shorter rows before caches of a window.
    counts = tuple(PROMPT if ports.window else PROMPT - 3 * row for row in range(rows))
    decodes = ports.decodes
    before, places = (0,) * rows, 0
    for turn in range(1 + TOKENS):
        length = PROMPT if turn == 0 or not decodes else 1
        counts = counts if length > 1 else (1,) * rows
        # onnxruntime takes several rows of a prompt only where the mask ends with it.
        total = room if room and length == 1 else places + length
        yield Turn(counts, before, length, room or places, total)
        if decodes:
            before, places = tuple(map(sum, zip(before, counts, strict=True))), places + length


class Feeder:
    """Makes the feeds of a model.

    Attributes:
        ports: What it takes.
        rng: Where its numbers come from.
        lasting: Feeds that stay the same from turn to turn, such as what an encoder gave.
    """

    def __init__(self, ports: Ports, seed: int) -> None:
        self.ports = ports
        self.rng = np.random.default_rng(seed)
        self.lasting: Feed = {}

    def feed(self, turn: Turn, caches: Mapping[str, torch.Tensor]) -> Feed:
        """The feed of a turn, behind some caches; empty ones where there are none yet."""
        made: Feed = {}
        for name, (dtype, dims) in self.ports.inputs.items():
            shape = [self._size(dim, turn) for dim in dims]
            if name in self.ports.pairs:
                made[name] = caches.get(name, torch.zeros(shape, dtype=dtype))
            elif name in self.lasting:
                made[name] = self.lasting[name]
            else:
                made[name] = self._made(name, shape, turn).to(dtype)
                if name.startswith(("encoder", "past")):
                    self.lasting[name] = made[name]
        return made

    def _made(self, name: str, shape: list[int], turn: Turn) -> torch.Tensor:
        if name == "input_ids":
            return torch.from_numpy(self.rng.integers(3, self.ports.words, shape))
        if name == "attention_mask":
            return self._mask(turn, shape)
        if name == "position_ids":
            return self._positions(turn)
        if name == "use_cache_branch":
            return torch.tensor([turn.past > 0])
        if name.endswith(("attention_mask", "token_type_ids")):
            return torch.ones(shape) if name.endswith("mask") else torch.zeros(shape)
        return torch.from_numpy(self.rng.standard_normal(shape))

    def _mask(self, turn: Turn, shape: list[int]) -> torch.Tensor:
        """Ones for what is valid: in front where padding lies behind, and else at the end."""
        place, after = torch.arange(shape[1]), self._after(turn)
        if self.ports.grouped or not self.ports.decodes:
            return place < after
        return place >= shape[1] - after

    def _positions(self, turn: Turn) -> torch.Tensor:
        start = torch.tensor(turn.before)[:, None]
        pads = 0 if self.ports.grouped else turn.length - torch.tensor(turn.counts)[:, None]
        return (start + torch.arange(turn.length) - pads).clamp(min=0)

    def _after(self, turn: Turn) -> torch.Tensor:
        return torch.tensor([a + b for a, b in zip(turn.before, turn.counts, strict=True)])[:, None]

    def _size(self, dim: int | str, turn: Turn) -> int:
        if isinstance(dim, int):
            return dim
        if dim in _SIZES:
            return _SIZES[dim]
        if "batch" in dim:
            return len(turn.counts)
        if "sliding" in dim:
            return self.ports.window
        if "encoder" in dim and "decoder" not in dim:
            return _ENCODED
        if "+" in dim or dim.startswith("total"):
            return turn.total
        if dim.startswith("past"):
            return turn.past
        return turn.length

    def caches(self, fed: Feed, results: Mapping[str, torch.Tensor]) -> Feed:
        """What the next turn is fed; an output without elements says that its input stays as it was."""
        return {
            name: results[other] if results[other].numel() else fed[name]
            for name, other in self.ports.pairs.items()
        }

    def valid(self, name: str, value: torch.Tensor, turn: Turn) -> torch.Tensor:
        """The part of a result that is not made of padding, with zeros elsewhere."""
        dims = self.ports.outputs[name]
        if (len(turn.counts) == 1 and not self.ports.grouped) or value.dim() < 3 or not value.numel():
            return value
        keep = torch.ones(value.shape, dtype=torch.bool)
        for row, count in enumerate(turn.counts):
            if value.dim() == 3 and "sequence" in str(dims[1]):
                keep[row, slice(count, None) if self.ports.grouped else slice(0, turn.length - count)] = False
            elif name in self.ports.pairs.values() and value.dim() == 4:
                rest = turn.before[row] + count
                keep[row, :, slice(rest, None) if self.ports.grouped else slice(0, turn.total - rest)] = False
            elif count < turn.length:
                # A state that runs over the padding as well.
                keep[row] = False
        return value.where(keep, torch.zeros((), dtype=value.dtype))
