r"""Patterns for training log lines: built-in patterns and patterns that users write.

**A pattern file** is YAML with one key, `patterns`, which contains a list of mappings:

============ ====================================================================================
key          meaning
============ ====================================================================================
`name`       required: the name of the pattern, which is shown in messages
`regex`      required: a Python regular expression with named groups, searched for in each line
`contains`   a text or a list of texts that the line must contain; searched for before the
             expression is tried, which is a hundred times faster; use the rarest word in the line
`split`      `train`, `validation` or `test`: the data set of the numbers, if the names of the
             numbers do not show the data set
`run`        the name of the run that the numbers belong to, instead of the file's name
`finished`   true if a matching line marks the end of the run
`example`    a line that the expression must match; checked when the file is read
============ ====================================================================================

**Groups.** A group that does not match, or whose text is not a number, is ignored. A number may
contain thousands separators or a percent sign, which makes the number a ratio. A number may also be
`nan` or `inf`; the exporter counts such numbers.

=========================== =====================================================================
group                       meaning
=========================== =====================================================================
`step`, `total_steps`       the optimizer's step, and the total number of steps
`epoch`, `total_epochs`     the epoch, and the total number of epochs
`epoch_step`, `epoch_steps` the step in the epoch, and the number of steps per epoch; together with
                            `epoch` (counted from 1), these determine the step if `step` is missing
`step_seconds`              the duration of a step; also `step_milliseconds`, `steps_per_second`
`nonfinite_losses`          the number of losses that were NaN or infinite, added to the count
`run`                       the name of the run that the line belongs to
`pairs`                     text that contains pairs of a name and a number, such as
                            `loss: 0.5 | acc=0.9`; each number is recorded under its name
any other                   a number with that name: `loss`, `val_loss`, `accuracy`,
                            `learning_rate`, `grad_norm`, `samples_per_second`,
                            `tokens_per_second` ... or any other name, for a user-defined metric
=========================== =====================================================================

For each line, the patterns are tried in order, the user's patterns first, and the first matching
pattern is used. If the first matching pattern is a pattern with `finished`, the other patterns are
still tried.

An example for the two kinds of lines `iter 100: loss 2.3412, time 50.20ms` and
`step 250: train loss 2.0, val loss 2.1`::

    patterns:
      - name: nanogpt iteration
        contains: "iter "
        regex: 'iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<step_milliseconds>[\d.]+)ms'
        example: "iter 100: loss 2.3412, time 50.20ms"
      - name: nanogpt evaluation
        contains: "val loss"
        regex: 'step (?P<step>\d+): train loss \S+ val loss (?P<val_loss>\S+)'

**Time.** An expression is tried on every line that contains the texts of `contains`, and blocks all
other work while it runs. Lines longer than 8 KiB are skipped. When the file is read, each
expression is classified by its structure:

- An expression that takes linear time is tried on lines of up to 8 KiB.
- An expression that may take quadratic time, such as `loss (?P<loss>\d+).*acc`, is tried on lines
  of up to 2 KiB.
- An expression that may take longer is rejected. Examples are `(a+)+`, in which a repeat is
  repeated; `\S+.*b` and `a.*b.*c`, in which the same text matches more than one repeat; and ten or
  more optional or similar parts in a row, such as `a?a?a?...` or `(a|aa)(a|aa)...`. To make such an
  expression faster, begin it with `^`, specify the characters of a value (`[\d.e+-]+` instead of
  `\S+`) and of the text between values (`[^,]*` instead of `.*`), or limit the repeats, as in
  `.{0,40}`.

An accepted expression that takes more than a tenth of a second for a line is not used again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping as Names
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainvitals.sources.runs.backtracking import count_steps
from trainvitals.sources.runs.vocabulary import Split
from trainvitals.yamlfile import Mapping, Section, load_yaml

LONGEST_LINE = 1 << 13
SLOW_SECONDS = 0.1
_SPLITS: tuple[Split, ...] = ("train", "validation", "test")
# The maximum line length for an expression that may take quadratic time.
_LONGEST_OF_SLOW = 1 << 11
_MOST_STEPS = _LONGEST_OF_SLOW**2


Mark = Literal["", "finished", "evaluation", "part", "section", "heading"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for one kind of log line.

    Attributes:
        name: The name of the pattern, which is shown in messages.
        regex: The expression that is searched for in a line.
        contains: The texts that a line must contain.
        split: The data set of the numbers, if the names of the numbers do not show the data set.
        run: The name of the run that the numbers belong to; None for the file's own run.
        fields: The names under which numbers are recorded, by the names in `pairs` or in the
            columns of a table; a `%` at the end of a name marks a percentage, and an empty name
            marks a number that is ignored.
        first_epoch: The number of the first epoch in the log lines; None if the number is unknown.
            An unknown number counts as 0 if epoch 0 was logged, and otherwise as 1.
        spaced: Whether the names and numbers in `pairs` may be separated by spaces only; such a
            number is recorded only if its name is known.
        at_end: Whether the numbers are recorded only if `epoch_step` is the last step, because
            earlier lines show the mean of the steps so far.
        in_section: Whether the data set is that of the last line with the mark `section`.
        repeats: Whether the line is a progress bar, which shows numbers repeatedly.
        marks: The event that a matching line marks, in addition to the numbers; empty if the line
            marks no event. `finished`: the run has finished. `evaluation`: an evaluation has just
            ended. `part`: the numbers are only some of the numbers in the line. `section`: a
            section about the data set `split` begins. `heading`: the line is the heading of a
            table. After a pattern with the mark `finished`, `evaluation` or `part`, the other
            patterns are still tried.
        is_anchored: Whether a match can begin only at the start of the line.
        longest: The maximum length of a line on which the pattern is tried.
    """

    name: str
    regex: re.Pattern[str]
    contains: tuple[str, ...] = ()
    split: Split = ""
    run: str | None = None
    fields: Names[str, str] = field(default_factory=dict)
    first_epoch: int | None = None
    spaced: bool = False
    at_end: bool = False
    in_section: bool = False
    repeats: bool = False
    marks: Mark = ""
    is_anchored: bool = False
    longest: int = LONGEST_LINE


def read_patterns(path: Path, *, flag: str = "--trainlog.patterns") -> tuple[Pattern, ...]:
    """Read a file with log line patterns.

    Args:
        path: The path of the pattern file.
        flag: The command-line flag that error messages mention as the source of the path.

    Raises:
        ConfigurationError: The file cannot be read, or an entry does not have the format that the
            module docstring describes; the message names the file, the line, the entry and the
            remedy.
    """
    file = Section(str(path), load_yaml(path, flag=flag) or {})
    entries = file.take("patterns", list, "a list") or []
    file.finish()
    if not entries:
        raise file.refuse("patterns", "there is none; write at least one, or leave out the flag")
    return tuple(
        _read_pattern(Section(f"{path}: {_locate(entry)}patterns[{number}]", entry))
        for number, entry in enumerate(entries)
    )


def _locate(entry: object) -> str:
    return f"line {entry.line}: " if isinstance(entry, Mapping) else ""


def _read_pattern(entry: Section) -> Pattern:
    name = entry.take("name", str, "a text")
    if not name:
        raise entry.refuse("name", "it is missing; give the pattern a name")
    regex = _compile(entry)
    split = entry.take_choice("split", tuple(_SPLITS))
    pattern = Pattern(
        name=name,
        regex=regex,
        contains=_read_contains(entry),
        split=next((known for known in _SPLITS if known == split), ""),
        run=entry.take("run", str, "a text") or None,
        marks="finished" if entry.take("finished", bool, "true or false") else "",
        longest=_limit_lines(entry, name, regex),
    )
    example = entry.take("example", str, "a text in quotes")
    entry.finish()
    if not regex.groupindex and not pattern.marks:
        raise entry.refuse("regex", "it has no named group; write (?P<loss>...) around a number")
    if example is not None and not is_match(pattern, example):
        raise entry.refuse("example", "the pattern does not match it; correct one of them")
    return pattern


def is_match(pattern: Pattern, line: str) -> bool:
    """Return whether a pattern matches a log line."""
    return all(text in line for text in pattern.contains) and bool(pattern.regex.search(line))


def _read_contains(entry: Section) -> tuple[str, ...]:
    texts = entry.take("contains", object, "a text")
    if texts is None:
        return ()
    if isinstance(texts, str):
        return (texts,)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise entry.refuse("contains", "this is neither a text nor a list; put each text in quotes")
    return tuple(texts)


def _compile(entry: Section) -> re.Pattern[str]:
    text = entry.take("regex", str, "a text in single quotes")
    if not text:
        raise entry.refuse("regex", "it is missing; write a regular expression in single quotes")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise entry.refuse(
            "regex", f"this is not a regular expression: {error}; correct it"
        ) from error


def _limit_lines(entry: Section, name: str, regex: re.Pattern[str]) -> int:
    """Return the maximum length of a line that an expression can search in a short time."""
    try:
        steps = count_steps(regex, length=_LONGEST_OF_SLOW)
    except (OverflowError, RecursionError) as error:
        fault = f"is too long to be judged: {error}; make it shorter"
        raise entry.refuse("regex", f"{regex.pattern} of {name} {fault}") from error
    fault = ""
    if steps == math.inf:
        fault = (
            "may take exponential time; do not repeat what is repeated, as (a+)+ does, and do not put "
            "many optional or like parts in a row, as a?a?a? does"
        )
    elif steps > _MOST_STEPS:
        fault = (
            f"may take {steps:.0e} steps for a line of {_LONGEST_OF_SLOW} characters, more than "
            f"{_MOST_STEPS:.0e}; bound its repeats, such as .{{0,40}} for .*, or begin it with ^"
        )
    if fault:
        raise entry.refuse("regex", f"{regex.pattern} of {name} {fault}")
    is_fast = count_steps(regex, length=LONGEST_LINE) <= _MOST_STEPS
    return LONGEST_LINE if is_fast else _LONGEST_OF_SLOW
