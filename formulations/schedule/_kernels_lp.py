"""The linear relaxation of kernels with copies: loads of devices and engines, ways through the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.schedule._kernels import ends_of, horizon, kernels
from hetopt.algorithms.kernel_stages import Kernels
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel

__all__ = ["LP"]

MOST = 400_000


class LP(LinearFormulation):
    """(7)-(12)."""

    name = "lp"
    title = "LP (7)-(12): loads of devices and copy engines, ways through the graph; replayed"
    kind = "relaxation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough entries."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} nonzeros, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Entries of ways, and of edges on devices."""
        data = kernels(instance, question)
        per = len(data.one) // max(1, instance.n_tasks)
        return 5 * len(data.one) + (8 * instance.n_devices + 3 * per) * len(instance.edges)

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``way[kernel,...]``, ``apart[edge,device]``, ``reads[kernel,device]``, ``end[kernel]``, ``makespan``."""
        data = kernels(instance, question)
        n, m = data.time.shape
        late = horizon(data)
        unit = time_unit(late)
        model = LinearModel("kernels")
        kernel = np.repeat(np.arange(n), np.diff(data.first))
        x = model.continuous("way", len(data.one), upper=1)
        makespan = model.continuous("makespan", upper=late / unit)
        end = model.continuous("end", n, upper=late / unit, labels=(instance.labels,))
        model.rows("assign", n, [(kernel, x, 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        u, v = instance.edges.T if len(instance.edges) else (np.zeros(0, np.int64),) * 2
        apart = model.continuous("apart", (len(u), m), upper=1)
        reads = model.continuous("reads", (n, m), upper=late / unit, labels=(instance.labels, instance.device_names))
        whole = np.full((n, m), -1, np.int64)
        alone = np.flatnonzero(data.two < 0)
        whole[kernel[alone], data.one[alone]] = x[alone]
        self._apart(model, whole, u, v, apart)
        self._reads(model, data, whole, u, v, instance.edge_data, reads, unit)
        self._loads(model, data, kernel, x, apart, reads, instance.edge_data, makespan, unit)
        self._ways(model, data, kernel, x, whole, u, v, instance.edge_data, apart, end, makespan, unit)
        model.minimize(makespan, unit)
        return model

    @staticmethod
    def _apart(model: LinearModel, whole: Any, u: Any, v: Any, apart: Any) -> None:
        """(7): v whole on a device on which u is not."""
        e, p = np.nonzero(whole[v] >= 0)
        row = np.arange(len(e))
        other = whole[u[e], p]
        there = other >= 0
        terms = [(row, apart[e, p], 1.0), (row, whole[v[e], p], -1.0), (row[there], other[there], 1.0)]
        model.rows("apart_of", len(e), terms, lower=0)  # (7)

    @staticmethod
    def _reads(
        model: LinearModel, data: Kernels, whole: Any, u: Any, v: Any, sent: Any, reads: Any, unit: float
    ) -> None:
        """(8): seconds of the read of a whole kernel, for each consumer that is elsewhere."""
        e, p = np.nonzero((whole[u] >= 0) & ~data.host[None, :])
        row, copy = np.arange(len(e)), (data.up[p, 0] + data.up[p, 1] * (data.wanted[u[e]] + sent[e])) / unit
        other = whole[v[e], p]
        there = other >= 0
        terms = [(row, reads[u[e], p], 1.0), (row, whole[u[e], p], -copy), (row[there], other[there], copy[there])]
        model.rows("read_for", len(e), terms, lower=0)  # (8)
        k, p = np.nonzero((whole >= 0) & (data.wanted[:, None] > 0) & ~data.host[None, :])
        copy = (data.up[p, 0] + data.up[p, 1] * data.wanted[k]) / unit
        row = np.arange(len(k))
        model.rows("read_out", len(k), [(row, reads[k, p], 1.0), (row, whole[k, p], -copy)], lower=0)  # (8)

    @staticmethod
    def _loads(
        model: LinearModel, data: Kernels, kernel: Any, x: Any, apart: Any, reads: Any, sent: Any, makespan: Any, unit: float
    ) -> None:  # fmt: skip
        """(9): what a device computes and an engine copies fits in the makespan."""
        n, m = data.time.shape
        compute, write, back = _parts(data, kernel)
        w, p = np.nonzero(compute)
        each = np.arange(m)
        terms = [(p, x[w], compute[w, p] / unit / data.slots[p]), (each, np.broadcast_to(makespan, m), -1.0)]
        model.rows("computes", m, terms, upper=0)  # (9)
        w, p = np.nonzero(write)
        e, q = np.nonzero(~data.host[None, :] & (sent[:, None] > 0))
        k, r = np.nonzero(~np.broadcast_to(data.host, (n, m)))
        b, s = np.nonzero(back)
        terms = [
            (data.engine[p, 0], x[w], write[w, p] / unit),
            (data.engine[q, 0], apart[e, q], data.down[q, 1] * sent[e] / unit),
            (data.engine[r, 1], reads[k, r], 1.0),
            (data.engine[s, 1], x[b], back[b, s] / unit),
            (np.arange(2 * m), np.broadcast_to(makespan, 2 * m), -1.0),
        ]
        model.rows("copies", 2 * m, terms, upper=0)  # (9)

    @staticmethod
    def _ways(
        model: LinearModel, data: Kernels, kernel: Any, x: Any, whole: Any, u: Any, v: Any, sent: Any, apart: Any, end: Any,
        makespan: Any, unit: float,
    ) -> None:  # fmt: skip
        """(10)-(12): ends of computing along edges; a transfer costs at least a read and a write somewhere."""
        n, m = data.time.shape
        compute, write, _ = _parts(data, kernel)
        begin = np.maximum(data.release[kernel][:, None], np.where(compute + write > 0, data.free[None, :], 0.0))
        own = (np.where(compute + write > 0, begin + compute + write, 0.0)).max(axis=1)
        own = np.maximum(own, data.release[kernel])
        model.rows("begins", n, [(np.arange(n), end, 1.0), (kernel, x, -own / unit)], lower=0)  # (10)
        terms = [(np.arange(n), np.broadcast_to(makespan, n), 1.0), (np.arange(n), end, -1.0)]
        model.rows("ends", n, terms, lower=0)  # (11)
        if not len(u):
            return
        length = compute.max(axis=1)
        copied = np.where(data.host, 0.0, data.down[:, 0]), np.where(data.host, 0.0, data.up[:, 0])
        slow = np.where(data.host, 0.0, data.down[:, 1]), np.where(data.host, 0.0, data.up[:, 1])
        cost = (copied[1][None, :, None] + copied[0][None, None, :]) + sent[:, None, None] * (
            slow[1][None, :, None] + slow[0][None, None, :]
        )
        able = np.isfinite(data.time)
        legal = able[u][:, :, None] & able[v][:, None, :] & ~np.eye(m, dtype=bool)[None]
        least = np.where(legal, cost, np.inf).min(axis=(1, 2))
        least = np.where(np.isfinite(least) & ~_splits(data, u) & ~_splits(data, v), least, 0.0)
        count = np.diff(data.first)[v]
        row = np.repeat(np.arange(len(u)), count)
        w = np.concatenate([np.arange(data.first[k], data.first[k + 1]) for k in v.tolist()])
        e, p = np.nonzero(whole[v] >= 0)
        each = np.arange(len(u))
        told: list[tuple[Any, Any, Any]] = [
            (each, end[v], 1.0),
            (each, end[u], -1.0),
            (row, x[w], -length[w] / unit),
            (e, apart[e, p], -least[e] / unit),
        ]
        model.rows("waits", len(u), told, lower=0)  # (12)


def _splits(data: Kernels, k: Any) -> NDArray[np.bool_]:
    """Whether a kernel may be split: then less than all of its bytes may pass each link."""
    last = np.diff(data.first)
    return np.asarray((last > np.isfinite(data.time).sum(axis=1))[k])


def _parts(data: Kernels, kernel: Any) -> tuple[Any, Any, Any]:
    """(ways, m) seconds of computing, of writes and of reads that a way has whoever runs its neighbours.

    A whole way's reads are not among them: they are columns of their own.
    """
    m, ways = data.time.shape[1], np.arange(len(data.one))
    sent, most = ends_of(data)
    takes = (np.diff(data.pred_start) > 0) | (data.given > 0)
    gives = (np.diff(data.succ_start) > 0) | (data.wanted > 0)
    compute, write, back = np.zeros((len(ways), m)), np.zeros((len(ways), m)), np.zeros((len(ways), m))
    split = data.two >= 0
    for some, device, share in ((ways, data.one, data.share), (ways[split], data.two[split], 1.0 - data.share[split])):
        k = kernel[some]
        compute[some, device] = share * data.time[k, device]
        late, each = data.down[device].T
        whole = np.where(data.given[k] > 0, late + each * data.given[k], 0.0)
        both = np.where(takes[k], late + share * each * (data.given[k] + sent[k]), 0.0)
        write[some, device] = np.where(data.host[device], 0.0, np.where(split[some], both, whole))
        late, each = data.up[device].T
        both = np.where(gives[k], late + share * each * (data.wanted[k] + most[k]), 0.0)
        back[some, device] = np.where(data.host[device] | ~split[some], 0.0, both)
    return compute, write, back
