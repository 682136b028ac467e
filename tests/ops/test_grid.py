"""GridSample where no oracle computes: cubic sampling of lines and volumes at a border, odd coordinates."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ops.onnx.images.grid import affine_grid, grid_sample


@pytest.mark.parametrize("align", [0, 1])
def test_cubic_lines_and_volumes_equal_images_of_the_same_data(align: int) -> None:
    make = torch.Generator().manual_seed(1)
    line = torch.randn(1, 2, 6, generator=make)
    at = torch.rand(1, 9, 1, generator=make) * 4 - 2
    image_grid = torch.cat((at, torch.zeros_like(at)), -1)[:, None]

    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return grid_sample(x, grid, mode="cubic", padding_mode="border", align_corners=align)

    expected = sampled(line[:, :, None], image_grid)
    torch.testing.assert_close(sampled(line, at), expected[:, :, 0])
    volume_grid = torch.cat((image_grid, torch.zeros(1, 1, 9, 1)), -1)[:, None]
    volume = line[:, :, None, None].expand(-1, -1, 3, 1, -1)
    torch.testing.assert_close(sampled(volume, volume_grid), expected[:, :, None])


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_coordinates_that_are_no_numbers_stay_inside(padding: str) -> None:
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30]).reshape(1, 4, 1)
    x = torch.arange(5, dtype=torch.int32).reshape(1, 1, 5)
    assert grid_sample(x, odd, mode="nearest", padding_mode=padding).shape == (1, 1, 4)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ValueError) as shapes:
        grid_sample(torch.zeros(1, 1, 4, 4), torch.zeros(1, 2, 2, 3))
    assert_expected_inline(
        str(shapes.value),
        """X [1, 1, 4, 4] and grid [1, 2, 2, 3] do not fit: a grid is [batch, *result, dims of X].""",
    )
    with pytest.raises(ValueError) as mode:
        grid_sample(torch.zeros(1, 1, 4, 4), torch.zeros(1, 2, 2, 2), mode="quintic")
    assert_expected_inline(
        str(mode.value), """mode 'quintic' with padding_mode 'zeros' is not defined by GridSample."""
    )
    with pytest.raises(ValueError) as theta:
        affine_grid(torch.zeros(1, 2, 3), [1, 1, 2, 2, 2])
    assert_expected_inline(str(theta.value), """theta [1, 2, 3] does not fit the size [1, 1, 2, 2, 2].""")
