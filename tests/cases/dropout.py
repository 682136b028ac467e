"""Cases of Dropout where nothing is random."""

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16")


def kept(mask_dtype):
    def oracle(x, *_, **__):
        return x, np.ones(x.shape, mask_dtype or x.dtype)

    return oracle


CASES: tuple[OpCase, ...] = (
    OpCase("Dropout", [t(3, 4)], dtypes=FLOATS, opsets=(12, 13, 22), outputs=2, oracle=kept(bool), grad=True),
    OpCase(
        "Dropout", [t(3, 4)], dtypes=("bfloat16", "float8e4m3fn"), opset=22, oracle=lambda x: x, id="narrow"
    ),
    OpCase("Dropout", [t(3, 4), const(0.3, "float32")], outputs=2, oracle=kept(bool), id="ratio"),
    OpCase(
        "Dropout",
        [t(3, 4), None, const(False, "bool")],
        {"seed": 3},
        outputs=2,
        oracle=kept(bool),
        id="told_not_to",
    ),
    OpCase(
        "Dropout",
        [t(3, 4), const(0.0, "float32"), const(True, "bool")],
        outputs=2,
        oracle=kept(bool),
        id="training_without_loss",
    ),
    OpCase(
        "Dropout",
        [t(3, 4), const(1.0, "float32"), const(True, "bool")],
        outputs=2,
        oracle=lambda x, *_: (np.zeros_like(x), np.zeros(x.shape, bool)),
        id="training_drops_all",
    ),
    OpCase("Dropout", [t(3, 4)], {"ratio": 0.3}, opset=10, outputs=2, oracle=kept(bool), id="bool_mask"),
    OpCase("Dropout", [t(3, 4)], {"ratio": 0.3}, opset=7, outputs=2, oracle=kept(None), id="number_mask"),
    OpCase("Dropout", [t(3, 4)], {"is_test": 1}, opsets=(1, 6), outputs=2, oracle=kept(None), id="is_test"),
    OpCase(
        "Dropout", [t(3, 4)], {"ratio": 0.0}, opsets=(1, 6), outputs=2, oracle=kept(None), id="legacy_ratio_0"
    ),
    OpCase("Dropout", [t()], oracle=lambda x: x, id="scalar"),
    OpCase("Dropout", [t(0, 3)], outputs=2, oracle=kept(bool), id="empty"),
)
