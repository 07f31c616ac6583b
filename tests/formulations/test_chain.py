"""Chains: cases worked out by hand, situations that people who serve models have reported, brute force, broken plans."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem
from hetopt.verify.chain import ChainRules, check_chain
from hetopt.verify.chain_proof import possible

GIB = 2**30
NAMES = ("partition.chain", "partition.chain_latency", "partition.chain_tokens", "partition.chain_cost")


def chain(tasks, devices, links=(), **more) -> Instance:
    """Tasks in a row."""
    edges = [Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)]
    return Instance.build(devices, [Job(name="model", tasks=list(tasks), edges=edges)], links, **more)


def weighed(weights, k: int, **facts) -> Instance:
    """Layers of given times on k equal devices."""
    tasks = [Task(name=f"l{j}", time={"d": w}, **{key: value[j] for key, value in facts.items()})
             for j, w in enumerate(weights)]  # fmt: skip
    return chain(tasks, [Device(name=f"d{i}", type="d") for i in range(k)])


def solve(instance, objective="chain-bottleneck", **options):
    """A result that is proved and that verify accepts."""
    result = hetopt.solve(instance, objective=objective, options=options)
    assert result.status == "optimal", (result.messages, result.infeasible)
    hetopt.verify(instance, result)
    return result


def infeasible(instance, objective="chain-bottleneck", **options) -> str:
    result = hetopt.solve(instance, objective=objective, options=options)
    assert result.status == "infeasible"
    return " ".join(result.infeasible)


def sizes(result) -> list[int]:
    return [stage["layers"] for stage in result.evaluation["stages"]]


def split(instance, counts, devices=None) -> Solution:
    """Plan of the first layers on the first device, and so on."""
    return Solution.assign(np.repeat(np.arange(len(counts)) if devices is None else devices, counts))


def value(instance, plan, objective="chain-bottleneck", **options):
    one = next(problem(name) for name in NAMES if objective in problem(name).objectives)
    return one.evaluate(instance, one.question(instance, {"objective": objective, **options}), plan)


class TestByHand:
    def two(self, links=()):
        tasks = [Task(name=f"l{k}", time=[a, b], output=6) for k, (a, b) in enumerate(((4, 9), (1, 1), (5, 2)))]
        return chain(tasks, [Device(name="a"), Device(name="b")], links)

    def test_bottleneck(self):
        """a takes 4, 1, 5 and b takes 9, 1, 2: the first layer on a is 4, the other two on b are 3."""
        assert solve(self.two([Link(source="*", target="*", bandwidth=2)])).objective == 4

    def test_a_busy_link_is_the_bottleneck(self):
        """6 bytes at 1 byte a second take 6 s; all on a take 10 s and all on b 12 s."""
        assert solve(self.two([Link(source="*", target="*", bandwidth=1)])).objective == 6
        assert solve(self.two([Link(source="*", target="*", bandwidth=1, latency=5)])).objective == 10

    def test_order(self):
        """From b to a only: the best is 9 on b, then 6 on a, against 10 on a alone."""
        link = [Link(source="b", target="a", bandwidth=6)]
        assert solve(self.two(link), order="free").objective == 9
        assert solve(self.two(link)).objective == 10
        turned = replace(self.two(link), tables={"order": ["b", "a"]})
        assert solve(turned).objective == 9

    def test_latency_adds_transfers(self):
        """4 on a, 1 + 2 on b, and 3 s between them; with 6 s between, all on a is as good as 10."""
        assert solve(self.two([Link(source="*", target="*", bandwidth=2)]), "chain-latency").objective == 10
        assert solve(self.two([Link(source="*", target="*", bandwidth=6)]), "chain-latency").objective == 8

    def test_latency_within_a_period(self):
        """All on a takes 10 s at once, 4 + 3 + 3 or 5 + 3 + 2 keep a period of 5."""
        result = solve(self.two([Link(source="*", target="*", bandwidth=2)]), "chain-latency", period=5.0)
        assert result.objective == 10
        assert result.evaluation["bottleneck"] <= 5

    def test_price(self):
        """One dear device keeps a period of 6, three cheap ones do at half its price."""
        tasks = [Task(name=f"l{k}", time={"fast": 1, "slow": 3}) for k in range(6)]
        devices = [Device(name="f", type="fast", price=8)]
        devices += [Device(name=f"s{k}", type="slow", price=1.25) for k in range(4)]
        instance = chain(tasks, devices)
        result = solve(instance, "chain-cost", order="free", period=6.0)
        assert (result.objective, sizes(result)) == (3.75, [2, 2, 2])
        assert solve(instance, "chain-cost", order="free").objective == 1.25
        assert "period" in infeasible(instance, "chain-cost", order="free", period=0.5)

    def test_ties(self):
        """Six layers of 1 s and one of 3 s on four devices: 3 s with three stages, none of them below 3 s."""
        instance = weighed([1, 1, 1, 3, 1, 1, 1], 4)
        assert len(sizes(solve(instance, then="stages"))) == 3
        assert min(stage["load"] for stage in solve(instance, then="balance").evaluation["stages"]) == 3
        roomy = chain([Task(name=f"l{k}", time={"d": 1}, kv_bytes_per_token=1) for k in range(3)],
                      [Device(name=f"d{k}", type="d", memory=m) for k, m in enumerate((8, 16, 8))])  # fmt: skip
        assert solve(roomy, "chain-tokens", block=8).objective == 8
        assert len(sizes(solve(roomy, "chain-tokens", block=8, then="stages"))) == 2

    def test_decimals_are_compared_as_they_are(self):
        """0.1 + 0.2 is more than 0.3 in binary, and fits no memory of 0.3."""
        tasks = [Task(name=f"l{k}", time={"d": 1}, memory=m) for k, m in enumerate((0.1, 0.2))]
        instance = chain(tasks, [Device(name=f"d{k}", type="d", memory=0.3) for k in range(2)])
        assert sizes(solve(instance)) == [1, 1]
        assert value(instance, split(instance, [2])).violations

    def test_a_block_larger_than_what_is_left(self):
        """Five tokens fit but no block of eight does."""
        tasks = [Task(name="l", time={"d": 1}, memory=2, kv_bytes_per_token=1)]
        instance = chain(tasks, [Device(name="d", memory=8)])
        assert solve(instance, "chain-tokens", block=8, tokens=5).objective == 0
        assert solve(instance, "chain-tokens", block=3, tokens=5).objective == 6

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"replicas": 2}, "order=free"),
            ({"replicas": 9, "order": "free"}, "replicas"),
            ({"block": 0}, "block"),
            ({"tokens": -1}, "tokens"),
            ({"period": -1.0}, "period"),
        ],
    )
    def test_options_out_of_range(self, options, told):
        with pytest.raises(InputError, match=told):
            hetopt.solve(weighed([1, 2], 2), objective="chain-bottleneck", options=options)

    @pytest.mark.parametrize("order", ["d0", ["d0"], ["d0", "d0"], ["d0", "dx"], ["d0", 1]])
    def test_a_wrong_table_of_the_order(self, order):
        with pytest.raises(InputError, match=r"tables\.order"):
            hetopt.solve(replace(weighed([1, 2], 2), tables={"order": order}), objective="chain-bottleneck")

    def test_what_is_no_sequence(self):
        fork = Instance.from_graph([[1], [1], [1]], [[0, 1], [0, 2]])
        with pytest.raises(InputError, match="sequence"):
            hetopt.solve(fork, objective="chain-bottleneck")


class TestReported:
    """Situations from public reports, with the answers that are right (numbers of the cases in brackets)."""

    def test_the_fuller_stage_caps_the_cache_of_all(self):
        """[H01] 64 layers, 5 GiB of cache on each of two stages, blocks of 16 tokens."""
        tasks = [Task(name=f"l{k}", time={"d": 1}, kv_bytes_per_token=2048) for k in range(64)]
        instance = chain(tasks, [Device(name=f"d{k}", type="d", memory=5 * GIB) for k in range(2)])
        lopsided = value(instance, split(instance, [56, 8]), "chain-tokens", block=16)
        assert lopsided.value == 46800
        assert [stage["tokens"] for stage in lopsided.details["stages"]] == [46800, 327680]
        assert lopsided.details["binding_stage"] == 0
        wasted = (327680 - 46800) * 8 * 2048 / GIB
        assert round(wasted, 2) == 4.29
        best = solve(instance, "chain-tokens", block=16)
        assert (best.objective, sizes(best)) == (81920, [32, 32])

    def uneven(self):
        tasks = [Task(name=f"l{k}", time=[1, 1], memory=630476800, kv_bytes_per_token=20480)
                 for k in range(40)]  # fmt: skip
        sizes_ = (9663676416, 23622320128)
        return chain(tasks, [Device(name=f"g{k}", memory=m, reserved=2630877184) for k, m in enumerate(sizes_)])

    def test_two_uneven_cards(self):
        """[H02] 9 and 22 GiB: halves do not load, 10 and 30 layers leave room for 3376 tokens."""
        instance = self.uneven()
        even = value(instance, split(instance, [20, 20]), "chain-tokens", block=16)
        short = 20 * 630476800 - (9663676416 - 2630877184)
        assert any("g0" in text and f"{short} too many" in text for text in even.violations)
        best = solve(instance, "chain-tokens", block=16)
        assert (best.objective, sizes(best)) == (3376, [10, 30])

    def test_ends_of_the_pipeline_hold_more(self):
        """[H03] 80 layers on eight cards; embedding and head with its workspace as layers of their own, glued on."""
        glue, body = 600000000, 855638016
        tasks = [Task(name="embed", time={"d": 0}, memory=2701346304 - glue, cut=False)]
        tasks += [
            Task(name=f"l{k}", time={"d": 1}, memory=body, kv_bytes_per_token=4096, cut=k < 79) for k in range(80)
        ]
        tasks += [Task(name="head", time={"d": 0}, memory=11601346304 - glue)]
        devices = [Device(name=f"d{k}", type="d", memory=22 * 10**9, reserved=glue) for k in range(8)]
        instance = chain(tasks, devices)
        even = value(instance, split(instance, [11, *[10] * 6, 11]), "chain-tokens", block=16)
        assert (even.value, even.violations) == (44976, ())
        for order in ("fixed", "free"):
            best = solve(instance, "chain-tokens", block=16, order=order)
            assert best.objective == 266064
            assert sum(sizes(best)) == 82
            assert sizes(best)[-1] - 1 == min(sizes(best)) - 1 == 5

    def test_sharing_the_slow_stage(self):
        """[H04] Two slow cards and a fast one, 40 layers: shared or in a row, 22.5; one slow card left out, 29."""
        tasks = [Task(name=f"l{k}", time={"slow": 2.5, "fast": 1}) for k in range(40)]
        slow, fast = [Device(name=f"slow{k}", type="slow") for k in range(2)], Device(name="fast", type="fast")
        assert solve(chain(tasks, [slow[0], fast])).objective == 29
        instance = chain(tasks, [*slow, fast])
        three = solve(instance)
        assert (three.objective, sizes(three)) == (22.5, [9, 9, 22])
        assert solve(instance, order="free", replicas=2).objective == 22.5
        shared = Solution.assign(np.repeat([0, 2], [18, 22]), replicas={"slow0": ["slow1"]})
        told = value(instance, shared, order="free", replicas=2)
        assert (told.value, told.violations) == (22.5, ())
        alone = value(instance, Solution.assign(np.repeat([0, 2], [18, 22])), order="free")
        assert told.details["latency"] == alone.details["latency"] == 67
        few = solve(instance, order="free", replicas=2, then="stages")
        assert few.solution.details["replicas"]
        assert (few.objective, len(sizes(few))) == (22.5, 2)

    def test_no_stage_is_empty(self):
        """[H05] Five equal layers on four stages."""
        instance = weighed([1] * 5, 4)
        assert "holds no layer" in " ".join(value(instance, split(instance, [2, 2, 1]), empty=False).violations)
        best = solve(instance, empty=False, then="balance")
        assert (best.objective, sorted(sizes(best))) == (2, [1, 1, 1, 2])

    def test_the_remainder_is_spread(self):
        """[H06] 38 equal layers on eight stages."""
        best = solve(weighed([1] * 38, 8), then="balance")
        assert (best.objective, sorted(sizes(best))) == (5, [4, 4, 5, 5, 5, 5, 5, 5])

    def test_embedding_and_head_count(self):
        """[H08] Each weighs as much as two blocks."""
        instance = weighed([0, 2, 0, 1, 1, 1, 1, 0, 0, 2, 0], 4)
        assert solve(instance, empty=False).objective == 2
        assert value(instance, split(instance, [4, 1, 1, 5])).value == 3

    def test_encoder_and_decoder(self):
        """[H09] The threshold rule leaves 502.6 on the last stage; the balance bound is 360.4."""
        instance = weighed([32.9, *[50.3] * 24, *[67.1] * 24, 32.9], 8)
        best = solve(instance)
        assert best.objective == pytest.approx(402.4)
        count = hetopt.bound(instance, objective="chain-bottleneck", method="count")
        assert count.bound == pytest.approx(360.425)
        assert count.bound_proof == "replayed"

    @pytest.mark.parametrize(("replicas", "least"), [(1, 9), (2, 4.5)])
    def test_a_piece_that_no_cut_divides_is_a_bound(self, replicas, least):
        """Layers of 2 s and 7 s that stay together, and four of 1 s, on six devices: 9 s, or half where two may share."""
        tasks = [Task(name=f"l{k}", time={"d": t}, cut=k != 1) for k, t in enumerate((1, 2, 7, 1, 1, 1))]
        instance = chain(tasks, [Device(name=f"d{k}", type="d") for k in range(6)])
        options = {"order": "free", "replicas": replicas}
        found = hetopt.bound(instance, objective="chain-bottleneck", options=options, method="count")
        assert (found.bound, found.bound_proof) == (least, "replayed")
        assert found.certificate == {"kind": "piece", "start": 1, "end": 3}
        asked = problem("partition.chain")
        question = asked.question(instance, {"objective": "chain-bottleneck", **options})
        for start, end in ((0, 3), (1, 4), (2, 2), (-1, 1), (1, 9), (True, 3), (1.0, 3), (None, 3)):
            with pytest.raises(ValueError, match="no cut divides"):
                asked.replay(instance, question, {"kind": "piece", "start": start, "end": end})

    def test_three_modules_on_two_devices(self):
        """[H11] Nothing needs to be left out."""
        instance = weighed([4400, 2020, 720], 2, memory=[4400, 2020, 720])
        devices = [Device(name=f"d{k}", type="d", memory=5000) for k in range(2)]
        best = solve(replace(instance, devices=tuple(devices)))
        assert (best.objective, sizes(best)) == (4400, [1, 2])

    def test_layers_of_one_class_differ(self):
        """[H14] Three dense layers of 0.6 GiB, 59 of 13 GiB."""
        assert solve(weighed([0.6] * 3 + [13.0] * 59, 8)).objective == pytest.approx(104)

    def test_where_a_cut_is_allowed(self):
        """[H21] 78 layers, groups of four share an index: 38 and 40, not 39 and 39."""
        instance = weighed([1] * 78, 2, cut=[(k + 1) % 4 == 2 for k in range(78)])
        best = solve(instance)
        assert best.objective == 40
        assert sorted(sizes(best)) == [38, 40]
        assert "no cut is allowed" in " ".join(value(instance, split(instance, [39, 39])).violations)
        assert value(instance, split(instance, [42, 36])).value == 42
        assert solve(weighed([1] * 78, 2)).objective == 39

    def test_measured_segments(self):
        """[H23] 3.9525 ms instead of 6.0864."""
        best = solve(weighed([2.3772, 1.5753, 1.7227, 1.4968, 0.6235], 2))
        assert (best.objective, sizes(best)) == (pytest.approx(3.9525), [2, 3])

    def test_devices_that_are_better_left_out(self):
        """[H20] A layer on each of four home devices; one of them alone. The report's 202 ms count a hop back to the start."""
        speed = (40, 60, 1500, 8)
        tasks = [Task(name=f"l{k}", time=[1000 / s for s in speed], output=1) for k in range(32)]
        link = Link(source="*", target="*", bandwidth=None, latency=4)
        instance = chain(tasks, [Device(name=f"d{k}") for k in range(4)], [link])
        assert solve(instance, "chain-latency").objective == pytest.approx(32 / 1.5)
        forced = solve(instance, "chain-latency", empty=False)
        assert sizes(forced) == [1, 1, 29, 1]
        assert forced.objective + 4 == pytest.approx(202.0)

    def test_unified_memory(self):
        """[H18] 61 layers of 4.82 GB: 75 % of 384 GB are 6.02 GB short, 90 % will do."""
        tasks = [Task(name=f"l{k}", time=[1, 1, 1], memory=4_820_000_000) for k in range(61)]

        def machines(percent):
            return [
                Device(name=f"m{g}", memory=g * 10**9, reserved=g * 10**7 * (100 - percent)) for g in (192, 128, 64)
            ]

        assert "6020000000 bytes short" in infeasible(chain(tasks, machines(75)))
        best = solve(chain(tasks, machines(90)))
        assert all(n <= most for n, most in zip(sizes(best), (35, 23, 11), strict=False))

    def test_whole_layers_are_what_fits(self):
        """Two devices of 14 bytes hold two layers of 5 each: the fifth needs one byte more on each."""
        tasks = [Task(name=f"l{k}", time=[1, 1], memory=5) for k in range(5)]
        told = infeasible(chain(tasks, [Device(name=f"d{k}", memory=14) for k in range(2)]))
        assert "memory" in told
        assert "1 bytes more" in told

    def test_a_missing_link(self):
        """[H19] A model that fits on one node needs no link; one layer on each node does."""
        tasks = [Task(name=f"l{k}", time=[1, 1], memory=2_250_000_000, output=1000) for k in range(2)]
        instance = chain(tasks, [Device(name="a", memory=48 * 10**9), Device(name="b", memory=32 * 10**9)])
        assert len(sizes(solve(instance))) == 1
        told = infeasible(instance, empty=False)
        assert "connectivity" in told
        assert "a -> b" in told
        assert "min-nodes" in infeasible(weighed([1], 2), empty=False)

    def test_partial_offload(self):
        """[H16] 80 blocks on four 22 GiB cards, the rest on the host: 44, and 52 without any context."""

        def cards(cache, seconds):
            size = round((1.0775 + cache) * GIB)
            tasks = [Task(name=f"l{k}", time=seconds, memory=size) for k in range(80)]
            gpus = [Device(name=f"g{k}", type="gpu", memory=22 * GIB, reserved=round(7.2 * GIB)) for k in range(4)]
            return tasks, gpus

        for cache, fits in ((0.24375, 44), (0.0, 52)):
            tasks, gpus = cards(cache, {"gpu": 1, "cpu": 10})
            best = solve(chain(tasks, [*gpus, Device(name="cpu", type="cpu")]), "chain-latency")
            assert best.objective == fits + 10 * (80 - fits)
        tasks, gpus = cards(0.24375, {"gpu": 1})
        short = 80 * tasks[0].memory - 4 * (gpus[0].memory - gpus[0].reserved)
        assert f"{short} bytes short" in infeasible(chain(tasks, gpus), "chain-latency")

    def test_what_the_user_fixed_does_not_fit(self):
        """[H17] 24,840 MiB on a card of 22,341 MiB with a margin of 1,024: 3,523 MiB short."""
        mib = 2**20
        pinned = Task(name="model", time=[1, 5], memory=24840 * mib, pin="gpu")
        devices = [Device(name="gpu", memory=22341 * mib, reserved=1024 * mib), Device(name="cpu")]
        assert f"{3523 * mib} bytes short" in infeasible(chain([pinned], devices))


def cases(count):
    return [(name, seed) for name in NAMES for seed in range(100, 100 + count)]


class TestBruteForce:
    @pytest.mark.parametrize(("name", "seed"), cases(20), ids=str)
    def test_the_program_finds_the_best_of_all_plans(self, name, seed):
        one = problem(name)
        instance = one.sample(seed)
        options = {"empty": seed % 5 != 0, "block": 1 + seed % 2}
        question = one.question(instance, options)
        sign = 1 if one.sense == "min" else -1
        judged = [one.evaluate(instance, question, plan) for plan in one.every_plan(instance, question)]
        values = [sign * each.value for each in judged if not each.violations]
        result = hetopt.solve(instance, options=options, method="dp")
        if not values:
            assert result.status == "infeasible"
            return
        assert result.status == "optimal"
        assert result.objective == pytest.approx(sign * min(values), rel=1e-12)
        assert result.bound == pytest.approx(result.objective, rel=1e-9)
        if name in ("partition.chain", "partition.chain_tokens"):
            worse = result.objective + (0.01 if one.sense == "min" else -options["block"])
            assert result.bound_proof == "replayed"
            if worse >= 0:
                with pytest.raises(ValueError, match="not refuted"):
                    one.replay(instance, question, {"kind": "refuted", "value": worse})

    @pytest.mark.parametrize("links", [0, 1, 2])
    def test_a_longer_chain_by_two_methods(self, links):
        rng = np.random.default_rng(links)
        tasks = [
            Task(name=f"l{k}", time={t: int(rng.integers(1, 30)) for t in "abc"}, memory=int(rng.integers(1, 9)),
                 output=int(rng.integers(1, 20)), kv_bytes_per_token=1)
            for k in range(14)
        ]  # fmt: skip
        devices = [Device(name=f"{t}{k}", type=t, memory=m, price=p)
                   for t, m, p in (("a", 40, 3), ("b", 30, 2), ("c", 20, 1)) for k in range(2)]  # fmt: skip
        between = [Link(source="*", target="*", bandwidth=3), Link(source="a", target="b", bandwidth=1, latency=4)]
        instance = chain(tasks, devices, between[:links] if links else [Link(source="*", target="*", bandwidth=None)])
        for objective in ("chain-bottleneck", "chain-latency", "chain-tokens", "chain-cost"):
            for order in ("fixed", "free"):
                options = {"order": order, "tokens": 2}
                one = hetopt.solve(instance, objective=objective, options=options, method="dp")
                other = hetopt.solve(instance, objective=objective, options=options, method="milp")
                assert one.status == other.status == "optimal"
                assert one.objective == pytest.approx(other.objective, rel=1e-6)


class TestChecker:
    """Every way to break a plan is told."""

    def instance(self):
        tasks = [
            Task(name=f"l{k}", time={"a": 2, "b": 3}, memory=4, output=3, kv_bytes_per_token=1, cut=k != 1)
            for k in range(4)
        ]
        devices = [Device(name="a0", type="a", memory=17), Device(name="a1", type="a", memory=17),
                   Device(name="b", type="b", memory=12)]  # fmt: skip
        return chain(tasks, devices, [Link(source="a", target="*", bandwidth=1)])

    @pytest.mark.parametrize(
        ("placement", "details", "rules", "told"),
        [
            ([0, 2, 2, 0], {}, {}, "separate stretches"),
            ([0, 0, 1, 1], {}, {}, "no cut is allowed"),
            ([1, 0, 0, 0], {}, {"order": (0, 1, 2)}, "comes before it"),
            ([2, 2, 2, 2], {}, {}, "4 too many"),
            ([2, 0, 0, 0], {}, {}, "no link leads there"),
            ([0, 0, 0, 0], {}, {"empty": False}, "holds no layer"),
            ([0, 0, 0, 0], {}, {"tokens": 1}, "3 too many"),
            ([0, 1, 1, 1], {}, {"period": 5.5}, "more than the period"),
            ([0, 1, 1, 1], {}, {"period": 2.5}, "transfer from"),
            ([0, 0, 0, 0], {"replicas": {"a0": ["a1"]}}, {}, "at most 1 may"),
            ([0, 0, 0, 0], {"replicas": {"a0": ["b"]}}, {"replicas": 2}, "no equal device"),
            ([0, 1, 1, 1], {"replicas": {"a0": ["a1"]}}, {"replicas": 2}, "more than one stage"),
            ([0, 0, 0, 0], {"replicas": {"a0": ["a0"]}}, {"replicas": 2}, "more than one stage"),
            ([0, 0, 0, 0], {"replicas": {"b": ["a0"]}}, {"replicas": 2}, "leads no stage"),
            ([0, 0, 0, 0], {"replicas": {"a0": ["x"]}}, {"replicas": 2}, "names of devices"),
            ([0, 0, 0, 0], {"replicas": ["a0"]}, {"replicas": 2}, "lists of devices"),
            ([0, 0, 0, 0], {"other": 1}, {}, "unknown key"),
        ],
    )
    def test_broken(self, placement, details, rules, told):
        report = check_chain(self.instance(), np.array(placement), details, ChainRules(**rules))
        assert any(told in text for text in report.violations), report.violations

    def test_sound(self):
        report = check_chain(self.instance(), np.array([0, 2, 2, 2]), {}, ChainRules(order=(0, 1, 2), period=9))
        assert (report.violations, report.bottleneck, report.latency, report.tokens) == ((), 9, 14, 0)
        shared = check_chain(self.instance(), np.array([0] * 4), {"replicas": {"a0": ["a1"]}}, ChainRules(replicas=2))
        assert (shared.violations, shared.bottleneck, shared.latency) == ((), 4, 8)

    def test_walk(self):
        """One, two and one layer on a0, a1 and b take 4 s; where a0 and a1 share three, 3 s, as long as the link."""
        instance = self.instance()
        assert possible(instance, ChainRules(), below=4.1)
        assert not possible(instance, ChainRules(), below=4)
        assert possible(instance, ChainRules(order=(2, 1, 0)), below=6.1)
        assert not possible(instance, ChainRules(order=(2, 1, 0)), below=6)
        assert possible(instance, ChainRules(replicas=2), below=3.1)
        assert not possible(instance, ChainRules(replicas=2), below=3)
        assert not possible(instance, ChainRules(tokens=14))
        assert math.isinf(check_chain(instance, None, {}, ChainRules()).latency)


def test_a_number_too_large_for_an_option_is_told():
    """A period of 400 digits is bad input, from a file or a caller, never a crash."""
    with pytest.raises(hetopt.InputError, match="period is beyond 1e308"):
        hetopt.solve(hetopt.Instance.from_times([[1.0]]), objective="chain-latency", options={"period": 10**400})


@pytest.mark.parametrize("objective", ["chain-bottleneck", "chain-latency"])
def test_a_period_that_none_keeps_tells_by_how_much(objective):
    """5 + 4 and 7 on two devices: 9 seconds."""
    told = infeasible(weighed([5, 4, 7], 2), objective, period=2)
    assert told == "period: no plan keeps every device and transfer within 2 s; within 9 s there is one: 7 s short"
    assert "within 9 s there is one: 9 s short" in infeasible(weighed([5, 4, 7], 2), objective, period=0)
