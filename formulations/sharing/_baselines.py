"""Plans that ask no program: what a cluster without a plan would do, as yardsticks for every question of shares."""

from __future__ import annotations

from formulations.sharing._cluster import cluster_of, isolated, mixed, tidy
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance

__all__ = ["Even", "Proportional"]


class Even(Method):
    """The cluster divided evenly."""

    name = "isolated"
    title = "every job the same part of every type's workers; baseline"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan."""
        control.report_plan(tidy(instance, isolated(cluster_of(instance))))
        return Outcome()


class Proportional(Method):
    """The same mix of types for every job, for the same time."""

    name = "proportional"
    title = "every job the same time on every type, in proportion to its workers; baseline"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan."""
        control.report_plan(tidy(instance, mixed(cluster_of(instance))))
        return Outcome()
