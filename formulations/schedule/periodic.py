r"""Models that run again and again on a few unequal processors: cuts, devices and starts of a cyclic schedule.

Asked of a phone or a headset that runs several networks, each with its period and deadline, on CPU, GPU and NPU. A network is
cut into segments; what a segment takes on a processor with a backend was measured, and is no sum over its layers.

    sets, data
    g in G, i in F_g  models, and their frames in a cycle: H is the least time in which all periods fit, ``cycles`` times;
                      r_gi = phase_g + i T_g release;  D_g deadline after it (T_g where the file has none);  w_g weight
    k in W_g          ways: a run of tasks a_k .. b_k on device p_k with backend c_k, t_k seconds (``tables.segments``; a task
                      alone takes its own time), where the file allows the cut behind b_k
    c_kl              seconds until what l reads from k is there: link, bytes, ``tables.conversions`` between backends
    h_k               least time before way k after the release, with all devices free
    m_v, M_p          bytes of a task's weights, and of a device: weights stay loaded

    variables
    z_kgi in {0,1}    frame i of g runs way k;  the same for all its frames, unless ``mapping`` is ``free``
    d_gi in {0,1}     the frame is dropped (with ``drop_cost``)
    s_vgi, e_gi       start of the segment that begins with task v; end of the frame

    subject to  the ways of a frame lead from its first task to its last, none if d_gi          (1)  cover
                s_vgi >= r_gi + h_k                                 if z_kgi, a_k = v           (2)  release
                s_vgi >= s_ugi + t_k + c_kl                         if z_kgi, z_lgi             (3)  waits
                e_gi <= r_gi + D_g                                                              (4)  deadline
                e_gi >= s_vgi + t_k                                 if z_kgi                    (5)  ends
                intervals [s_vgi + c H, s_vgi + c H + t_k), c = 0, 1, ..., do not overlap on p  (6)  cyclic
                sum_v m_v max_{k on p holds v, i} z_kgi <= M_p                                  (7)  memory
                z_kgi = z_kgj                                                                   (8)  fixed

    schedule.periodic        minimise the mean latency  sum_g w_g mean_i (e_gi - r_gi) / sum_g w_g,  or, with ``measure``,
    (periodic-latency)       p90: what nine in ten frames do not exceed; a dropped frame counts as ``drop_cost`` deadlines
    schedule.periodic_drops  minimise sum_gi w_g d_gi                                           (9)  of either
    schedule.periodic_rate   maximise r, all periods, phases and deadlines that are periods r times shorter, H = H_1 / r;
    (periodic-rate)          that is, minimise H in (1)-(8)                                     (10)

``cpsat`` is this program, with as many copies c as cycles that the frames' windows span, which is exact. ``bounds`` proves
without a solver, replayed from the file (:mod:`hetopt.verify.periodic_bounds`): no frame is sooner than alone on all devices;
and, under prices of the devices' time that a linear program gives, the cheapest ways of all frames must fit the cycle:

    maximise r  subject to  flows f_kg >= 0 of value r along the ways of each model,  sum_gk |F_g| t_k f_kg <= H_1 on each p  (11)

Policies (``edf``, ``fifo``, ``rate-monotonic`` on ways by which a model alone is done first, ``best-device-edf`` and
``one-device-edf`` on uncut ones) are run by the discrete-event replay (:mod:`hetopt.replay`) until they repeat themselves;
``annealing`` inserts frames into the gaps of the cycle. A task of no length takes no device's time.

Sources: D. Kang, Y. Lee, J. Kim, arXiv 2508.17764 (2025), and Y. Gao et al., arXiv 2503.21109 (2025), for the questions; H. Kwon
et al., XRBench, MLSys (2023), for scenarios; C. Hanen, A. Munier, in Scheduling Theory and its Applications (1995), for cyclic
schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from formulations.schedule._periodic import earliest, plan_of, shortest_cycle
from formulations.schedule._periodic_missing import CPSAT, CPSATRate
from formulations.schedule._periodic_policies import Policy, PolicyRate
from formulations.schedule._periodic_prices import device_prices, too_short
from formulations.schedule._periodic_samples import every_order, placed, sample_of
from formulations.schedule._periodic_search import Search, SearchRate
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.replay import POLICIES
from hetopt.solution import Solution
from hetopt.verify.periodic import check_cyclic, cyclic_value
from hetopt.verify.periodic_bounds import alone, fewest_drops, greatest_rate, least_latencies
from hetopt.verify.streams import streams_of

__all__ = ["PROBLEMS", "Bounds", "Periodic", "PeriodicDrops", "PeriodicRate"]

_MAPPING = Option("mapping", ("fixed", "free"), "fixed", "one way for all frames of a model, or one for each frame")
_MANY_FRAMES = 60  # in a cycle: more are slow to prove, and mostly periods that were rounded
SLOWEST = 1e-3  # rate below which no remedy is sought
_CYCLES = Option("cycles", int, 1, "hyperperiods after which the schedule repeats")


class Bounds(Method):
    """What no plan can beat, from each model alone and from prices of the devices' time."""

    name = "bounds"
    title = "each model alone, and the work of all under prices of the devices' time; replayed"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """The problem's certificates."""
        streams = streams_of(instance)
        for prices in (device_prices(streams), [1.0 / instance.n_devices] * instance.n_devices):
            if prices is not None:
                certificate = {"kind": "alone-and-prices", "prices": prices}
                control.report_bound(question.problem.replay(instance, question, certificate), "replayed", certificate)
        cycles = question["cycles"]
        frames, seconds = sum(model.frames for model in streams.models) * cycles, streams.hyperperiod * cycles
        if frames <= _MANY_FRAMES:
            return Outcome()
        hint = "periods with a smaller common multiple make it shorter, and plan and bound better"
        return Outcome(notes=(f"the schedule repeats after {seconds:.6g} s with {frames} frames; {hint}",))


_POLICIES = [*((policy, "cut") for policy in POLICIES), ("edf", "best-device"), ("edf", "one-device")]


class Periodic(Problem):
    """Latency of frames."""

    name = "schedule.periodic"
    objectives = ("periodic-latency",)
    title = "models with periods and deadlines on unequal processors, cut into segments: least mean or p90 latency"
    uses = frozenset(
        {"time", "pin", "forbid", "edges", "output", "links", "release", "weight", "period", "deadline", "memory",
         "tables.segments", "tables.conversions"}
    )  # fmt: skip
    options: ClassVar[tuple[Option, ...]] = (
        Option("measure", ("mean", "p90"), "mean", "mean latency over models, or what nine in ten frames keep"),
        _MAPPING,
        _CYCLES,
        Option("drop_cost", float, None, "deadlines that a dropped frame counts for; none may be dropped without"),
    )
    methods = (CPSAT(), Bounds(), *(Policy(*pair) for pair in _POLICIES), Search())

    def fits(self, instance: Instance) -> str | None:
        """Refuse what the mathematics leaves out."""
        if (instance.group >= 0).any():
            return "it knows no groups"
        if not np.isfinite(instance.columns.period).all():
            name = instance.columns.job_name[int(np.argmin(np.isfinite(instance.columns.period)))]
            return f"job {name!r} has no period"
        if any(device.slots > 1 for device in instance.devices):
            return "it knows no devices that run several tasks at once"
        return None if instance.columns.weight.sum() > 0 else "all models have weight 0"

    def question(self, instance: Instance, given: Mapping[str, Any] | None = None) -> Question:
        """The question in force; InputError for a number out of range."""
        question = super().question(instance, given)
        if not 1 <= question["cycles"] <= 100:
            raise InputError(f"$.question.cycles is {question['cycles']!r}, expected a number from 1 to 100")
        lost = question.get("drop_cost")
        if lost is not None and not 1 <= lost <= 1e9:
            raise InputError(f"$.question.drop_cost is {lost!r}, expected a number of deadlines from 1 to 1e9")
        least = question.get("least_rate", 1.0)
        if not 1e-6 <= least <= 1e6:
            raise InputError(f"$.question.least_rate is {least!r}, expected a rate from 1e-6 to 1e6")
        return question

    def measure(self, question: Question) -> str:
        """``mean``, ``p90`` or ``drops``."""
        return str(question["measure"])

    def slower(self, instance: Instance, question: Question) -> Question:
        """The question of the greatest rate for the same models, mapping and cycles."""
        kept = {"mapping": question["mapping"], "cycles": question["cycles"], "least_rate": SLOWEST}
        return PeriodicRate().question(instance.with_question({}), kept)

    def may_drop(self, question: Question) -> bool:
        """Whether frames may be dropped."""
        return question["drop_cost"] is not None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Latency or drops, recomputed from the plan's starts."""
        streams = streams_of(instance)
        rate = self.rate(solution, question)
        cycles = question["cycles"]
        report = check_cyclic(
            instance, solution.details, cycles=cycles, rate=rate, may_drop=self.may_drop(question),
            same=question["mapping"] == "fixed",
        )  # fmt: skip
        if len(report.latency) != sum(model.frames * cycles for model in streams.models):
            return Evaluation(math.inf if self.sense == "min" else 0.0, report.violations)
        latency, model = report.latency.tolist(), report.model.tolist()
        kept = sorted(s for s in latency if math.isfinite(s))
        cycle = streams.hyperperiod * cycles / rate
        details = {
            "cycle": cycle,
            "frames": len(latency),
            "drops": len(latency) - len(kept),
            "models": {
                one.name: {
                    "mean_latency": float(np.mean([s for s, k in zip(latency, model, strict=True) if k == j])),
                    "deadline": one.deadline / (rate if one.implicit else 1.0),
                }
                for j, one in enumerate(streams.models)
            }
            if len(kept) == len(latency)
            else {},
            "devices": {
                name: {"utilisation": float(busy) / cycle, "memory": float(held)}
                for name, busy, held in zip(instance.device_names, report.busy, report.weights, strict=True)
            },
        }
        value = cyclic_value(streams, latency, model, self.measure(question), question.get("drop_cost"))
        return Evaluation(value, report.violations, details)

    def rate(self, solution: Solution, question: Question) -> float:
        """How many times faster than in the file frames come."""
        if "rate" in solution.details:
            raise ValueError("the plan has a rate, and the question asks for none")
        return 1.0

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A model that alone takes longer than its deadline; models that together need more time than there is."""
        streams = streams_of(instance)
        if self.may_drop(question):
            return ()
        wrong = []
        for model in streams.models:
            least = alone(streams, model).latency
            if math.isinf(least):
                wrong.append(
                    f"no segments of model {model.name!r} fit together: the cuts that are allowed have no times"
                )
            elif least > model.deadline * (1 + 1e-9):
                what = "period, which is its deadline," if model.implicit else "deadline"
                wrong.append(
                    f"model {model.name!r} takes at least {least:.9g} s with all devices free, and its {what} is "
                    f"{model.deadline:.9g} s: {least - model.deadline:.9g} s too short"
                )
        return tuple(wrong) or too_short(instance, streams)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays what no frame beats."""
        if certificate.get("kind") != "alone-and-prices":
            return super().replay(instance, question, certificate)
        streams, cycles = streams_of(instance), question["cycles"]
        least = least_latencies(streams, question["drop_cost"])
        if not all(math.isfinite(s) for s in least):
            raise ValueError("some model cannot keep its deadline, so that there is no plan to bound")
        rows = [(s, j) for j, s in enumerate(least) for _ in range(streams.models[j].frames * cycles)]
        value = cyclic_value(streams, [s for s, _ in rows], [j for _, j in rows], self.measure(question), None)
        return value * (1 - 1e-12)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Policies and bounds at once, a search, then the program."""
        steps = [
            *(Step(m.name, "a plan at once", 0.1) for m in self.methods[2:4] if m.fits(instance, question) is None),
            Step("bounds", "a bound at once", 0.2),
            Step("annealing", "better plans soon", 0.2),
        ]
        why_not = self.method("cpsat").fits(instance, question)
        if why_not is None:
            return (*steps, Step("cpsat", "exact, starts from the best plan"))
        return (*steps, Step("annealing", f"once more: for CP-SAT {why_not}"))

    def sample(self, seed: int) -> Instance:
        """One or two models of up to two tasks, up to three frames, on up to two devices; runs, backends, memory, cuts."""
        return sample_of(seed, self.objectives[0], drops=seed % 3 == 2)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Ways of each frame, orders on each device, cycles in which each segment starts; as early as these allow."""
        streams, cycles = streams_of(instance), question["cycles"]
        cycle = streams.hyperperiod * cycles
        for frames in every_order(instance, question, self.may_drop(question)):
            found = earliest(streams, [placed(frame, cycle) for frame in frames], cycle)
            if found is not None:
                yield plan_of(instance, streams, found)


class PeriodicDrops(Periodic):
    """Fewest frames dropped."""

    name = "schedule.periodic_drops"
    objectives = ("periodic-drops",)
    title = "models with periods and deadlines on unequal processors: least weight of dropped frames"
    unit = "frames"
    options: ClassVar[tuple[Option, ...]] = (_MAPPING, _CYCLES)

    def measure(self, question: Question) -> str:
        """Drops."""
        return "drops"

    def may_drop(self, question: Question) -> bool:
        """Always."""
        return True

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays what must be dropped."""
        if certificate.get("kind") != "alone-and-prices":
            return super().replay(instance, question, certificate)
        bound = fewest_drops(streams_of(instance), _floats(certificate), question["cycles"])
        return self.round_bound(instance, question, bound, slack=1e-9)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With whole weights the value is whole: round up."""
        weight = instance.columns.weight
        return float(max(0, math.ceil(bound - slack))) if (weight == np.floor(weight)).all() else bound

    def sample(self, seed: int) -> Instance:
        """As for latency, with less time."""
        return sample_of(seed, self.objectives[0], drops=True)


class PeriodicRate(Periodic):
    """Greatest rate."""

    name = "schedule.periodic_rate"
    objectives = ("periodic-rate",)
    title = "models with periods and deadlines on unequal processors: how many times faster frames may come"
    sense = "max"
    unit = "times the given rates"
    options: ClassVar[tuple[Option, ...]] = (
        _MAPPING,
        _CYCLES,
        Option("least_rate", float, 0.01, "rate below which nothing is sought"),
    )
    methods = (CPSATRate(), Bounds(), *(PolicyRate(*pair) for pair in _POLICIES), SearchRate())

    def fits(self, instance: Instance) -> str | None:
        """Refuse models that may run in no time as well, at any rate."""
        why_not = super().fits(instance)
        if why_not is not None:
            return why_not
        try:
            most = greatest_rate(streams_of(instance), [1.0] * instance.n_devices)
        except InputError:
            return None  # told to who asks
        return (
            "all models have segments that take no time, so that no rate is the greatest" if math.isinf(most) else None
        )

    def measure(self, question: Question) -> str:
        """Latencies are told beside the rate."""
        return "mean"

    def may_drop(self, question: Question) -> bool:
        """Never."""
        return False

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """The plan's rate, if its schedule holds at that rate."""
        found = super().evaluate(instance, question, solution)
        rate = self.rate(solution, question)
        wrong = found.violations
        if rate < question["least_rate"] * (1 - 1e-9):
            wrong = (*wrong, f"the rate is {rate:.9g}, at least {question['least_rate']:.9g} is asked for")
        return Evaluation(rate, wrong, {**found.details, "mean_latency": found.value})

    def rate(self, solution: Solution, question: Question) -> float:
        """As the plan says."""
        told = solution.details.get("rate")
        if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0 < told < math.inf:
            raise ValueError(f"the plan's rate is {told!r}, expected a number above 0")
        return float(told)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A deadline that a model alone does not keep at any rate; devices too slow for the least rate of interest."""
        streams = streams_of(instance)
        for model in streams.models:
            least = alone(streams, model).latency
            if math.isinf(least):
                return (f"no segments of model {model.name!r} fit together: the cuts that are allowed have no times",)
            if not model.implicit and least > model.deadline * (1 + 1e-9):
                return (
                    f"model {model.name!r} takes at least {least:.9g} s with all devices free, and its deadline is "
                    f"{model.deadline:.9g} s: {least - model.deadline:.9g} s too short, however rarely frames come",
                )
        most = greatest_rate(streams, device_prices(streams) or [1.0] * instance.n_devices)
        if most < question["least_rate"] * (1 - 1e-9):
            return (
                f"a rate of {question['least_rate']:.9g} is asked for, and the devices bear {most:.9g} at most: "
                f"{question['least_rate'] - most:.9g} too much",
            )
        return ()

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays prices of the devices' time."""
        if certificate.get("kind") != "alone-and-prices":
            return super().replay(instance, question, certificate)
        bound = greatest_rate(streams_of(instance), _floats(certificate))
        if not math.isfinite(bound):
            raise ValueError("the prices bound no rate: nothing takes time")
        return bound

    def sample(self, seed: int) -> Instance:
        """As for latency; every second model has a deadline of its own."""
        return sample_of(seed, self.objectives[0], drops=False)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """The same choices in the shortest cycle that they allow."""
        streams, cycles = streams_of(instance), question["cycles"]
        whole = streams.hyperperiod * cycles
        for frames in every_order(instance, question, False):
            found = shortest_cycle(streams, [placed(frame, whole) for frame in frames], whole, cycles)
            if found is not None and whole / found[1] >= question["least_rate"]:
                yield plan_of(instance, streams, found[0], whole / found[1])


def _floats(certificate: Mapping[str, Any]) -> list[float]:
    prices = certificate.get("prices")
    if not isinstance(prices, list) or not all(isinstance(price, (int, float)) for price in prices):
        raise ValueError("the certificate has no list of prices")
    return [float(price) for price in prices]


PROBLEMS = (Periodic(), PeriodicDrops(), PeriodicRate())
