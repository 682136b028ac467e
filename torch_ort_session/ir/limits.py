"""What a model may ask for before loading it is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds that a model must keep while it is loaded; the defaults are far above real models.

    Attributes:
        nesting: Control-flow bodies within each other, and model-local functions that call each other.
        nodes: Nodes in all graphs together, after model-local functions are expanded.
        elements: Elements of one tensor.
        weight_bytes: Bytes of all weights that are not memory-mapped.
        file_bytes: Size of the model file.
        message_bytes: Size of the protobuf message without the weights that can be cut out of it.
    """

    nesting: int = 64
    nodes: int = 1_000_000
    elements: int = 1 << 40
    weight_bytes: int = 1 << 40
    file_bytes: int = 1 << 40
    message_bytes: int = (1 << 31) - 1
