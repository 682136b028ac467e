"""A decoder after an encoder, like T5's and Whisper's."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.microsoft.generation.decoder_inputs import (
    Extras,
    body_graph,
    buffered,
    empty_cache,
    input_names,
    made_by,
    spread,
    takes_one,
)


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
        graph, encoder = body_graph(ctx, "decoder"), body_graph(ctx, "encoder")
        if mask is None and source.dim() == 2:
            # Padding in front is out of sight; behind it may be the token that ends the source.
            mask = ((source != pad).cumsum(1) > 0).to(torch.int32)
        inputs = {
            "encoder_input_ids": source,
            "encoder_attention_mask": mask,
            "decoder_input_ids": forced.to(torch.int32),
        }
        names = input_names(encoder)
        unknown = [name for name in names if inputs.get(name) is None]
        if unknown:
            raise ValueError(f"the encoder has the input {unknown[0]}, which nothing is known of.")
        results = ctx.bodies["encoder"](*(inputs[name] for name in names), lend=len(encoder.outputs))
        outputs = [spread(each, beams) for each in made_by(results)]
        opened = encoder.outputs[0].name == "logits"
        self.text = spread(forced, beams).to(torch.int64)
        self.first = outputs[0] if opened else None
        names = input_names(graph)
        hidden = "encoder_hidden_states" in names
        before = {"encoder_attention_mask": None if mask is None else spread(mask, beams)}
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
        self.body = ctx.bodies["decoder"], takes_one(graph)
        self.fixed = [before[name] for name in names[1:heads]], caches[own if opened else 0 :]
        rows, device = self.text.shape[0], source.device
        length = capacity if self.extras.buffered else 0
        if not opened:
            self.past = [
                empty_cache(graph, heads + n, device, rows=rows, length=length, like=caches[0])
                for n in range(own)
            ]
        else:
            self.past = [buffered(cache, length) for cache in caches[:own]]

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
        logits, *caches = made_by(results)
        self.past = caches[: len(self.past)]
        return logits[:, -1]
