"""What bodies that are decoders declare of their inputs, and inputs of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Graph
from torch_ort_session.ir.types import TensorType
from torch_ort_session.ops.kernel import KernelContext, Value


class Extras:
    """Inputs that decoders with buffers of a fixed length have beside the others.

    Attributes:
        names: Names of those that the body has, in order.
        text: What the texts start with.
        beams: Texts a sample.
        capacity: Greatest length of a text.
    """

    def __init__(self, names: list[str], text: Tensor, beams: int, capacity: int) -> None:
        known = ("past_sequence_length", "beam_width", "cache_indirection")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"the decoder has the input {unknown[0]}, which nothing is known of.")
        self.names, self.text, self.beams, self.capacity = names, text, beams, capacity

    @property
    def buffered(self) -> bool:
        """Whether caches are buffers."""
        return "past_sequence_length" in self.names

    def values(self, done: int) -> list[Tensor]:
        """The inputs after so many tokens."""
        return [self._value(name, done) for name in self.names]

    def _value(self, name: str, done: int) -> Tensor:
        if name == "cache_indirection":
            # Caches are put in the order of the beams each step, so that each beam's rows are its own.
            own = torch.arange(self.beams, dtype=torch.int32, device=self.text.device)
            samples = self.text.shape[0] // self.beams
            return own.reshape(1, -1, 1).expand(samples, -1, self.capacity).contiguous()
        number = done if name == "past_sequence_length" else self.beams
        return torch.full((1,), number, dtype=torch.int32, device=self.text.device)


def body_graph(ctx: KernelContext, name: str) -> Graph:
    """The body of an attribute; a ValueError where the node has none."""
    graph = ctx.node.attributes.get(name)
    if not isinstance(graph, Graph):
        raise ValueError(f"the attribute {name} is missing.")
    return graph


def input_names(graph: Graph) -> list[str]:
    """Names of the formal inputs of a body."""
    return [value.name for value in graph.inputs]


def declared_dims(graph: Graph, place: int) -> tuple[int | str | None, ...]:
    """Dims that a body declares of an input; none where it declares no shape."""
    kind = graph.inputs[place].type
    return () if not isinstance(kind, TensorType) or kind.shape is None else tuple(kind.shape)


def takes_one(graph: Graph) -> bool:
    """Whether a body declares that it takes one token a call."""
    dims = declared_dims(graph, 0)
    return len(dims) == 2 and dims[1] == 1


def empty_cache(
    graph: Graph,
    place: int,
    device: torch.device,
    *,
    rows: int,
    length: int,
    batch_axis: int = 0,
    like: Tensor | None = None,
) -> Tensor:
    """An empty cache, as the body declares it: [.., rows, heads, length, size]."""
    dims, info = list(declared_dims(graph, place)), graph.inputs[place]
    if like is not None and len(dims) != like.dim():
        dims = list(like.shape)
    if like is not None:
        dims = [have if isinstance(have, int) else size for have, size in zip(dims, like.shape, strict=True)]
    if len(dims) != 4 + batch_axis:
        raise ValueError(f"the decoder does not declare the dims of {info.name}.")
    dims[batch_axis], dims[batch_axis + 2] = rows, length
    element = info.type.element.torch_dtype if isinstance(info.type, TensorType) else None
    sizes = [dim for dim in dims if isinstance(dim, int)]
    if element is None or len(sizes) != len(dims):
        raise ValueError(f"the decoder does not declare the heads, the size and the type of {info.name}.")
    return torch.zeros(sizes, dtype=element, device=device)


def buffered(cache: Tensor, length: int) -> Tensor:
    """A cache, as a buffer of a length where that is greater."""
    if length <= cache.shape[2]:
        return cache
    room = cache.new_zeros((*cache.shape[:2], length - cache.shape[2], cache.shape[3]))
    return torch.cat((cache, room), 2)


def spread(x: Tensor, beams: int) -> Tensor:
    """Rows of samples, repeated for each of their beams."""
    return x if beams == 1 else x.repeat_interleave(beams, 0)


def made_by(results: tuple[Value, ...]) -> list[Tensor]:
    """Results of a body, all of which are tensors; a ValueError where one is not."""
    for value in results:
        if not isinstance(value, Tensor):
            raise ValueError("a body of a search makes tensors only.")
    return [value for value in results if isinstance(value, Tensor)]
