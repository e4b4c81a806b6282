"""Characters that would act on a terminal are shown as escapes; letters of every language stay."""

import pytest

from vips._support.printable import printable


@pytest.mark.parametrize(
    "text", ["", "naïve ε → 日本語", "שלום", "می\u200cخواهم", "a\u0301", "🙂", "no\u00a0break", "\\x1b"]
)
def test_letters_stay(text):
    assert printable(text) == text
    assert printable(1.5) == "1.5"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("one\ntwo\r\tthree\x7f", r"one\ntwo\r\tthree\x7f"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_acts_is_escaped(text, shown):
    assert printable(f"ε {text}") == f"ε {shown}"
    printable(text).encode("utf-8")
