"""Cases of com.microsoft's sequences behind one another: GatedDeltaNet, VarlenCausalConvWithState."""

from opcase import OpCase, const, t

from cases.microsoft_state import ms

ENDS = const([0, 2, 5], "int32")
QKV = [t(5, 2, 4), t(5, 2, 4), t(5, 4, 3)]
DECAY, BETA = t(5, 4, low=-1, high=0, dtype="float32"), t(5, 4, low=0, dtype="float32")
STATE = t(2, 4, 3, 4, dtype="float32")

CASES: tuple[OpCase, ...] = (
    ms(
        "GatedDeltaNet",
        [*QKV, ENDS, DECAY, BETA, STATE],
        {"qk_l2_norm": 1},
        dtypes=("float32", "float16"),
        outputs=2,
    ),
    ms("GatedDeltaNet", [*QKV, ENDS], {"update_rule": "linear", "scale": 0.3}, outputs=2, id="linear"),
    ms(
        "GatedDeltaNet",
        [t(2, 3, 2, 4), t(2, 3, 2, 4), t(2, 3, 4, 3), None, t(2, 3, 4), t(2, 3, 4), STATE, t(4), t(4)],
        {"gate_activation": "softplus", "beta_activation": "sigmoid", "qk_l2_norm": 1},
        outputs=2,
        id="even",
    ),
    ms(
        "GatedDeltaNet",
        [t(6, 28), None, None, None, t(6, 4, 4), None, STATE, t(4), t(4, 4)],
        {"gate_activation": "kda", "update_rule": "gated"},
        outputs=2,
        id="packed",
    ),
    ms(
        "VarlenCausalConvWithState",
        [t(5, 3), t(3, 1, 3), ENDS, t(3), t(2, 3, 4)],
        {"dilation": 2, "activation": "silu"},
        dtypes=("float32", "float16"),
        outputs=2,
    ),
    ms(
        "VarlenCausalConvWithState",
        [t(5, 3), t(3, 1, 4), ENDS, None, t(2, 3, 3), const([1, 4], "int32")],
        {"state_update_capacity": 3},
        outputs=3,
        id="capture",
    ),
)
