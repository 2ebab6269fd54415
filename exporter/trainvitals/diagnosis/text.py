"""Text for a terminal: wrapped, with commands on lines of their own, and harmless."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from trainvitals.causes.lines import clean

NARROWEST, WIDEST = 60, 100
_NO_BREAK = "\N{NO-BREAK SPACE}"
_CODE = re.compile("`([^`]*)`")
# What begins with one of these and is no mere word is a command to copy.
_PROGRAMS = re.compile(
    r"(?:apt|apt-get|cat|chmod|chown|conda|curl|dcgmi|df|dmesg|docker|du|find|free|fuser|gdb|getent"
    r"|grep|hf|history|huggingface-cli|ip|journalctl|kill|kubectl|last|ls|lsmod|lsof|modprobe|mount"
    r"|nvidia-ctk|nvidia-smi|pip|podman|ps|python|python3|rmmod|sacct|scontrol|ss|sudo|sysctl"
    r"|systemctl|trainvitals|ulimit|umount|uv|watch) .*"
)
_SHORTEST_COMMAND = 14
_INDENT = "  "


def make_harmless(text: str) -> str:
    """Take out of a line what would move the cursor, ring or colour; tabs become blanks."""
    plain = " ".join(clean((text.replace("\t", "    "),)))
    return "".join(letter if letter.isprintable() or letter == " " else "?" for letter in plain)


def wrap(text: str, width: int, *, first: str = "", rest: str | None = None) -> list[str]:
    """Break a text into lines, and none within what stands in code.

    Args:
        text: The text.
        width: How many columns there are.
        first: What stands before its first line.
        rest: What stands before the others; as many blanks when None.
    """
    whole = _CODE.sub(lambda code: _hold_together(code[0], width), make_harmless(text))
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
    """Write a list, a point each."""
    return [line for text in texts for line in wrap(text, width, first=f"{_INDENT}- ")]


def list_steps(texts: Iterable[str], width: int) -> list[str]:
    """Write a numbered list; each command stands whole on a line of its own."""
    lines = []
    for number, text in enumerate(texts, 1):
        first = f"{_INDENT}{number}. "
        blank = " " * len(first)
        for part, is_command in part_commands(begin(text)):
            if is_command:
                lines.append(f"{blank}{_INDENT}{make_harmless(part)}")
            else:
                lines += wrap(part, width, first=first)
            first = blank
    return lines


def part_commands(step: str) -> list[tuple[str, bool]]:
    """Part a step into sentences and the commands in it, in their order; True for a command.

    A command in the middle of a sentence stays there.
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
    """Begin a sentence with a capital, and end it with a full stop."""
    text = sentence.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?', ':')) else '.'}"


def _is_apart(code: str, before: str, after: str) -> bool:
    if len(code) < _SHORTEST_COMMAND or not _PROGRAMS.fullmatch(code):
        return False
    return before.endswith(":") or (not before.endswith("(") and after[:1] in {"", ".", ",", ";"})


def _hold_together(code: str, width: int) -> str:
    """Keep what stands in code from being broken over two lines, where it fits on one."""
    return code if len(code) > width // 2 else code.replace(" ", _NO_BREAK)


def list_quotes(texts: Iterable[str], width: int) -> list[str]:
    """Write lines of a log that are to be read rather than copied."""
    return [line for text in texts for line in wrap(text, width, first="  | ", rest="  |   ")]


def list_log(lines: Iterable[str], width: int) -> list[str]:
    """Write the lines of a log with their blanks, broken where the screen ends."""
    shown = []
    for line in clean(lines):
        text = make_harmless(line)
        room = width - len(_INDENT) * 2
        shown += [f"{_INDENT}| {text[at : at + room]}" for at in range(0, len(text) or 1, room)]
    return shown


def list_rows(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Write labels and what belongs to them in two columns."""
    rows = list(rows)
    column = max((len(label) for label, _ in rows), default=0) + 2
    return [
        line
        for label, text in rows
        for line in wrap(text, width, first=f"{_INDENT}{label:<{column}}")
    ]
