"""Run a real ONNX model on real files: what kind of file is this, whatever its name says?

    python tutorials/01_run_a_model.py [FILE ...] [--model PATH]

The model is magika (Apache-2.0), which reads 2,048 bytes of a file and knows 214 kinds. Without arguments it
looks at files that this script writes under names that lie.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from _helpers import bar, strip, write_disguised_files, zoo_model

import torch_ort_session as tos

# Inside the model: how strongly each of 512 detectors answers at each of 508 places, 4 bytes apart.
DETECTORS = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/ApplyActivation_1/Mul_5:0"
PADDING = 256


def first_and_last_bytes(path: Path) -> torch.Tensor:
    """What magika wants to see: 1,024 bytes from the start and 1,024 from the end, without outer blanks."""
    data = path.read_bytes()
    first, last = data[:4096].lstrip()[:1024], data[-4096:].rstrip()[-1024:]
    row = torch.full((2048,), PADDING, dtype=torch.int32)
    row[: len(first)] = torch.tensor(list(first), dtype=torch.int32)
    row[2048 - len(last) :] = torch.tensor(list(last), dtype=torch.int32)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files to look at")
    parser.add_argument("--model", type=Path, help="magika's model.onnx, with config.min.json beside it")
    args = parser.parse_args()
    path = args.model or zoo_model("magika")
    labels = json.loads(path.with_name("config.min.json").read_text())["target_labels_space"]

    # 1. Load. From here on everything is torch.
    session = tos.load(path)
    print(f"\n{session}\n")

    # 2. Real input: one row of bytes for each file.
    with tempfile.TemporaryDirectory() as folder:
        files = args.files or [*write_disguised_files(Path(folder)), path]
        names = [file.name for file in files]
        batch = torch.stack([first_and_last_bytes(file) for file in files])
    port = session.inputs[0]
    print(f"The model wants {port.name!r} as {port.dtype} {port.shape}: it gets {tuple(batch.shape)}.\n")

    # 3. Run it like a module. One output comes back as one torch.Tensor.
    scores = session(batch)
    best = scores.max(dim=1)

    print("what the name says    what the model sees in the bytes")
    for name, score, index in zip(names, best.values.tolist(), best.indices.tolist(), strict=True):
        print(f"  {name:18}  {labels[index]:10} {bar(score)} {score:6.1%}")

    # 4. Any value inside the model can be asked for by its name, without editing the model.
    (answers,) = session.run([DETECTORS], {"bytes": batch})
    places = answers.argmax(dim=2) // 8

    print(f"\nWhere {answers.shape[1]} detectors inside the model found what they look for:")
    print(f"  {'':18}  start{'of the file | end of the file'.center(56)}end")
    for name, found in zip(names, places, strict=True):
        print(f"  {name:18}  {strip(torch.bincount(found, minlength=64).tolist())}")
    print(f"\nResults are ordinary tensors: {type(scores).__name__} {scores.dtype} {tuple(scores.shape)}")


if __name__ == "__main__":
    main()
