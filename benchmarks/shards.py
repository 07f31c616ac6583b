"""OLAR, the threshold search and the MILP on 500 random instances of shards: the same optimum each time; one line at the end.

python benchmarks/shards.py [INSTANCES]
"""

from __future__ import annotations

import sys
import time

import numpy as np

import hetopt
from hetopt.records import Device, Job


def instance(seed: int) -> hetopt.Instance:
    """2 to 12 devices and 5 to 60 shards; integer curves with plateaus, limits that leave some way."""
    rng = np.random.default_rng(seed)
    d, total = int(rng.integers(2, 13)), int(rng.integers(5, 61))
    seconds = np.cumsum(rng.integers(0, 9, (d, total + 1)), axis=1)
    seconds[:, 0] = 0
    most = rng.integers(-(-total // d), total + 1, d)
    least = np.minimum(rng.integers(0, 3, d), total // d)
    table = {f"d{i}": {"seconds": seconds[i].tolist(), "least": int(least[i]), "most": int(most[i])} for i in range(d)}
    devices = [Device(name=name) for name in table]
    job = Job(name="round", steps=total, time=[1] * d)
    return hetopt.Instance.build(devices, [job], tables={"shards": table}, question={"objective": "shards"})


def main(arguments: list[str]) -> int:
    """Solve each by each; stops at the first that differ."""
    count = int(arguments[0]) if arguments else 500
    spent = dict.fromkeys(("olar", "threshold", "milp"), 0.0)
    for seed in range(count):
        one = instance(seed)
        found = {}
        for method in spent:
            start = time.process_time()
            result = hetopt.solve(one, method=method)
            spent[method] += time.process_time() - start
            found[method] = (result.status, result.objective)
        if len(set(found.values())) > 1 or result.status != "optimal":
            print(f"seed {seed}: {found}")
            return 1
    print(f"{count} instances, the same optimum by each; CPU seconds: { ({k: round(v, 2) for k, v in spent.items()}) }")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
