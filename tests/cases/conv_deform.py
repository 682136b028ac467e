"""Cases of DeformConv."""

from opcase import OpCase, t

CASES: tuple[OpCase, ...] = (
    OpCase("DeformConv", [t(1, 2, 5, 4), t(3, 2, 2, 2), t(1, 8, 4, 3)], grad=True),
    OpCase(
        "DeformConv",
        [t(2, 2, 5, 4), t(3, 2, 2, 2), t(2, 8, 4, 3), t(3), t(2, 4, 4, 3)],
        {"kernel_shape": [2, 2]},
        ("float32", "float64"),
        grad=True,
        tol=2e-6,
        id="mask",
    ),
    OpCase(
        "DeformConv",
        [t(1, 4, 6, 7), t(4, 2, 3, 3), t(1, 36, 3, 7, low=-3, high=3), t(4)],
        {"group": 2, "offset_group": 2, "pads": [1, 2, 1, 2], "strides": [2, 1], "dilations": [1, 2]},
        opsets=(19, 22),
        id="groups",
    ),
)
