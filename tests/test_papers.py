"""The table of papers and peers: every command stands on a page whose commands run, every file and page is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_docs import PAGES, commands

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [row for row in re.findall(r"^\| (.+) \|$", TEXT, re.MULTILINE) if not row.startswith(("paper |", "peer |"))]


def test_there_is_a_row_for_each():
    papers, peers = TEXT.split("## Peers")
    assert papers.count("\n| ") - 1 == 21
    assert peers.count("\n| ") - 1 >= 10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row)[:40])
def test_a_row_shows_something_that_is_tested(row):
    tested = {command for page in PAGES for command in commands(ROOT / page)}
    shown = re.findall(r"`([^`]+)`", row.split(" | ")[-1])
    assert shown
    for text in shown:
        assert text in tested or (text.startswith("notebooks/") and (ROOT / text).is_file()), text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row)[:40])
def test_files_and_questions_of_a_row_are_there(row):
    for page in re.findall(r"\(_generated/(\w+)\.(\w+)\.md\)", row):
        assert (ROOT / "formulations" / page[0] / f"{page[1]}.py").is_file(), page
    for file in re.findall(r"`((?:hetopt|benchmarks)/[\w/]+\.py)", row):
        assert (ROOT / file).is_file(), file
