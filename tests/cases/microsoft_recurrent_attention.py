"""Cases of com.microsoft's AttnLSTM."""

from typing import Any

from opcase import OpCase, const, t


def attn_lstm(
    direction: str = "forward",
    *,
    depth: int = 3,
    lengths: Any = None,
    memory_lengths: Any = None,
    bias: bool = True,
    layer: bool = True,
    attrs: Any = (),
    **more: Any,
) -> OpCase:
    """Four steps of two samples of three features, five hidden; a memory of seven steps of four features."""
    ways = 2 if direction == "bidirectional" else 1
    hidden, memory = 5, 4
    inputs: list[Any] = [t(4, 2, 3), t(ways, 4 * hidden, 3 + (depth if layer else memory))]
    inputs += [t(ways, 4 * hidden, hidden), t(ways, 8 * hidden) if bias else None]
    inputs.append(None if lengths is None else const(lengths, "int32"))
    inputs += [t(ways, 2, hidden)] * 2 if bias else [None, None]
    inputs += [None, t(ways, hidden, 6), t(ways, memory, 6), t(ways, 6), t(2, 7, memory)]
    inputs.append(None if memory_lengths is None else const(memory_lengths, "int32"))
    inputs += [t(ways, memory + hidden, depth)] if layer else []
    given = {"hidden_size": hidden, "direction": direction, **dict(attrs)}
    return OpCase("AttnLSTM", inputs, given, domain="com.microsoft", outputs=3, oracle="onnxruntime", **more)


CASES: tuple[OpCase, ...] = (
    attn_lstm(),
    attn_lstm(layer=False, memory_lengths=[3, 7], id="memory"),
    attn_lstm("bidirectional", lengths=[4, 2], memory_lengths=[7, 1], id="both"),
    attn_lstm("reverse", bias=False, id="reverse"),
)
