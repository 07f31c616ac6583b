"""Execute the notebooks: each ``notebooks/*.py`` (percent format) becomes a ``.ipynb`` with its outputs.

python notebooks/run.py              execute all, fail on the first error; files are left alone
python notebooks/run.py --write      execute all and write the .ipynb files with outputs
python notebooks/run.py 01           only those whose name starts so
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Execute and, if asked, write; returns the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of notebook names")
    parser.add_argument("--write", action="store_true", help="write the .ipynb files")
    asked = parser.parse_args()
    failed = 0
    for source in sorted(HERE.glob("[0-9]*.py")):
        if asked.names and not source.name.startswith(tuple(asked.names)):
            continue
        started = time.monotonic()
        notebook = jupytext.read(source)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        try:
            NotebookClient(
                notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}
            ).execute()
        except Exception as error:
            failed += 1
            print(f"{source.name}: {error}", file=sys.stderr)
            continue
        print(f"{source.name}: {time.monotonic() - started:.1f} s")
        if asked.write:
            for number, cell in enumerate(notebook.cells):
                cell["id"] = f"cell-{number}"
                cell.metadata.pop("execution", None)
            nbformat.write(notebook, source.with_suffix(".ipynb"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
