"""ImageDecoder, through Pillow where it is installed.

Source: https://onnx.ai/onnx/operators/onnx__ImageDecoder.html
"""

from __future__ import annotations

import io

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@kernel("ImageDecoder", since=(20,), seam="images are decoded on the host")
def image_decoder(encoded_stream: Tensor, *, pixel_format: str = "RGB") -> Tensor:
    """Pixels of an encoded image.

    Source: https://onnx.ai/onnx/operators/onnx__ImageDecoder.html

    Args:
        encoded_stream: uint8, the bytes of an image file that Pillow reads.
        pixel_format: ``RGB``, ``BGR`` or ``Grayscale``.

    Returns:
        uint8 ``[height, width, channels]`` on the device of the input.

    Raises:
        ValueError: The format is not known or the bytes are no image.
        ImportError: Pillow is not installed.
    """
    if pixel_format not in _MODES:
        raise ValueError(f"pixel_format {pixel_format!r} is not RGB, BGR or Grayscale.")
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "ImageDecoder needs Pillow, which is not installed: pip install 'torch-ort-session[image]'."
        ) from error
    data = encoded_stream.cpu().contiguous().numpy().tobytes()
    try:
        with Image.open(io.BytesIO(data)) as image:
            decoded = image.convert(_MODES[pixel_format])
    except OSError as error:
        raise ValueError(f"the {len(data)} bytes given are no image that Pillow reads.") from error
    pixels = torch.frombuffer(bytearray(decoded.tobytes()), dtype=torch.uint8)
    pixels = pixels.reshape(decoded.height, decoded.width, -1).to(encoded_stream.device)
    return pixels.flip(2) if pixel_format == "BGR" else pixels
