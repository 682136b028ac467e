"""Decode tokens with a cache that stays in place: eagerly, then captured once and replayed for every token.

    python tutorials/02_capture_and_replay.py [--tokens N] [--device DEVICE]

The model is one step of a small decoder, written here with onnx.helper. Its weights are random, so what it
says is noise, but the same noise whichever way it runs.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnx
import torch
from _helpers import bar
from onnx import TensorProto, helper, numpy_helper

import torch_ort_session as tos

LAYERS, HEADS, HEAD_WIDTH, CAPACITY = 4, 4, 24, 256
WIDTH = HEADS * HEAD_WIDTH
LETTERS = " etaoinshrdlucmfwygpbvkxjqz.,'"


def decoder_step() -> onnx.ModelProto:
    """One token in, the scores of the next one out; keys and values of each layer go in and come out again.

    The caches have one shape in and out, so that every step has the same signature: the new entry is
    scattered to `position`, and what lies behind `position` is masked.
    """
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    random = np.random.default_rng(0)

    def constant(array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(array, f"w{len(weights)}"))
        return weights[-1].name

    def op(kind: str, *inputs: str, output: str = "", **attributes: object) -> str:
        output = output or f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def linear(x: str, wide: int, narrow: int) -> str:
        weight = random.standard_normal((wide, narrow)) / wide**0.5
        return op("MatMul", x, constant(weight.astype(np.float32)))

    def normed(x: str) -> str:
        return op("LayerNormalization", x, constant(np.ones(WIDTH, np.float32)))

    def heads(x: str) -> str:
        shape = constant(np.array([1, 1, HEADS, HEAD_WIDTH]))
        return op("Transpose", op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def table(rows: int) -> str:
        return constant(random.standard_normal((rows, WIDTH)).astype(np.float32))

    x = op("Add", op("Gather", table(len(LETTERS)), "token"), op("Gather", table(CAPACITY), "position"))
    seen = op("LessOrEqual", constant(np.arange(CAPACITY)), "position")
    mask = op("Where", seen, constant(np.float32(0)), constant(np.float32(-np.inf)))
    for layer in range(LAYERS):
        n = normed(x)
        q, k, v = (heads(linear(n, WIDTH, WIDTH)) for _ in range(3))
        keys, values = (
            op("TensorScatter", f"past_{name}", new, "position", output=f"present_{name}", axis=2)
            for name, new in ((f"key.{layer}", k), (f"value.{layer}", v))
        )
        scores = op("MatMul", q, op("Transpose", keys, perm=[0, 1, 3, 2]))
        scaled = op("Mul", scores, constant(np.float32(HEAD_WIDTH**-0.5)))
        mixed = op("MatMul", op("Softmax", op("Add", scaled, mask), axis=-1), values)
        joined = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), constant(np.array([1, WIDTH])))
        x = op("Add", x, linear(joined, WIDTH, WIDTH))
        x = op("Add", x, linear(op("Gelu", linear(normed(x), WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH))
    nodes.append(helper.make_node("Identity", [linear(normed(x), WIDTH, len(LETTERS))], ["logits"]))

    cache = [1, HEADS, CAPACITY, HEAD_WIDTH]
    names = [f"{name}.{layer}" for layer in range(LAYERS) for name in ("key", "value")]
    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in ("token", "position")]
    past, present = (
        [helper.make_tensor_value_info(f"{when}_{name}", TensorProto.FLOAT, cache) for name in names]
        for when in ("past", "present")
    )
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, len(LETTERS)])
    graph = helper.make_graph(nodes, "decoder_step", [*ids, *past], [logits, *present], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def decode_by_feeding(session: tos.Session, count: int) -> torch.Tensor:
    """What everybody writes first: the caches are fed and come back, new ones each time."""
    state = {
        port.name: torch.zeros(port.shape, device=session.device)
        for port in session.inputs
        if port.name.startswith("past")
    }
    token, tokens = torch.zeros(1, dtype=torch.int64, device=session.device), []
    for position in range(count):
        feed = {"token": token, "position": torch.tensor([position], device=session.device), **state}
        logits, *caches = session.run(None, feed)
        state = dict(zip(state, caches, strict=True))
        token = logits.argmax(dim=1)
        tokens.append(token)
    return torch.cat(tokens)


class Loop:
    """The same with everything bound: one tensor for each cache, which is both `past` and `present`."""

    def __init__(self, session: tos.Session) -> None:
        device = session.device
        self.token = torch.zeros(1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.logits = torch.empty(1, len(LETTERS), device=device)
        self.caches = []

        self.binding = session.bind()
        self.binding.input("token", self.token)
        self.binding.input("position", self.position)
        self.binding.output("logits", self.logits)
        for port in session.inputs:
            if port.name.startswith("past"):
                cache = torch.zeros(port.shape, device=device)
                self.binding.state(port.name, port.name.replace("past", "present"), cache)
                self.caches.append(cache)

    def decode(self, step: Callable[[], object], count: int) -> torch.Tensor:
        """Each token: change what is bound in place, make a step, read what is bound."""
        self.token.zero_()
        for cache in self.caches:
            cache.zero_()
        tokens = []
        for position in range(count):
            self.position.fill_(position)
            step()
            self.token.copy_(self.logits.argmax(dim=1))
            tokens.append(self.token.clone())
        return torch.cat(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=CAPACITY, help=f"tokens to decode, at most {CAPACITY}")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    args = parser.parse_args()
    count = max(1, min(args.tokens, CAPACITY))

    # 1. Two sessions on one model: one that never captures, to compare with, and one that does.
    model = decoder_step()
    eager = tos.load(model, device=args.device, options=tos.Options(capture="off"))
    session = tos.load(model, device=args.device)
    nodes = len(session.graph.nodes)
    print(f"\nOne step of the decoder: {nodes} nodes, {LAYERS} layers, {2 * LAYERS} caches.")

    # 2. Bind. From here on steps read these very tensors and leave their results in them.
    bound, captured = Loop(eager), Loop(session)
    print(f"\n{captured.binding}\n")

    # 3. Capture the first step. None says that it was made and recorded; anything else says why it was not.
    report = captured.binding.capture()
    print(f"capture() -> {report}")
    if report is not None:
        print("From here on run() makes every step eagerly; results are the same.")
    replay = captured.binding.replay if report is None else captured.binding.run

    # 4. Decode the same tokens in three ways, taken in turns so that all see the same machine.
    ways = {
        "fed, eager": lambda: decode_by_feeding(eager, count),
        "bound, eager": lambda: bound.decode(bound.binding.run, count),
        "bound, replayed": lambda: captured.decode(replay, count),
    }
    tokens: dict[str, torch.Tensor] = {}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(5):
        for name, decode in ways.items():
            start = time.perf_counter()
            tokens[name] = decode().cpu()  # on a GPU this waits for the last token
            seconds[name].append(time.perf_counter() - start)

    slowest = max(statistics.median(times) for times in seconds.values())
    print(f"\n{count} tokens, {count} steps:")
    for name, times in seconds.items():
        middle = statistics.median(times)
        print(f"  {name:16} {bar(middle / slowest)} {1e6 * middle / count:7.0f} µs a token")
    same = all(torch.equal(found, tokens["fed, eager"]) for found in tokens.values())
    print(f"  the same tokens every way: {'yes' if same else 'NO'}")
    print(f"  logits of the last step equal to the bit: {torch.equal(bound.logits, captured.logits)}")
    print(f"  it says: {''.join(LETTERS[i] for i in tokens['fed, eager'].tolist()[:64])!r}\n")
    stats = session.stats()
    print(f"The session counted {stats['captures']} capture and {stats['replays']} replays.")

    # 5. A capture knows the tensors it was made for: with another one, replay() refuses and says why.
    captured.binding.output("logits", torch.empty_like(captured.logits))
    try:
        captured.binding.replay()
    except tos.CaptureError as error:
        print(f"After binding other logits: {error}")


if __name__ == "__main__":
    main()
