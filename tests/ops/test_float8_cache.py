"""GroupQueryAttention on caches of 8-bit floats, which onnxruntime's CPU provider does not have."""

from __future__ import annotations

import torch
from opcase import OpCase, const, t

import torch_ort_session as tos

PAST = [t(2, 2, 8, 8, dtype="float8e4m3fn")] * 2
CASE = OpCase(
    "GroupQueryAttention",
    [
        *[t(2, 1, 32), t(2, 1, 16), t(2, 1, 16), *PAST],
        *[const([5, 3], "int32"), const(6, "int32")],
        *[None] * 5,
        *[const([0.02]), const([0.5])],
    ],
    {
        "num_heads": 4,
        "kv_num_heads": 2,
        "k_quant_type": "PER_TENSOR",
        "v_quant_type": "PER_TENSOR",
        "kv_cache_bit_width": 8,
    },
    domain="com.microsoft",
    outputs=3,
)


def test_a_cache_of_floats_of_8_bits_is_read_and_written() -> None:
    session = tos.load(CASE.model("float32", 1))
    for draw in range(4):
        feeds = CASE.feeds("float32", draw)
        y, keys, values = session.run(None, feeds)
        assert keys.dtype is values.dtype is torch.float8_e4m3fn
        for b, last in enumerate((5, 3)):
            for cache, name, scale in ((keys, "x1", 0.02), (values, "x2", 0.5)):
                new = torch.from_numpy(feeds[name])[b].reshape(2, 8)
                stored = (new / torch.tensor(scale)).to(torch.float8_e4m3fn)
                assert torch.equal(cache[b, :, last].view(torch.uint8), stored.view(torch.uint8))
            k, v = keys[b, :, : last + 1].float() * 0.02, values[b, :, : last + 1].float() * 0.5
            q = torch.from_numpy(feeds["x0"])[b].reshape(2, 2, 8)
            weights = torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1)
            torch.testing.assert_close(y[b, 0], (weights @ v).reshape(-1), rtol=1e-5, atol=1e-6)
    assert session.stats()["replays"]
