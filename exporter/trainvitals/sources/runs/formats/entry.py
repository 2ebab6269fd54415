"""The format of the logs of one program, as a declaration.

A format contains the forms of its lines, an example, and the numbers that are read from the example.
In the expression of a line, `<loss>` stands for a group that matches a number, `<step>` for a group
that matches a count, and `<pairs>` for a group that matches the rest of the line; see `patterns` for
the meaning of the groups and of all other attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainvitals.sources.runs.patterns import Pattern

_GROUP = re.compile(r"(?<!\(\?P)<(\w{1,32})>")
_COUNTS = frozenset(
    "step total_steps epoch total_epochs last_epoch shown_epochs epoch_step epoch_steps bar_step "
    "bar_steps".split()
)
_RESTS = frozenset({"pairs", "heading"})
_NUMBER = r"(?:[-+.]?\d[-+\d.eE]{0,32}(?:,\d{3}[\d.]{0,8}){0,4}%?|[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?))"


@dataclass(frozen=True, slots=True)
class Line:
    """One form of a line.

    Attributes:
        regex: The expression, with groups such as `<loss>`.
        contains: The texts that the line contains.
        options: Other attributes of the pattern.
    """

    regex: str
    contains: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """The format of the logs of one program.

    Attributes:
        name: The name of the program, as shown in the documentation.
        lines: The forms of the lines, in the order in which they are tried.
        example: Some lines of a log.
        reads: The numbers that are read from the example: the step, the epoch and the words of a
            run file.
        fields: The names of numbers in the log, with the names under which they are recorded.
        first_epoch: The number of the first epoch; None if it is not the same in all logs.
    """

    name: str
    lines: tuple[Line, ...]
    example: str
    reads: Mapping[str, float]
    fields: Mapping[str, str] = field(default_factory=dict)
    first_epoch: int | None = None


def line(regex: str, *contains: str, **options: Any) -> Line:
    """Return a form of a line."""
    return Line(regex, contains, options)


def write_patterns(entry: Format) -> tuple[Pattern, ...]:
    """Return the patterns of a format."""
    return tuple(
        replace(
            Pattern(entry.name, re.compile(expand(form.regex)), form.contains),
            **{
                "first_epoch": entry.first_epoch,
                "is_anchored": form.regex.startswith("^"),
                **form.options,
                "fields": {**entry.fields, **form.options.get("fields", {})},
            },
        )
        for form in entry.lines
    )


def expand(regex: str) -> str:
    """Return an expression with the groups that `<name>` stands for."""
    return _GROUP.sub(_write_group, regex)


def _write_group(match: re.Match[str]) -> str:
    name = match[1]
    text = r"\d{1,12}" if name in _COUNTS else r".*" if name in _RESTS else _NUMBER
    return f"(?P<{name}>{text})"
