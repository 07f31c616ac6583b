"""What prices of jobs and types prove about all shares at once, rounded against the claim.

For any u, p >= 0, every x with sum_j x_ij <= 1 and sum_i s_i x_ij <= C_j has

    sum_i u_i sum_j g_ij x_ij  <=  sum_i max_j (u_i g_ij - s_i p_j)^+  +  sum_j p_j C_j.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import Cluster

__all__ = ["checked", "most"]

Floats = NDArray[np.float64]
ROUNDING = 1e-12  # far above what sums of doubles of this size lose


def checked(cluster: Cluster, jobs: object, types: object, some: bool = True) -> tuple[Floats, Floats]:
    """Prices (n,), (m,) as arrays; ValueError when they are not finite numbers, none below 0, ``some`` job's above."""
    u, p = np.asarray(jobs, np.float64), np.asarray(types, np.float64)
    if u.shape != cluster.scale.shape or p.shape != cluster.workers.shape:
        raise ValueError(f"expected prices of {len(cluster.scale)} jobs and {len(cluster.workers)} types")
    if not (np.isfinite(u).all() and np.isfinite(p).all()) or (u < 0).any() or (p < 0).any() or (some and not u.any()):
        raise ValueError("expected finite prices, none below 0 and one of a job above")
    return u, p


def most(cluster: Cluster, gain: Floats, u: Floats, p: Floats) -> float:
    """The right side, rounded up; gain (n, m) is g."""
    offers = np.where(cluster.rate > 0, u[:, None] * gain - cluster.scale[:, None] * p[None, :], 0.0)
    total = math.fsum(np.maximum(offers.max(axis=1), 0.0).tolist()) + math.fsum((p * cluster.workers).tolist())
    if not math.isfinite(total):
        raise ValueError("the prices prove nothing")
    return total * (1 + ROUNDING)
