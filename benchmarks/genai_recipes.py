"""What `genai.py` makes and compares: small networks with random weights, and the builders' forms of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Maker = Literal["builder", "optimum"]

_TEXT = {
    "vocab_size": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
_SPECIAL = {name: _TEXT[name] for name in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")}
WINDOW = 8
"""Positions that a layer with a sliding window sees."""


@dataclass(frozen=True)
class Network:
    """A network by its class and the class and options of its configuration, all of transformers."""

    model: str
    config: str
    options: Mapping[str, Any]


def _text(name: str, config: str = "", **options: Any) -> Network:
    return Network(f"{name}ForCausalLM", f"{config or name}Config", {**_TEXT, **options})


_SLIDING = {"sliding_window": WINDOW, "head_dim": 32, "layer_types": ["sliding_attention", "full_attention"]}

NETWORKS: Mapping[str, Network] = {
    "llama": _text("Llama", tie_word_embeddings=True),
    "llama3": _text(
        "Llama",
        tie_word_embeddings=False,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "qwen2": _text("Qwen2", tie_word_embeddings=False),
    "qwen3": _text("Qwen3", head_dim=32, tie_word_embeddings=True),
    "mistral": _text("Mistral", sliding_window=WINDOW, tie_word_embeddings=False),
    "gemma2": _text(
        "Gemma2",
        query_pre_attn_scalar=32,
        attn_logit_softcapping=20.0,
        final_logit_softcapping=10.0,
        **_SLIDING,
    ),
    "phi": _text("Phi", partial_rotary_factor=0.5, num_key_value_heads=4),
    "gptoss": _text("GptOss", num_local_experts=4, num_experts_per_tok=2, **_SLIDING),
    "granite": _text(
        "Granite",
        attention_multiplier=0.2,
        embedding_multiplier=2.0,
        residual_multiplier=0.5,
        logits_scaling=2.0,
    ),
    "nemotron": _text("Nemotron", partial_rotary_factor=0.5),
    "olmo": _text("Olmo", clip_qkv=4.0),
    "ernie": _text("Ernie4_5", head_dim=32),
    "hunyuan": _text("HunYuanDenseV1", head_dim=32),
    "lfm2": _text("Lfm2", layer_types=["conv", "full_attention"], conv_L_cache=3),
    "lfm2moe": _text(
        "Lfm2Moe",
        num_hidden_layers=3,
        layer_types=["conv", "full_attention", "conv"],
        conv_L_cache=3,
        num_dense_layers=1,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
    ),
    "gpt2": Network(
        "GPT2LMHeadModel",
        "GPT2Config",
        {**_SPECIAL, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 512},
    ),
    "bert": Network(
        "BertModel", "BertConfig", {k: v for k, v in _TEXT.items() if k != "num_key_value_heads"}
    ),
    "t5": Network(
        "T5ForConditionalGeneration",
        "T5Config",
        {**_SPECIAL, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4}
        | {"decoder_start_token_id": 2},
    ),
    "whisper": Network(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {**_SPECIAL, "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "num_mel_bins": 80}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_start_token_id": 2}
        | {"encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "max_target_positions": 64}
        | {"suppress_tokens": [], "begin_suppress_tokens": []},
    ),
    "vit": Network(
        "ViTForImageClassification",
        "ViTConfig",
        {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
        | {"image_size": 32, "patch_size": 8, "num_labels": 10},
    ),
}


@dataclass(frozen=True)
class Made:
    """One form of a network.

    Attributes:
        name: Of the row and the folder.
        maker: Who makes it.
        network: A key of `NETWORKS`.
        arguments: The builder's precision, execution provider and extra options; options of optimum's export.
        against: The model that onnxruntime runs in its place, where it has no CPU kernels for this one.
        tolerance: A key of `agreement.TOLERANCES`, or a number; what rounding to integers explains is added.
    """

    name: str
    maker: Maker
    network: str
    arguments: tuple[str, ...]
    against: str = ""
    tolerance: str | float = "float32"
    sizes: Mapping[str, int] = field(default_factory=dict)


def _built(name: str, precision: str, provider: str, *extra: str, **more: Any) -> Made:
    network = name.partition("-")[0]
    return Made(f"builder/{name}", "builder", network, (precision, provider, *extra), **more)


def _exported(name: str, *arguments: str, **more: Any) -> Made:
    return Made(f"optimum/{name}", "optimum", name.partition("-")[0], arguments, **more)


_PAST = ("--task", "text-generation-with-past")

MODELS: Sequence[Made] = (
    _built("llama-fp32", "fp32", "cpu"),
    _built("llama-fp32-hidden", "fp32", "cpu", "include_hidden_states=true"),
    _built("llama-int4", "int4", "cpu"),
    _built("llama-int4-level1", "int4", "cpu", "accuracy_level=1"),
    _built("llama-int4-block128", "int4", "cpu", "block_size=128"),
    _built("llama-int4-mixed", "int4", "cpu", "algo_config=k_quant_mixed"),
    _built("llama-int8", "int8", "cpu"),
    _built("llama-int8-asymmetric", "int8", "cpu", "is_symmetric=false"),
    _built("llama3-fp32-embeds", "fp32", "cpu", "exclude_embeds=true"),
    _built("llama3-int4-asymmetric", "int4", "cpu", "is_symmetric=false"),
    _built("llama3-int4-qdq", "int4", "cpu", "use_qdq=true"),
    _built("llama3-int4-qdq-asymmetric", "int4", "cpu", "use_qdq=true", "is_symmetric=false"),
    _built("llama-fp16", "fp16", "cuda", tolerance="half"),
    _built("llama-bf16", "bf16", "cuda", tolerance=3e-2),
    _built("llama-int4-fp16", "int4", "cuda", tolerance="half"),
    _built("llama-int4-bf16", "int4", "cuda", "use_cuda_bf16=true", tolerance=3e-2),
    _built("llama-int4-webgpu", "int4", "webgpu", tolerance="half"),
    _built("llama-int4-dml", "int4", "dml", tolerance="half"),
    _built("qwen2-int4", "int4", "cpu"),
    _built("qwen3-fp32", "fp32", "cpu"),
    _built("qwen3-int4", "int4", "cpu"),
    _built("qwen3-fp16", "fp16", "cuda", against="builder/qwen3-fp32", tolerance="half"),
    _built("mistral-fp32", "fp32", "cpu"),
    _built("mistral-int4", "int4", "cpu"),
    _built("gemma2-fp32", "fp32", "cpu"),
    _built("gemma2-int4", "int4", "cpu"),
    _built("phi-fp32", "fp32", "cpu"),
    _built("phi-int4", "int4", "cpu"),
    _built("gptoss-fp32", "fp32", "cpu"),
    _built("granite-int4", "int4", "cpu"),
    _built("nemotron-int4", "int4", "cpu"),
    _built("olmo-int4", "int4", "cpu"),
    _built("ernie-int4", "int4", "cpu"),
    _built("hunyuan-fp32", "fp32", "cpu"),
    _built("hunyuan-int4", "int4", "cpu"),
    _built("lfm2-fp32", "fp32", "cpu"),
    _built("lfm2-int4", "int4", "cpu"),
    _built("lfm2moe-fp32", "fp32", "cpu"),
    _built("lfm2moe-int4", "int4", "cpu"),
    _built("whisper-fp32", "fp32", "cpu"),
    _built("whisper-int4", "int4", "cpu"),
    _exported("bert", "--task", "feature-extraction"),
    _exported("bert-fused", "--task", "feature-extraction", "--optimize", "O2"),
    _exported("gpt2", *_PAST),
    _exported("gpt2-fused", *_PAST, "--optimize", "O3"),
    _exported("llama", *_PAST),
    _exported("llama-nopast", "--task", "text-generation"),
    _exported("qwen3", *_PAST),
    _exported("gemma2", *_PAST),
    _exported("t5", "--task", "text2text-generation-with-past"),
    _exported("whisper", "--task", "automatic-speech-recognition-with-past"),
    _exported("vit", "--task", "image-classification"),
)


def chosen(only: Sequence[str] | None) -> Iterator[Made]:
    """Models whose name has one of these texts in it, and what they are compared with; all when None."""
    wanted = {made.name for made in MODELS if not only or any(text in made.name for text in only)}
    wanted |= {made.against for made in MODELS if made.name in wanted}
    return (made for made in MODELS if made.name in wanted)
