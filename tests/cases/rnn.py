"""Cases of RNN, GRU and LSTM."""

from __future__ import annotations

from typing import Any

from opcase import OpCase, const, t

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_TIME, _BATCH, _INPUT, _HIDDEN = 9, 3, 4, 2
_LENGTHS = const([9, 2, 3], "int32")
_ALL = ("float32", "float16", "float64")


def _case(
    op: str,
    *,
    direction: str = "forward",
    bias: bool = True,
    lengths: Any = None,
    state: bool = False,
    peepholes: bool = False,
    time: int = _TIME,
    outputs: Any = None,
    dtypes: tuple[str, ...] = ("float32",),
    record: dict[str, Any] | None = None,
    **attrs: Any,
) -> OpCase:
    gates, ways = _GATES[op], 2 if direction == "bidirectional" else 1
    batch_first = bool(attrs.get("layout"))
    initial = t(_BATCH, ways, _HIDDEN) if batch_first else t(ways, _BATCH, _HIDDEN)
    inputs: list[Any] = [
        t(_BATCH, time, _INPUT) if batch_first else t(time, _BATCH, _INPUT),
        t(ways, gates * _HIDDEN, _INPUT),
        t(ways, gates * _HIDDEN, _HIDDEN),
        t(ways, 2 * gates * _HIDDEN) if bias else None,
        lengths,
        initial if state else None,
    ]
    if op == "LSTM":
        inputs += [initial if state else None, t(ways, 3 * _HIDDEN) if peepholes else None]
    return OpCase(
        op,
        inputs,
        attrs={"hidden_size": _HIDDEN, "direction": direction, **attrs},
        dtypes=dtypes,
        outputs=outputs or (3 if op == "LSTM" else 2),
        **{"oracle": "onnxruntime", "grad": direction == "bidirectional" and state, **(record or {})},
    )


def _each(op: str) -> tuple[OpCase, ...]:
    plain = {"record": {"oracle": "reference"}, "dtypes": _ALL}
    return (
        *(_case(op, direction=way, **plain) for way in ("forward", "reverse", "bidirectional")),
        *(_case(op, direction=way, layout=1, state=True, **plain) for way in ("reverse", "bidirectional")),
        *(
            _case(op, direction=way, state=True, lengths=_LENGTHS)
            for way in ("forward", "reverse", "bidirectional")
        ),
        *(
            _case(op, direction=way, clip=0.3, lengths=_LENGTHS)
            for way in ("forward", "reverse", "bidirectional")
        ),
        _case(op, bias=False, direction="bidirectional"),
        _case(op, bias=False, clip=0.2),
        _case(op, time=1, state=True),
        _case(op, time=1, direction="bidirectional", state=True),
        _case(op, outputs=(False, True), lengths=_LENGTHS),
        _case(op, outputs=(True,), lengths=_LENGTHS, direction="reverse"),
        _case(op, record={"opset": 7, "oracle": "reference"}),
        _case(op, dtypes=("bfloat16",), record={"oracle": "reference"}),
    )


def _with_activations(op: str, *names: str, **attrs: Any) -> OpCase:
    return _case(op, activations=list(names), lengths=_LENGTHS, state=True, **attrs)


CASES: tuple[OpCase, ...] = (
    *_each("RNN"),
    _with_activations("RNN", "Relu"),
    _with_activations("RNN", "Relu", "Tanh", direction="bidirectional"),
    _with_activations("RNN", "Affine", activation_alpha=[0.5], activation_beta=[0.1]),
    _with_activations("RNN", "ScaledTanh", activation_alpha=[0.5], activation_beta=[0.7]),
    _with_activations("RNN", "LeakyRelu", activation_alpha=[0.2]),
    _with_activations("RNN", "LeakyRelu"),
    _with_activations("RNN", "ThresholdedRelu", activation_alpha=[0.1]),
    _with_activations("RNN", "HardSigmoid"),
    _with_activations("RNN", "HardSigmoid", activation_alpha=[0.3], activation_beta=[0.4]),
    _with_activations("RNN", "Elu", activation_alpha=[0.6]),
    _with_activations("RNN", "Softsign"),
    _with_activations("RNN", "Softplus"),
    _with_activations("RNN", "Sigmoid"),
    *_each("GRU"),
    *(
        _case(
            "GRU",
            linear_before_reset=1,
            direction=way,
            state=True,
            dtypes=_ALL,
            record={"oracle": "reference"},
        )
        for way in ("forward", "reverse", "bidirectional")
    ),
    *(
        _case("GRU", linear_before_reset=1, direction=way, lengths=_LENGTHS, state=True)
        for way in ("forward", "reverse", "bidirectional")
    ),
    _case("GRU", linear_before_reset=1, clip=0.2, direction="bidirectional"),
    _case("GRU", linear_before_reset=1, bias=False),
    _case("GRU", linear_before_reset=1, bias=False, clip=0.4),
    _with_activations("GRU", "HardSigmoid", "Relu", activation_alpha=[0.3], activation_beta=[0.4]),
    _with_activations(
        "GRU",
        "Sigmoid",
        "ScaledTanh",
        "HardSigmoid",
        "LeakyRelu",
        direction="bidirectional",
        activation_alpha=[0.9, 0.3, 0.2],
        activation_beta=[0.8, 0.4],
    ),
    *_each("LSTM"),
    _case("LSTM", peepholes=True, dtypes=_ALL, record={"oracle": "reference"}),
    _case("LSTM", peepholes=True, direction="bidirectional", lengths=_LENGTHS, state=True),
    _case("LSTM", input_forget=1, state=True),
    _case("LSTM", input_forget=1, peepholes=True, direction="reverse"),
    _case("LSTM", lengths=_LENGTHS, outputs=(True, True), direction="bidirectional", state=True),
    _with_activations("LSTM", "HardSigmoid", "Relu", "Tanh", activation_alpha=[0.3], activation_beta=[0.4]),
    _with_activations(
        "LSTM", *("Sigmoid", "Tanh", "Softsign"), *("HardSigmoid", "Elu", "Relu"), direction="bidirectional"
    ),
)
