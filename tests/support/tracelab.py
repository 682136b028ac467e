"""Models whose traces tests look at."""

from __future__ import annotations

SEAM = (
    "g (float[n] x) => (float[m] y) { a = Mul(x, x) b = Tanh(a) z = NonZero(b)"
    " c = Cast<to=1>(z) d = Squeeze(c) e = Mul(d, d) y = Tanh(e) }"
)
GATED = (
    "g (float[n] x, int64[1] k) => (float[n] y) <int64[1] one = {1}> { c = Equal(k, one)"
    " s = Squeeze(c) y = If(s)"
    " <then_branch = t () => (p) { p = Exp(x) }, else_branch = e () => (q) { q = Neg(x) }> }"
)
