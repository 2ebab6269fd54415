"""Cleaning of log lines with colours, progress bars and missing line ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.verdicts.causes.lines import clean


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("plain\n", ("plain",)),
        ("\x1b[1;31mERROR\x1b[0m out of \x1b[Kmemory", ("ERROR out of memory",)),
        ("\x1b]0;title\x07train", ("train",)),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", ("link",)),
        ("bell\x07 and \x00nul", ("bell and nul",)),
        ("a\tb", ("a\tb",)),
        ("", ("",)),
        ("windows\r\n", ("windows",)),
        ("\r 10%|█ | 1/10\r 20%|██ | 2/10, 3.1it/s", (" 20%|██ | 2/10, 3.1it/s",)),
        ("Epoch 1: step 1\rEpoch 1: step 2\rEpoch 1: step 3", ("Epoch 1: step 3",)),
        (
            " 20%|██ | 2/10\rTraceback (most recent call last):",
            ("Traceback (most recent call last):",),
        ),
        ("saved\rstep 7", ("saved", "step 7")),
        ("two\nlines\n", ("two", "lines")),
        ("x" * 5000, ("x" * 4096,)),
    ],
)
def test_a_line_is_read_as_a_person_saw_it(line, cleaned):
    """Control sequences are removed, and a progress bar is reduced to its last state."""
    assert clean([line]) == cleaned


def test_thousands_of_drawings_leave_the_last():
    """A progress bar that was drawn ten thousand times becomes one line."""
    bar = "".join(f"\r{step}/10000 [{step // 3:05d}<00:00, 3.00it/s]" for step in range(10_001))
    assert clean([bar]) == ("10000/10000 [03333<00:00, 3.00it/s]",)


def test_of_very_many_drawings_the_last_are_looked_at():
    """Of a line redrawn with different texts, the last 500 texts are kept as lines."""
    cleaned = clean(["\r".join(f"drawing{number}" for number in range(600))])
    assert (len(cleaned), cleaned[0], cleaned[-1]) == (500, "drawing100", "drawing599")


@given(st.lists(st.text(alphabet="\x1b\r\n[]0;mK\x07\\ ab%|", max_size=60), max_size=6))
def test_nothing_of_the_terminal_is_left(log):
    """No control character but the tab remains after cleaning, whatever the lines are."""
    for line in clean(log):
        assert not any(character in line for character in "\x1b\r\n\x07")


@pytest.mark.parametrize(
    ("prefix", "left"),
    [
        ("trainer-1  | ", ""),
        ("2024-08-07T22:57:28.933825600Z stderr F ", ""),
        ("3: ", "[rank3]: "),
    ],
)
def test_what_a_collector_puts_before_all_lines_is_removed(prefix, left):
    """A prefix is removed if nearly all lines have it, but not if only one line has it."""
    lines = ("Traceback (most recent call last):", "  f()", "", "KeyError: 1", "done", "end")
    collected = [f"{prefix}{line}" for line in lines]
    expected = tuple((left + line) if line else left.rstrip() for line in lines)
    assert tuple(line.rstrip() for line in clean([*collected, "slurmstepd: x"])) == (
        *expected,
        "slurmstepd: x",
    )
    assert clean([collected[0], *lines]) == (collected[0], *lines)
