"""A 70-billion-parameter decoder on 2 x A100-40G, 4 x T4 and a CPU, from config to settings of three tools; wall and CPU seconds.

    python benchmarks/plan.py

Each run is a process of its own, as a user starts it: import, solve, verify, export; the kernels were compiled by a first run.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
FLEET = "a100-sxm-40:2,t4:4,cpu"
CASES = (
    ("int4, 8,192 tokens, throughput", "vllm,llama.cpp,accelerate", ["--quantisation", "int4", "--context", "8192"]),
    ("int4, most tokens", "vllm,llama.cpp,accelerate", ["--quantisation", "int4", "--want", "tokens"]),
    ("bf16, 2,048 tokens, throughput", "llama.cpp,accelerate", ["--context", "2048"]),
    ("bf16, 2,048 tokens, no plan", "vllm", ["--context", "2048"]),
)


def run(config: Path, tools: str, options: list[str]) -> tuple[dict[str, object], float, float]:
    """What one command printed, its wall and CPU seconds."""
    command = [
        sys.executable,
        "-m",
        "hetopt",
        "plan",
        str(config),
        "--devices",
        FLEET,
        "--to",
        tools,
        "--json",
        *options,
    ]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), wall, spent


def main() -> int:
    """Print status, value, gap, settings and seconds of each case, the least of three runs."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(CONFIG))
        print("| case | status | value | gap | settings | wall s | CPU s |\n|---|---|---|---|---|---|---|")
        for title, tools, options in CASES:
            run(config, tools, options)
            told, wall, spent = min((run(config, tools, options) for _ in range(3)), key=lambda one: one[1])
            value = "-" if told["objective"] is None else f"{told['objective']:.7g}"
            gap = "-" if told["gap"] is None else f"{told['gap']:.1g}"
            settings = ", ".join(told["settings"]) or "; ".join(told["mends"])
            print(f"| {title} | {told['status']} | {value} | {gap} | {settings} | {wall:.2f} | {spent:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
