"""Modules that need torch alone: attention with a cache, a detector's head, an upsampling segmenter."""

from __future__ import annotations

import torch
from exported_recipes import Made, spread
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """A decoder's block: rotary attention over a cache that grows, then a gated layer."""

    def __init__(self, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.before = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.both = nn.Linear(width, 2 * groups * self.size)
        self.out = nn.Linear(width, width)
        self.after = nn.LayerNorm(width)
        self.gate = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def rotate(self, x: Tensor, position: Tensor) -> Tensor:
        half = self.size // 2
        angle = position[:, None, :, None] * 100.0 ** (-torch.arange(half) / half)
        one, other = x[..., :half], x[..., half:]
        return torch.cat(
            [one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], -1
        )

    def forward(
        self, x: Tensor, position: Tensor, mask: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, length, width = x.shape
        normed = self.before(x)
        query = self.query(normed).view(rows, length, self.heads, self.size).transpose(1, 2)
        new = self.both(normed).view(rows, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        key = torch.cat([key, self.rotate(new[0], position)], 2)
        value = torch.cat([value, new[1]], 2)
        times = self.heads // self.groups
        found = functional.scaled_dot_product_attention(
            self.rotate(query, position),
            key.repeat_interleave(times, 1),
            value.repeat_interleave(times, 1),
            attn_mask=mask,
        )
        x = x + self.out(found.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(functional.gelu(self.gate(self.after(x)), approximate="tanh")), key, value


class Cached(nn.Module):
    """A language model of two blocks, with a mask of its own making."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.out = nn.Linear(width, 60)

    def forward(
        self, words: Tensor, key0: Tensor, value0: Tensor, key1: Tensor, value1: Tensor
    ) -> tuple[Tensor, ...]:
        before = key0.shape[2]
        position = torch.arange(words.shape[1]) + before
        mask = torch.arange(before + words.shape[1])[None, :] <= position[:, None]
        x = self.embedding(words)
        caches: list[Tensor] = []
        for block, key, value in zip(self.blocks, (key0, key1), (value0, value1), strict=True):
            x, key, value = block(x, position[None], mask, key, value)
            caches += [key, value]
        return (self.out(x), *caches)


def cached() -> Made:
    names = ["key0", "value0", "key1", "value1"]

    def feed(rows: int, length: int, before: int) -> dict[str, Tensor]:
        past = {name: torch.randn(rows, 2, before, 8) for name in names}
        return {"words": torch.randint(0, 60, (rows, length)), **past}

    dynamic = {"words": {0: "batch", 1: "length"}} | {name: {0: "batch", 2: "past"} for name in names}
    feeds = [feed(2, 3, 5), feed(2, 1, 7), feed(2, 1, 8), feed(1, 4, 2)]
    return Made(spread(Cached()), feeds, ["logits", *(f"{name}_out" for name in names)], dynamic)


class Detector(nn.Module):
    """A detector without suppression: the best places of a grid, their scores, labels and boxes."""

    def __init__(self, labels: int = 5, kept: int = 7) -> None:
        super().__init__()
        self.kept = kept
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.SiLU())
        self.score = nn.Conv2d(16, labels, 1)
        self.box = nn.Conv2d(16, 4, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grid = self.stem(image)
        scores = self.score(grid).sigmoid().flatten(2)
        high, wide = grid.shape[2], grid.shape[3]
        y, x = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
        sides = functional.softplus(self.box(grid)).flatten(2)
        center = torch.stack([x, y]).flatten(1)[None] + 0.5
        boxes = torch.cat([center - sides[:, :2], center + sides[:, 2:]], 1).transpose(1, 2) * 4.0
        best, label = scores.max(1)
        found, place = best.topk(self.kept, 1)
        boxes = boxes.gather(1, place[..., None].expand(-1, -1, 4))
        return boxes, found, label.gather(1, place)


def detector() -> Made:
    shapes = ((2, 32, 48), (1, 24, 24), (3, 40, 32))
    feeds = [{"image": torch.randn(rows, 3, high, wide)} for rows, high, wide in shapes]
    dynamic = {"image": {0: "batch", 2: "height", 3: "width"}}
    return Made(spread(Detector()), feeds, ["boxes", "scores", "labels"], dynamic)


class Segmenter(nn.Module):
    """A class for each pixel: pyramid pooling on a coarse grid, brought back to the size of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 12, 5, 4, 2)
        self.wide = nn.ModuleList(nn.Conv2d(12, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 4))
        self.whole = nn.Conv2d(12, 8, 1)
        self.norm = nn.GroupNorm(4, 32)
        self.out = nn.Conv2d(32, 5, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        coarse = functional.gelu(self.down(image))
        pooled = self.whole(coarse.mean((2, 3), keepdim=True))
        size = coarse.shape[2:]
        parts = [conv(coarse) for conv in self.wide]
        parts.append(functional.interpolate(pooled, size=size, mode="nearest"))
        found = self.out(functional.leaky_relu(self.norm(torch.cat(parts, 1)), 0.1))
        found = functional.interpolate(found, size=image.shape[2:], mode="bilinear", align_corners=False)
        finer = functional.interpolate(found, scale_factor=2.0, mode="bicubic", align_corners=True)
        return finer, found.argmax(1)


def segmenter() -> Made:
    shapes = ((2, 32, 48), (1, 24, 24), (3, 40, 33))
    feeds = [{"image": torch.randn(rows, 3, high, wide)} for rows, high, wide in shapes]
    dynamic = {"image": {0: "batch", 2: "height", 3: "width"}}
    return Made(spread(Segmenter()), feeds, ["scores", "classes"], dynamic)
