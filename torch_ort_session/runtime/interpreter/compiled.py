"""Runs within a graph that ``torch.compile`` makes; imported only once it does, since its tracer is large."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torch.utils._pytree as pytree

_LOG = logging.getLogger(__name__)


def call(run: Callable[..., Any], weights: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """Call a run without having its Python read by the tracer, which then sees torch's operators alone.

    Args:
        run: A constant of pytree's.
        weights: The tensors that may change from call to call.
        args: What else it is given.
        kwargs: And by name.
    """
    args, kwargs = pytree.tree_map_only(np.ndarray, torch.from_numpy, (args, kwargs))
    return _called(run, weights, *args, **kwargs)


@torch._dynamo.nonstrict_trace
def _called(run: Callable[..., Any], weights: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    try:
        return run(weights, *args, **kwargs)
    except Exception as error:
        # The tracer itself says only that there is no result.
        if torch.compiler.is_compiling():
            _LOG.warning("torch.compile cannot trace the model: %s", error)
        raise
