"""Models to export, with random weights and inputs of several sizes: the table `RECIPES`.

Imported by exported_make.py, in a Python that has what a recipe needs (`Recipe.needs`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

OPSETS = tuple(range(18, 25))
TORCHSCRIPT = (13, 17, 18, 20)


@dataclass(frozen=True)
class Made:
    """A module and how it is exported.

    Attributes:
        module: What is exported.
        feeds: Inputs by name, in the order of `forward`; the first is the example that is exported with.
        outputs: Names of the outputs.
        dynamic: Of inputs by name, what sizes are called that may change.
        training: Whether it is exported in training mode.
    """

    module: nn.Module
    feeds: Sequence[Mapping[str, Tensor]]
    outputs: Sequence[str]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    training: bool = False


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Attributes:
        build: `MODULE:FUNCTION`, beside this file, and what is given to the function.
        needs: Packages beside torch, onnx and onnxscript.
        exporter: "dynamo", "torchscript", or "scripted" for a module that goes through torch.jit.script.
        opsets: The ones it is exported at by default.
        refused: Those of them that the exporter cannot produce, with words of its error that say why.
        after: What onnxruntime's tools make of the exported model.
        tolerance: The largest error, relative to the largest magnitude of an output.
        nodes: Whether each node is compared alone too, on the inputs that onnxruntime gives it: for models
            that amplify rounding, whose outputs say little.
    """

    build: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs: Sequence[str] = ()
    exporter: str = "dynamo"
    opsets: Sequence[int] = OPSETS
    refused: Mapping[int, str] = field(default_factory=dict)
    after: str = ""
    tolerance: float = 1e-4
    nodes: bool = False

    def make(self) -> Made:
        """The module, with the same weights and inputs every time."""
        where, name = self.build.split(":")
        torch.manual_seed(0)
        build: Callable[..., Made] = getattr(importlib.import_module(where), name)
        made = build(**self.arguments)
        made.module.train(made.training)
        return made


def spread(module: nn.Module) -> nn.Module:
    """Give a module weights at which activations neither vanish nor explode."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() >= 2 and "embed" not in name:
                weight.normal_(std=weight[0].numel() ** -0.5)
            elif name.endswith("bias"):
                weight.normal_(std=0.05)
            elif weight.dim() == 1:
                weight.normal_(mean=1.0, std=0.1)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return module


def _vision(name: str, **more: Any) -> Recipe:
    return Recipe("exported_vision:classifier", {"name": name, **more}, needs=("timm",))


_LATER = "Exporting the operator 'aten::{}' to ONNX opset version {} is not supported"
_TEXT = {"needs": ("transformers",)}
RECIPES: dict[str, Recipe] = {
    "llama": Recipe("exported_text:decoder", {"family": "Llama"}, **_TEXT),
    "qwen3": Recipe("exported_text:decoder", {"family": "Qwen3"}, **_TEXT),
    "llama-static": Recipe("exported_text:fixed_decoder", **_TEXT),
    "bert": Recipe("exported_text:bert", **_TEXT),
    "t5": Recipe("exported_text:t5", **_TEXT),
    "mamba": Recipe("exported_text:mamba", **_TEXT),
    "whisper-encoder": Recipe("exported_text:whisper_encoder", **_TEXT),
    "whisper-decoder": Recipe("exported_text:whisper_decoder", **_TEXT),
    "resnet50": _vision("resnet50", size=64),
    "mobilenetv3": _vision("mobilenetv3_large_100", size=64),
    "efficientnet": _vision("efficientnet_b0", size=64),
    "convnext": _vision("convnext_tiny", size=64),
    "vit": _vision("vit_small_patch16_224", size=224, depth=4),
    "deeplab": Recipe("exported_vision:deeplab", needs=("torchvision",)),
    "ssdlite-torchscript": Recipe(
        "exported_vision:ssdlite", needs=("torchvision",), exporter="torchscript", opsets=(13, 17, 18)
    ),
    "unet": Recipe("exported_vision:unet", needs=("diffusers",)),
    "vae": Recipe("exported_vision:vae_decoder", needs=("diffusers",)),
    "mobilenetv3-torchscript": Recipe(
        "exported_vision:classifier",
        {"name": "mobilenetv3_large_100", "size": 64},
        needs=("timm",),
        exporter="torchscript",
        opsets=TORCHSCRIPT,
    ),
    "tagger": Recipe("exported_small:tagger", {"any_length": False}),
    "tagger-torchscript": Recipe("exported_small:tagger", exporter="torchscript", opsets=TORCHSCRIPT),
    "greedy-scripted": Recipe("exported_small:greedy", exporter="scripted", opsets=TORCHSCRIPT),
    "cached": Recipe("exported_heads:cached"),
    "cached-torchscript": Recipe(
        "exported_heads:cached",
        exporter="torchscript",
        opsets=TORCHSCRIPT,
        refused={13: _LATER.format("scaled_dot_product_attention", 13)},
    ),
    "detector": Recipe("exported_heads:detector"),
    "detector-torchscript": Recipe("exported_heads:detector", exporter="torchscript", opsets=TORCHSCRIPT),
    "segmenter": Recipe("exported_heads:segmenter"),
    "segmenter-torchscript": Recipe("exported_heads:segmenter", exporter="torchscript", opsets=TORCHSCRIPT),
    "vocoder-torchscript": Recipe("exported_small:vocoder", exporter="torchscript", opsets=TORCHSCRIPT),
    "cnn": Recipe("exported_small:cnn"),
    "cnn-torchscript": Recipe("exported_small:cnn", exporter="torchscript", opsets=TORCHSCRIPT),
    "spectrum-torchscript": Recipe(
        "exported_small:spectrum",
        {"by_parts": True},
        exporter="torchscript",
        opsets=TORCHSCRIPT,
        refused={13: _LATER.format("stft", 13)},
    ),
    "graph-network": Recipe("exported_small:graph_network"),
    "graph-network-torchscript": Recipe(
        "exported_small:graph_network",
        exporter="torchscript",
        opsets=TORCHSCRIPT,
        refused={13: _LATER.format("scatter_reduce", 13)},
    ),
    "vocoder": Recipe("exported_small:vocoder"),
    "spectrum": Recipe("exported_small:spectrum"),
    "cond": Recipe("exported_small:conditional"),
    "scan": Recipe("exported_small:scanned"),
    # The exporter makes inference nodes of it, though the program that it converts has batch statistics.
    "trained-norm": Recipe("exported_small:trained_norm"),
    "trained-norm-torchscript": Recipe(
        "exported_small:trained_norm", exporter="torchscript", opsets=TORCHSCRIPT
    ),
    "cnn-qdq": Recipe("exported_small:cnn", after="qdq", opsets=(18, 21), tolerance=2e-2),
    "cnn-qdq-uint8": Recipe("exported_small:cnn", after="qdq-uint8", opsets=(18, 21), tolerance=2e-2),
    "cnn-qoperator": Recipe("exported_small:cnn", after="qoperator", opsets=(18, 21), tolerance=2e-2),
    "cnn-dynamic": Recipe("exported_small:cnn", after="dynamic", opsets=(18, 21), tolerance=2e-2),
    "cnn-half": Recipe("exported_small:cnn", after="half", opsets=(18, 21, 23), tolerance=1e-2),
    # Outputs are up to 7e-2 from onnxruntime's, with and without its optimisations, by ties alone. At opset
    # 21 the first value that differs is one of 4096 that QuantizeLinear makes of the first layer's second
    # product: factors are the same bits, the exact product is 26.50005 steps, ours is 26.49999,
    # onnxruntime's 26.50002, the magnitudes of its 256 terms add up to 283 steps, and both err by up to
    # 8e-5. At opset 18 the first are two of 12672, 3e-5 from -64.5 and -44.5 steps. What follows makes more
    # of it, so nodes are judged as well.
    "bert-qdq": Recipe(
        "exported_text:bert", after="qdq", opsets=(18, 21), tolerance=1e-1, nodes=True, **_TEXT
    ),
    # Ties again: of bert-dynamic at opset 21 two of 25344 numbers behind the second Gelu, 85.5 and 81.5 steps
    # to 6e-6, of inputs that are 3e-7 apart.
    "bert-qoperator": Recipe(
        "exported_text:bert", after="qoperator", opsets=(18, 21), tolerance=1e-1, nodes=True, **_TEXT
    ),
    "bert-dynamic": Recipe(
        "exported_text:bert", after="dynamic", opsets=(18, 21), tolerance=1e-1, nodes=True, **_TEXT
    ),
    "bert-half": Recipe("exported_text:bert", after="half", opsets=(18, 21, 23), tolerance=1e-2, **_TEXT),
}
