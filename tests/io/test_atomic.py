"""Files written whole or not at all; what is no file stays what it is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hetopt import InputError
from hetopt.io.atomic import atomic_write, atomically


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), atomically(target) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    atomic_write(tmp_path / "link", "a result")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "a result"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    target, read = tmp_path / "pipe", []
    os.mkfifo(target)
    reader = threading.Thread(target=lambda: read.append(target.read_text()))
    reader.start()
    atomic_write(target, "a result")
    reader.join(10)
    assert read == ["a result"]
    assert stat.S_ISFIFO(target.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no full device here")
def test_a_full_device_is_told_and_stays(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write '/dev/full': No space left"):
        atomic_write("/dev/full", "a result")
    assert Path("/dev/full").is_char_device()
