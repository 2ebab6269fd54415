"""Tests for making text from outside the program safe to display."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.foreign_text import (
    clean_file_name,
    clean_label,
    clean_lines,
    clean_text,
    cut,
    escape_markdown,
    join_names,
    name_rest,
    strip_escape_codes,
)

# Texts that could affect a terminal or a page, and ordinary text.
HOSTILE = st.lists(
    st.sampled_from(
        [
            "\x1b[31m", "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1b", "\x1b(B",
            "\x9b31m", "\x07", "\x00", "\x7f", "\r", "\n", "\t", "\u2028", "\xa0",
            "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00ad", "\U000e0041", "\udc80",
            "\u0301", "\u0338", "\u20dd", "\u0e31", "\u09c7", "\u09be", "e", "é", "訓", "run 7",
        ]
    )
    | st.characters(),
    max_size=30,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("résumé 訓練 42", "résumé 訓練 42"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;mine\x07run", "run"),
        ("\x1b]8;;http://evil\x1b\\link", "link"),
        ("\x1b]0;no end", ""),
        ("a\x1bM\x1b7b\x1b", "ab"),
        ("\x9b31m", ""),
        ("a\tb\r\nc\xa0d", "a b  c d"),
        ("bell\x07", "bell?"),
        ("gnp\u202eexe.", "gnp?exe."),
        ("zero\u200bwidth\ufeff", "zero?width?"),
        ("half\udc80", "half?"),
        ("z\u0337\u0338\u0335a", "z\u0337a"),
        ("\u0301", ""),
        ("e\u0301\u0302", "é\u0302"),
        ("a\u20dd\u20dd", "a\u20dd"),
    ],
)
def test_a_text_is_one_line_that_only_shows(text, cleaned):
    """Escape codes are removed, control characters become `?`, and a letter keeps one mark."""
    assert clean_text(text) == cleaned


@given(HOSTILE)
def test_nothing_is_left_that_a_terminal_obeys(text):
    """Cleaned text contains no control, direction or zero-width character."""
    cleaned = clean_text(text)
    assert cleaned.isprintable()
    assert not [c for c in cleaned if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029"]
    marks = [unicodedata.category(c) in {"Mn", "Me"} for c in f" {cleaned}"]
    assert not any(one and other for one, other in pairwise(marks))
    assert clean_text(cleaned) == cleaned


@given(HOSTILE, st.integers(1, 40))
def test_a_text_is_cut(text, most):
    """A text that is too long is cut and ends with an ellipsis."""
    cleaned, whole = clean_text(text, most=most), clean_text(text)
    assert len(cleaned) <= most
    if len(text) <= 8 * most:
        assert cleaned == (whole if len(whole) <= most else whole[: most - 1] + "…")


def test_a_text_of_several_lines_keeps_them():
    """Each line of a text is cleaned and cut separately."""
    assert clean_lines("one\x1b[2J\n\ntwo\tthree", most=5) == "one\n\ntwo …"


def test_escape_codes_end_with_their_line():
    """An escape code without an end does not hide the following lines."""
    assert strip_escape_codes("\x1b]0;title\nnext") == "\nnext"


def test_a_cut_text_ends_with_an_ellipsis():
    """The ellipsis counts as one of the characters."""
    assert cut("abcd", 4) == "abcd"
    assert cut("abcde", 4) == "abc…"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("run `a_b*` is a_b*", "run `a_b*` is a\\_b\\*"),
        ("[x](http://evil)", "\\[x\\](http:\\//evil)"),
        ("<b>&amp; @all", "\\<b\\>\\&amp; \\@all"),
        ("# a | b", "\\# a \\| b"),
        ("www.evil.org ![x]", "www\\.evil.org \\!\\[x\\]"),
        ("half ` a_b", "half \\` a\\_b"),
        ("two\nlines", "two lines"),
    ],
)
def test_markdown_shows_a_text_as_it_is(text, escaped):
    """Foreign text is displayed as text, not as a link, image, HTML, heading, cell or mention."""
    assert escape_markdown(text) == escaped


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("résumé 42", "résumé 42"),
        ("a\x1b[31m\nb", "a_[31m_b"),
        ("half\udc80", "half_"),
        ("turned\u202eround", "turned_round"),
        ("", ""),
    ],
)
def test_a_label_has_an_underscore_for_what_cannot_be_printed(text: str, label: str):
    """Unprintable characters in a label are replaced with underscores."""
    assert clean_label(text) == label


def test_further_characters_can_be_forbidden_and_the_replacement_chosen():
    """Callers can forbid further characters and choose the replacement."""
    assert clean_label("a`b/c\n", forbidden="`/") == "a_b_c_"
    assert clean_label("a\nb", replacement="?") == "a?b"


def test_a_file_name_has_ascii_letters_digits_and_what_is_allowed():
    """A cleaned file name contains no path separator and only ASCII characters."""
    assert clean_file_name("../é run-1_a.b") == "_____run-1_a_b"
    assert clean_file_name("web.1/../x", allowed="-_.") == "web.1_.._x"


def test_names_beyond_the_limit_are_counted():
    """Names beyond the limit are counted instead of listed."""
    assert join_names(["a", "b", "c"], most=3) == "a, b, c"
    assert join_names(["a", "b", "c"], most=1) == "a and 2 more"
    assert join_names([], most=1) == ""
    assert name_rest(2, ", see below") == "and 2 more, see below"
    assert name_rest(0, ", see below") == ""
