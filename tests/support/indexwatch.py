"""Watches which indices reach torch's own index kernels, and whether somebody has looked at them.

On CUDA such a kernel asserts on a bad index, and the assertion ends the process. What comes from a feed has
to pass a check of the validation word, or a clamp, before one of them sees it as an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

INDICES: Mapping[str, tuple[int, ...]] = {
    "index": (1,),
    "_unsafe_index": (1,),
    "_unsafe_masked_index": (1, 2),
    "index_put": (1,),
    "index_put_": (1,),
    "_index_put_impl_": (1,),
    "_unsafe_index_put": (1,),
    "index_select": (2,),
    "index_add": (2,),
    "index_add_": (2,),
    "index_copy": (2,),
    "index_copy_": (2,),
    "index_fill": (2,),
    "index_fill_": (2,),
    "index_reduce": (2,),
    "index_reduce_": (2,),
    "gather": (2,),
    "scatter": (2,),
    "scatter_": (2,),
    "scatter_add": (2,),
    "scatter_add_": (2,),
    "scatter_reduce": (2,),
    "scatter_reduce_": (2,),
    "take": (1,),
    "put": (1,),
    "put_": (1,),
    "embedding": (1,),
    "_embedding_bag": (1, 2),
    "_embedding_bag_forward_only": (1, 2),
    "nll_loss_forward": (1,),
    "nll_loss2d_forward": (1,),
    "max_unpool2d": (1,),
    "max_unpool3d": (1,),
    "repeat_interleave": (0,),
    "segment_reduce": (2,),
}
"""The arguments, by their place, in which torch's kernels take indices."""

_BOUNDED = """
arange argmax argmin argsort bincount bucketize count_nonzero empty empty_like empty_strided full full_like
histc multinomial new_empty new_full new_ones new_zeros nonzero ones ones_like rand randint randn randperm
scalar_tensor searchsorted zeros zeros_like
"""
BOUNDED = frozenset(_BOUNDED.split())
"""What gives numbers that no feed can push out of range: counts, places, and what is made anew."""
_SECOND = ("sort", "topk", "max", "min", "kthvalue", "mode", "median", "cummax", "cummin")
PLACES = {"top_k": 0, **dict.fromkeys(_SECOND, 1)}
"""Which result of an operation is a place."""
CHECKS = frozenset({"check_index", "check_range"})


class IndexWatch(TorchDispatchMode):
    """Follows what comes from feeds, and notes where it is an index that nobody has looked at.

    Attributes:
        found: Names of the operations that saw one, in order.
    """

    def __init__(self, feeds: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.found: list[str] = []
        # By storage, since a view of a feed is as good as the feed; kept, so that no address is used twice.
        self._open: set[int] = set()
        # What comes from bytes cannot leave a table of 256.
        self._bytes: set[int] = set()
        self._kept: list[Any] = []
        for feed in feeds:
            self._taint(feed)

    def _taint(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._kept.append(storage)
        self._open.add(storage._cdata)

    def _is_open(self, value: Any) -> bool:
        return any(
            t.dtype != torch.bool and t.untyped_storage()._cdata in self._open for t in _tensors(value)
        )

    def _in_table(self, packet: str, args: Sequence[Any]) -> bool:
        if packet != "index_select" or args[0].shape[args[1]] < 256:
            return False
        return args[2].untyped_storage()._cdata in self._bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = str(func.overloadpacket).rpartition(".")[2]
        taking = func.overloadpacket._qualified_op_name.partition("::")[0] == "aten"
        places = [place for place in INDICES.get(packet, ()) if place < len(args)] if taking else []
        if any(self._is_open(args[place]) for place in places) and not self._in_table(packet, args):
            self.found.append(packet)
        result = func(*args, **kwargs)
        if packet == "_to_copy" and args[0].dtype == torch.uint8:
            self._bytes.add(result.untyped_storage()._cdata)
        self._kept.extend(t.untyped_storage() for t in _tensors(result))
        if not (packet in BOUNDED or packet in CHECKS or _bounds(packet, args, kwargs)) and self._is_open(
            [args, kwargs]
        ):
            for place, tensor in enumerate(_tensors(result)):
                if PLACES.get(packet) != place and tensor.dtype != torch.bool:
                    self._taint(tensor)
        return result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _bounds(packet: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation leaves nothing outside of fixed bounds."""
    if packet in ("clamp", "clamp_"):
        bounds = [*args[1:3], *(kwargs.get(name) for name in ("min", "max"))]
        return sum(bound is not None for bound in bounds) == 2
    return packet in ("remainder", "bitwise_and", "__and__") and not isinstance(args[1], torch.Tensor)


def unchecked(feeds: Sequence[torch.Tensor], body: Callable[[], object]) -> list[str]:
    """The operations to which a body gives indices from feeds that nobody has looked at, sorted.

    Args:
        feeds: The tensors that it is fed.
        body: Runs eagerly.
    """
    watch = IndexWatch(feeds)
    with watch:
        body()
    return sorted(set(watch.found))
