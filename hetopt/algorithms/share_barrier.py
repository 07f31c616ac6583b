r"""Time shares by an interior point method that never forms a matrix: a job's columns meet others only in a few sums.

For jobs i = 1..n on types j = 1..m of C_j workers, with convex heights h_i that fall in one number t,

    minimise t      subject to   a_i x_i >= h_i(t)  (u_i),   sum_j x_ij <= 1  (v_i),   sum_i s_i x_ij <= C_j  (p_j),   x >= 0  (z)

covers the least level as high as possible (h_i = l_i - w_i t), ratios of finish times (h_i = b_i / (t - c_i)), and a batch done
early. A Newton step of the primal-dual method with predictor and corrector (Mehrotra 1992) has a block

    D_i + (v_i / f_i) 1 1^T + (u_i / e_i) a_i a_i^T,        D_i = diag(z_i / x_i),

for each job, e and f being the slacks of its two rows: two rank-one changes of a diagonal, inverted in closed form with the
multipliers' steps as unknowns, since the columns' drown in rounding near the end. What is left couples m prices and t, a system
of m + 1. An iteration costs O(n m^2) time and O(n m) memory. What is returned is a point and its multipliers, near the optimum as
far as rounding lets them; proofs are made by whoever replays the prices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shared", "fair", "share"]

Floats = NDArray[np.float64]
Heights = Callable[[float], tuple[Floats, Floats, Floats]]
STEP = 0.995  # of the way to the boundary
ROUNDS = 100
ROUGH = 1e-3  # gap above which a step's rounding does not matter


class Shared(NamedTuple):
    """x (n, m), t, and the multipliers u (n,), v (n,), p (m,); the gap between both sides relative to t, and the iterations."""

    x: Floats
    t: float
    jobs: Floats
    turns: Floats
    types: Floats
    gap: float
    iterations: int


class _Blocks:
    """The jobs' parts of a Newton step, each a system of a job's columns and its two multipliers.

    D dx - a du + dv = y,       a dx + (e / u) du = g,       -sum dx + (f / v) dv = k
    """

    def __init__(self, a: Floats, d: Floats, level: Floats, turns: Floats) -> None:
        """d = 1 / D (n, m), level = e / u, turns = f / v (n,)."""
        self.a, self.d, self.level, self.turns = a, d, level, turns
        self.total = d.sum(axis=1) + turns
        self.mean = (d * a).sum(axis=1) / self.total
        self.off = d * (a - self.mean[:, None])
        self.stiff = level + (self.off * (a - self.mean[:, None])).sum(axis=1) + self.mean**2 * turns

    def solved(self, y: Floats | float, g: Floats | float, k: Floats | float) -> tuple[Floats, Floats, Floats]:
        """D dx (n, m), du and dv (n,); the step of z is known from D dx without a loss, dx itself is not."""
        du = (g - (self.off * y).sum(axis=1) + self.mean * k) / self.stiff
        rest = y + self.a * du[:, None]
        dv = (k + (self.d * rest).sum(axis=1)) / self.total
        return rest - dv[:, None], du, dv

    def columns(self, bare: Floats, du: Floats, dv: Floats, g: Floats, k: Floats) -> Floats:
        """(n, m) dx, what rounding took from the two rows given back."""
        dx = self.d * bare
        lost = g - (self.a * dx).sum(axis=1) - self.level * du, k + dx.sum(axis=1) - self.turns * dv
        return np.asarray(dx + self.d * self.solved(np.zeros(dx.shape), *lost)[0])


def share(
    a: Floats,
    scale: Floats,
    workers: Floats,
    heights: Heights,
    start: float,
    above: float = -np.inf,
    *,
    gap: float = 1e-10,
    stop: Callable[[], bool] = lambda: False,
) -> Shared | None:
    """Solve; see the module.

    Parameters
    ----------
    a, scale, workers
        (n, m) nonnegative with a positive number in each row, 0 where a job cannot run; s (n,) > 0; C (m,) > 0.
    heights
        h, its first derivative (below 0 for some job, nowhere above) and its second at a number t, each (n,).
    start, above
        A number t to begin with, and one that t never reaches.
    gap
        Relative gap to end with.
    stop
        Asked once an iteration.

    Returns
    -------
    Shared or None
        None when stopped, or when rounding ended the iterations at a gap above 1e-6.
    """
    n, m = a.shape
    unit = a.max(axis=1)
    a = a / unit[:, None]
    x = np.minimum(workers / scale.sum(), 1.0 / m)[None, :] * np.full((n, 1), 0.5)
    t, size = start, max(abs(start), 1e-12)
    h = [part / unit for part in heights(t)]
    got = (a * x).sum(axis=1)
    primal = [x, np.maximum(got - h[0], 0.1 * got), 1.0 - x.sum(axis=1), workers - _sums(scale, x)]  # x, e, f, q
    u = np.full(n, 1.0 / max(float(-h[1].sum()), 1e-300))
    p = np.full(m, float(u.mean() / scale.mean()))
    z = np.maximum(u[:, None] + scale[:, None] * p - u[:, None] * a, 0.1 * u[:, None])
    dual = [z, u, u, p]  # z, u, v, p: the multiplier of each of the above
    best: Shared | None = None
    for iteration in range(ROUNDS):
        if stop():
            return None
        newton = _Newton(a, scale, workers, h, primal, dual)
        now = max(max(abs(newton.total), newton.missed, abs(newton.rt) * size) / max(abs(t), 1e-300), newton.outside)
        if best is None or now < best.gap:
            best = Shared(primal[0], t, dual[1] / unit, dual[2], dual[3], now, iteration)
        if now <= gap or not np.isfinite(now) or (now > 1e3 * best.gap and best.gap < 1e-7) or not newton.factor():
            break
        by, of, _ = newton.step([-here * price for here, price in zip(primal, dual, strict=True)], 1)
        near, far = _reach(primal, by), _reach(dual, of)
        after = sum(
            _dot(here + near * one, price + far * two)
            for here, one, price, two in zip(primal, by, dual, of, strict=True)
        )
        goal = newton.total / newton.size * min(1.0, max(0.0, after / newton.total)) ** 3
        by, of, dt = newton.step(
            [goal - here * price - one * two for here, one, price, two in zip(primal, by, dual, of, strict=True)],
            1 if now > ROUGH else 3,
        )
        near = min(_reach(primal, by), _reach([np.array([t - above])], [np.array([dt])]))
        far = _reach(dual, of)
        if h[2].any():  # both sides of a bent row move together
            near = far = min(near, far)
        primal = [here + STEP * near * one for here, one in zip(primal, by, strict=True)]
        dual = [price + STEP * far * two for price, two in zip(dual, of, strict=True)]
        t += STEP * near * dt
        h = [part / unit for part in heights(t)]
    return best if best is not None and best.gap <= 1e-6 else None


def fair(
    a: Floats,
    scale: Floats,
    workers: Floats,
    weight: Floats,
    *,
    gap: float = 1e-10,
    stop: Callable[[], bool] = lambda: False,
) -> Shared | None:
    """Shares of greatest sum_i w_i log a_i x_i: as :func:`share`, with e_i = a_i x_i and its multiplier held at e_i u_i = w_i.

    ``t`` of what is returned is that sum, ``gap`` what is left of the other products for each unit of weight.
    """
    n, m = a.shape
    unit = a.max(axis=1)
    a = a / unit[:, None]
    x = np.minimum(workers / scale.sum(), 1.0 / m)[None, :] * np.full((n, 1), 0.5)
    h = [np.zeros(n)] * 3
    primal = [x, (a * x).sum(axis=1), 1.0 - x.sum(axis=1), workers - _sums(scale, x)]
    u = weight / primal[1]
    p = np.full(m, float(u.mean() / scale.mean()))
    dual = [np.maximum(u[:, None] + scale[:, None] * p - u[:, None] * a, 0.1 * u[:, None]), u, u, p]
    best: Shared | None = None
    for iteration in range(ROUNDS):
        if stop():
            return None
        newton = _Newton(a, scale, workers, h, primal, dual)
        missed = weight - primal[1] * dual[1]
        rest = newton.total - _dot(primal[1], dual[1])
        now = max(max(rest, newton.missed, float(np.abs(missed).sum())) / float(weight.sum()), newton.outside)
        if best is None or now < best.gap:
            value = _dot(weight, np.log((a * primal[0]).sum(axis=1) * unit))
            best = Shared(primal[0], value, dual[1] / unit, dual[2], dual[3], now, iteration)
        if (
            now <= gap
            or rest <= 0
            or not np.isfinite(now)
            or (now > 1e3 * best.gap and best.gap < 1e-7)
            or not newton.factor()
        ):
            break
        goals = [-here * price for here, price in zip(primal, dual, strict=True)]
        goals[1] = missed
        by, of, _ = newton.step(goals, 1)
        near = min(_reach(primal, by), _reach(dual, of))
        after = sum(_dot(primal[k] + near * by[k], dual[k] + near * of[k]) for k in (0, 2, 3))
        goal = rest / (newton.size - n) * min(1.0, max(0.0, after / rest)) ** 3
        goals = [goal - here * price - one * two for here, one, price, two in zip(primal, by, dual, of, strict=True)]
        goals[1] = missed - by[1] * of[1]
        by, of, _ = newton.step(goals, 1 if now > ROUGH else 3)
        step = STEP * min(_reach(primal, by), _reach(dual, of))
        primal = [here + step * one for here, one in zip(primal, by, strict=True)]
        dual = [price + step * two for price, two in zip(dual, of, strict=True)]
    return best if best is not None and best.gap <= 1e-6 else None


class _Newton:
    """Residuals at a point, and the steps of its Newton system."""

    def __init__(
        self, a: Floats, scale: Floats, workers: Floats, h: list[Floats], primal: list[Floats], dual: list[Floats]
    ) -> None:
        x, e, f, q = primal
        z, u, v, p = dual
        self.scale, self.h, self.primal, self.dual = scale, h, primal, dual
        self.r1, self.r2, self.r3 = (
            (a * x).sum(axis=1) - h[0] - e,
            1.0 - x.sum(axis=1) - f,
            workers - _sums(scale, x) - q,
        )
        self.rd = v[:, None] + scale[:, None] * p - u[:, None] * a - z
        self.rt = 1.0 + _dot(u, h[1])
        self.total = sum(_dot(here, price) for here, price in zip(primal, dual, strict=True))
        self.size = sum(here.size for here in primal)
        missed = abs(_dot(self.r1, u)) + abs(_dot(self.r2, v)) + abs(_dot(self.r3, p))
        self.missed = missed + float(np.abs(self.rd * x).sum())
        self.outside = max(
            float(np.abs(self.r2).max()), float(np.abs(self.r3 / workers).max())
        )  # also where prices are 0
        self.blocks = _Blocks(a, x / z, e / u, f / v)

    def factor(self) -> bool:
        """The system of m prices and t; False where rounding has left none."""
        (_, _, _, q), (_, u, _, p), m = self.primal, self.dual, len(self.dual[3])
        self.core = np.empty((m + 1, m + 1))
        for j in range(m):
            one = np.zeros(self.rd.shape)
            one[:, j] = -self.scale
            bare, du, _ = self.blocks.solved(one, 0.0, 0.0)
            self.core[:m, j], self.core[m, j] = -_sums(self.scale, self.blocks.d * bare), _dot(self.h[1], du)
        bare, du, _ = self.blocks.solved(np.zeros(self.rd.shape), self.h[1], 0.0)
        self.core[:m, m] = -_sums(self.scale, self.blocks.d * bare)
        self.core[m, m] = _dot(self.h[1], du) + _dot(u, self.h[2])
        self.core[np.arange(m), np.arange(m)] += q / p
        if not self.h[1].any():
            self.core[m, m] = 1.0  # no row moves with t
        try:
            self.inverse = np.linalg.inv(self.core)
        except np.linalg.LinAlgError:
            return False
        return bool(np.isfinite(self.inverse).all())

    def step(self, goals: list[Floats], rounds: int) -> tuple[list[Floats], list[Floats], float]:
        """Steps of both sides and of t that bring each product of a slack and its multiplier to ``goals`` more."""
        (x, e, f, q), (_, u, v, p), (cx, ce, cf, cq) = self.primal, self.dual, goals
        y, g, k = cx / x - self.rd, ce / u - self.r1, cf / v - self.r2
        bare, du, dv = self.blocks.solved(y, g, k)
        dx, dp, dt = self.blocks.columns(bare, du, dv, g, k), np.zeros(len(p)), 0.0
        for _ in range(rounds):  # the first finds prices and t, the others what rounding took from their rows
            left = cq / p - self.r3 - q / p * dp + _sums(self.scale, dx)
            found = self.inverse @ np.append(left, -self.rt - _dot(self.h[1], du) - _dot(u, self.h[2]) * dt)
            more, drop = found[:-1], self.h[1] * found[-1]
            also = self.blocks.solved(-self.scale[:, None] * more, drop, 0.0)
            dx = dx + self.blocks.columns(*also, drop, np.zeros(len(u)))
            bare, du, dv = (one + two for one, two in zip((bare, du, dv), also, strict=True))
            dp, dt = dp + more, dt + float(found[-1])
        de, df, dq = (ce - e * du) / u, (cf - f * dv) / v, (cq - q * dp) / p
        return [dx, de, df, dq], [cx / x - bare, du, dv, dp], dt


def _dot(one: Floats, two: Floats) -> float:
    """Inner product on one thread; a BLAS would take all there are."""
    return float(np.einsum("i,i->", one.ravel(), two.ravel()))


def _sums(scale: Floats, x: Floats) -> Floats:
    """(m,) sums over jobs, on one thread."""
    return np.asarray(np.einsum("i,ij->j", scale, x))


def _reach(at: list[Floats], by: list[Floats]) -> float:
    """How much of a step keeps everything above 0; more than all of it counts for 1 / STEP."""
    least = 1.0 / STEP
    for here, move in zip(at, by, strict=True):
        down = move < 0
        least = min(least, float((-here[down] / move[down]).min(initial=np.inf)))
    return least
