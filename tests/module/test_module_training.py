"""A module trains as the torch network that it was made from."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import Cnn, Transformer, cnn_model, transformer_model
from textmodel import model
from torch import nn

import torch_ort_session as tos

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


def cnn_batch() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    return (torch.randn(4, 3, 16, 16),), torch.randint(0, 5, (4,))


def transformer_batch() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    mask = torch.zeros(3, 7)
    mask[1, 4:] = -1e9
    return (torch.randint(0, 20, (3, 7)), mask), torch.randint(0, 20, (21,))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any], Callable[[], Any]]] = {
    "cnn": (Cnn, cnn_model, cnn_batch),
    "transformer": (Transformer, transformer_model, transformer_batch),
}


def close(got: torch.Tensor, want: torch.Tensor, bound: float = 1e-4) -> None:
    """Equal within a share of the largest magnitude."""
    scale = max(want.abs().max().item(), 1e-6)
    assert (got - want).abs().max().item() <= bound * scale


def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), target)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_ten_steps_equal_torchs(network: str, optimizer: str) -> None:
    torch.manual_seed(0)
    make, write, batch = NETWORKS[network]
    source = make().eval()
    module = tos.load(write(source)).module(trainable=True)
    theirs, ours = dict(source.named_parameters()), dict(module.named_parameters())
    assert ours.keys() == theirs.keys()
    steps = [OPTIMIZERS[optimizer](item.parameters()) for item in (source, module)]
    first = None
    for _ in range(10):
        feed, target = batch()
        losses = []
        for item, step in zip((source, module), steps, strict=True):
            step.zero_grad()
            loss = loss_of(item(*feed), target)
            loss.backward()
            losses.append(loss.item())
        for name, parameter in theirs.items():
            assert parameter.grad is not None
            assert ours[name].grad is not None, name
            close(ours[name].grad, parameter.grad)
        assert abs(losses[0] - losses[1]) <= 1e-5 * abs(losses[0])
        first = losses[0] if first is None else first
        for step in steps:
            step.step()
    for name, parameter in theirs.items():
        close(ours[name], parameter)


@pytest.mark.parametrize("network", NETWORKS)
def test_training_learns(network: str) -> None:
    torch.manual_seed(0)
    make, write, batch = NETWORKS[network]
    module = tos.load(write(make().eval())).module(trainable=True)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    feed, target = batch()
    before = module(*feed).detach()
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = loss_of(module(*feed), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert not torch.allclose(module(*feed), before)


def test_the_session_keeps_its_weights() -> None:
    torch.manual_seed(0)
    session = tos.load(cnn_model(Cnn().eval()))
    (x,), target = cnn_batch()
    before = session(x)
    module = session.module(trainable=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    loss_of(module(x), target).backward()
    optimizer.step()
    assert torch.equal(session(x), before)
    assert not torch.allclose(module(x), before)


def test_a_feed_has_gradients_too() -> None:
    torch.manual_seed(0)
    source = Cnn().eval()
    session = tos.load(cnn_model(source))
    (x,), _ = cnn_batch()
    grads = []
    for call in (source, session, session.module(), session.module(trainable=True)):
        fed = x.clone().requires_grad_()
        call(fed).square().sum().backward()
        assert fed.grad is not None
        grads.append(fed.grad)
    for grad in grads[1:]:
        close(grad, grads[0])


def test_weights_inside_of_bodies_train() -> None:
    text = (
        "g (double[n] x, bool c) => (double[n] y) <double[3] w = {0.5, -0.25, 2}> { y = If (c) <then_branch ="
        " t () => (double[n] a) <double[3] v = {0.1, 0.2, 0.3}, int64 k = {3}> { m = Mul(x, v)"
        " a = Loop (k, , m) <body = b (int64 i, bool d, double[n] s) => (bool e, double[n] o)"
        " <double[3] u = {1.5, 0.5, -0.5}> { e = Identity(d) p = Mul(s, u) q = Add(p, w) o = Sin(q) }> },"
        " else_branch = r () => (double[n] z) { z = Mul(x, w) }> }"
    )
    module = tos.load(model(text)).module(trainable=True)
    names = [name for name, _ in module.named_parameters()]
    assert names == ["w", "If_0/then_branch/v", "If_0/then_branch/Loop_1/body/u"]
    parameters = dict(module.named_parameters())
    x = torch.tensor([0.3, 0.7, -0.2], dtype=torch.float64)

    def call(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x, True))

    assert torch.autograd.gradcheck(call, tuple(parameters[name].detach().requires_grad_() for name in names))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    before = {name: value.detach().clone() for name, value in parameters.items()}
    module(x, True).sum().backward()
    optimizer.step()
    for name, value in parameters.items():
        assert not torch.equal(value, before[name]), name
    optimizer.zero_grad()
    module(x, False).sum().backward()
    assert parameters["If_0/then_branch/v"].grad is None
    assert torch.equal(parameters["w"].grad, x)


def test_gradients_accumulate_and_can_be_taken_twice() -> None:
    torch.manual_seed(0)
    module = tos.load(cnn_model(Cnn().eval())).module(trainable=True)
    (x,), target = cnn_batch()
    loss_of(module(x), target).backward()
    once = module.get_parameter("head.weight").grad.clone()
    loss_of(module(x), target).backward()
    close(module.get_parameter("head.weight").grad, 2 * once)
    head = module.get_parameter("head.weight")
    (grad,) = torch.autograd.grad(loss_of(module(x), target), head, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), head)
    assert second.abs().max() > 0


def test_no_grad_evaluation_makes_no_graph() -> None:
    module = tos.load(cnn_model(Cnn().eval())).module(trainable=True)
    (x,), _ = cnn_batch()
    assert module(x).requires_grad
    with torch.no_grad():
        assert not module(x).requires_grad
    with torch.inference_mode():
        result = module(x)
    assert not result.requires_grad
    assert not result.is_inference()
    assert not tos.load(cnn_model(Cnn().eval())).module()(x).requires_grad
    frozen = tos.load(cnn_model(Cnn().eval())).module(trainable=True).requires_grad_(False)
    assert not frozen(x).requires_grad


def test_part_of_a_larger_network() -> None:
    torch.manual_seed(0)
    source, ours = Cnn().eval(), None
    module = tos.load(cnn_model(source)).module(trainable=True)
    head = nn.Linear(5, 2)
    (x,), _ = cnn_batch()
    grads = []
    for body in (source, module):
        whole = nn.Sequential(nn.Conv2d(3, 3, 1), body, head)
        torch.manual_seed(1)
        nn.init.normal_(whole[0].weight)
        nn.init.zeros_(whole[0].bias)
        ours = whole(x)
        grads.append(torch.autograd.grad(ours.square().sum(), whole[0].weight)[0])
        assert len(list(whole.parameters())) == 2 + 11 + 2
    close(grads[1], grads[0])


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="resident memory is read from /proc")
def test_a_thousand_steps_of_a_data_loader_without_growth() -> None:
    torch.manual_seed(0)
    source = Cnn().eval()
    module = tos.load(cnn_model(source)).module()
    data = torch.utils.data.TensorDataset(torch.randn(70, 3, 16, 16), torch.randint(0, 5, (70,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    sizes = set()

    def evaluate(epochs: int) -> int:
        steps = 0
        for _ in range(epochs):
            for x, _ in loader:
                with torch.no_grad():
                    y = module(x)
                sizes.add(len(y))
                steps += 1
        return steps

    evaluate(20)
    gc.collect()
    objects = len(gc.get_objects())
    growth = []
    for _ in range(4):
        before = resident()
        assert evaluate(50) == 250
        gc.collect()
        growth.append(resident() - before)
    assert sizes == {16, 6}
    # What leaks grows in every stretch (a batch at each step would be 10 MB); what the process's allocator
    # keeps for itself, after whatever ran before, comes once.
    assert min(growth) < 1 << 20, growth
    assert len(gc.get_objects()) - objects < 100
    x = data.tensors[0][64:]
    with torch.no_grad():
        torch.testing.assert_close(module(x), source(x), rtol=1e-5, atol=1e-5)
