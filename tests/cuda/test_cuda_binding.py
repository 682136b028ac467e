"""Bindings on a device: the same decode steps as on the CPU, captured as CUDA graphs."""

from __future__ import annotations

import pytest
import torch
from binding.decoders import WIDTH, WORDS, fixed, growing
from textmodel import message

import torch_ort_session as tos

CAPACITY = 64


@pytest.mark.cuda
@pytest.mark.parametrize("way", ["run", "replay"])
def test_m18_tokens_of_fixed_capacity(way: str) -> None:
    eager = tos.load(fixed(CAPACITY), device="cuda", options=tos.Options(capture="off"))
    session = tos.load(fixed(CAPACITY), device="cuda")
    token, position = torch.zeros(1, dtype=torch.int64).cuda(), torch.zeros(1, 1, dtype=torch.int64).cuda()
    keys, values = torch.zeros(CAPACITY, WIDTH).cuda(), torch.zeros(CAPACITY, WIDTH).cuda()
    logits = torch.empty(1, WORDS).cuda()
    binding = session.bind()
    binding.input("token", token)
    binding.input("position", position)
    binding.state("past_k", "present_k", keys)
    binding.state("past_v", "present_v", values)
    binding.output("logits", logits)
    k, v, t = torch.zeros_like(keys), torch.zeros_like(values), torch.zeros_like(token)
    for step in range(CAPACITY):
        feed = {"token": t, "position": torch.tensor([[step]]), "past_k": k, "past_v": v}
        want, k, v = eager.run(None, feed)
        position.fill_(step)
        if way == "run":
            binding.run()
        elif step == 0:
            assert binding.capture() is None
        else:
            assert binding.replay() is True
        torch.testing.assert_close(logits, want)
        t = want.argmax(1)
        token.copy_(t)
    torch.testing.assert_close(keys, k)
    torch.testing.assert_close(values, v)
    assert session.stats()["captures"] == 1
    # A bad position is an error of that run, and leaves no hole in the cache.
    before, length = keys.clone(), logits.clone()
    position.fill_(CAPACITY)
    assert "64 is outside" in message(tos.DeviceIndexError, binding.run)
    assert torch.equal(keys, before) and torch.equal(logits, length)
    position.fill_(0)
    binding.run()


@pytest.mark.cuda
def test_m18_tokens_of_a_growing_cache() -> None:
    eager = tos.load(growing(), device="cuda", options=tos.Options(capture="off"))
    binding = tos.load(growing(), device="cuda").bind()
    token = torch.zeros(1, dtype=torch.int64).cuda()
    keys, values = torch.zeros(CAPACITY, WIDTH).cuda(), torch.zeros(CAPACITY, WIDTH).cuda()
    binding.input("token", token)
    binding.state("past_k", "present_k", keys, 0)
    binding.state("past_v", "present_v", values, 0)
    k, v = keys[:0].clone(), values[:0].clone()
    for _ in range(CAPACITY):
        want, k, v = eager.run(None, {"token": token, "past_k": k, "past_v": v})
        binding.run()
        torch.testing.assert_close(binding.read("logits"), want)
        token.copy_(want.argmax(1))
    assert torch.equal(keys, k) and torch.equal(values, v)


@pytest.mark.cuda
def test_a_tensor_on_the_host_is_refused() -> None:
    binding = tos.load(fixed(CAPACITY), device="cuda").bind()
    text = message(tos.InputError, lambda: binding.input("token", torch.zeros(1, dtype=torch.int64)))
    assert text == "input 'token': the tensor is on cpu and must be on cuda:0, where the model uses it"
