"""Tests for the text report of `trainvitals doctor`."""

from dataclasses import replace

from trainvitals.doctor import CheckRun, format_report
from trainvitals.doctor.checks import Result
from trainvitals.doctor.finding import Check, Finding, fail, ok


def write(finding, **how) -> str:
    """Return the report of one check."""
    check = Check("disk", "disks", "nothing", "it matters", lambda _: finding)
    return format_report(CheckRun((Result(check, finding, 0.1),), 0.25), width=80, **how)


def test_colour_says_nothing_that_words_do_not():
    """The report with colours contains the same text as the report without."""
    plain = write(fail("full", "rm -r /tmp/x"))
    coloured = write(fail("full", "rm -r /tmp/x"), has_colour=True)
    assert coloured.startswith("\033[31m✗ problem \033[0mdisk  full\n")
    assert coloured.replace("\033[31m", "").replace("\033[0m", "") == plain


def test_names_cannot_move_the_cursor():
    """Control characters in the text or the command of a finding are removed."""
    out = write(fail("\x1b[2J\x1b]0;title\x07/data\u202e is full", "ls \x1b[31m/data"))
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "/data? is full" in out
    assert "$ ls /data\n" in out


def test_a_line_is_broken_between_words_and_a_command_is_not():
    """Text is wrapped between words to the width of the terminal; a command is not wrapped."""
    command = "sudo " + "x" * 120
    out = write(fail("a word and another " * 10, command))
    assert f"$ {command}" in out
    assert all(len(line) <= 80 for line in out.splitlines() if "$" not in line)


def test_what_is_well_takes_one_line():
    """A passed check has one line without a reason and without a command."""
    assert write(ok("50 GiB free")) == (
        "✓ ok      disk  50 GiB free\n\n0 problems, 0 warnings, 1 ok, 0 not applicable; 250ms"
    )


def test_each_thing_that_was_examined_has_its_line():
    """Each detail has a line, also for a passed check; continued lines are indented."""
    out = write(replace(ok("2 respond"), details=("gpu0: " + "1234 " * 14, "gpu1: lost\x1b[2J")))
    assert out.splitlines()[:4] == [
        "✓ ok      disk  2 respond",
        " " * 16 + "gpu0: " + " ".join(["1234"] * 11),
        " " * 18 + "1234 1234 1234",
        " " * 16 + "gpu1: lost",
    ]


def test_what_does_not_apply_is_named_and_explained_on_demand():
    """Checks that are not applicable share one paragraph; `--all` prints each with its reason."""
    check = Check("ecc", "driver", "finds", "why", lambda _: Finding("ok", ""))
    result = Result(check, Finding("not applicable", "no NVIDIA GPU answers"), 0.1)
    examination = CheckRun((result, result), 0.25)
    short = format_report(examination, width=80)
    assert short.splitlines()[0] == "- n/a      not applicable here (--all shows why): ecc, ecc"
    assert "no NVIDIA GPU answers" not in short
    assert format_report(examination, width=80, has_all=True).count("no NVIDIA GPU answers") == 2
