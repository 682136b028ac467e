"""What the summary of the differential tests counts."""

from __future__ import annotations

import onnx
from expecttest import assert_expected_inline

from differential.tallied import Compared


def test_what_is_counted() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
        " g (float16[2] x, int64[1] i) => (float16[2] z, int64[1] j)"
        " { y = com.microsoft.Gelu(x) z = Add(y, y) j = Add(i, i) }"
    )
    compared = Compared()
    for _ in range(3):
        compared.note(onnx.parser.parse_model(text))
    assert compared.pairs["", "Add", "INT64"] == 3
    assert_expected_inline(
        str(compared),
        """compared: 3 (operator, dtype) pairs of 2 operators, 1 of them of com.microsoft, in 3 cases""",
    )
