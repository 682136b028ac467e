"""Read a plan: what is recorded, what runs in between and why, and how to get rid of what runs in between.

    python tutorials/03_reading_a_plan.py [--model PATH] [--html FILE]

The model is magika again, which tells what kind of file some bytes are. Here it is given an ending of its
own, as people do: which kinds are above a threshold? How many that are hangs on the data, and that is what no
recording can hold.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import torch
from _helpers import write_disguised_files, zoo_model
from onnx import TensorProto, helper, numpy_helper

import torch_ort_session as tos

first_and_last_bytes = import_module("01_run_a_model").first_and_last_bytes


def ending(model: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    """The model with another ending.

    Args:
        model: magika, whose one output is a row of scores for each file.
        kind: "above" gives all scores above 0.05 as percentages, "best" the k best ones of each row, where k
            is an input, and "five" the five best ones of each row.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, scores = made.graph, model.graph.output[0].name
    del graph.output[:]
    numbers = {"least": np.float32(0.05), "hundred": np.float32(100), "five": np.array([5])}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(n), name) for name, n in numbers.items())
    if kind == "above":
        steps = [
            ("Greater", [scores, "least"], ["above"]),
            ("NonZero", ["above"], ["places"]),
            ("Transpose", ["places"], ["pairs"]),
            ("GatherND", [scores, "pairs"], ["found"]),
            ("Mul", ["found", "hundred"], ["percent"]),
        ]
        graph.output.append(helper.make_tensor_value_info("percent", TensorProto.FLOAT, ["hits"]))
    else:
        k = "five" if kind == "five" else "k"
        steps = [
            ("TopK", [scores, k], ["found", "kinds"]),
            ("Mul", ["found", "hundred"], ["percent"]),
        ]
        graph.output.append(helper.make_tensor_value_info("percent", TensorProto.FLOAT, ["files", "k"]))
        if kind == "best":
            graph.input.append(helper.make_tensor_value_info("k", TensorProto.INT64, [1]))
    graph.node.extend(helper.make_node(op, read, write, name=write[0]) for op, read, write in steps)
    return made


def title(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}")


DID = {
    "eager runs": "ran eagerly",
    "observed runs": "ran eagerly, observed",
    "declines": "ran eagerly, the capture was declined",
    "captures": "was captured",
    "replays": "was replayed",
    "retirements": "and the capture was retired",
}


class Watch:
    """Says what a session did since it was asked last, from its counters."""

    def __init__(self, session: tos.Session) -> None:
        self.session, self.before = session, session.stats()

    def __str__(self) -> str:
        before, self.before = self.before, self.session.stats()
        return ", ".join(words for name, words in DID.items() if self.before[name] > before[name])


def run(session: tos.Session, watch: Watch, feed: Mapping[str, torch.Tensor], what: str) -> None:
    (percent,) = session.run(None, feed)
    print(f"  {what:38} {percent.numel():3} numbers   {watch}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="magika's model.onnx")
    parser.add_argument("--html", type=Path, help="where the page goes (default: a temporary folder)")
    args = parser.parse_args()
    path = args.model or zoo_model("magika")
    magika = onnx.load(path)
    with tempfile.TemporaryDirectory() as folder:
        rows = torch.stack([first_and_last_bytes(file) for file in write_disguised_files(Path(folder))])
    four, same, others = rows[:4], rows[[3, 2, 1, 0]], rows[8:12]

    title("1. A plan without a seam")
    # explain(feed) runs once, records once, keeps neither, and says what later runs on such feeds would do.
    print(tos.load(magika).explain({"bytes": four}))
    print("""
A segment is a stretch of steps that is recorded once and then replayed as a whole. Views cost nothing: only
launches compute. Nodes that work element by element, one behind the other, are fused into one step. Folded
steps make constants, most of them shapes. What recorded calls write, and the copies of the feeds that they
read, have slots in the arena, which are used again as soon as nobody reads them: that is what is saved.""")

    title("2. A seam, and its reason")
    above = ending(magika, "above")
    session = tos.load(above)
    plan = session.explain({"bytes": four})
    print(plan[: plan.index("\n\nmemory")])
    print("""
A seam is a step that runs eagerly between recordings. This one is NonZero: how many scores are above the
threshold hangs on the bytes. What comes after it is recorded all the same, for the number of hits that was
seen, and every replay looks whether it still holds.""")

    title("3. What a divergence looks like")
    watch = Watch(session)
    for number in (1, 2, 3):
        run(session, watch, {"bytes": four}, f"run {number}, four files")
    run(session, watch, {"bytes": same}, "run 4, the same in another order")
    run(session, watch, {"bytes": others}, "run 5, other files, other hits")
    print(
        "\nThe result of run 5 is right: what came after the seam ran eagerly. explain() keeps the report:\n"
    )
    known = session.explain()
    print(known[known.index("node ") :].partition("\n\n")[0])

    title("4. How to get rid of a seam")
    best = tos.load(ending(magika, "best"))
    k = torch.tensor([5])
    plan = best.explain({"bytes": four, "k": k})
    print("TopK with k as an input, one integer: a key feed, whose value is part of the signature.")
    print(plan[: plan.index("\n\nmemory")])
    watch = Watch(best)
    for number in (1, 2, 3):
        run(best, watch, {"bytes": four, "k": k}, f"run {number}, the 5 best")
    run(best, watch, {"bytes": others, "k": k}, "run 4, other files, the 5 best")
    run(best, watch, {"bytes": others, "k": k - 2}, "run 5, the 3 best: another signature")
    for least in range(1, 5):
        best.run(None, {"bytes": four, "k": k + least})
    watch = Watch(best)
    print("  runs 6 to 9, with four more values of k: too many to tell captures apart by, so that k is data")
    for number in range(10, 14):
        run(best, watch, {"bytes": four, "k": k}, f"run {number}, the 5 best")
    known = best.explain()
    print(f"\n{known[known.index('regions') :].partition(chr(10) * 2)[0]}")
    print(f"\nA constant k has neither limit ({known.splitlines()[-1]}):\n")
    five = tos.load(ending(magika, "five"))
    plan = five.explain({"bytes": four})
    print("\n".join(plan.splitlines()[:2]))
    watch = Watch(five)
    for batch in (four, same, rows[4:8], others):
        run(five, watch, {"bytes": batch}, "four files, the 5 best")

    title("5. Why nothing was captured at all: the report")
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["places"], name="places")],
        "places",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("places", TensorProto.INT64, [1, "hits"])],
    )
    opset = helper.make_opsetid("", 18)
    strict = tos.load(
        helper.make_model(graph, opset_imports=[opset], ir_version=10),
        options=tos.Options(capture="required"),
    )
    try:
        for _ in range(3):
            strict.run(None, {"x": torch.ones(3)})
    except tos.CaptureError as error:
        print(error.report)
        print(f"\nThe same for programs: {error.report.to_dict()[1]['reason']!r}")

    title("6. The same as one page, and as numbers")
    target = args.html or Path(tempfile.mkdtemp()) / "plan.html"
    model = target.with_suffix(".onnx")
    onnx.save(above, model)
    np.save(target.with_suffix(".npy"), four.numpy())
    command = ["plan", str(model), "--input", f"bytes={target.with_suffix('.npy')}", "--html", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "torch_ort_session", *command], capture_output=True, text=True, check=True
    )
    print(f"torch-ort-session {' '.join(command)}")
    print(
        f"wrote {done.stdout.splitlines()[-1]}: the strip, the seam with its reason, the slots over calls.\n"
    )
    shown = ("captures", "replays", "retirements", "plans", "arena bytes")
    counted = {name: value for name, value in session.stats().items() if name in shown}
    print(f"stats() of the session of part 3: {counted}")


if __name__ == "__main__":
    main()
