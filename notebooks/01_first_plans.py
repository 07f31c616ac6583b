# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # From a matrix and from a model graph to a verified plan
#
# Two questions, the same five steps: state the facts, ask, read the answer, check it without a solver, look at it.

# %%
from dataclasses import replace

import numpy as np
from IPython.display import display

import hetopt
from hetopt.plot import figure

# %% [markdown]
# ## Jobs on unequal machines
#
# Rows are jobs, columns machines; `inf` where a job cannot run. Times follow no common speed: that is what *unrelated* means.

# %%
rng = np.random.default_rng(7)
times = rng.integers(10, 100, (24, 4)).astype(float)
times[rng.random(times.shape) < 0.15] = np.inf
jobs = hetopt.Instance.from_times(times, devices=["a100", "t4", "cpu-0", "cpu-1"], name="24 jobs on 4 machines")
result = hetopt.solve(jobs)
print(result.status, "value", result.objective, "bound", result.bound, f"({result.bound_proof})", "gap", result.gap)

# %% [markdown]
# "optimal" is not the solver's word. The value was recomputed from the matrix, every constraint was checked by code that shares
# nothing with the model, and the bound meets the value. `verify` does it again, and would raise with the first violation:

# %%
print(hetopt.verify(jobs, result).statement)
display(figure(jobs, result))

# %% [markdown]
# Move one job of the busiest machine, and the claim breaks:

# %%
placement = result.solution.placement.copy()
busiest = max(result.evaluation["devices"], key=lambda name: result.evaluation["devices"][name]["load"])
mine = np.flatnonzero(placement == jobs.device_index[busiest])
job = mine[0]
placement[job] = next(i for i in np.argsort(jobs.time[job]) if i != placement[job])
try:
    hetopt.verify(jobs, replace(result, solution=hetopt.Solution.assign(placement)))
except hetopt.VerificationError as error:
    print("rejected:", error)

# %% [markdown]
# A bound alone costs next to nothing, and its certificate is replayed without a solver:

# %%
bound = hetopt.bound(jobs)
print("bound", bound.bound, bound.bound_proof, "in", f"{bound.cpu_seconds:.2f} s")

# %% [markdown]
# ## A model's layers over uneven GPUs
#
# A 70-billion-parameter decoder, one token at a time, on six GPUs of four kinds. Times come from each part's
# bytes and operations and from data sheets; each layer must fit, transfers go through host memory, and the pipeline is as fast as
# its busiest device.

# %%
decoder = hetopt.read("../instances/partition/llama70b-mixed.json")
print(decoder)
plan = hetopt.solve(decoder)
print(plan.status, "busiest device", f"{plan.objective:.6g} s", "bound", f"{plan.bound:.6g}", "by", plan.method)
print(hetopt.verify(decoder, plan).statement)
display(figure(decoder, plan))

# %% [markdown]
# The upper bars show what each device computes and transfers; the lower strip shows which device holds which layer. Why this
# method, and what else could have been asked for:

# %%
print("\n".join(hetopt.explain(decoder).lines()))

# %% [markdown]
# ## Too little memory
#
# When there is no plan, the answer says which constraint, and by how much:

# %%
small = hetopt.Instance.from_times(
    [[3, 5], [4, 9], [2, 2]], memory=[8e9, 6e9, 5e9], capacity=[10e9, 8e9], devices=["big", "small"]
)
print(hetopt.solve(small).infeasible[0])
