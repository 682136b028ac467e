"""The scan of kernel sources, on snippets: what it must refuse and what it must let through."""

from __future__ import annotations

import pytest
from archrules import Source
from kernelscan import scan

MATHS = "torch_ort_session/ops/onnx/maths.py"
HELPER = "torch_ort_session/ops/common/reading.py"


def findings(*files: tuple[str, str]) -> list[str]:
    return [f.message for f in scan([Source(path, text) for path, text in files])]


def kernel(body: str, declaration: str = '"Add", since=(7,)') -> str:
    return f"@kernel({declaration})\ndef add(a: Tensor, b: Tensor) -> Tensor:\n    return {body}\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a.item()", "add reads data on the host: a.item()"),
        ("a.sum().tolist()", "add reads data on the host: ?.tolist()"),
        ("a.numpy()", "add reads data on the host: a.numpy()"),
        ("a.cpu()", "add reads data on the host: a.cpu()"),
        ('a.to("cpu")', 'add reads data on the host: a.to("cpu")'),
        ('a.to(device="cpu")', 'add reads data on the host: a.to("cpu")'),
        ("a.nonzero()", "add reads data on the host: a.nonzero()"),
        ("torch.nonzero(a)", "add reads data on the host: torch.nonzero()"),
        ("torch.masked_select(a, b)", "add reads data on the host: torch.masked_select()"),
        ("torch.unique(a)", "add reads data on the host: torch.unique()"),
        ("torch.where(a)", "add reads data on the host: torch.where(condition) alone"),
        ("int(a)", "add reads data on the host: int(a)"),
        ("b if a else b", "add reads data on the host: truth of a"),
        ("a[a > 0]", "add reads data on the host: boolean mask a[a > 0]"),
        ("a[~b]", "add reads data on the host: boolean mask a[~b]"),
        ("np.add(a, b)", "add leaves torch for numpy: np.add"),
        ("numpy.linalg.inv(a)", "add leaves torch for numpy: numpy.linalg.inv"),
    ],
)
def test_a_read_without_a_seam_is_refused(body: str, message: str) -> None:
    assert findings((MATHS, kernel(body))) == [message]


@pytest.mark.parametrize(
    "body", ["a + b", "torch.where(a, b, b)", "a[:, 0]", "a.to(b.dtype)", "np.dtype('f4')"]
)
def test_plain_torch_code_passes(body: str) -> None:
    assert findings((MATHS, kernel(body))) == []


def test_a_seam_lets_the_read_through() -> None:
    text = kernel("a.nonzero()", '"NonZero", since=(9,), seam="the output shape depends on the data"')
    assert findings((MATHS, text)) == []


@pytest.mark.parametrize("empty", ["None", '""'])
def test_an_empty_seam_is_none(empty: str) -> None:
    assert findings((MATHS, kernel("a.item()", f'"Add", since=(7,), seam={empty}')))


def test_a_seam_does_not_allow_maths_in_numpy() -> None:
    text = kernel("np.exp(a)", '"Exp", since=(7,), seam="always"')
    assert findings((MATHS, text)) == ["add does maths in numpy: np.exp"]
    assert findings((MATHS, text.replace("np.exp", "np.array"))) == []


READER = "def first(x: Tensor) -> float:\n    return x.item()\n"


def test_a_helper_reached_from_a_seam_only_may_read() -> None:
    seam = "from ..common.reading import first\n" + kernel("first(a)", '"Add", since=(7,), seam="reads"')
    assert findings((HELPER, READER), (MATHS, seam)) == []


def test_a_helper_reached_from_any_other_kernel_may_not() -> None:
    seam = "from ..common.reading import first\n" + kernel("first(a)", '"Add", since=(7,), seam="reads"')
    plain = seam + kernel("first(b)", '"Sub", since=(7,)')
    assert findings((HELPER, READER), (MATHS, plain)) == ["first reads data on the host: x.item()"]


def test_a_helper_is_followed_through_another_and_through_a_module_name() -> None:
    middle = (
        "torch_ort_session/ops/common/middle.py",
        "from . import reading\ndef via(x):\n    return reading.first(x)\n",
    )
    seam = kernel("first(a)", '"Add", since=(7,), seam="reads"')
    text = f"from ..common import middle\nfrom ..common.reading import first\n{seam}"
    assert findings((HELPER, READER), middle, (MATHS, text)) == []
    assert findings((HELPER, READER), middle, (MATHS, text + kernel("middle.via(a)", '"Sub", since=(7,)')))


def test_a_helper_that_no_seam_names_may_not_read() -> None:
    assert findings((HELPER, READER)) == ["first reads data on the host: x.item()"]


def test_kernels_made_by_call_are_seen() -> None:
    text = READER + 'kernel("Add", since=(7,))(first)\n'
    assert findings((MATHS, text)) == ["first reads data on the host: x.item()"]
    assert findings((MATHS, text.replace("since=(7,)", 'since=(7,), seam="reads"'))) == []
    factory = "def make(op):\n    def run(x):\n        return op(x).item()\n    return run\n"
    assert findings((MATHS, factory + 'kernel("Sin", since=(7,))(make(torch.sin))\n'))
    assert findings((MATHS, 'kernel("Sin", since=(7,))(lambda x: x.item())\n'))


def test_other_parts_of_the_package_are_not_scanned() -> None:
    assert findings(("torch_ort_session/ops/kernel.py", READER)) == []


def test_only_the_file_that_moves_strings_is_let_off() -> None:
    assert findings(("torch_ort_session/ops/common/strings.py", READER)) == []
    assert findings(("torch_ort_session/ops/common/string.py", READER))
