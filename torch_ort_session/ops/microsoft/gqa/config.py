"""What the attributes of a GroupQueryAttention say, made once a node."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from torch_ort_session.ops.common.kv_cache import Stored, stored


@dataclass(frozen=True, slots=True)
class GroupQueryConfig:
    """The attributes of a node, as its steps ask for them.

    Attributes:
        heads: Of queries.
        groups: Of keys and values.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        softcap: Bound of the scores by ``tanh``, 0 for none.
        smooth: Whether every head has a sink of logit 0.
        causal: Whether a query sees no later key.
        window: Keys in sight, the query's own counted; -1 for no bound.
        rolling: Whether the caches hold the last positions only, at least the window.
        rotary: Whether queries and keys are turned by their position.
        interleaved: Whether a pair that is turned is two neighbours.
        query_epsilon: What is added to the mean square of a query that is normalized.
        key_epsilon: The same for keys.
        products: What the fourth output holds: 1 the masked scores, 2 the probabilities, 0 nothing.
        key_kind: NONE, PER_TENSOR or PER_CHANNEL: how the cache of keys is quantized.
        value_kind: The same for values.
        cache_bits: 8, or 4 for two numbers in a byte.
    """

    heads: int
    groups: int
    scale: float | None
    softcap: float
    smooth: bool
    causal: bool
    window: int
    rolling: bool
    rotary: bool
    interleaved: bool
    query_epsilon: float
    key_epsilon: float
    products: int
    key_kind: str
    value_kind: str
    cache_bits: int

    @property
    def quantized(self) -> bool:
        """Whether a cache holds whole numbers."""
        return self.key_kind != "NONE" or self.value_kind != "NONE"

    def stored(
        self, scales: tuple[Tensor | None, Tensor | None], past: tuple[Tensor | None, Tensor | None]
    ) -> tuple[Stored, Stored]:
        """How the caches of keys and of values hold their numbers.

        Args:
            scales: What the numbers of each are multiplied by.
            past: The caches.

        Raises:
            ValueError: A quantized cache has no scale.
        """
        return (
            stored(self.key_kind, scales[0], self.cache_bits, past[0]),
            stored(self.value_kind, scales[1], self.cache_bits, past[1]),
        )
