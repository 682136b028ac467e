"""Makes models of `genai_recipes.py`: run by a Python that has the builders, as `genai.py` does.

`PYTHON benchmarks/genai_make.py FOLDER NAME...` needs torch, transformers, and onnxruntime-genai for the
names that begin with builder/, optimum-onnx for those with optimum/. It prints a line of JSON for each name:
an empty text when the model was made, else why not. Nothing is downloaded: weights are random, and tokenizers
that builders insist on are made here.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from genai_recipes import MODELS, NETWORKS, Made


def checkpoint(name: str, folder: Path) -> Path:
    """Configuration, weights and tokenizer of a network, made where they are not there yet."""
    import torch
    import transformers

    place = folder / f"checkpoint-{transformers.__version__}-{name}"
    if (place / "config.json").is_file():
        return place
    network = NETWORKS[name]
    torch.manual_seed(0)
    config = getattr(transformers, network.config)(**network.options)
    model = getattr(transformers, network.model)(config).eval()
    # Weights as they are initialised hardly do anything: these keep activations at the size that they have.
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() >= 2 and not any(text in key for text in ("embed", "wte", "wpe", "shared")):
                weight.copy_(torch.randn_like(weight) / weight.shape[-1] ** 0.5)
            elif weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(place)
    _tokenizer(place)
    return place


def _tokenizer(place: Path) -> None:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    letters = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(place)


def build(made: Made, source: Path, place: Path) -> None:
    """Run the model builder of onnxruntime-genai."""
    precision, provider, *extra = made.arguments
    options = [
        "-i",
        str(source),
        "-o",
        str(place),
        "-p",
        precision,
        "-e",
        provider,
        "-c",
        str(place / "cache"),
    ]
    sys.argv = ["builder", *options, *(["--extra_options", *extra] if extra else [])]
    runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__", alter_sys=True)


def export(made: Made, source: Path, place: Path) -> None:
    """Run optimum's export."""
    from optimum.exporters.onnx.__main__ import main as exporter

    sys.argv = ["optimum", "-m", str(source), *made.arguments, str(place)]
    exporter()


MAKERS: dict[str, Callable[[Made, Path, Path], Any]] = {"builder": build, "optimum": export}


def make(made: Made, folder: Path) -> str:
    """Make one model; says why it could not be made, and leaves nothing of it then."""
    place = folder / made.name
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            MAKERS[made.maker](made, checkpoint(made.network, folder), place)
    except (Exception, SystemExit) as error:
        shutil.rmtree(place, ignore_errors=True)
        first = next(iter(str(error).strip().splitlines()), "")
        return f"{type(error).__name__}: {first}"
    return "" if any(place.glob("*.onnx")) else "no model was written"


def main(arguments: Sequence[str]) -> int:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    folder, names = Path(arguments[0]), arguments[1:]
    for made in MODELS:
        if made.name in names:
            print(json.dumps({"name": made.name, "why": make(made, folder)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
