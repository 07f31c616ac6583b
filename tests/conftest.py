"""Shared fixtures: where the reference data are, and a quiet, deterministic hypothesis profile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "hetopt", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("hetopt")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job; tests send Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The pages of the documentation first: their commands take longest, and should not be what all else has to wait for."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")


def reference_data() -> Path | None:
    """Folder of third-party reference data: ``HETOPT_DATA``, or ``shared/data`` beside the checkout; None elsewhere."""
    named = os.environ.get("HETOPT_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data_dir() -> Path:
    folder = reference_data()
    if folder is None:
        pytest.skip("reference data not found: set HETOPT_DATA to the folder that holds them")
    return folder
