"""Real networks train: SqueezeNet beside its torch form, others against finite differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper
from torch import nn

import torch_ort_session as tos
from benchmarks import fetch, recipes


class Fire(nn.Module):
    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(inputs, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.squeeze1x1(x))
        return torch.cat((torch.relu(self.expand1x1(x)), torch.relu(self.expand3x3(x))), 1)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1 in eval mode, its parts named as in ONNX's file."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, stride=2)
        sizes = [(64, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128)]
        sizes += [(256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256)]
        for number, size in enumerate(sizes, start=2):
            self.add_module(f"fire{number}", Fire(*size))
        self.conv10 = nn.Conv2d(512, 1000, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 3, 2)
        for number in range(2, 10):
            x = self.get_submodule(f"fire{number}")(x)
            if number in (3, 5):
                x = nn.functional.max_pool2d(x, 3, 2)
        return torch.softmax(torch.relu(self.conv10(x)).mean((2, 3), keepdim=True), 1)


def onnx_name(name: str) -> str:
    """``fire2.squeeze1x1.weight`` is ``fire2/squeeze1x1_w_0`` in the file."""
    *path, kind = name.split(".")
    return f"{'/'.join(path)}_{kind[0]}_0"


def light_model(name: str, weights: dict[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """One of the networks that onnx ships without their weights, with weights put in."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    graph = model.graph
    filled = {node.output[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    assert filled < set(weights)
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    read = {value for node in kept for value in node.input}
    del graph.node[:]
    graph.node.extend(kept)
    inputs = [info for info in graph.input if info.name in read and info.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)
    others = [item for item in graph.initializer if item.name in read and item.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(others + [numpy_helper.from_array(value, key) for key, value in weights.items()])
    model.ir_version = 8
    return model


def test_squeezenet_trains_as_torchs() -> None:
    torch.manual_seed(0)
    source = SqueezeNet()
    weights = {onnx_name(name): value.detach().numpy().copy() for name, value in source.named_parameters()}
    session = tos.load(light_model("squeezenet", weights))
    (port,) = session.inputs
    module = session.module(trainable=True)
    ours = dict(module.named_parameters())
    theirs = {onnx_name(name): value for name, value in source.named_parameters()}
    assert ours.keys() == theirs.keys()
    optimizers = [torch.optim.SGD(item.parameters(), lr=0.5, momentum=0.9) for item in (source, module)]
    for step in range(10):
        x = torch.randn([1 if isinstance(dim, str) or dim is None else dim for dim in port.shape or ()])
        losses = []
        for item, optimizer in zip((source, module), optimizers, strict=True):
            optimizer.zero_grad()
            loss = -item(x).flatten()[step].log()
            loss.backward()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        largest = max(value.grad.abs().max().item() for value in theirs.values() if value.grad is not None)
        for name, value in theirs.items():
            grad, want = ours[name].grad, value.grad
            assert grad is not None
            assert want is not None
            scale = max(want.abs().max().item(), 1e-3 * largest)
            assert (grad - want).abs().max().item() <= 1e-4 * scale, name
        for optimizer in optimizers:
            optimizer.step()


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with double precision in the place of single."""
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            weight.CopyFrom(
                numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float64), weight.name)
            )
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.t.data_type == TensorProto.FLOAT:
                value = numpy_helper.to_array(attribute.t).astype(np.float64)
                attribute.t.CopyFrom(numpy_helper.from_array(value))
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return model


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["mtcnn-onet", "wakeword-embedding", "eeg-spindle", "rapidocr-v2-cls"])
def test_gradients_of_real_networks_are_their_derivatives(name: str) -> None:
    """In double precision: the gradient along a random direction is what a small step along it changes."""
    entry = next(item for item in fetch.read_zoo() if item["name"] == name)
    feed = {
        key: torch.from_numpy(value).double() if value.dtype == np.float32 else value
        for key, value in recipes.feeds(entry, entry["sizes"][0]).items()
    }
    module = tos.load(in_double(onnx.load(fetch.fetch(entry)))).module(trainable=True)
    parameters = list(module.parameters())
    assert parameters

    def value() -> torch.Tensor:
        out = module(feed)
        generator = torch.Generator().manual_seed(1)
        return sum(
            (item * torch.rand(item.shape, generator=generator, dtype=torch.float64)).sum()
            for item in ((out,) if isinstance(out, torch.Tensor) else out)
        )

    torch.manual_seed(0)
    directions = [torch.randn_like(parameter) * parameter.detach().abs().mean() for parameter in parameters]
    grads = torch.autograd.grad(value(), parameters, allow_unused=True)
    assert all(grad is not None for grad in grads)
    slope = sum((grad * along).sum().item() for grad, along in zip(grads, directions, strict=True))
    step, ends = 1e-7, []
    with torch.no_grad():
        for sign in (1, -2):
            for parameter, along in zip(parameters, directions, strict=True):
                parameter.add_(along, alpha=sign * step)
            ends.append(value().item())
    measured = (ends[0] - ends[1]) / (2 * step)
    assert abs(slope) > 1e-8
    assert measured == pytest.approx(slope, rel=1e-4)
