"""Cases of com.microsoft's Gelu, BiasGelu, FastGelu and QuickGelu."""

from opcase import OpCase, ms, t

X = t(2, 3, 8, low=-4, high=4)

CASES: tuple[OpCase, ...] = (
    ms("Gelu", [X], grad=True),
    ms("Gelu", [t(0, 4)], id="empty"),
    ms("BiasGelu", [X, t(8)], grad=True),
    ms("FastGelu", [X], grad=True),
    ms("FastGelu", [X, t(8)], grad=True, id="bias"),
    ms("QuickGelu", [X], grad=True),
    ms("QuickGelu", [X], {"alpha": 1.0}, id="alpha"),
)
