"""Upper bounds on the throughput of a serving plan, each with a certificate in integers.

:func:`refute` shows that no plan reaches a rate, by the layer-configuration program (:mod:`hetopt.algorithms.serving_program`):
without the network, with its links, and with the argument that several clusters need a layer served by several nodes.
:func:`configuration_bound` searches the smallest rate that it refutes. Certificates are replayed by
:func:`hetopt.verify.serving_bound.check_bound`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork, equal_nodes, strong_components
from hetopt.algorithms.serving_program import FINE, LayerProgram, Prices, equal_rates

__all__ = ["Refutation", "area_bound", "configuration_bound", "refute"]

Ints = NDArray[np.int64]

_BELOW = 1 - 1e-7  # a margin, so that the replay comes to the same end
_NOTHING = 1e-9  # share of the area bound below which a rate is as good as none


class Refutation(NamedTuple):
    """What is known about a rate: ``layers`` the nodes can cover at it, at most; the certificate when that is below L."""

    layers: float
    certificate: dict[str, Any] | None


def _certificate(
    rate: float, group: Ints, prices: Prices, clusters: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    claim = {"kind": "layer-prices", "rate": rate, "group": group.tolist(), **prices.numbers()}
    return claim if clusters is None else {**claim, "clusters": clusters}


def area_bound(network: ServingNetwork) -> dict[str, Any]:
    """Certificate of the sum over nodes of the best ``k rate(k)``, divided by L; no linear program is needed.

    A node that keeps k layers at a price of ``rate(k)`` a layer is worth ``k rate(k)``, and a pattern costs T or more.
    """
    most = min(network.layers, network.throughput.shape[1] - 1)
    area = network.throughput[:, : most + 1] * np.arange(most + 1)
    total = max(float(area.max(axis=1).sum() / network.layers), np.finfo(float).tiny)
    rate = total * (1 + (area.shape[1] * network.n + 1) / (network.layers * FINE[-1]) + 1e-9)
    group = equal_rates(network)
    first = np.array([int(np.flatnonzero(group == g)[0]) for g in range(int(group.max()) + 1)])
    price = np.ceil(np.minimum(network.throughput[first][:, : most + 1] / rate, 1.0) * FINE[-1]).astype(np.int64)
    nothing = np.zeros(len(first), dtype=np.int64)
    return _certificate(rate, group, Prices(price, nothing, nothing, 0, 0, 0, FINE[-1]))


def refute(
    network: ServingNetwork, rate: float, *, links: bool = True, should_stop: Callable[[], bool] = lambda: False
) -> Refutation:
    """Try to show that no plan reaches ``rate``.

    Parameters
    ----------
    links
        Use the links between nodes.
    should_stop
        Asked between linear programs.

    Returns
    -------
    Refutation
        ``certificate`` is None when nothing was shown. Some milliseconds to a second for 60 nodes.
    """
    layers = np.inf
    group = equal_rates(network)
    tries = [(group, False)]
    if links and not network.partial:
        tries.append((equal_nodes(network), True))
    for grouping, with_links in tries:
        program = LayerProgram(network, rate, grouping, links=with_links)
        fewer, prices = program.solve(should_stop=should_stop)
        layers = min(layers, fewer)
        if fewer < network.layers * _BELOW and prices is not None:
            return Refutation(layers, _certificate(rate, grouping, prices))
    clusters = _refute_clusters(network, rate, should_stop) if links else None
    if clusters is not None:
        program = LayerProgram(network, rate, group, links=False, several=True)
        fewer, prices = program.solve(should_stop=should_stop)
        layers = min(layers, fewer)
        if fewer < network.layers * _BELOW and prices is not None:
            return Refutation(layers, _certificate(rate, group, prices, clusters))
    return Refutation(layers, None)


def _refute_clusters(
    network: ServingNetwork, rate: float, should_stop: Callable[[], bool]
) -> list[dict[str, Any]] | None:
    """Certificates that no cluster of links which carry ``rate`` alone can serve alone; None where one might."""
    component = strong_components(network, rate)
    if component.max() == 0:
        return None
    parts = []
    for c in range(int(component.max()) + 1):
        nodes = np.flatnonzero(component == c)
        if network.source[nodes].max() < rate or network.sink[nodes].max() < rate:
            continue
        part = refute(network.restricted(nodes), rate, links=False, should_stop=should_stop)
        if part.certificate is None:
            return None
        parts.append(part.certificate)
    return parts


def configuration_bound(
    network: ServingNetwork,
    *,
    above: float = 0.0,
    links: bool = True,
    precision: float = 1e-5,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Certificate of about the smallest rate that :func:`refute` excludes.

    Halving without links first, then with links from there down in growing steps and by halving.

    Parameters
    ----------
    above
        A rate that some plan reaches (0 when none is known); nothing below it is tried.
    precision
        Relative width at which the search ends.

    Returns
    -------
    dict
        A certificate; that of the area bound when stopped before a better one was found. Ends at a billionth of the area
        bound where the nodes together cannot hold the model, so that every rate is excluded.
    """
    best = area_bound(network)
    floor = _NOTHING * float(best["rate"])
    for with_links in (False, True) if links else (False,):
        low, step = above, 0.5 if not with_links else 1e-3
        while float(best["rate"]) - low > precision * float(best["rate"]) and not should_stop():
            high = float(best["rate"])
            if high <= floor:
                break
            rate = max(high * (1 - step), (low + high) / 2)
            found = refute(network, rate, links=with_links, should_stop=should_stop).certificate
            if found is None:
                low = rate
            else:
                best = found
                step = min(4 * step, 0.5)
        best = _rounded_to_a_rate(network, best, above, with_links, should_stop)
    return best


def _rounded_to_a_rate(
    network: ServingNetwork, best: dict[str, Any], above: float, links: bool, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    """The program's value jumps at the nodes' rates: try just above the largest one below the bound."""
    high = float(best["rate"])
    rates = network.throughput[(network.throughput >= above) & (network.throughput < high)]
    if len(rates) == 0 or rates.max() < high * (1 - 1e-3) or should_stop():
        return best
    rate = float(rates.max()) * (1 + 1e-9)
    found = refute(network, rate, links=links, should_stop=should_stop).certificate if rate < high else None
    return best if found is None else found
