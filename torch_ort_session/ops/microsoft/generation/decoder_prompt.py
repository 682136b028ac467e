"""A decoder that is given the prompt, like GPT-2."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import Body, KernelContext
from torch_ort_session.ops.microsoft.generation.decoder_inputs import (
    Extras,
    body_graph,
    empty_cache,
    input_names,
    made_by,
    spread,
)


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
        graph = body_graph(ctx, "decoder")
        layers = len(graph.outputs) - 1
        names = input_names(graph)
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
        self.text = spread(prompt, beams).to(torch.int64)
        self.body = ctx.bodies.get("init_decoder", ctx.bodies["decoder"]), ctx.bodies["decoder"]
        self.places = spread(places, beams)
        self.coming = spread(counted.sum(1, keepdim=True).to(torch.int32), beams)
        self.mask = spread(mask, beams)
        self.extras = Extras(names[3 + layers :], self.text, beams, capacity)
        length = capacity if self.extras.buffered else 0
        self.past = [
            empty_cache(graph, 3 + n, prompt.device, rows=self.text.shape[0], length=length, batch_axis=1)
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
        logits, *self.past = made_by(results)
        return logits[:, -1]
