"""Solve a serving question: the largest flow through nodes that hold intervals of layers, with a bound.

:func:`solve_serving` puts the pieces together: placement rules and climbing for a first plan, the layer-configuration bound,
chains of blocks and gateways at rising rates, clusters apart, and an exact model where the network is small. It chooses
clusters, hubs and structures by itself. Every plan is evaluated again by :func:`hetopt.verify.serving.max_flow` and every
certificate replayed before it is handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_baselines import baselines
from hetopt.algorithms.serving_bound import area_bound, configuration_bound, refute
from hetopt.algorithms.serving_climb import climb
from hetopt.algorithms.serving_construct import Attempt, Candidate, build, build_apart, by_blocks, by_paths, pipelines
from hetopt.algorithms.serving_exact import options, solve_small
from hetopt.algorithms.serving_flow import plan_value
from hetopt.algorithms.serving_handover import hand_over_bound
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_pack import pack
from hetopt.algorithms.serving_view import look
from hetopt.verify.serving import max_flow
from hetopt.verify.serving_bound import check_bound

__all__ = ["ServingAnswer", "solve_serving"]

Ints = NDArray[np.int64]
Report = Callable[[Ints, Ints], Any]
ReportBound = Callable[[float, Literal["replayed", "solver"], dict[str, Any] | None], Any]

_CLOSE = 1e-6  # relative gap that counts as none
_TINY, _SMALL = 1000, 6000  # columns up to which the exact model is tried first, and last
_STARTS = 3  # placement rules to climb from
_SPARSE = 0.25  # share of pairs linked below which chains of single nodes come first
_AGAIN = 5  # times that a kind of chain may go on improving


class ServingAnswer(NamedTuple):
    """A plan, its value, and a bound.

    Attributes
    ----------
    start, hold
        (n,) first layer and number of layers of each node; hold 0 where it is left out.
    value
        Largest flow of the plan, exact up to the last rounding.
    bound
        No plan has a larger value.
    certificate
        What :func:`hetopt.verify.serving_bound.check_bound` replays; it proves ``bound`` when ``proof`` is ``"replayed"``, and
        else a weaker one.
    proof
        ``"replayed"``, or ``"solver"``: the bound is HiGHS' word.
    """

    start: Ints
    hold: Ints
    value: float
    bound: float
    certificate: dict[str, Any]
    proof: Literal["replayed", "solver"]

    @property
    def gap(self) -> float:
        """(bound - value) / value; inf for a value of 0 below the bound."""
        if self.bound <= self.value:
            return 0.0
        return (self.bound - self.value) / self.value if self.value > 0 else float("inf")


def solve_serving(
    network: ServingNetwork,
    *,
    plan: tuple[Ints, Ints] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    report: Report = lambda start, hold: None,
    report_bound: ReportBound = lambda bound, proof, certificate: None,
    seed: int = 0,
    workers: int = 1,
) -> ServingAnswer:
    """Find a plan of large value, and prove how much larger any could be.

    Parameters
    ----------
    plan
        Start and hold of a plan to begin with.
    should_stop
        Asked several times a second; once it says yes the best plan and bound so far are returned.
    report
        Called with start and hold of every better plan.
    report_bound
        Called with every better bound, its proof and its certificate (None with ``"solver"``).
    seed
        Of random choices.
    workers
        CP-SAT threads; answers are the same from run to run only with one.

    Returns
    -------
    ServingAnswer
        Never worse than the plans of :func:`~hetopt.algorithms.serving_baselines.baselines`. Ends by itself when value and
        bound meet or the methods are through; minutes for 60 nodes if nothing stops it.
    """
    search = _Search(network, should_stop, report, report_bound, seed, workers)
    search.first_plans(plan)
    search.first_bound()
    size = options(network)
    first, last = [search.exact] * (size <= _TINY), [search.exact] * (_TINY < size <= _SMALL)
    for step in (*first, search.quick, *last, search.apart, search.climb, search.thorough):
        if search.closed() or should_stop():
            break
        step()
    return search.answer()


class _Search:
    """The best plan and bound so far, and the steps that improve them."""

    def __init__(
        self,
        network: ServingNetwork,
        should_stop: Callable[[], bool],
        report: Report,
        report_bound: ReportBound,
        seed: int,
        workers: int,
    ) -> None:
        self.network, self.should_stop, self.seed, self.workers = network, should_stop, seed, workers
        self._report, self._report_bound = report, report_bound
        nothing = np.zeros(network.n, dtype=np.int64)
        self.best = Candidate(-1.0, nothing, nothing)
        self.bound = np.inf
        self.certificate: dict[str, Any] = {}
        self.proof: Literal["replayed", "solver"] = "replayed"
        self.offer(Candidate(0.0, nothing, nothing))
        self._tighten(area_bound(network))

    def closed(self) -> bool:
        """Do value and bound meet?"""
        return self.bound <= self.best.value * (1 + _CLOSE)

    def offer(self, plan: Candidate) -> None:
        """Keep a plan if it is better."""
        if plan.value > self.best.value:
            self.best = plan
            self._report(*self._in_use())

    def first_plans(self, given: tuple[Ints, Ints] | None) -> None:
        """Placement rules and disjoint chains, and climbing from the best of them."""
        starts = [*([] if given is None else [given]), *baselines(self.network).values()]
        starts.append(pack(self.network, seed=self.seed, should_stop=self.should_stop))
        plans = [Candidate(plan_value(self.network, *plan), *plan) for plan in starts]
        plans.sort(key=lambda plan: -plan.value)
        self.offer(plans[0])
        for plan in plans[:_STARTS]:
            self.offer(climb(self.network, plan, should_stop=self.should_stop))

    def first_bound(self) -> None:
        """The layer-configuration bound, and that of hand-overs over slow links."""
        self._tighten(configuration_bound(self.network, above=self.best.value, should_stop=self.should_stop))
        found = hand_over_bound(self.network, below=self.bound, should_stop=self.should_stop)
        if found is not None:
            self._tighten(found)

    def _tighten(self, certificate: dict[str, Any]) -> None:
        """Replay a certificate and keep it if it is better."""
        bound = check_bound(self.network, certificate)
        if bound < self.bound:
            self.bound, self.certificate, self.proof = bound, certificate, "replayed"
            self._report_bound(bound, "replayed", certificate)

    def _kinds(self) -> list[Callable[[int, int], Attempt]]:
        """Kinds of chains, one or several side by side, as functions of a seed and of tries at each rate: of blocks, with
        clusters told apart by the whole rate and by what nodes are asked for; of single nodes where links are missing, first
        where most are."""
        network = self.network
        common: dict[str, Any] = {"workers": self.workers, "should_stop": self.should_stop}
        linked = float((network.link > 0).sum() / max(network.n * (network.n - 1), 1))
        kinds: list[Callable[[int, int], Attempt]] = []
        for copies in pipelines(network, self.bound):
            blocks: list[Callable[[int, int], Attempt]] = [
                lambda seed, tries, c=copies, s=strict: by_blocks(  # type: ignore[misc]
                    network, copies=c, strict=s, tries=tries, seed=seed, **common
                )
                for strict in (True, False)
            ]
            paths: list[Callable[[int, int], Attempt]] = [
                lambda seed, _, c=copies: by_paths(network, copies=c, seed=seed, **common)  # type: ignore[misc]
            ]
            if linked == 1.0:
                kinds += blocks
            else:
                kinds += [*paths, *blocks] if linked < _SPARSE else [*blocks, *paths]
        return kinds

    def _raise(self, kind: int, *, rates: int, tries: int, seed: int, probe: bool = False) -> bool:
        """Build chains of a kind at rates above the best plan; is there a better plan now?"""
        attempt = self.kinds[kind](seed, tries)

        def noted(rate: float) -> Candidate | None:
            found = attempt(rate)
            if found is not None:
                self.reached[kind] = max(self.reached[kind], found.value)
            return found

        before = self.best.value
        build(self.best, self.bound, noted, rates=rates, probe=probe, should_stop=self.should_stop, report=self.offer)
        if self.best.value > before:
            self.climb()
            self._meet()
        return self.best.value > before

    def _meet(self) -> None:
        """What the search of the bound left open between two rates may be closed from the plan's side."""
        above = self.best.value * (1 + _CLOSE / 2)
        if above < self.bound <= self.best.value * (1 + 1e-3) and not self.should_stop():
            found = refute(self.network, above, should_stop=self.should_stop).certificate
            if found is not None:
                self._tighten(found)

    def quick(self) -> None:
        """A few rates for every kind of chain."""
        self.kinds = self._kinds()
        self.reached = [0.0] * len(self.kinds)
        for kind in range(len(self.kinds)):
            if self.closed() or self.should_stop():
                return
            self._raise(kind, rates=5, tries=3, seed=self.seed, probe=True)

    def thorough(self) -> None:
        """With more patience: kinds in the order of what they reached, each again as long as it helps; then once more all."""
        seed = self.seed
        order = sorted(range(len(self.kinds)), key=lambda kind: -self.reached[kind])
        for kinds in ([k for k in order if self.reached[k] > 0], order):
            for kind in kinds:
                for _ in range(_AGAIN):
                    seed += 1000
                    if self.closed() or self.should_stop():
                        return
                    if not self._raise(kind, rates=10, tries=4, seed=seed):
                        break

    def apart(self) -> None:
        """Clusters by themselves."""
        for strict in (False, True):
            cluster = look(self.network, self.bound, strict=strict).cluster
            build_apart(
                self.network,
                cluster,
                self.best,
                seed=self.seed,
                workers=self.workers,
                should_stop=self.should_stop,
                report=self.offer,
            )

    def climb(self) -> None:
        """Small moves from the best plan."""
        self.offer(climb(self.network, self.best, should_stop=self.should_stop))

    def exact(self) -> None:
        """The exact model, which must be small."""
        found = solve_small(
            self.network,
            self.bound,
            hint=(self.best.start, self.best.hold),
            seed=self.seed,
            should_stop=self.should_stop,
        )
        if found.start is not None and found.hold is not None:
            self.offer(Candidate(plan_value(self.network, found.start, found.hold), found.start, found.hold))
        if found.bound < self.bound * (1 - 1e-9):
            self.bound, self.proof = max(found.bound, self.best.value), "solver"
            self._report_bound(self.bound, "solver", None)

    def _in_use(self) -> tuple[Ints, Ints]:
        """Start and hold of the best plan without nodes that carry nothing."""
        used = max_flow(self.network, self.best.start, self.best.hold).node > 0
        return np.where(used, self.best.start, 0), np.where(used, self.best.hold, 0)

    def answer(self) -> ServingAnswer:
        """The best plan, evaluated exactly, and the bound."""
        start, hold = self._in_use()
        value = max_flow(self.network, start, hold).value
        return ServingAnswer(start, hold, value, max(self.bound, value), self.certificate, self.proof)
