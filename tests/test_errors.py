"""Messages are one printable line, whatever they quote."""

from __future__ import annotations

from hetopt.errors import InputError, nearest


def test_a_message_quotes_no_control_characters() -> None:
    assert str(InputError("a.json: the name is 'x\ny\x1b[31m\u202e\ud800'")) == (
        "a.json: the name is 'x\\ny\\x1b[31m\\u202e\\ud800'"
    )
    assert str(InputError("größer als ∞, 日本")) == "größer als ∞, 日本"


def test_an_endless_message_loses_its_middle() -> None:
    text = str(InputError("start " + "x" * 10_000 + " end"))
    assert len(text) < 1600
    assert text.startswith("start xxx")
    assert text.endswith("xxx end")
    assert " ... " in text


def test_the_nearest_word_or_all_of_them() -> None:
    assert nearest("makspan", ["makespan", "throughput"]) == "did you mean 'makespan'?"
    assert nearest("zzz", ["b", "a"], what="letters") == "letters are: a, b"
    assert nearest("zzz", []) == "there are none"
