"""Resize: what is refused, and the paths that must give one result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ops.onnx.images import resize as family
from torch_ort_session.ops.onnx.images.resize import resize, resize_by_scales


def _refused(*args: Any, **attrs: Any) -> str:
    with pytest.raises(ValueError) as error:
        resize(torch.zeros(1, 1, 4, 4), *args, **attrs)
    return str(error.value)


def test_what_does_not_fit_is_said() -> None:
    scales = [1.0, 1.0, 2.0, 2.0]
    assert_expected_inline(
        _refused(None, None, None), """Resize needs scales or sizes; this node gives neither."""
    )
    assert_expected_inline(
        _refused(None, [1.0, 2.0], None),
        """scales has 2 values where 4 resized axes need 4.""",
    )
    assert_expected_inline(
        _refused([0.0] * 4, scales, None, coordinate_transformation_mode="tf_crop_and_resize"),
        """roi has 4 values where 4 resized axes need 8.""",
    )
    assert_expected_inline(
        _refused(None, scales, None, mode="area"), """mode 'area' is not one of nearest, linear and cubic."""
    )
    assert_expected_inline(
        _refused(None, scales, None, antialias=1),
        """antialias is defined for the modes linear and cubic, not for nearest.""",
    )
    assert_expected_inline(
        _refused(None, scales, None, nearest_mode="round"),
        """nearest_mode 'round' is not one of those that Resize defines.""",
    )
    assert_expected_inline(
        _refused(None, scales, None, mode="linear", coordinate_transformation_mode="centre"),
        """coordinate_transformation_mode 'centre' is not one of those that Resize defines.""",
    )
    assert_expected_inline(
        _refused(None, None, [1, 1, 8, 8], keep_aspect_ratio_policy="crop"),
        """keep_aspect_ratio_policy 'crop' is not stretch, not_larger or not_smaller.""",
    )
    with pytest.raises(ValueError) as empty:
        resize(torch.zeros(1, 0), None, None, [1, 3])
    assert_expected_inline(str(empty.value), """axis 1 of length 0 cannot be resized to length 3.""")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize("size", [(7, 13), (3, 5), (40, 2), (1, 9)])
def test_torchs_interpolation_equals_the_weights(
    mode: str, transform: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform, "axes": [2, 3]}
    fused = resize(x, None, None, list(size), **attrs)
    monkeypatch.setattr(family, "_FUSED_LIMIT", 0)
    torch.testing.assert_close(resize(x, None, None, list(size), **attrs), fused)


@pytest.mark.parametrize("factors", [(2.0, 3.0), (1.0, 5.0), (7.0, 1.0)])
def test_whole_factors_equal_the_coordinates(
    factors: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.arange(2 * 11 * 13).reshape(1, 2, 11, 13)
    for transform, roundings in family._ROUNDS_TO_BLOCK.items():
        for rounding in roundings:
            attrs: dict[str, Any] = {
                "coordinate_transformation_mode": transform,
                "nearest_mode": rounding,
                "axes": [2, 3],
            }
            repeated = resize(x, None, list(factors), None, **attrs)
            with monkeypatch.context() as patch:
                patch.setattr(family, "_ROUNDS_TO_BLOCK", {})
                assert torch.equal(resize(x, None, list(factors), None, **attrs), repeated)


def test_lengths_follow_the_single_precision_product() -> None:
    seven_tenths = float(torch.tensor(0.7))
    assert resize_by_scales(torch.zeros(10), [seven_tenths]).shape == (7,)


def test_a_channels_last_image_stays_right() -> None:
    x = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(6))
    for mode in ("nearest", "linear"):
        dense = resize_by_scales(x, [1.0, 1.0, 2.0, 1.5], mode=mode)
        torch.testing.assert_close(
            resize_by_scales(x.to(memory_format=torch.channels_last), [1.0, 1.0, 2.0, 1.5], mode=mode), dense
        )
