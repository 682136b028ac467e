"""Decoder steps for bindings: one whose cache grows, one of fixed capacity, and a recurrent cell."""

from __future__ import annotations

import numpy as np
import onnx
import torch
from textmodel import model

WIDTH = 8
WORDS = 12


def _weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    made = {name: torch.randn(WIDTH, WIDTH) / WIDTH**0.5 for name in ("wq", "wk", "wv", "wo")}
    return {**made, "embed": torch.randn(WORDS, WIDTH), "head": torch.randn(WIDTH, WORDS)}


def cell() -> onnx.ModelProto:
    """h' = tanh(w h + x), y = 2 h'."""
    text = """g (float[1, 4] x, float[1, 4] h) => (float[1, 4] y, float[1, 4] h_next) <float two = {2}> {
      wh = MatMul(h, w)  s = Add(wh, x)  h_next = Tanh(s)  y = Mul(h_next, two) }"""
    torch.manual_seed(1)
    return model(text, weights={"w": torch.randn(4, 4) / 2})


def growing() -> onnx.ModelProto:
    """Attention over a cache that the model makes longer by one entry a step."""
    text = f"""g (int64[1] token, float[p, {WIDTH}] past_k, float[p, {WIDTH}] past_v)
     => (float[1, {WORDS}] logits, float[t, {WIDTH}] present_k, float[t, {WIDTH}] present_v) {{
      x = Gather(embed, token)  q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
      all_k = Concat <axis = 0> (past_k, k)  present_k = Identity(all_k)
      present_v = Concat <axis = -2> (past_v, v)
      kt = Transpose(all_k)  s = MatMul(q, kt)  p = Softmax(s)  o = MatMul(p, present_v)
      out = MatMul(o, wo)  r = Add(x, out)  logits = MatMul(r, head) }}"""
    return model(text, weights=_weights())


def fixed(capacity: int) -> onnx.ModelProto:
    """The same over a cache of fixed shape: the entry goes to a position, what lies behind it is masked."""
    text = f"""g (int64[1] token, int64[1, 1] position,
        float[{capacity}, {WIDTH}] past_k, float[{capacity}, {WIDTH}] past_v)
     => (float[1, {WORDS}] logits,
         float[{capacity}, {WIDTH}] present_k, float[{capacity}, {WIDTH}] present_v)
     <float low = {{-1e30}}, float zero = {{0}}> {{
      x = Gather(embed, token)  q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
      present_k = ScatterND(past_k, position, k)  present_v = ScatterND(past_v, position, v)
      seen = LessOrEqual(places, position)  mask = Where(seen, zero, low)
      kt = Transpose(present_k)  raw = MatMul(q, kt)  s = Add(raw, mask)
      p = Softmax(s)  o = MatMul(p, present_v)
      out = MatMul(o, wo)  r = Add(x, out)  logits = MatMul(r, head) }}"""
    places = np.arange(capacity, dtype=np.int64)[None]
    return model(text, weights={**_weights(), "places": places})
