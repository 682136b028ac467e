"""What a model may ask for before loading it is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds that a model must keep while it is loaded; the defaults are far above real models.

    Others are passed as ``load(load_model(path, limits=Limits(nodes=...)))``.

    Attributes:
        nesting: Control-flow bodies within each other, and model-local functions that call each other.
        nodes: Nodes of all graphs together, after model-local functions are expanded.
        elements: Elements of one tensor.
        dense_bytes: Bytes of one sparse initializer once it is dense: the only weight that can be larger
            than the file that holds it.
        file_bytes: Size of the model file.
        message_bytes: Size of the protobuf message without the weights that are read straight from the file.
        hard_links: Whether an external data file may have other names (hard links). A folder unpacked from an
            archive can hold a link to any file of the same disk, so it is off; package managers that link
            files from a cache need it on.
    """

    nesting: int = 64
    nodes: int = 500_000
    elements: int = 1 << 40
    dense_bytes: int = 1 << 33
    file_bytes: int = 1 << 42
    message_bytes: int = (1 << 31) - 1
    hard_links: bool = False
