"""Bodies that are decoders, called token by token: with a prompt of their own, or after an encoder."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Graph
from torch_ort_session.ir.types import TensorType
from torch_ort_session.ops.kernel import Body, KernelContext, Value

_ENCODER_DECODERS = (1, 2)
"""Model types of which the decoder follows an encoder."""


class Decoder(Protocol):
    """A decoder on its way through texts.

    Attributes:
        text: int64 [R, S], what each text starts with.
    """

    text: Tensor

    def start(self) -> Tensor:
        """Scores [R, V] of the first new tokens, in memory that the next call may write."""
        ...

    def step(self, text: Tensor, order: Tensor | None) -> Tensor:
        """Scores [R, V] of the tokens after a text [R, L], in memory that the next call may write.

        Args:
            text: int64; its last token is new.
            order: int64 [R], the text of the step before that each goes on from; None for itself.
        """
        ...


def decoder_of(
    ctx: KernelContext,
    source: Tensor,
    mask: Tensor | None,
    forced: Tensor | None,
    *,
    beams: int,
    capacity: int,
) -> Decoder:
    """The decoder of a node of GreedySearch, Sampling or BeamSearch.

    Args:
        ctx: Context of the running kernel.
        source: [B, S], the prompt, or what the encoder reads.
        mask: int32 [B, S], 1 for what is in sight; None takes all but padding.
        forced: int32 [B, L], what texts start with where an encoder reads the source.
        beams: Texts a sample.
        capacity: Greatest length of a text.

    Raises:
        ValueError: Bodies that are missing, or of other inputs and outputs than such bodies have.
    """
    attributes = ctx.node.attributes
    kind, pad = attributes.get("model_type", 0), attributes["pad_token_id"]
    assert isinstance(pad, int)
    if kind == 0:
        if source.dim() != 2:
            raise ValueError(f"input_ids has {source.dim()} dims, not 2.")
        return PromptDecoder(ctx, source, mask, pad=pad, beams=beams, capacity=capacity)
    if kind not in _ENCODER_DECODERS:
        raise ValueError(f"model_type {kind} is none of 0, 1 and 2.")
    if forced is None:
        first = attributes.get("decoder_start_token_id", -1)
        if not isinstance(first, int) or first < 0:
            raise ValueError("an encoder and a decoder need decoder_start_token_id.")
        forced = torch.full((source.shape[0], 1), first, dtype=torch.int32, device=source.device)
    return SourceDecoder(ctx, source, mask, forced, pad=pad, beams=beams, capacity=capacity)


class PromptDecoder:
    """A decoder like GPT-2: of ids, positions, a mask and caches it makes scores and longer caches.

    A cache is [2, R, heads, length, size]; where the body has ``past_sequence_length`` it is a buffer of the
    greatest length, which the body fills.

    Attributes:
        text: int64 [R, S], the prompt.
        body: The body, and of the first step the other one, where there is one.
        places: Positions of the prompt.
        coming: int32 [R, 1], positions of the next tokens.
        mask: int32 [R, L].
        past: Caches.
        extras: Further inputs.
    """

    def __init__(
        self, ctx: KernelContext, prompt: Tensor, mask: Tensor | None, *, pad: int, beams: int, capacity: int
    ) -> None:
        graph = _graph(ctx, "decoder")
        layers = len(graph.outputs) - 1
        names = _names(graph)
        if layers < 1 or names[:3] != ["input_ids", "position_ids", "attention_mask"]:
            raise ValueError(
                "the decoder's inputs are not input_ids, position_ids, attention_mask and caches, "
                f"but {', '.join(names)}."
            )
        counted = prompt != pad
        if mask is None:
            mask = counted.to(torch.int32)
        elif mask.shape != prompt.shape:
            raise ValueError(
                f"attention_mask has shape {list(mask.shape)}, and input_ids {list(prompt.shape)}."
            )
        # Where padding stands the place is 0 whatever the mask says.
        places = torch.where(counted, counted.cumsum(1) - 1, 0).to(torch.int32)
        self.text = _spread(prompt, beams).to(torch.int64)
        self.body = ctx.bodies.get("init_decoder", ctx.bodies["decoder"]), ctx.bodies["decoder"]
        self.places = _spread(places, beams)
        self.coming = _spread(counted.sum(1, keepdim=True).to(torch.int32), beams)
        self.mask = _spread(mask, beams)
        self.extras = Extras(names[3 + layers :], self.text, beams, capacity)
        length = capacity if self.extras.buffered else 0
        self.past = [
            _cache(graph, 3 + n, prompt.device, rows=self.text.shape[0], length=length, batch_axis=1)
            for n in range(layers)
        ]

    def start(self) -> Tensor:
        """Scores of the first new tokens."""
        return self._call(self.body[0], self.text, self.places)

    def step(self, text: Tensor, order: Tensor | None) -> Tensor:
        """Scores of the tokens after a text."""
        self.mask = torch.cat((self.mask, torch.ones_like(self.mask[:, :1])), 1)
        if order is not None:
            self.past = [cache.index_select(1, order) for cache in self.past]
        places, self.coming = self.coming, self.coming + 1
        return self._call(self.body[1], text[:, -1:], places)

    def _call(self, body: Body, ids: Tensor, places: Tensor) -> Tensor:
        extras = self.extras.values(self.mask.shape[1] - ids.shape[1])
        results = body(ids.to(torch.int32), places, self.mask, *self.past, *extras, lend=1 + len(self.past))
        logits, *self.past = _tensors(results)
        return logits[:, -1]


class SourceDecoder:
    """A decoder after an encoder, like T5's: of a token, what the encoder made and caches it makes scores.

    The encoder may make the first step itself: then it is given the first tokens too, and its outputs are
    their scores, its hidden states, and all caches. Else it makes the caches of the source, and no other.

    Attributes:
        text: int64 [R, L], what the texts start with.
        body: The decoder, and whether it takes one token, rather than the text.
        fixed: Its inputs that stay as they are, before the caches and after them.
        past: Caches [R, heads, length, size] of the text.
        first: Scores after ``text``, where the encoder made them.
        extras: Further inputs.
    """

    def __init__(
        self,
        ctx: KernelContext,
        source: Tensor,
        mask: Tensor | None,
        forced: Tensor,
        *,
        pad: int,
        beams: int,
        capacity: int,
    ) -> None:
        graph, encoder = _graph(ctx, "decoder"), _graph(ctx, "encoder")
        if mask is None and source.dim() == 2:
            # Padding in front is out of sight; behind it may be the token that ends the source.
            mask = ((source != pad).cumsum(1) > 0).to(torch.int32)
        given = {
            "encoder_input_ids": source,
            "encoder_attention_mask": mask,
            "decoder_input_ids": forced.to(torch.int32),
        }
        names = _names(encoder)
        unknown = [name for name in names if given.get(name) is None]
        if unknown:
            raise ValueError(f"the encoder has the input {unknown[0]}, which nothing is known of.")
        made = ctx.bodies["encoder"](*(given[name] for name in names), lend=len(encoder.outputs))
        outputs = [_spread(each, beams) for each in _tensors(made)]
        opened = encoder.outputs[0].name == "logits"
        self.text = _spread(forced, beams).to(torch.int64)
        self.first = outputs[0] if opened else None
        names = _names(graph)
        hidden = "encoder_hidden_states" in names
        before = {"encoder_attention_mask": None if mask is None else _spread(mask, beams)}
        if opened:
            before["encoder_hidden_states"] = outputs[1]
        heads = 1
        while heads < len(names) and before.get(names[heads]) is not None:
            heads += 1
        own = sum("_self_" in name for name in names)
        crossed = sum("_cross_" in name for name in names)
        caches = outputs[2:] if opened else outputs
        if (hidden and not opened) or len(caches) != (own + crossed if opened else crossed):
            raise ValueError(
                f"the decoder's inputs {', '.join(names)} are not what the encoder makes: "
                f"{', '.join(value.name for value in encoder.outputs)}."
            )
        self.extras = Extras(names[heads + own + crossed :], self.text, beams, capacity)
        self.body = ctx.bodies["decoder"], _takes_one(graph)
        self.fixed = [before[name] for name in names[1:heads]], caches[own if opened else 0 :]
        rows, device = self.text.shape[0], source.device
        length = capacity if self.extras.buffered else 0
        if not opened:
            self.past = [
                _cache(graph, heads + n, device, rows=rows, length=length, like=caches[0]) for n in range(own)
            ]
        else:
            self.past = [_filled(cache, length) for cache in caches[:own]]

    def start(self) -> Tensor:
        """Scores of the first new tokens."""
        if self.first is not None:
            return self.first[:, -1]
        if not self.body[1]:
            return self._call(self.text, 0)
        for place in range(self.text.shape[1] - 1):
            self._call(self.text[:, place : place + 1], place)
        return self._call(self.text[:, -1:], self.text.shape[1] - 1)

    def step(self, text: Tensor, order: Tensor | None) -> Tensor:
        """Scores of the tokens after a text."""
        if order is not None:
            self.past = [cache.index_select(0, order) for cache in self.past]
        return self._call(text[:, -1:] if self.body[1] else text, text.shape[1] - 1)

    def _call(self, ids: Tensor, done: int) -> Tensor:
        before, after = self.fixed
        results = self.body[0](
            ids.to(torch.int32),
            *before,
            *self.past,
            *after,
            *self.extras.values(done),
            lend=1 + len(self.past),
        )
        logits, *caches = _tensors(results)
        self.past = caches[: len(self.past)]
        return logits[:, -1]


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


def _graph(ctx: KernelContext, name: str) -> Graph:
    graph = ctx.node.attributes.get(name)
    if not isinstance(graph, Graph):
        raise ValueError(f"the attribute {name} is missing.")
    return graph


def _names(graph: Graph) -> list[str]:
    return [value.name for value in graph.inputs]


def _dims(graph: Graph, place: int) -> tuple[int | str | None, ...]:
    kind = graph.inputs[place].type
    return () if not isinstance(kind, TensorType) or kind.shape is None else tuple(kind.shape)


def _takes_one(graph: Graph) -> bool:
    dims = _dims(graph, 0)
    return len(dims) == 2 and dims[1] == 1


def _cache(
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
    dims, info = list(_dims(graph, place)), graph.inputs[place]
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


def _filled(cache: Tensor, length: int) -> Tensor:
    """A cache, as a buffer of a length where that is greater."""
    if length <= cache.shape[2]:
        return cache
    room = cache.new_zeros((*cache.shape[:2], length - cache.shape[2], cache.shape[3]))
    return torch.cat((cache, room), 2)


def _spread(x: Tensor, beams: int) -> Tensor:
    return x if beams == 1 else x.repeat_interleave(beams, 0)


def _tensors(results: tuple[Value, ...]) -> list[Tensor]:
    for value in results:
        if not isinstance(value, Tensor):
            raise ValueError("a body of a search makes tensors only.")
    return [value for value in results if isinstance(value, Tensor)]
