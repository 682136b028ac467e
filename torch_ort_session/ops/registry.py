"""All kernels by operator, domain and revision, collected from the family files once, on first use."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from torch_ort_session.ir import schema
from torch_ort_session.ops.kernel import Kernel, kernels_of

_PACKAGES = ("onnx", "microsoft", "ml")


@functools.cache
def kernels() -> Mapping[tuple[str, str], tuple[Kernel, ...]]:
    """Every kernel by (domain, operator).

    Raises:
        TypeError: Two kernels claim one revision.
    """
    revisions: dict[tuple[str, str], dict[int, Kernel]] = {}
    for package_name in _PACKAGES:
        package = importlib.import_module(f"torch_ort_session.ops.{package_name}")
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            for item in vars(module).values():
                if getattr(item, "__module__", None) != module.__name__:
                    continue
                for kernel in kernels_of(item):
                    served = revisions.setdefault((kernel.domain, kernel.op), {})
                    for since in kernel.since:
                        if since in served:
                            raise TypeError(
                                f"two kernels for {kernel.op} revision {since}: "
                                f"{served[since].fn.__module__}.{served[since].fn.__name__} and "
                                f"{kernel.fn.__module__}.{kernel.fn.__name__}"
                            )
                        served[since] = kernel
    return {key: tuple(dict.fromkeys(served.values())) for key, served in revisions.items()}


@functools.cache
def _by_revision() -> Mapping[tuple[str, str, int], Kernel]:
    return {
        (domain, op, since): kernel
        for (domain, op), served in kernels().items()
        for kernel in served
        for since in kernel.since
    }


def find(op: str, domain: str, since: int) -> Kernel | None:
    """The kernel of one revision of an operator.

    Args:
        op: Operator name.
        domain: Operator domain.
        since: The schema revision; for a domain that onnx has no schemas of, the imported version, which the
            newest kernel revision up to it serves.

    Returns:
        The kernel, or None when there is none.
    """
    domain = schema.canonical_domain(domain)
    exact = _by_revision().get((domain, op, since))
    if exact is not None or schema.newest_opset(domain) is not None:
        return exact
    served = [(s, k) for k in kernels().get((domain, op), ()) for s in k.since if s <= since]
    return max(served, key=lambda item: item[0])[1] if served else None
