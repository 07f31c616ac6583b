"""Bad input, one case after the other through the command line: exit code, the sentence, and that nothing was written.

    python benchmarks/bad_input.py

Prints a table; returns 1 when some case does not end with exit 1 (3 for infeasible memory), one sentence and no output file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

GOOD = {
    "format": "hetopt-instance/1",
    "devices": [{"name": "gpu", "memory": 10}, {"name": "cpu", "host": True}],
    "jobs": [
        {
            "name": "model",
            "tasks": [{"name": "a", "time": [1, 2], "output": 1}, {"name": "b", "time": [2, 3], "memory": 4}],
            "edges": [{"from": "a", "to": "b"}],
        }
    ],
    "question": {"objective": "makespan"},
}


def changed(**more: object) -> str:
    """The good file with some of its parts replaced; dots name the place."""
    data = json.loads(json.dumps(GOOD))
    for place, value in more.items():
        part = data
        *path, last = place.split("__")
        for key in path:
            part = part[int(key) if key.isdigit() else key]
        part[int(last) if last.isdigit() else last] = value
    return json.dumps(data)


CASES: dict[str, tuple[str | None, int]] = {
    "not JSON": ("hello", 1),
    "wrong tag": (changed(format="hetopt-instance/9"), 1),
    "unknown key": (changed(devices__0={"name": "gpu", "memry": 3}), 1),
    "NaN": (changed(jobs__0__tasks__0__time="X").replace('"X"', "[NaN, 1]"), 1),
    "negative time": (changed(jobs__0__tasks__0__time=[-1, 2]), 1),
    "cycle": (changed(jobs__0__edges=[{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]), 1),
    "missing link": (changed(question={"objective": "throughput"}), 1),
    "edge to nowhere": (changed(jobs__0__edges=[{"from": "a", "to": "c"}]), 1),
    "duplicate names": (changed(devices__1={"name": "gpu"}), 1),
    "task eligible nowhere": (changed(jobs__0__tasks__0__time=[None, None]), 1),
    "empty instance": (changed(jobs=[]), 1),
    "file cut in half": (None, 1),
    "a directory": (None, 1),
    "no read permission": (None, 1),
    "infeasible memory": (changed(jobs__0__tasks__1={"name": "b", "time": [2, None], "memory": 40}), 3),
}


def main() -> int:
    """Run all cases."""
    failures = 0
    print("| case | exit | sentence |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, expected) in CASES.items():
            file, result = Path(folder) / "input.json", Path(folder) / "result.json"
            file.unlink(missing_ok=True)
            source = file
            if name == "a directory":
                source = Path(folder)
            elif name == "file cut in half":
                rows = ",".join('{"name":"t%d","time":[1,2]}' % k for k in range(100_000))  # noqa: UP031
                whole = changed(jobs="X").replace('"X"', f"[{rows}]")
                file.write_text(whole[: len(whole) // 2])
            elif name == "no read permission":
                file.write_text(changed())
                file.chmod(0)
            else:
                file.write_text(text or "")
            command = [sys.executable, "-m", "hetopt", "solve", str(source), "-o", str(result)]
            done = subprocess.run(command, capture_output=True, text=True)
            wrote = result.exists() and expected == 1
            said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            sentence = said[0] if said else (done.stdout.splitlines() or [""])[1 if expected == 3 else 0].strip()
            skip = name == "no read permission" and done.returncode == 0
            fine = done.returncode == expected and "Traceback" not in done.stderr and not wrote
            failures += not (fine or skip)
            shown = sentence.replace(str(folder), "...").replace("|", "\\|")
            print(f"| {name} | {done.returncode}{' (root reads everything)' if skip else ''} | {shown} |")
            result.unlink(missing_ok=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
