"""Wrapping and listing of text in reports about a death."""

import pytest

from trainvitals.views.death.text import list_log, list_steps, part_commands, wrap


@pytest.mark.parametrize(
    ("step", "parts"),
    [
        ("Set `init: true`.", [("Set `init: true`.", False)]),
        (
            "Raise it: `docker update --memory 2g x`, then start it.",
            [
                ("Raise it:", False),
                ("docker update --memory 2g x", True),
                ("then start it.", False),
            ],
        ),
        (
            "Wait longer: `docker run --stop-timeout 60`, or `docker stop -t 60`.",
            [
                ("Wait longer:", False),
                ("docker run --stop-timeout 60", True),
                ("or", False),
                ("docker stop -t 60", True),
            ],
        ),
        (
            "Let `trainvitals serve` run beside it.",
            [("Let `trainvitals serve` run beside it.", False)],
        ),
        (
            "Start it (`systemctl start docker`), or not.",
            [("Start it (`systemctl start docker`), or not.", False)],
        ),
        ("Run `python -u`.", [("Run `python -u`.", False)]),
        ("`docker logs --tail 5 x`", [("docker logs --tail 5 x", True)]),
    ],
)
def test_commands_are_parted_from_sentences(step, parts):
    """A command at the end of a clause has its own line, but a setting stays in the sentence."""
    assert part_commands(step) == parts


def test_a_command_is_never_broken():
    """A command is never wrapped, so that it can be copied."""
    command = "docker update --memory 128m --memory-swap 128m " + "x" * 60
    assert list_steps([f"raise it: `{command}`"], 60) == ["  1. Raise it:", f"       {command}"]


def test_short_code_is_not_broken_over_lines():
    """Short code is not broken over two lines."""
    lines = wrap("a word or two and then more of it: `--memory 128m`.", 45)
    assert lines == ["a word or two and then more of it:", "`--memory 128m`."]


def test_a_long_line_of_a_log_goes_on_below():
    """A long line of a log is broken at the width of the screen and keeps its spaces."""
    assert list_log(["  File x", "y" * 70], 60) == [
        "  |   File x",
        f"  | {'y' * 56}",
        f"  | {'y' * 14}",
    ]


def test_a_log_is_shown_with_the_prefixes_of_its_lines():
    """Rank prefixes such as those of `srun --label` are kept in the shown log."""
    assert list_log(("0: epoch 1", "1: epoch 1"), 60) == ["  | 0: epoch 1", "  | 1: epoch 1"]
