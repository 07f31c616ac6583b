"""Golden values: the sixteen throughput workloads published with Tarnawski et al., NeurIPS 2020.

Contiguous optima: of fourteen the authors' own dynamic program gives the same value; the two of Inception-v3 it cannot
reach, there an independent reachability program and a constraint model refute anything 0.001 better. Sizes of the
lattices before and after the merging of zero-time classes are counts of this package, those before are the authors' too.
"""

from __future__ import annotations

import numpy as np
import pytest
from stage_cases import device_arrays, read_workload

from hetopt.algorithms.contraction import contract
from hetopt.algorithms.ideals import enumerate_ideals
from hetopt.algorithms.maxload_bounds import min_cut
from hetopt.algorithms.maxload_dp import solve_contiguous
from hetopt.algorithms.stagecosts import integer_costs
from hetopt.verify.stages import check_stages

OPTIMA = {
    "LayerGraphs/bert24_inference": 17.78990625,
    "LayerGraphs/bert24_training": 41.7458125,
    "LayerGraphs/gnmt_inference": 32.910658203125,
    "LayerGraphs/gnmt_training": 107.0044140625,
    "LayerGraphs/inceptionv3_inference": 51.55186358642578,
    "LayerGraphs/inceptionv3_training": 122.7616162109375,
    "LayerGraphs/resnet50_inference": 33.774666015625,
    "LayerGraphs/resnet50_training": 78.6318125,
    "OperatorGraphs/bert_L-12_training": 437.99763785784575,
    "OperatorGraphs/bert_l-12_inference": 147.47798444934847,
    "OperatorGraphs/bert_l-3_inference": 27.9185676799125,
    "OperatorGraphs/bert_l-3_training": 65.30314912208605,
    "OperatorGraphs/bert_l-6_inference": 29.57950580645155,
    "OperatorGraphs/bert_l-6_training": 72.86496632241126,
    "OperatorGraphs/resnet50_inference": 124.34884977404485,
    "OperatorGraphs/resnet50_training": 255.19441645217384,
}


def workload(data_dir, name: str):
    return read_workload(data_dir / "dnn-partitioning" / "throughput-inputs" / f"{name}.json")


@pytest.mark.parametrize("name", OPTIMA)
def test_contiguous_optimum(data_dir, name):
    case = workload(data_dir, name)
    graph = contract(**case)
    answer = solve_contiguous(graph)
    assert answer.optimal
    assert answer.value == pytest.approx(OPTIMA[name], rel=1e-9)
    assert answer.value * (1 - 1e-12) <= answer.bound <= answer.value
    plan, rules = answer.device[graph.member], device_arrays(case)
    assert check_stages(placement=plan, claimed=answer.value, mirror_orphans=True, **rules).violations == ()
    assert check_stages(placement=plan, claimed=answer.value, contiguity="device", **rules).violations == ()
    # a plan in which the busiest device loses its slowest task is not what it claims, or breaks a rule
    report = check_stages(placement=plan, **rules)
    busiest = int(np.argmax(report.load))
    task = int(np.argmax(np.where(plan == busiest, rules["time"][:, busiest], -1)))
    plan[task] = (busiest + 1) % len(report.load)
    assert check_stages(placement=plan, claimed=answer.value, **rules).violations


@pytest.mark.parametrize(
    "name", ["LayerGraphs/bert24_training", "LayerGraphs/resnet50_training", "OperatorGraphs/bert_l-6_training"]
)
def test_passes_apart_cost_no_less_than_together(data_dir, name):
    case = workload(data_dir, name)
    graph = contract(**case)
    together, apart = (solve_contiguous(graph, variant=v) for v in ("sum", "max"))
    assert apart.optimal and apart.value >= together.value * (1 - 1e-12)
    rules = device_arrays(case)
    for answer in (together, apart):
        report = check_stages(placement=answer.device[graph.member], variant="max", **rules)
        assert report.value >= apart.value * (1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "plain", "merged"),
    [
        ("LayerGraphs/bert24_inference", 30, 30),
        ("LayerGraphs/gnmt_training", 17_914, 133),
        ("LayerGraphs/inceptionv3_inference", 36_596, 36_411),
        ("OperatorGraphs/bert_l-3_training", 2_774, 2_774),
        ("OperatorGraphs/resnet50_inference", 241, 241),
    ],
)
def test_lattices(data_dir, name, plain, merged):
    """The authors' merging leaves ``plain`` ideals (their printed count); that of step 4 no more."""
    graph = contract(**workload(data_dir, name))
    assert len(enumerate_ideals(graph.pred_ptr, graph.pred).last) == merged <= plain


@pytest.mark.parametrize(
    ("name", "value"), [("OperatorGraphs/bert_l-3_inference", 21.908), ("OperatorGraphs/bert_l-3_training", 54.207)]
)
def test_minimum_cut_bound(data_dir, name, value):
    """Values of an earlier computation to three decimals; both are met by plans without contiguity."""
    costs, unit = integer_costs(contract(**workload(data_dir, name)))
    assert min_cut(costs)[0] * unit == pytest.approx(value, abs=5e-4)
