"""Cases of StringNormalizer, StringConcat, StringSplit, RegexFullMatch."""

import numpy as np
from opcase import OpCase, const


def text(data: object):
    return const(data, "string")


def texts(data: object) -> np.ndarray:
    return np.array(data, dtype=object)


DAYS = ["Monday", "tuesday", "monday", "Ärger"]

CASES: tuple[OpCase, ...] = (
    OpCase("StringConcat", [text(["a", "b"]), text(["c", ""])]),
    OpCase("StringConcat", [text([["a"], ["b"]]), text("x")], id="broadcast"),
    OpCase("StringConcat", [text("a"), text("b")], oracle=lambda x, y: texts("ab"), id="scalars"),
    OpCase("StringSplit", [text(["a b  c", "", " d "])], outputs=2),
    OpCase(
        "StringSplit", [text([["a,b,,c"], ["d"]])], {"delimiter": ",", "maxsplit": 2}, outputs=2, id="most"
    ),
    OpCase("StringSplit", [text([])], {"delimiter": ","}, outputs=2, id="empty"),
    OpCase("RegexFullMatch", [text([["a@b.de", "a@b"], ["", "x"]])], {"pattern": r"[a-z]@[a-z]\.\w+"}),
    OpCase(
        "RegexFullMatch",
        [text("ab")],
        {"pattern": "a|ab"},
        oracle=lambda *_, **__: np.array(True),
        id="scalar",
    ),
    OpCase(
        "StringNormalizer",
        [text(DAYS)],
        {"case_change_action": "LOWER", "is_case_sensitive": 1, "stopwords": ["monday"]},
        oracle=lambda *_, **__: texts(["monday", "tuesday", "ärger"]),
        id="lower",
    ),
    OpCase(
        "StringNormalizer",
        [text([DAYS])],
        {"case_change_action": "UPPER", "stopwords": ["MONDAY"]},
        oracle=lambda *_, **__: texts([["TUESDAY", "ÄRGER"]]),
        id="upper",
    ),
    OpCase(
        "StringNormalizer",
        [text(["a"])],
        {"stopwords": ["a"]},
        oracle=lambda *_, **__: texts([""]),
        id="nothing_left",
    ),
    OpCase("StringNormalizer", [text(["a", "b"])], oracle=lambda *_, **__: texts(["a", "b"]), id="as_is"),
)
