"""ImageDecoder where there is nothing to decode."""

from __future__ import annotations

import sys

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ops.onnx.images.image import image_decoder


def test_no_image() -> None:
    with pytest.raises(ValueError) as bytes_:
        image_decoder(torch.arange(7, dtype=torch.uint8))
    assert_expected_inline(str(bytes_.value), """the 7 bytes given are no image that Pillow reads.""")
    with pytest.raises(ValueError) as kind:
        image_decoder(torch.arange(7, dtype=torch.uint8), pixel_format="CMYK")
    assert_expected_inline(str(kind.value), """pixel_format 'CMYK' is not RGB, BGR or Grayscale.""")


def test_no_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError) as missing:
        image_decoder(torch.arange(7, dtype=torch.uint8))
    assert_expected_inline(
        str(missing.value),
        """ImageDecoder needs Pillow, which is not installed: pip install 'torch-ort-session[image]'.""",
    )
