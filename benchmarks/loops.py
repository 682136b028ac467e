"""Decoders that are one model each: the tokens are made by a Loop, greedily, the next from the one before.

The recurrent one carries a token and a hidden state. The other one attends to all tokens so far and carries
its caches at their full length, as decoders do that were exported with their loop.
"""

from __future__ import annotations

import onnx
import torch

_HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def recurrent(hidden: int = 64, words: int = 100) -> onnx.ModelProto:
    """A gated recurrent unit, written out in primitive operators: 20 nodes a token.

    Inputs are the first token, the hidden state and how many tokens to make; outputs are the tokens and the
    hidden state after the last.
    """
    state = f"float[1,{hidden}]"
    body = (
        f"b (int64 i, bool c, int64[1] t, {state} s) => (bool e, int64[1] u, {state} r, int64[1] o)"
        " { e = Identity(c) x = Gather(embedding, t) gx = Gemm(x, wx, bx) gh = Gemm(s, wh, bh)"
        " xr, xz, xn = Split <axis = 1, num_outputs = 3> (gx)"
        " hr, hz, hn = Split <axis = 1, num_outputs = 3> (gh)"
        " ar = Add(xr, hr) reset = Sigmoid(ar) az = Add(xz, hz) update = Sigmoid(az) m = Mul(reset, hn)"
        " an = Add(xn, m) new = Tanh(an) d = Sub(s, new) zd = Mul(update, d) r = Add(new, zd)"
        " logits = MatMul(r, wo) u = ArgMax <axis = 1, keepdims = 0> (logits) o = Identity(u) }"
    )
    text = (
        f"g (int64[1] start, {state} h, int64 n) => (int64[k,1] tokens, {state} after)"
        f" {{ last, after, tokens = Loop (n, , start, h) <body = {body}> }}"
    )
    shapes = {
        "embedding": (words, hidden),
        "wx": (hidden, 3 * hidden),
        "bx": (3 * hidden,),
        "wh": (hidden, 3 * hidden),
        "bh": (3 * hidden,),
        "wo": (hidden, words),
    }
    return _model(text, shapes)


def attending(
    layers: int = 2, heads: int = 4, width: int = 16, words: int = 100, length: int = 64
) -> onnx.ModelProto:
    """Layers of attention over caches of a fixed length, and of two multiplications: 31 nodes a layer.

    Inputs are the first token and how many to make, at most ``length``; the output is the tokens.
    """
    hidden, cache = heads * width, f"float[{heads},{length},{width}]"
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (words, hidden),
        "positions": (length, hidden),
        "out": (hidden, words),
    }
    inside, outside, nodes, first = "", "", "", []
    current = "x0"
    for layer in range(layers):
        inside += f", {cache} k{layer}, {cache} v{layer}"
        outside += f", {cache} kk{layer}, {cache} vv{layer}"
        first += [f"zeros{layer}", f"zeros{layer}"]
        nodes += _layer(layer, current)
        current = f"x{layer + 1}"
        for name, shape in (("q", hidden), ("k", hidden), ("v", hidden), ("o", hidden), ("up", 4 * hidden)):
            shapes[f"w{name}{layer}"] = (hidden, shape)
        shapes[f"wdown{layer}"] = (4 * hidden, hidden)
    constants = (
        f"<int64[3] split = {{{heads}, 1, {width}}}, int64[2] flat = {{1, {hidden}}}, float low = {{-1e9}},"
        f" float eps = {{1e-5}}, float scale = {{{width**-0.5}}},"
        f" int64[1,{length}] row = {{{', '.join(map(str, range(length)))}}},"
        f" int64[{length},1] column = {{{', '.join(map(str, range(length)))}}},"
        f" int64[3] dims = {{{heads}, {length}, {width}}}, int64[1] one = {{1}}>"
    )
    makes = "".join(f" zeros{layer} = ConstantOfShape(dims)" for layer in range(layers))
    body = (
        f"b (int64 i, bool c, int64[1] t{inside}) => (bool e, int64[1] u{outside}, int64[1] o)"
        " { e = Identity(c) ii = Reshape(i, one) w = Gather(embedding, t) p = Gather(positions, ii)"
        f" x0 = Add(w, p) here = Equal(column, i) seen = LessOrEqual(row, i){nodes}"
        f" logits = MatMul({current}, out) u = ArgMax <axis = 1, keepdims = 0> (logits) o = Identity(u) }}"
    )
    lasts = "".join(f", klast{layer}, vlast{layer}" for layer in range(layers))
    text = (
        f"g (int64[1] start, int64 n) => (int64[k,1] tokens) {constants}"
        f" {{{makes} last{lasts}, tokens = Loop (n, , start, {', '.join(first)}) <body = {body}> }}"
    )
    return _model(text, shapes)


def _layer(n: int, x: str) -> str:
    parts = [
        *_norm(f"a{n}", x),
        f"q{n} = MatMul(a{n}, wq{n}) qs{n} = Reshape(q{n}, split)",
        f"kn{n} = MatMul(a{n}, wk{n}) ks{n} = Reshape(kn{n}, split)",
        f"vn{n} = MatMul(a{n}, wv{n}) vs{n} = Reshape(vn{n}, split)",
        f"kk{n} = Where(here, ks{n}, k{n}) vv{n} = Where(here, vs{n}, v{n})",
        f"kt{n} = Transpose <perm = [0, 2, 1]> (kk{n}) raw{n} = MatMul(qs{n}, kt{n})",
        f"sc{n} = Mul(raw{n}, scale) ms{n} = Where(seen, sc{n}, low) pr{n} = Softmax <axis = -1> (ms{n})",
        f"mix{n} = MatMul(pr{n}, vv{n}) fl{n} = Reshape(mix{n}, flat) ao{n} = MatMul(fl{n}, wo{n})",
        f"y{n} = Add({x}, ao{n})",
        *_norm(f"b{n}", f"y{n}"),
        f"up{n} = MatMul(b{n}, wup{n}) re{n} = Relu(up{n}) dn{n} = MatMul(re{n}, wdown{n})",
        f"x{n + 1} = Add(y{n}, dn{n})",
    ]
    return " " + " ".join(parts)


def _norm(name: str, x: str) -> list[str]:
    return [
        f"{name}sq = Mul({x}, {x}) {name}m = ReduceMean <keepdims = 1> ({name}sq)",
        f"{name}e = Add({name}m, eps) {name}r = Sqrt({name}e) {name} = Div({x}, {name}r)",
    ]


def _model(text: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_HEADER + text)
    generator = torch.Generator().manual_seed(0)
    for name, shape in shapes.items():
        data = torch.randn(shape, generator=generator) / shape[0] ** 0.5
        model.graph.initializer.append(onnx.numpy_helper.from_array(data.numpy(), name))
    return model
