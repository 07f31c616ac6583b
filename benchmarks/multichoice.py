"""One variant a layer for 80 layers of 16 variants under budgets of memory and time: value, bound and processor seconds.

python benchmarks/multichoice.py [SEEDS]
"""

from __future__ import annotations

import sys
import time

import hetopt
from hetopt.io.generators.block_library import make


def main(arguments: list[str]) -> int:
    """A line for each seed of the losses."""
    hetopt.solve(make(layers=6))  # compiles
    print("| seed | status | value | bound | by | CPU s |\n|---|---|---|---|---|---|")
    for seed in range(1, 1 + int(arguments[0] if arguments else 8)):
        instance = make(seed=seed)
        started = time.process_time()
        result = hetopt.solve(instance, time_limit=60)
        spent = time.process_time() - started
        hetopt.verify(instance, result)
        print(
            f"| {seed} | {result.status} | {result.objective:.9g} | {result.bound:.9g} | {result.method} | {spent:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
