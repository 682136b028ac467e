"""Language and speech models of transformers, small and with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from exported_recipes import Made, spread
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache

VOCABULARY = 512


def ids(*shape: int) -> Tensor:
    return torch.randint(3, VOCABULARY, shape)


def padded(rows: int, length: int) -> Tensor:
    """A mask in which the second row starts with padding."""
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[1:2, : length // 3] = 0
    return mask


def cache_of(past: Sequence[Tensor]) -> DynamicCache:
    cache = DynamicCache()
    for layer in range(len(past) // 2):
        cache.update(past[2 * layer], past[2 * layer + 1], layer)
    return cache


def entries(cache: DynamicCache) -> list[Tensor]:
    return [entry for layer in cache.layers for entry in (layer.keys, layer.values)]


def past_names(layers: int, prefix: str) -> list[str]:
    return [f"{prefix}.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


class Growing(nn.Module):
    """A decoder whose cache grows: what came before goes in, that and what is new comes out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, *past: Tensor
    ) -> tuple[Tensor, ...]:
        found = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache_of(past),
            use_cache=True,
        )
        return (found.logits, *entries(found.past_key_values))


def language_model(family: str) -> nn.Module:
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
    )
    return spread(getattr(transformers, f"{family}ForCausalLM")(config))


def decoder(family: str) -> Made:
    model = language_model(family)
    layers = model.config.num_hidden_layers
    names = past_names(layers, "past_key_values")

    def feed(rows: int, length: int, before: int) -> dict[str, Tensor]:
        position = torch.arange(before, before + length).expand(rows, length).contiguous()
        past = {name: torch.randn(rows, 2, before, 32) for name in names}
        return {
            "input_ids": ids(rows, length),
            "attention_mask": padded(rows, before + length),
            "position_ids": position,
            **past,
        }

    sizes = {0: "batch", 1: "sequence"}
    dynamic = {"input_ids": sizes, "attention_mask": {0: "batch", 1: "total"}, "position_ids": sizes}
    return Made(
        Growing(model),
        [feed(2, 3, 5), feed(2, 1, 8), feed(2, 1, 9), feed(1, 6, 0)],
        ["logits", *past_names(layers, "present")],
        dynamic | {name: {0: "batch", 2: "past"} for name in names},
    )


class BufferCache:
    """A cache of fixed capacity as transformers sees one: new entries are written at their positions."""

    is_compileable = True
    is_sliding = (False,)
    layers = ()

    def __init__(self, past: Sequence[Tensor], position: Tensor) -> None:
        self.entries = list(past)
        self.position = position

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        for place, new in ((2 * layer, key), (2 * layer + 1, value)):
            self.entries[place] = self.entries[place].index_copy(2, self.position, new)
        return self.entries[2 * layer], self.entries[2 * layer + 1]

    def get_seq_length(self, *_: Any) -> Tensor:
        return self.position[0]

    def get_max_cache_shape(self, *_: Any) -> int:
        return self.entries[0].shape[2]

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        return self.entries[0].shape[2], 0


class Fixed(nn.Module):
    """A decoder with caches of fixed capacity; the mask follows from the positions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, cache_position: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        cache = BufferCache(past, cache_position)
        places = torch.arange(past[0].shape[2])
        found = self.model(
            input_ids=input_ids,
            attention_mask=(places[None, :] <= cache_position[:, None])[None, None],
            position_ids=cache_position[None],
            past_key_values=cache,
            use_cache=True,
            cache_position=cache_position,
        )
        return (found.logits, *cache.entries)


def fixed_decoder(capacity: int = 64) -> Made:
    model = language_model("Llama")
    layers = model.config.num_hidden_layers
    names = past_names(layers, "past_key_values")

    def feed(start: int) -> dict[str, Tensor]:
        past = {name: torch.randn(1, 2, capacity, 32) for name in names}
        return {"input_ids": ids(1, 1), "cache_position": torch.arange(start, start + 1), **past}

    return Made(
        Fixed(model), [feed(7), feed(8), feed(0), feed(63)], ["logits", *past_names(layers, "present")]
    )


class Call(nn.Module):
    """A model of transformers with plain tensors in and out."""

    def __init__(
        self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str], **options: Any
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.outputs = outputs
        self.options = options

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        found = self.model(**dict(zip(self.inputs, values, strict=True)), **self.options)
        return tuple(found[name] for name in self.outputs)


def bert() -> Made:
    model = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=256,
        )
    )

    def feed(rows: int, length: int) -> dict[str, Tensor]:
        kinds = (torch.arange(length) > length // 2).long().expand(rows, length).contiguous()
        return {
            "input_ids": ids(rows, length),
            "attention_mask": padded(rows, length),
            "token_type_ids": kinds,
        }

    feeds = [feed(2, 16), feed(1, 7), feed(3, 33)]
    outputs = ["last_hidden_state", "pooler_output"]
    dynamic = {name: {0: "batch", 1: "sequence"} for name in feeds[0]}
    return Made(Call(spread(model), list(feeds[0]), outputs), feeds, outputs, dynamic)


def t5() -> Made:
    model = spread(
        transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=VOCABULARY,
                d_model=128,
                d_ff=256,
                d_kv=32,
                num_layers=2,
                num_heads=4,
                feed_forward_proj="gated-gelu",
                # With scaled_dot_product_attention the exporter fails: torch.export keeps views of the layout
                # that the fused kernel gives, which its decomposition does not give.
                attn_implementation="eager",
            )
        )
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".q.weight"):
                # T5 does not scale its scores.
                weight.mul_(32**-0.5)

    def feed(rows: int, source: int, target: int) -> dict[str, Tensor]:
        return {
            "input_ids": ids(rows, source),
            "attention_mask": padded(rows, source),
            "decoder_input_ids": ids(rows, target),
        }

    feeds = [feed(2, 9, 5), feed(1, 4, 7), feed(3, 12, 2)]
    source = {0: "batch", 1: "source"}
    dynamic = {"input_ids": source, "attention_mask": source, "decoder_input_ids": {0: "batch", 1: "target"}}
    return Made(Call(model, list(feeds[0]), ["logits"], use_cache=False), feeds, ["logits"], dynamic)


def mamba() -> Made:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, state_size=8, use_mambapy=False
    )
    model = spread(transformers.MambaForCausalLM(config))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("A_log"):
                weight.copy_(torch.arange(1.0, weight.shape[1] + 1).log().expand_as(weight))
    feeds = [{"input_ids": ids(1, 16)} for _ in range(3)]
    return Made(Call(model, ["input_ids"], ["logits"], use_cache=False), feeds, ["logits"])


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=128,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        max_source_positions=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return spread(transformers.WhisperForConditionalGeneration(config))


def whisper_encoder() -> Made:
    feeds = [{"input_features": torch.randn(rows, 80, 200)} for rows in (2, 1, 3)]
    outputs = ["last_hidden_state"]
    encoder = Call(_whisper().model.encoder, ["input_features"], outputs)
    return Made(encoder, feeds, outputs, {"input_features": {0: "batch"}})


class CrossDecoder(nn.Module):
    """Whisper's decoder: its own cache grows, what it reads of the encoder is computed anew."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, decoder_input_ids: Tensor, encoder: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        position = torch.arange(decoder_input_ids.shape[1]) + past[0].shape[2]
        found = self.model.model.decoder(
            input_ids=decoder_input_ids,
            encoder_hidden_states=encoder,
            past_key_values=EncoderDecoderCache(cache_of(past), DynamicCache()),
            use_cache=True,
            position_ids=position[None],
        )
        cache = found.past_key_values.self_attention_cache
        return (self.model.proj_out(found.last_hidden_state), *entries(cache))


def whisper_decoder() -> Made:
    names = past_names(2, "past_key_values")

    def feed(rows: int, length: int, before: int) -> dict[str, Tensor]:
        past = {name: torch.randn(rows, 4, before, 32) for name in names}
        return {
            "decoder_input_ids": ids(rows, length),
            "encoder": torch.randn(rows, 100, 128),
            **past,
        }

    dynamic = {"decoder_input_ids": {0: "batch", 1: "sequence"}, "encoder": {0: "batch"}}
    return Made(
        CrossDecoder(_whisper()),
        [feed(2, 2, 5), feed(2, 1, 7), feed(2, 1, 8), feed(1, 4, 3)],
        ["logits", *past_names(2, "present")],
        dynamic | {name: {0: "batch", 2: "past"} for name in names},
    )
