"""Models of timm, torchvision and diffusers with random weights."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
from exported_recipes import Made, spread
from torch import Tensor, nn


def classifier(name: str, size: int, **options: Any) -> Made:
    import timm

    model = spread(timm.create_model(name, pretrained=False, **options))
    feeds = [{"image": torch.randn(rows, 3, size, size)} for rows in (2, 1, 3)]
    return Made(model, feeds, ["logits"], {"image": {0: "batch"}})


class Output(nn.Module):
    """One output of a model that returns a mapping."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)[self.name]


def deeplab() -> Made:
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    model = deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    feeds = [{"image": torch.randn(*shape)} for shape in ((2, 3, 64, 96), (1, 3, 96, 80), (2, 3, 33, 65))]
    dynamic = {"image": {0: "batch", 2: "height", 3: "width"}}
    return Made(Output(spread(model), "out"), feeds, ["classes"], dynamic)


class Detector(nn.Module):
    """A detector of torchvision on one image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.model([image])[0]
        return found["boxes"], found["scores"], found["labels"]


def ssdlite() -> Made:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    model = ssdlite320_mobilenet_v3_large(
        weights=None,
        weights_backbone=None,
        num_classes=6,
        score_thresh=0.05,
        detections_per_img=30,
        topk_candidates=60,
    )
    feeds = [{"image": torch.rand(3, 320, 320)} for _ in range(3)]
    return Made(Detector(model), feeds, ["boxes", "scores", "labels"])


class Unnamed(nn.Module):
    """A model of diffusers, or one of its methods, with its result alone."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model = model
        self.method = method

    def forward(self, *values: Tensor) -> Tensor:
        return getattr(self.model, self.method)(*values, return_dict=False)[0]


def unet() -> Made:
    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )

    def feed(rows: int, height: int, width: int) -> dict[str, Tensor]:
        return {
            "sample": torch.randn(rows, 4, height, width),
            "timestep": torch.randint(0, 1000, (rows,)),
            "text": torch.randn(rows, 7, 32),
        }

    dynamic = {
        "sample": {0: "batch", 2: "height", 3: "width"},
        "timestep": {0: "batch"},
        "text": {0: "batch"},
    }
    feeds = [feed(2, 16, 24), feed(1, 8, 8), feed(3, 16, 12)]
    return Made(Unnamed(spread(model), "forward"), feeds, ["noise"], dynamic)


def vae_decoder() -> Made:
    model = diffusers.AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
    )
    feeds = [
        {"latent": torch.randn(rows, 4, high, wide)}
        for rows, high, wide in ((2, 8, 12), (1, 6, 6), (2, 5, 9))
    ]
    dynamic = {"latent": {0: "batch", 2: "height", 3: "width"}}
    return Made(Unnamed(spread(model), "decode"), feeds, ["image"], dynamic)
