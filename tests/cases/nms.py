"""Cases of NonMaxSuppression."""

from __future__ import annotations

from typing import Any

from opcase import OpCase, const, t


def _case(
    batch: int, classes: int, count: int, limit: Any, overlap: Any, score: Any, **options: Any
) -> OpCase:
    given: list[Any] = [
        t(batch, count, 4, low=0, high=1),
        t(batch, classes, count, low=0, high=1),
        None if limit is None else const([limit], "int64"),
        None if overlap is None else const([overlap], "float32"),
        None if score is None else const([score], "float32"),
    ]
    while given[-1] is None:
        given.pop()
    return OpCase("NonMaxSuppression", given, **{"oracle": "onnxruntime", **options})


CASES: tuple[OpCase, ...] = (
    _case(2, 3, 40, 10, 0.3, 0.4),
    _case(2, 3, 40, 3, 0.1, 0.2),
    _case(1, 1, 60, 100, 0.5, None),
    _case(2, 2, 30, 5, None, 0.6),
    _case(2, 2, 30, 5, 0.5, 0.5, attrs={"center_point_box": 1}),
    _case(2, 2, 30, 5, 0.5, 0.5, opset=10),
    _case(1, 2, 30, 0, 0.5, 0.5, id="limit of zero"),
    _case(1, 2, 30, 5, 0.5, 2.0, id="nothing passes"),
    _case(1, 2, 3000, 40, 0.2, 0.1, id="several blocks"),
    _case(1, 2, 2500, 2500, 0.6, None, id="several blocks, many kept"),
    OpCase(
        "NonMaxSuppression",
        [
            const([[[0, 0, 1, 1], [0, 0, 1, 1], [3, 3, 2, 2], [5, 5, 5, 6]]], "float32"),
            const([[[0.5, 0.5, 0.5, 0.5]]], "float32"),
            const(4, "int64"),
            const(0.5, "float32"),
        ],
        oracle="onnxruntime",
        id="ties, flipped corners, an empty box, 0-d limits",
    ),
)
