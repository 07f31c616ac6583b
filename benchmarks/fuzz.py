"""Break the importers: thousands of mutated inputs for each, in a process of its own.

    python benchmarks/fuzz.py [--count 10000] [--seed 1] [--only onnx,gguf]

Prints a row an importer: inputs refused with a sentence, inputs that were valid instances (written and read back), the
slowest input in processor seconds, the largest growth of resident memory; and each failure with what makes it again. Returns 1
on a traceback, a crash, an input over 5 s or more than 1 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "io"))

from fuzzing import Failure, judge, mutated, prepared
from model_files import SOURCES

from hetopt.io import importers

MOST_SECONDS = 5.0
MOST_BYTES = 1_000_000_000
SHOWN = 10


def main() -> int:
    """Run all importers; one is run in this process when it is asked for as --inside."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(run(given.inside, given.seed, given.first, given.count)))
        return 0
    bad = 0
    print(
        "| importer | inputs | refused | instances | slowest s | memory MB | failures |\n|---|---|---|---|---|---|---|"
    )
    for kind in given.only.split(",") if given.only else sorted(SOURCES):
        bad += not watched(kind, given.seed, given.first, given.count)
    return 1 if bad else 0


def watched(kind: str, seed: int, first: int, count: int) -> bool:
    """Run an importer's inputs in a child that cannot take the machine with it; True when all is well."""
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "number"
        command = [sys.executable, __file__, "--inside", f"{kind}:{mark}", "--seed", str(seed), "--first", str(first)]
        child = subprocess.Popen(
            [*command, "--count", str(count)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: _limit(count),
        )
        out, err = child.communicate()
        if child.returncode:
            last = mark.read_text() if mark.exists() else "none"
            print(
                f"| {kind} | died at input {last} with {child.returncode}: {err.strip().splitlines()[-1:]} | | | | | 1 |"
            )
            return False
    found = json.loads(out.splitlines()[-1])
    failures = found["failures"]
    slow, large = found["slowest"] > MOST_SECONDS, found["memory"] > MOST_BYTES
    print(
        f"| {kind} | {count} | {found['refused']} | {found['instance']} | {found['slowest']:.2f} (no. {found['slow']}) | "
        f"{found['memory'] / 1e6:.0f} | {len(failures)} |",
        flush=True,
    )
    for number, text in failures[:SHOWN]:
        print(f"  {kind} --seed {seed} --first {number} --count 1: {text}", flush=True)
    return not failures and not slow and not large


def _limit(count: int) -> None:
    """Some GB and a generous total of processor time, so that a hang or a flood ends the child and not the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    total = 60 + count // 10
    resource.setrlimit(resource.RLIMIT_CPU, (total, total))


def run(inside: str, seed: int, first: int, count: int) -> dict[str, object]:
    """Judge inputs one by one; what is known is written before each, so that a crash can be traced."""
    kind, _, mark = inside.partition(":")
    found: dict[str, object] = {"instance": 0, "refused": 0}
    load = importers.get(kind).load
    failures: list[tuple[int, str]] = []
    slowest, slow = 0.0, -1
    with tempfile.TemporaryDirectory() as folder, open(mark, "w") as stream:
        sources = [(source, place, source.make()) for source, place in prepared(kind, Path(folder))]
        for source, place, data in sources:  # whatever is loaded once is loaded now
            (place / source.name).write_bytes(data)
            judge(load, place / source.name, source.options)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(first, first + count):
            stream.seek(0)
            stream.write(str(number))
            stream.flush()
            source, place, data = sources[number % len(sources)]
            path = place / source.name
            path.write_bytes(mutated(kind, seed, number, data))
            start = time.process_time()
            try:
                verdict = judge(load, path, source.options)
                found[verdict] += 1
            except Failure as failure:
                failures.append((number, str(failure)))
            took = time.process_time() - start
            if took > slowest:
                slowest, slow = took, number
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found | {"failures": failures, "slowest": slowest, "slow": slow, "memory": (after - before) * 1024}


if __name__ == "__main__":
    sys.exit(main())
