"""The format of the logs of one program, as a declaration.

A format contains the forms of its lines, an example, and the numbers that are read from the example.
In the expression of a line, `<loss>` stands for a group that matches a number, `<step>` for a group
that matches a count, and `<pairs>` for a group that matches the rest of the line. The module
`patterns` describes the meaning of the groups and of the arguments of `line`. To add a format, write
an entry and add it to `FORMATS`; a test reads its example.

Every line contains the text that `line` names first. Lines are searched for these texts before any
expression is tried, so the cost of a format is small if its first text is that of other formats, such
as `oss` for losses and `poch` for epochs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainvitals.sources.runs.patterns import Mark, Pattern
from trainvitals.sources.runs.vocabulary import Split

_GROUP = re.compile(r"(?<!\(\?P)<(\w{1,32})>")
_COUNTS = frozenset(
    {
        "step", "total_steps", "epoch", "total_epochs", "last_epoch", "shown_epochs", "epoch_step",
        "epoch_steps", "bar_step", "bar_steps",
    }
)  # fmt: skip
_RESTS = frozenset({"pairs", "heading"})
_NUMBER = (
    r"(?:[-+.]?\d[-+\d.eE]{0,32}(?:,\d{3}[\d.]{0,8}){0,4}%?"
    r"|[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?))"
)


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
    lines: tuple[Pattern, ...]
    example: str
    reads: Mapping[str, float]
    fields: Mapping[str, str] = field(default_factory=dict)
    first_epoch: int | None = None


def line(
    regex: str,
    *contains: str,
    split: Split = "",
    fields: Mapping[str, str] | None = None,
    first_epoch: int | None = None,
    spaced: bool = False,
    at_end: bool = False,
    in_section: bool = False,
    repeats: bool = False,
    marks: Mark = "",
) -> Pattern:
    """Return a form of a line; the arguments are the attributes of a pattern."""
    return Pattern(
        name="",
        regex=re.compile(expand(regex)),
        contains=contains,
        split=split,
        fields=fields or {},
        first_epoch=first_epoch,
        spaced=spaced,
        at_end=at_end,
        in_section=in_section,
        repeats=repeats,
        marks=marks,
        is_anchored=regex.startswith("^"),
    )


def list_patterns(entry: Format) -> tuple[Pattern, ...]:
    """Return the patterns of a format."""
    return tuple(
        replace(
            pattern,
            name=entry.name,
            fields={**entry.fields, **pattern.fields},
            first_epoch=entry.first_epoch if pattern.first_epoch is None else pattern.first_epoch,
        )
        for pattern in entry.lines
    )


def expand(regex: str) -> str:
    """Return an expression with the groups that `<name>` stands for."""
    return _GROUP.sub(_write_group, regex)


def _write_group(match: re.Match[str]) -> str:
    name = match[1]
    text = r"\d{1,12}" if name in _COUNTS else r".*" if name in _RESTS else _NUMBER
    return f"(?P<{name}>{text})"
