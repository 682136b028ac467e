"""Modules that need torch alone: recurrent, graph, sound, control flow, batch statistics."""

from __future__ import annotations

import torch
from exported_recipes import Made, spread
from torch import Tensor, nn


class Tagger(nn.Module):
    """A label for each word, from LSTM and GRU layers in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(200, 32)
        self.lstm = nn.LSTM(32, 24, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(48, 16, batch_first=True)
        self.out = nn.Linear(16, 9)

    def forward(self, words: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(words))
        hidden, _ = self.gru(hidden)
        return self.out(hidden).log_softmax(-1)


def tagger(any_length: bool = True) -> Made:
    """A tagger; torch.export writes out the steps of a GRU, whose number is then fixed."""
    shapes = ((2, 12), (1, 5), (3, 20)) if any_length else ((2, 6), (1, 6), (3, 6))
    feeds = [{"words": torch.randint(0, 200, shape)} for shape in shapes]
    sizes = {0: "batch", 1: "length"} if any_length else {0: "batch"}
    return Made(Tagger(), feeds, ["labels"], {"words": sizes})


class Greedy(nn.Module):
    """Writes token after token until all rows have ended: a loop whose end depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 24)
        self.mix = nn.Linear(56, 32)
        self.out = nn.Linear(32, 40)

    def forward(self, state: Tensor, most: int) -> tuple[Tensor, Tensor]:
        token = torch.zeros(state.shape[0], dtype=torch.int64)
        written: list[Tensor] = []
        step = 0
        done = False
        while step < most and not done:
            state = torch.tanh(self.mix(torch.cat([self.embedding(token), state], 1)))
            token = self.out(state).argmax(-1)
            written.append(token)
            step += 1
            if bool((token == 3).all()):
                done = True
        return torch.stack(written, 1), state


def greedy() -> Made:
    module = Greedy()
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(3.0)
    feeds = [
        {"state": torch.randn(rows, 32), "most": torch.tensor(most)}
        for rows, most in ((2, 12), (1, 12), (3, 5))
    ]
    return Made(module, feeds, ["tokens", "last"], {"state": {0: "batch"}})


class GraphNetwork(nn.Module):
    """Messages along edges, gathered at nodes by sum, mean and maximum."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.message = nn.Linear(2 * width, width)
        self.update = nn.Linear(4 * width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = torch.relu(self.first(nodes))
        source, target = edges[0], edges[1]
        message = torch.relu(self.message(torch.cat([hidden[source], hidden[target]], 1)))
        place = target[:, None].expand_as(message)
        empty = torch.zeros_like(hidden)
        total = empty.scatter_add(0, place, message)
        count = empty.scatter_add(0, place, torch.ones_like(message)).clamp(min=1)
        most = empty.scatter_reduce(0, place, message, "amax")
        return self.update(torch.cat([hidden, total, total / count, most], 1))


def graph_network() -> Made:
    def feed(nodes: int, edges: int) -> dict[str, Tensor]:
        return {"nodes": torch.randn(nodes, 8), "edges": torch.randint(0, nodes, (2, edges))}

    dynamic = {"nodes": {0: "count"}, "edges": {1: "links"}}
    return Made(spread(GraphNetwork()), [feed(10, 30), feed(3, 4), feed(40, 111)], ["hidden"], dynamic)


class Vocoder(nn.Module):
    """Sound from a spectrogram: dilated and transposed convolutions, then an inverse STFT."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(20, 32, 7, padding=3)
        self.up = nn.ConvTranspose1d(32, 16, 8, stride=4, padding=2)
        self.blocks = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=d, padding=d) for d in (1, 3, 5))
        self.last = nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 18, 7, padding=3))
        frequency = torch.arange(9)[:, None] * torch.arange(16)[None, :] * (2 * torch.pi / 16)
        basis = torch.cat([frequency.cos(), frequency.sin()])[:, None]
        self.register_buffer("basis", basis * torch.hann_window(16) / 16)

    def forward(self, spectrogram: Tensor) -> Tensor:
        hidden = self.up(nn.functional.leaky_relu(self.first(spectrogram), 0.1))
        for block in self.blocks:
            hidden = hidden + torch.sin(block(nn.functional.leaky_relu(hidden, 0.1)))
        size, phase = self.last(hidden).chunk(2, 1)
        size = size.clamp(max=3.0).exp()
        parts = torch.cat([size * phase.cos(), size * phase.sin()], 1)
        return nn.functional.conv_transpose1d(parts, self.basis, stride=4, padding=6).tanh()


def vocoder() -> Made:
    module = Vocoder()
    torch.manual_seed(0)
    feeds = [{"spectrogram": torch.randn(rows, 20, length)} for rows, length in ((2, 11), (1, 30), (3, 6))]
    return Made(module, feeds, ["sound"], {"spectrogram": {0: "batch", 2: "frames"}})


class Spectrum(nn.Module):
    """The logarithm of a mel-like spectrogram, by torch.stft: of complex numbers or of their parts."""

    def __init__(self, by_parts: bool) -> None:
        super().__init__()
        self.by_parts = by_parts
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("bands", torch.rand(10, 33))

    def forward(self, sound: Tensor) -> Tensor:
        found = torch.stft(sound, 64, 16, window=self.window, return_complex=not self.by_parts)
        power = found.square().sum(-1) if self.by_parts else found.abs().square()
        return torch.log(self.bands @ power + 1e-3)


def spectrum(by_parts: bool = False) -> Made:
    feeds = [{"sound": torch.randn(rows, length)} for rows, length in ((2, 400), (1, 1000), (3, 256))]
    return Made(Spectrum(by_parts), feeds, ["spectrum"], {"sound": {0: "batch", 1: "samples"}})


class Conditional(nn.Module):
    """One branch or the other, by the sign of a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(16, 16)
        self.other = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0, lambda x: torch.relu(self.one(x)), lambda x: torch.tanh(self.other(x)) * 2, (x,)
        )


def conditional() -> Made:
    feeds = [
        {"x": torch.randn(rows, 16) + shift} for rows, shift in ((4, 1.0), (4, -1.0), (2, 1.0), (7, -1.0))
    ]
    return Made(Conditional(), feeds, ["y"], {"x": {0: "batch"}})


class Scanned(nn.Module):
    """A recurrence as torch's scan."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) * 0.2)

    def forward(self, state: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        from torch._higher_order_ops.scan import scan

        def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            state = torch.tanh(state @ self.weight + x)
            return state, state + 1.0

        return scan(step, state, steps, dim=0)


def scanned() -> Made:
    feeds = [{"state": torch.randn(2, 16), "steps": torch.randn(10, 2, 16)} for _ in range(3)]
    return Made(Scanned(), feeds, ["last", "all"])


class Convolutional(nn.Module):
    """A small classifier of the usual layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16), nn.Hardswish())
        self.wide = nn.Sequential(nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32), nn.SiLU())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 32, 1), nn.Sigmoid())
        self.out = nn.Linear(32, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        x = self.wide(x + self.deep(x))
        x = nn.functional.max_pool2d(x * self.gate(x), 2)
        return self.out(x.mean((2, 3)))


def cnn() -> Made:
    feeds = [
        {"image": torch.randn(rows, 3, high, wide)}
        for rows, high, wide in ((2, 32, 48), (1, 24, 24), (3, 40, 32))
    ]
    return Made(spread(Convolutional()), feeds, ["logits"], {"image": {0: "batch", 2: "height", 3: "width"}})


def trained_norm() -> Made:
    """Batch statistics, as in training, of every BatchNorm; dropout is off."""
    feeds = [{"image": torch.randn(rows, 3, 16, 16)} for rows in (4, 2, 5)]
    return Made(spread(Convolutional()), feeds, ["logits"], {"image": {0: "batch"}}, training=True)
