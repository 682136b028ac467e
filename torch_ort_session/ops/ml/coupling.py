"""Probabilities of several classes from those of each pair of classes.

Source: Wu, Lin and Weng, Probability Estimates for Multi-class Classification by Pairwise Coupling, 2004,
second method, as libsvm does it: https://www.csie.ntu.edu.tw/~cjlin/papers/libsvm.pdf, section 8
"""

from __future__ import annotations

import torch
from torch import Tensor


def couple(pairwise: Tensor) -> Tensor:
    """Probabilities [n, k] whose pairs agree best with ``pairwise``.

    It stops when every row has converged, and so reads data on the host.

    Args:
        pairwise: [n, k, k], the probability of the first class against the second; the diagonal is 0.
    """
    k = pairwise.shape[1]
    q = -pairwise.transpose(1, 2) * pairwise
    q = q + torch.diag_embed((pairwise * pairwise).sum(1))
    p = pairwise.new_full(pairwise.shape[:2], 1.0 / k)
    done = torch.zeros(pairwise.shape[0], dtype=torch.bool, device=pairwise.device)
    for _ in range(max(100, k)):
        qp = torch.einsum("nij,nj->ni", q, p)
        pqp = (p * qp).sum(1)
        done = done | ((qp - pqp.unsqueeze(1)).abs().amax(1) < 0.005 / k)
        if done.all().item():
            break
        refined = p
        for t in range(k):
            step = (pqp - qp[:, t]) / q[:, t, t]
            scale = 1 + step
            pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / (scale * scale)
            qp = (qp + step.unsqueeze(1) * q[:, t]) / scale.unsqueeze(1)
            unit = torch.nn.functional.one_hot(torch.tensor(t, device=p.device), k)
            refined = (refined + step.unsqueeze(1) * unit) / scale.unsqueeze(1)
        p = torch.where(done.unsqueeze(1), p, refined)
    return p
