"""Formats text for a terminal: removes control characters, wraps lines, and separates commands."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from trainvitals.foreign_text import clean_text
from trainvitals.verdicts.causes.lines import redraw

NARROWEST, WIDEST = 60, 100
_NO_BREAK = "\N{NO-BREAK SPACE}"
_CODE = re.compile("`([^`]*)`")
# Code that consists of one of these programs and its arguments is a command to copy.
_PROGRAMS = re.compile(
    r"(?:apt|apt-get|cat|chmod|chown|conda|curl|dcgmi|df|dmesg|docker|du|find|free|fuser|gdb|getent"
    r"|grep|hf|history|huggingface-cli|ip|journalctl|kill|kubectl|last|ls|lsmod|lsof|modprobe|mount"
    r"|nvidia-ctk|nvidia-smi|pip|podman|ps|python|python3|rmmod|sacct|scontrol|ss|sudo|sysctl"
    r"|systemctl|trainvitals|ulimit|umount|uv|watch) .*"
)
_SHORTEST_COMMAND = 14
_INDENT = "  "


def wrap(text: str, width: int, *, first: str = "", rest: str | None = None) -> list[str]:
    """Wrap a text into lines without breaking code.

    Args:
        text: The text to wrap.
        width: The maximum width of a line, in columns.
        first: The text with which the first line begins.
        rest: The text with which all other lines begin; None means blanks of the same width as
            `first`.
    """
    whole = _CODE.sub(lambda code: _hold_together(code[0], width), clean_text(text))
    lines = textwrap.wrap(
        whole,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def list_points(texts: Iterable[str], width: int) -> list[str]:
    """Return the lines of a bulleted list with the given texts."""
    return [line for text in texts for line in wrap(text, width, first=f"{_INDENT}- ")]


def list_steps(texts: Iterable[str], width: int) -> list[str]:
    """Return the lines of a numbered list, with each command unbroken on a separate line."""
    lines = []
    for number, text in enumerate(texts, 1):
        first = f"{_INDENT}{number}. "
        blank = " " * len(first)
        for part, is_command in part_commands(begin(text)):
            if is_command:
                lines.append(f"{blank}{_INDENT}{clean_text(part)}")
            else:
                lines += wrap(part, width, first=first)
            first = blank
    return lines


def part_commands(step: str) -> list[tuple[str, bool]]:
    """Split a step into sentences and commands, in order; commands are marked with True.

    A command in the middle of a sentence remains part of the sentence.
    """
    parts: list[tuple[str, bool]] = []
    at = 0
    for code in _CODE.finditer(step):
        before, after = step[at : code.start()].strip(" ,;"), step[code.end() :].lstrip()
        if not _is_apart(code[1], before, after):
            continue
        if before:
            parts.append((before, False))
        parts.append((code[1], True))
        at = code.end()
    rest = step[at:].lstrip(" ,;.:" if parts else "")
    return [*parts, (rest, False)] if rest.strip() else parts


def begin(sentence: str) -> str:
    """Return a sentence with a capital first letter and, if needed, a period at the end."""
    text = sentence.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?', ':')) else '.'}"


def _is_apart(code: str, before: str, after: str) -> bool:
    if len(code) < _SHORTEST_COMMAND or not _PROGRAMS.fullmatch(code):
        return False
    return before.endswith(":") or (not before.endswith("(") and after[:1] in {"", ".", ",", ";"})


def _hold_together(code: str, width: int) -> str:
    """Replace the spaces in code with non-breaking spaces, unless the code exceeds half a line."""
    return code if len(code) > width // 2 else code.replace(" ", _NO_BREAK)


def list_quotes(texts: Iterable[str], width: int) -> list[str]:
    """Return log lines wrapped to the width, with the mark `|` before each line."""
    return [line for text in texts for line in wrap(text, width, first="  | ", rest="  |   ")]


def list_log(lines: Iterable[str], width: int) -> list[str]:
    """Return log lines, broken at the width, with all spaces preserved."""
    shown = []
    for line in redraw(lines):
        text = clean_text(line)
        room = width - len(_INDENT) * 2
        shown += [f"{_INDENT}| {text[at : at + room]}" for at in range(0, len(text) or 1, room)]
    return shown


def list_rows(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return lines with labels in the first column and texts in the second column."""
    rows = list(rows)
    column = max((len(label) for label, _ in rows), default=0) + 2
    return [
        line
        for label, text in rows
        for line in wrap(text, width, first=f"{_INDENT}{label:<{column}}")
    ]
