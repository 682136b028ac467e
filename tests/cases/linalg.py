"""Cases of Einsum and Det."""

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def summed(*xs, equation):
    wide = [x.astype(np.float64) if x.dtype.kind not in "iu" else x.astype(np.int64) for x in xs]
    return np.asarray(np.einsum(equation, *wide)).astype(xs[0].dtype)


def determinants(x):
    return np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype)


EQUATIONS = (
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij, bjk -> bik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)),
    ("ij->ji", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("i->", (3,)),
    ("aB,Bc->ac", (2, 3), (3, 4)),
    ("Ba", (2, 3)),
    ("ba", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("bn,anm,bm->ba", (2, 5), (3, 5, 4), (2, 4)),
    ("...,...->...", (2, 3), (2, 3)),
    (",i->i", (), (3,)),
    ("...i->...", (2, 3, 4)),
    ("ij,jk->ik", (0, 3), (3, 4)),
    ("ij,jk->ik", (2, 0), (0, 4)),
)

CASES: tuple[OpCase, ...] = (
    *(
        OpCase(
            "Einsum",
            [t(*shape) for shape in shapes],
            {"equation": equation},
            opsets=(12, 28),
            oracle=summed,
            grad=0 not in np.ravel([d for s in shapes for d in s]),
            id=str(number),
        )
        for number, (equation, *shapes) in enumerate(EQUATIONS)
    ),
    OpCase(
        "Einsum",
        [t(2, 3), t(3, 4)],
        {"equation": "ij,jk"},
        dtypes=(*FLOATS, *INTS),
        oracle=summed,
        id="dtypes",
    ),
    OpCase("Det", [t(3, 3)], dtypes=FLOATS, oracle=determinants, grad=True),
    OpCase(
        "Det",
        [t(2, 3, 4, 4)],
        opsets=(11, 22),
        dtypes=("float32", "float64"),
        oracle=determinants,
        id="batch",
    ),
    OpCase("Det", [t(1, 1)], oracle=determinants, id="one"),
    OpCase("Det", [t(0, 2, 2)], oracle=determinants, id="empty_batch"),
    OpCase("Det", [t(2, 0, 0)], oracle=lambda x: np.ones(2, x.dtype), id="empty_matrix"),
    OpCase("Det", [const([[1.0, 2.0], [2.0, 4.0]])], oracle=lambda x: np.zeros((), x.dtype), id="singular"),
)
