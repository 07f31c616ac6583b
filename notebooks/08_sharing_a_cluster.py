# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Sharing a cluster whose devices differ
#
# Jobs take turns on devices of several types, and each runs faster on some than on others, not in the same proportion. Who
# should have how much of which? Narayanan et al. (Gavel, OSDI 2020) state a policy as a program over shares; here each is
# solved with a bound that is proved again without a solver.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import hetopt
from hetopt.io import generators

INSTANCES = Path("../instances/sharing")

# %%
cluster = generators.get("cluster").make(jobs=24, seed=1)
print(cluster)
POLICIES = ("max-min-fairness", "water-filling", "finish-time-fairness", "sharing-makespan", "first-in-first-out")
answers = {name: hetopt.solve(cluster, objective=name) for name in POLICIES}
for name, answer in answers.items():
    print(
        f"{name:22} {answer.status:9} value {answer.objective:12.6g}  bound {answer.bound:12.6g}  ({answer.bound_proof})"
    )

# %% [markdown]
# ## What each policy means for each job
#
# A job's steps a second under a plan, in units of what an even division of the cluster gives it: below 1 it would rather have
# its own part of the cluster.

# %%
even = hetopt.solve(cluster, method="isolated")


def rates(result):
    """(n,) steps a second of each job."""
    return (np.asarray(result.solution.shares) / cluster.time).sum(axis=1)


own = rates(even)
order = np.argsort(rates(answers["water-filling"]) / own)
_, axis = plt.subplots(figsize=(9, 3.6), layout="constrained")
for name in POLICIES:
    axis.plot(np.arange(24), (rates(answers[name]) / own)[order], marker="o", markersize=3, label=name)
axis.axhline(1.0, color="black", linewidth=0.8)
axis.set(xlabel="job", ylabel="rate beside an even division", title="Twenty-four jobs under five policies")
axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# Ignoring that the jobs differ costs the worst-off job:

# %%
agnostic = hetopt.solve(cluster, options={"agnostic": True})
print(
    f"aware {answers['max-min-fairness'].objective:.4f}, agnostic {agnostic.objective:.4f}, even {even.objective:.4f}"
)

# %% [markdown]
# ## Two jobs on the same workers
#
# Sixty jobs of a few kinds; pairs that were measured together may share. Alike jobs are solved as one class, exactly.

# %%
packed = hetopt.read(INSTANCES / "packed-max-min-fairness-60x3.json")
together, alone = hetopt.solve(packed), hetopt.solve(packed, method="unpaired")
print(
    f"pairs {together.objective:.5f} (bound {together.bound:.5f}, {together.bound_proof}), nobody shares {alone.objective:.5f}"
)

# %% [markdown]
# ## Fewest watts, and jobs that run together
#
# Jobs with throughput floors on shared accelerators at least power (the question of GOGH, 2025), careful where rates are only
# estimates; and a queue of jobs in pairs under power caps (Saba et al., 2022), by matching, with a bound by odd sets:

# %%
power = hetopt.read(INSTANCES / "colocation-40x3.json")
least, greedy = hetopt.solve(power, time_limit=10), hetopt.solve(power, method="greedy")
print(f"least power {least.objective:g} W, {least.status}, bound {least.bound:g}; greedy {greedy.objective:g} W")
queue = hetopt.read(INSTANCES / "coschedule-24.json")
pairs, alone = hetopt.solve(queue, method="matching"), hetopt.solve(queue, method="alone")
odd = hetopt.bound(queue, method="odd-sets")
print(f"in pairs {pairs.objective:g} s, bound {odd.bound:g} ({odd.bound_proof}); one by one {alone.objective:g} s")

# %% [markdown]
# ## Measured
#
# The published throughputs (a K80, a P100 and a V100; `hetopt import gavel`) are third-party data and not part of hetopt. The
# full runs, with the command that made them:


# %%
def section(heading):
    """A section of the benchmarks page."""
    text = Path("../benchmarks/README.md").read_text(encoding="utf-8")
    start = text.index(f"## {heading}")
    end = text.find("\n## ", start + 3)
    return text[start : end if end > 0 else None].strip()


print(section("Time shares of a cluster"))
