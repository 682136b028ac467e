"""Cases of com.microsoft's LinearAttention, CausalConvWithState and their gates."""

import numpy as np
from opcase import OpCase, ms, t


def sigmoid(x):  # type: ignore[no-untyped-def]
    return 1 / (1 + np.exp(-x))


def silu(x):  # type: ignore[no-untyped-def]
    return x * sigmoid(x)


def windows(q, k, v, past, decay, beta, *, q_num_heads, kv_num_heads, state_window):  # type: ignore[no-untyped-def]
    """By the documented recurrence, in float64; each head of the queries is one of the keys."""
    assert q_num_heads == kv_num_heads
    q, k, v = (x.astype(np.float64).reshape(*x.shape[:2], kv_num_heads, -1) for x in (q, k, v))
    state, reads, states = past[-1].astype(np.float64), [], []
    for step in range(q.shape[1]):
        state = state * np.exp(decay[:, step, :, None, None])
        known = np.einsum("bgd,bgde->bge", k[:, step], state)
        state = state + np.einsum("bgd,bge->bgde", k[:, step], beta[:, step, :, None] * (v[:, step] - known))
        reads.append(np.einsum("bgd,bgde->bge", q[:, step], state) / np.sqrt(q.shape[-1]))
        states.append(state)
    blank = [np.zeros_like(state)] * max(state_window - len(states), 0)
    y = np.stack(reads, 1).reshape(*q.shape[:2], -1)
    return y.astype(past.dtype), np.stack([*blank, *states[-state_window:]]).astype(past.dtype)


def conv(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias=None,
    past=None,
    *,
    activation="none",
    dilation=1,
    channels_last=0,
    state_window=0,
    state_update_capacity=0,
    state_length=0,
    state_channels_last=-1,
    input_channels=0,
    input_channel_offset=0,
):
    """Step by step in float64."""
    if state_window and past is not None:
        past = past[-1]
    flat = x.transpose(0, 2, 1) if channels_last else x
    flat = flat[:, input_channel_offset : input_channel_offset + (input_channels or flat.shape[1])]
    reach = (weight.shape[2] - 1) * dilation
    before, last = state_length or reach, channels_last if state_channels_last < 0 else state_channels_last
    state = np.zeros((*flat.shape[:2], before)) if past is None else past
    state = state.transpose(0, 2, 1) if last and past is not None else state
    whole = np.concatenate((state, flat), 2).astype(np.float64)
    steps = range(before, before + flat.shape[2])
    y = np.stack(
        [np.einsum("bck,ck->bc", whole[:, :, s - reach : s + 1 : dilation], weight[:, 0]) for s in steps], 2
    )
    y = y if bias is None else y + bias[:, None]
    y = y if activation == "none" else silu(y)
    turn = (lambda z: z.transpose(0, 2, 1)) if last else (lambda z: z)
    after = [turn(whole[:, :, s : s + before]) for s in range(1, flat.shape[2] + 1)]
    present = after[-1]
    if state_window:
        blank = [np.zeros_like(present)] * max(state_window - len(after), 0)
        present = np.stack([*blank, *after[-state_window:]])
    results = [y.transpose(0, 2, 1) if channels_last else y, present]
    if state_update_capacity:
        update = np.zeros((x.shape[0], state_update_capacity, flat.shape[1]))
        count = min(state_update_capacity, flat.shape[2])
        update[:, :count] = flat[:, :, :count].transpose(0, 2, 1)
        results.append(update)
    return tuple(result.astype(x.dtype) for result in results)


def gate(a, dt_bias, decay_scale, b):  # type: ignore[no-untyped-def]
    decay = decay_scale * np.log1p(np.exp(a.astype(np.float64) + dt_bias))
    return decay.astype(a.dtype), sigmoid(b.astype(np.float64)).astype(a.dtype)


QKV = [t(2, 5, 12), t(2, 5, 6), t(2, 5, 8)]
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
DECAY, BETA = t(2, 5, 2, low=-1, high=0), t(2, 5, 2, low=0)
EXTENDED = {
    "channels_last": 1,
    "input_channels": 3,
    "input_channel_offset": 1,
    "state_length": 5,
    "state_channels_last": 0,
    "state_update_capacity": 4,
}

CASES: tuple[OpCase, ...] = (
    ms("LinearAttention", [*QKV, None, DECAY, BETA], HEADS, dtypes=("float32", "float16"), outputs=2),
    ms(
        "LinearAttention",
        [t(2, 3, 6), t(2, 3, 12), t(2, 3, 20), t(2, 4, 3, 5), None, t(2, 3, 1, low=0)],
        {"q_num_heads": 2, "kv_num_heads": 4, "update_rule": "delta", "scale": 0.3},
        outputs=2,
        id="more_states",
    ),
    ms(
        "LinearAttention",
        [t(2, 2, 6), t(2, 2, 6), t(2, 2, 8), t(3, 2, 2, 3, 4), t(2, 2, 2, low=-1, high=0), t(2, 2, 2, low=0)],
        {"q_num_heads": 2, "kv_num_heads": 2, "state_window": 3},
        outputs=2,
        oracle=windows,
        id="window",
    ),
    ms("LinearAttentionGate", [t(2, 3, 4), t(4), t(4), t(2, 3, 4)], outputs=2, oracle=gate),
    ms(
        "LinearAttentionGate",
        [t(2, 3, 4, dtype="float16"), t(4, dtype="float32"), t(4, dtype="float32"), t(2, 3, 4)],
        dtypes=("float16",),
        outputs=2,
        oracle=gate,
        id="half",
    ),
    ms("CausalConvWithState", [t(2, 3, 6), t(3, 1, 4)], dtypes=("float32", "float16"), outputs=2),
    ms(
        "CausalConvWithState",
        [t(2, 3, 6), t(3, 1, 3), t(3), t(2, 3, 4)],
        {"activation": "swish", "dilation": 2},
        outputs=2,
        id="dilated",
    ),
    ms(
        "CausalConvWithState",
        [t(2, 5, 3), t(3, 1, 3), None, t(2, 2, 3)],
        {"channels_last": 1},
        outputs=2,
        id="channels_last",
    ),
    ms(
        "CausalConvWithState",
        [t(2, 3, 2), t(3, 1, 3), t(3), t(3, 2, 3, 2)],
        {"state_window": 3, "activation": "silu"},
        outputs=2,
        oracle=conv,
        id="window",
    ),
    ms(
        "CausalConvWithState",
        [t(2, 3, 5), t(3, 1, 3), t(3), t(2, 3, 5)],
        EXTENDED,
        outputs=3,
        oracle=conv,
        id="extended",
    ),
)
