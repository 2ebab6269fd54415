"""Declares the log format of one program.

A log format consists of line patterns, an example, and the numbers that are read from the example.
In a line's regular expression, `<loss>` stands for a group that matches a number, `<step>` for a
group that matches a count, and `<pairs>` for a group that matches the rest of the line. The module
`patterns` describes the groups and the arguments of `line`. To add a format, write a `Format` and
add it to `FORMATS`; a test reads its example.

A matching line must contain the first text in the argument `contains` of `line`. Lines are searched
for these texts before any expression is tried. A format therefore costs little if its first text is
also the first text of other formats, such as `oss` for losses and `poch` for epochs.
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
    """The log format of one program.

    Attributes:
        name: The program's name, as shown in the documentation.
        lines: The line patterns, in the order in which they are tried.
        example: An excerpt from a log.
        reads: The numbers that are read from the example: the step, the epoch and the words of a
            run file.
        fields: The names under which numbers are recorded, by the numbers' names in the log.
        first_epoch: The number of the first epoch; None if this number differs between logs.
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
    """Return a line pattern; the arguments are the attributes of `Pattern`."""
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
    """Return a format's patterns, with the name and the defaults of the format."""
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
    """Return a regular expression in which each `<name>` is replaced by a named group."""
    return _GROUP.sub(_write_group, regex)


def _write_group(match: re.Match[str]) -> str:
    name = match[1]
    text = r"\d{1,12}" if name in _COUNTS else r".*" if name in _RESTS else _NUMBER
    return f"(?P<{name}>{text})"
