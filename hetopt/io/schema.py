"""Write the JSON Schema of the instance format: ``python -m hetopt.io.schema docs/instance.schema.json``.

The schema is generated from :mod:`hetopt.records`. It says less than the reader checks: names that must be known, lists that
must have an entry a device, cycles and tasks that run nowhere are beyond it.
"""

from __future__ import annotations

import json
import sys

from hetopt.io.atomic import atomic_write
from hetopt.io.instances import instance_schema

__all__ = ["schema_text"]


def schema_text() -> str:
    """Text of the committed schema file."""
    return json.dumps(instance_schema(), indent=1) + "\n"


if __name__ == "__main__":
    atomic_write(sys.argv[1], schema_text())
