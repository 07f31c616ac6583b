"""Commands on the documentation pages run: every line that starts with ``$ `` in a console block, in order, page by page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tasks").glob("*.md")]
    if "```console" in page.read_text(encoding="utf-8")
)


def commands(page: Path) -> list[str]:
    """Command lines of a page, continuation lines joined."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line[2:] for block in blocks for line in block.replace("\\\n", "").splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run(page, tmp_path):
    """Each command ends well (0, or 2: a plan that is not proved optimal) in a folder that holds the instances."""
    (tmp_path / "instances").symlink_to(ROOT / "instances")
    tool = tmp_path / "bin" / "hetopt"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hetopt "$@"\n')
    tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell = shutil.which("bash") or "/bin/sh"
    for command in commands(ROOT / page):
        done = subprocess.run(
            [shell, "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
        )
        assert done.returncode in (0, 2), f"{command}\n{done.stdout}\n{done.stderr}"
