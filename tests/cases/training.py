"""Cases of the optimizer steps, and of a gradient; `control/test_gradient.py` has those of whole graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const, t

_DOMAIN = "ai.onnx.preview.training"


def _case(op: str, groups: int, step: int, shapes: list[tuple[int, ...]], **attrs: Any) -> OpCase:
    tensors = [t(*shape, low=0.1, high=1) for _ in range(groups) for shape in shapes]
    return OpCase(
        op,
        [const(0.1), const(step, "int64"), *tensors],
        attrs,
        domain=_DOMAIN,
        outputs=(groups - 1) * len(shapes),
        # onnx's reference answers several tensors in single precision and one of Adam's in double.
        dtypes=("float64",) if len(shapes) == 1 else ("float32",),
        tol=1e-6,
        grad=step > 0 and len(shapes) == 1,
    )


_DECAYS = {"norm_coefficient": 0.01, "epsilon": 1e-3}
_MOMENTUM = {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.7}

_GRADIENT = OpCase(
    "Gradient",
    [t(2, 3), t(4)],
    {"xs": ["x0"], "zs": ["x1"], "y": "x0"},
    domain=_DOMAIN,
    dtypes=("float16", "float32", "float64"),
    oracle=lambda x, z, **attrs: np.ones_like(x),
)

CASES: tuple[OpCase, ...] = (
    _GRADIENT,
    *(
        case
        for step in (0, 3)
        for shapes in ([(2, 3)], [(3,), (2, 2), ()])
        for case in (
            _case("Adagrad", 3, step, shapes, decay_factor=0.1, **_DECAYS),
            _case("Adam", 4, step, shapes, alpha=0.8, beta=0.99, norm_coefficient_post=0.02, **_DECAYS),
            _case("Momentum", 3, step, shapes, mode="standard", **_MOMENTUM),
            _case("Momentum", 3, step, shapes, mode="nesterov", **_MOMENTUM),
        )
    ),
)
