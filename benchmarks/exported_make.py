"""Exports models of exported_recipes.py: `python exported_make.py FOLDER NAME [--opsets N ...]`.

Of each opset a folder NAME-opsetN with model.onnx, and for each feed a file with the inputs and with what the
module itself makes of them. Run by exported.py, in the Python that it is given.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from exported_recipes import RECIPES, Made, Recipe


def results(made: Made) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    """Each feed and what the module makes of it, as arrays."""
    for feed in made.feeds:
        # Running statistics change in training mode.
        module = copy.deepcopy(made.module)
        scalars = [value.item() if value.dim() == 0 else value for value in feed.values()]
        with torch.no_grad():
            found = module(*scalars)
        found = [found] if isinstance(found, torch.Tensor) else list(found)
        arrays = {name: value.numpy() for name, value in feed.items()}
        yield arrays, [value.numpy() for value in found]


def dynamic_shapes(made: Made) -> dict[str, Any]:
    """What may change, by parameter of `forward` that is fed; those of `*values` in a tuple."""
    axes = [dict.fromkeys(made.dynamic.get(name, {}), torch.export.Dim.DYNAMIC) for name in made.feeds[0]]
    shapes: dict[str, Any] = {}
    for name, parameter in inspect.signature(made.module.forward).parameters.items():
        if len(shapes) == len(axes):
            break
        rest = parameter.kind is parameter.VAR_POSITIONAL
        shapes[name] = tuple(axes[len(shapes) :]) if rest else axes[len(shapes)]
    return shapes


def program_of(made: Made) -> Any:
    """The program that torch.export makes of a module, the way torch.onnx.export asks for it."""
    example = tuple(made.feeds[0].values())
    if made.training:
        return torch.export.export(made.module, example, dynamic_shapes=dynamic_shapes(made))
    return torch.onnx.export(
        made.module, example, dynamic_shapes=dynamic_shapes(made), dynamo=True, verbose=False, optimize=False
    ).exported_program


def by_dynamo(made: Made, program: Any, opset: int, path: Path) -> None:
    """Convert an exported program."""
    torch.onnx.export(
        copy.deepcopy(program),
        dynamo=True,
        opset_version=opset,
        input_names=list(made.feeds[0]),
        output_names=list(made.outputs),
        verbose=False,
    ).save(path)


def by_torchscript(made: Made, opset: int, path: Path, *, scripted: bool) -> None:
    """Export with the exporter that traces, or takes scripted modules."""
    module = copy.deepcopy(made.module)
    example = tuple(made.feeds[0].values())
    if scripted:
        example = tuple(value.item() if value.dim() == 0 else value for value in example)
    training = torch.onnx.TrainingMode.TRAINING if made.training else torch.onnx.TrainingMode.EVAL
    torch.onnx.export(
        torch.jit.script(module) if scripted else module,
        example,
        str(path),
        dynamo=False,
        opset_version=opset,
        training=training,
        do_constant_folding=not made.training,
        dynamic_axes={name: dict(axes) for name, axes in made.dynamic.items()},
        input_names=list(made.feeds[0]),
        output_names=list(made.outputs),
    )


def check_opset(path: Path, opset: int) -> None:
    """Make sure that a model is of an opset: where an exporter cannot convert it only warns.

    Raises:
        ValueError: It is of another one.
    """
    imported = onnx.load(path, load_external_data=False).opset_import
    found = next(entry.version for entry in imported if entry.domain in ("", "ai.onnx"))
    if found != opset:
        raise ValueError(f"the exporter wrote opset {found}")


class Reader:
    """Feeds for calibration."""

    def __init__(self, feeds: Sequence[Mapping[str, Any]]) -> None:
        self.left = [dict(feed) for feed in feeds]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def convert(path: Path, what: str, feeds: Sequence[Mapping[str, Any]]) -> None:
    """Replace a model by what onnxruntime's tools make of it: quantized, or of half precision."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    before = path.with_name("before.onnx")
    if what == "half":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=True), path)
        return
    quant_pre_process(path, before, skip_symbolic_shape=True)
    if what == "dynamic":
        quantization.quantize_dynamic(before, path)
    else:
        kind = quantization.QuantType.QUInt8 if what == "qdq-uint8" else quantization.QuantType.QInt8
        shape = quantization.QuantFormat.QOperator if what == "qoperator" else quantization.QuantFormat.QDQ
        quantization.quantize_static(
            before,
            path,
            type("Calibration", (Reader, quantization.CalibrationDataReader), {})(feeds),
            quant_format=shape,
            activation_type=kind,
            weight_type=quantization.QuantType.QInt8,
            per_channel=what == "qdq",
        )
    before.unlink()


def make(recipe: Recipe, name: str, folder: Path, opsets: Sequence[int]) -> None:
    """Write the folders of one recipe; where an opset cannot be exported, its folder holds why."""
    made = recipe.make()
    found = list(results(made))
    program: Any = None
    for opset in opsets:
        place = folder / f"{name}-opset{opset}"
        place.mkdir(parents=True, exist_ok=True)
        path = place / "model.onnx"
        try:
            if recipe.exporter == "dynamo":
                program = program or program_of(made)
                by_dynamo(made, program, opset, path)
            else:
                by_torchscript(made, opset, path, scripted=recipe.exporter == "scripted")
            check_opset(path, opset)
            if recipe.after:
                convert(path, recipe.after, [feed for feed, _ in found])
        except Exception as error:
            path.unlink(missing_ok=True)
            why = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
            (place / "failed.json").write_text(json.dumps(why))
            continue
        (place / "failed.json").unlink(missing_ok=True)
        for index, (feed, expected) in enumerate(found):
            arrays = {f"in:{key}": value for key, value in feed.items()}
            arrays |= {f"out:{key}": value for key, value in zip(made.outputs, expected, strict=True)}
            np.savez(place / f"feed{index}.npz", **arrays)


def main() -> None:
    root = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root.add_argument("folder", type=Path)
    root.add_argument("names", nargs="+")
    root.add_argument("--opsets", type=int, nargs="*")
    args = root.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in args.names:
        recipe = RECIPES[name]
        make(recipe, name, args.folder, [n for n in recipe.opsets if not args.opsets or n in args.opsets])


if __name__ == "__main__":
    main()
