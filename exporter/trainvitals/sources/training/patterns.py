r"""How lines of a training log are read: patterns of our own and those that users write.

**A file of patterns** is YAML with one key, `patterns`, a list of mappings:

============ ====================================================================================
key          meaning
============ ====================================================================================
`name`       needed: what the pattern is called in messages
`regex`      needed: a Python regular expression that is searched in each line, with named groups
`contains`   a text, or a list of texts, that must all stand in the line; looked for before the
             expression is tried, and a hundred times cheaper: give the rarest word of the line
`split`      `train`, `validation` or `test`: what data the numbers are about, where their names do
             not say
`run`        the name of the run that the numbers belong to, in place of the file's name
`finished`   true: such a line says that the run has ended
`example`    a line that the expression must match; checked when the file is read
============ ====================================================================================

**Groups.** A group that did not take part, or that is no number, is left out. A number may have
thousands separators, a percent sign (it then becomes a ratio), or be `nan` or `inf`, which is counted.

=========================== =====================================================================
group                       meaning
=========================== =====================================================================
`step`, `total_steps`       the optimizer's step, and how many there will be
`epoch`, `total_epochs`     likewise for epochs
`epoch_step`, `epoch_steps` the step inside the epoch, and how many an epoch has; together with
                            `epoch` (counted from 1) they give the step where there is no `step`
`step_seconds`              what a step takes; also `step_milliseconds`, `steps_per_second`
`nonfinite_losses`          how many losses were NaN or infinite, to be added to the count
`run`                       the name of the run that the line belongs to
`pairs`                     text with pairs of name and number in it, such as
                            `loss: 0.5 | acc=0.9`; each is taken under its name
any other                   a number of that name: `loss`, `val_loss`, `accuracy`, `learning_rate`,
                            `grad_norm`, `samples_per_second`, `tokens_per_second` ... or a name
                            of your own, which becomes a free metric
=========================== =====================================================================

For each line the patterns are tried in order, the user's first, and the first that matches takes it;
one with `finished` does not take it from the others.

An example, for the two kinds of lines `iter 100: loss 2.3412, time 50.20ms` and
`step 250: train loss 2.0, val loss 2.1`::

    patterns:
      - name: nanogpt iteration
        contains: "iter "
        regex: 'iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<step_milliseconds>[\d.]+)ms'
        example: "iter 100: loss 2.3412, time 50.20ms"
      - name: nanogpt evaluation
        contains: "val loss"
        regex: 'step (?P<step>\d+): train loss \S+ val loss (?P<val_loss>\S+)'

**Time.** An expression is tried on every line that has its `contains`, and while it runs nothing
else does; lines of more than 8 KiB are left out. One that takes exponential time on a short text, such
as `(a+)+$`, is refused; one that needs more than a tenth of a second for a line is not used again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainvitals.sources.training.vocabulary import Split
from trainvitals.yamlfile import Section, load_yaml

SLOW_SECONDS = 0.1
_SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_PROBES = ("a", "0", " ", "=", "a ", "0.", "a0", "a=0 ", "a: 0, ")
_PROBE_CHARACTERS = range(12, 31, 2)
_TOO_SLOW_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line.

    Attributes:
        name: What it is called in messages.
        regex: What is searched in a line.
        contains: Texts that must all stand in the line.
        split: What data the numbers are about, where their names do not say.
        run: The run that the numbers belong to; None for that of the file.
        first_epoch: The number of the first epoch.
        repeats: The line is a progress bar, which shows numbers again that it showed before.
        marks: What such a line says beside its numbers: that the run is `finished`, or that an
            `evaluation` has just ended. A pattern that marks leaves the line to the others.
    """

    name: str
    regex: re.Pattern[str]
    contains: tuple[str, ...] = ()
    split: Split = ""
    run: str | None = None
    first_epoch: int = 1
    repeats: bool = False
    marks: Literal["", "finished", "evaluation"] = ""


def read_patterns(
    path: Path,
    *,
    flag: str = "--trainlog.patterns",
    clock: Callable[[], float] = time.thread_time,
) -> tuple[Pattern, ...]:
    """Read the patterns that a user wrote.

    Args:
        path: The file.
        flag: What names it, for messages.
        clock: Tells the processor time that an expression takes.

    Raises:
        ConfigurationError: The file cannot be read, or an entry is not as described above; the
            message names the file, the entry and what to do.
    """
    file = Section(str(path), load_yaml(path, flag=flag) or {})
    entries = file.take("patterns", list, "a list") or []
    file.finish()
    if not entries:
        raise file.refuse("patterns", "there is none; write at least one, or leave out the flag")
    return tuple(
        _read_pattern(Section(f"{path}: patterns[{number}]", entry), clock)
        for number, entry in enumerate(entries)
    )


def _read_pattern(entry: Section, clock: Callable[[], float]) -> Pattern:
    name = entry.take("name", str, "a text")
    if not name:
        raise entry.refuse("name", "it is missing; give the pattern a name")
    regex = _compile(entry, clock)
    split = entry.take_choice("split", tuple(_SPLITS))
    pattern = Pattern(
        name=name,
        regex=regex,
        contains=_read_contains(entry),
        split=next((known for known in _SPLITS if known == split), ""),
        run=entry.take("run", str, "a text") or None,
        marks="finished" if entry.take("finished", bool, "true or false") else "",
    )
    example = entry.take("example", str, "a text in quotes")
    entry.finish()
    if not regex.groupindex and not pattern.marks:
        raise entry.refuse("regex", "it has no named group; write (?P<loss>...) around a number")
    if example is not None and not is_match(pattern, example):
        raise entry.refuse("example", "the pattern does not match it; correct one of them")
    return pattern


def is_match(pattern: Pattern, line: str) -> bool:
    """Tell whether a pattern takes a line."""
    return all(text in line for text in pattern.contains) and bool(pattern.regex.search(line))


def _read_contains(entry: Section) -> tuple[str, ...]:
    texts = entry.take("contains", object, "a text")
    if texts is None:
        return ()
    if isinstance(texts, str):
        return (texts,)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise entry.refuse("contains", "this is no text and no list of texts; put each in quotes")
    return tuple(texts)


def _compile(entry: Section, clock: Callable[[], float]) -> re.Pattern[str]:
    text = entry.take("regex", str, "a text in single quotes")
    if not text:
        raise entry.refuse("regex", "it is missing; write a regular expression in single quotes")
    try:
        regex = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise entry.refuse(
            "regex", f"this is no regular expression: {error}; correct it"
        ) from error
    if _is_explosive(regex, clock):
        raise entry.refuse(
            "regex", "it takes exponential time; do not repeat what is repeated, as (a+)+ does"
        )
    return regex


def _is_explosive(regex: re.Pattern[str], clock: Callable[[], float]) -> bool:
    """Tell whether short texts already take long; they grow until the first one does."""
    for probe in _PROBES:
        for length in _PROBE_CHARACTERS:
            text = (probe * length)[:length] + "\0"
            started = clock()
            regex.search(text)
            if clock() - started > _TOO_SLOW_SECONDS:
                return True
    return False
