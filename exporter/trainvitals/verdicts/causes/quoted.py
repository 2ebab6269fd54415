"""A filter for log lines that only quote errors: samples, source code, diffs, expected failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from trainvitals.verdicts.causes.indented import find_indented
from trainvitals.verdicts.causes.others import (
    find_asides,
    find_foreign_jobs,
    find_items,
    find_programs,
    find_trials,
)
from trainvitals.verdicts.causes.ranks import is_launcher_line, split_rank
from trainvitals.verdicts.causes.tracebacks import read_tracebacks
from trainvitals.verdicts.causes.words import is_progress

_MOST_LINES = 200
_DIFF = re.compile(r"diff --(?:git|cc) |@@ -[0-9]{1,7}")
_HUNK = re.compile(r"@@ -[0-9]{1,7}(?:,([0-9]{1,7}))? \+[0-9]{1,7}(?:,([0-9]{1,7}))? @@")
_OF_DIFF = re.compile(
    r"(?:diff --|index [0-9a-f]{4,40}|--- |\+\+\+ |(?:new|deleted|old) (?:file )?mode |similarity index"
    r"|rename |Binary files |\\ No newline)"
)
_FENCE = re.compile(r"\s{0,8}(?:>\s?)?(`{3,8}|~{3,8})[\w+.-]{0,20}\s{0,4}$")
_MARK = r"[-=*#~_<>|\[\](){}/\s]{0,80}"
_ENDED = re.compile(
    rf"{_MARK}(?:/|end(?:ing)?[ _-](?:of[ _-])?(?:the[ _-])?)(?:[\w-]{{1,20}}[ _-]){{0,2}}(?:samples?|generations?|generated text|outputs?"
    rf"|completions?|responses?|examples?|predictions?|transcripts?|text)\b[ #0-9]{{0,12}}{_MARK}$",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\s{0,8}(?:={2,20}|-{2,20}|\*{2,20}|#{2,20}|[\[(<]) ?(?:generated )?(?:sample|generation|example|completion|output)s? ?#?[0-9]{1,9}\b"
    r"|\s{0,8}(?:={2,20}|-{2,20}|\*{2,20}|#{2,20}) ?(?:(?:generated|final|last) )?(?:samples?|generations?|outputs?|examples?|completions?)(?: (?:at|after|of|from|for) (?:step|epoch|iter|checkpoint)| ?[=*#-]{2,20}$)"
    r"|<\|(?:user|assistant|system|prompter|human|bot|tool)\|>"
    r"| {0,8}(?:[#*]{1,4} ?)?(?:prompt|output|completion|generat(?:ed|ion)(?: text)?|sample|answer|question"
    r"|instruction)(?: ?#?[0-9]{1,9})?\*{0,2}:(?:\*{0,2} |$)",
    re.IGNORECASE,
)
_SAMPLE = re.compile(
    r"^\s{0,8}\{.{0,400}?\"(?:prompt|completion|instruction|messages|generation|question)\" ?:"
)
_CITED = re.compile(r"^>{1,3} \S")
_OPENED = re.compile(r"<\|(?:start_header_id|im_start|begin_of_text)\|>|<start_of_turn>|\[INST\]")
_CLOSED = re.compile(r"<\|(?:eot_id|im_end|end_of_text)\|>|<end_of_turn>|\[/INST\]")
# The first pattern matches statements that never occur in a message. The second pattern matches
# lines that count as source code only within a listing.
_STATEMENT = re.compile(
    r"^\s{0,40}(?:raise [A-Z][\w.]{0,80}(?:\(.{0,400})?$|except(?: .{1,200})?:$|assert .{1,200}, f?[\"'].{0,200}[\"']$"
    r"|(?:el)?if .{1,200}:$|(?:print|log(?:ger|ging)?\.\w{1,10})\(.{0,400}\)$|trap [\"'].{1,400}$)"
    r"|^\+{1,4} (?:echo|trap|printf) "
)
_LISTED = re.compile(
    r"^\s{0,40}(?:(?:def|class|for|while|with) .{1,200}:$|(?:try|else|finally):$|return\b.{0,200}$|raise$"
    r"|import [\w., ]{1,200}$|from [\w.]{1,80} import |[\w.]{1,80} [-+*/]?= \S|[\w.]{1,80}\(.{0,200}\)$|#(?:!/|SBATCH )|@\w)"
)
_COMMENT = re.compile(r"\s{0,40}# ?\S")
_LEAST_CODE, _MOST_GAP = 4, 3
_RECORD = re.compile(r"\W{0,2}(?:[A-Z] )?[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}|Traceback \(most")
_OF_RECORD = re.compile(r"\W{0,2}(?:[A-Z] )?[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}")
_SECTION = re.compile(r"^={3,} (.{1,80}) ={3,}$")
_PASSED = re.compile(r"[0-9] (?:passed|xfailed)\b")
_FAILED = re.compile(r"[0-9] (?:failed|errors?)\b")
_OF_PYTEST = re.compile(r"E {3}|> {3}")
_ROW = re.compile(r"[│┃║](?:[^│┃║]{1,200}[│┃║]){3,20}$")
_EXPECTED = re.compile(r"XFAIL\b| {0,8}\S{1,200} XFAIL\b")


def drop_quoted(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the log lines; each line that only quotes an error is replaced by an empty line.

    Lines that report failures of other programs are also replaced.
    """
    for find in _FINDERS:
        quoted = set(find(lines))
        if quoted:
            lines = tuple("" if at in quoted else line for at, line in enumerate(lines))
    return lines


def _find_diff(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines that belong to a diff.

    A diff consists of headers and of as many lines in each hunk as the hunk's header states.
    """
    old = new = 0
    is_inside = False
    for at, line in enumerate(lines):
        if found := _HUNK.match(line):
            old, new = (int(count or 1) for count in found.groups())
        is_head = _DIFF.match(line) is not None or (is_inside and _OF_DIFF.match(line) is not None)
        is_hunk = is_inside and (old > 0 or new > 0) and line[:1] in {"+", "-", " ", ""}
        is_inside = is_head or is_hunk
        if is_hunk and not is_head:
            old -= line[:1] != "+"
            new -= line[:1] != "-"
        if is_inside:
            yield at


def _find_fenced(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines that belong to a Markdown code block, including the fences."""
    opened, fence = None, ""
    for at, line in enumerate(lines):
        found = _FENCE.match(split_rank(line)[1])
        if opened is not None and at - opened > _MOST_LINES:
            opened = None
        if found is None or (opened is not None and not found[1].startswith(fence)):
            continue
        if opened is None:
            opened, fence = at, found[1]
        else:
            yield from range(opened, at + 1)
            opened = None


def _find_ended(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines that belong to a sample with a mark at its end.

    A sample begins after the last preceding line that the program or its launcher wrote.
    """
    for end, line in enumerate(lines):
        if not _ENDED.match(split_rank(line)[1]):
            continue
        for at in range(end, max(-1, end - _MOST_LINES), -1):
            text = split_rank(lines[at])[1]
            is_own = is_progress(text) and not text[:1].isspace()
            if at != end and (is_own or is_launcher_line(text) or _OF_RECORD.match(text)):
                break
            yield at


def _list_raised_in_samples(lines: Sequence[str]) -> set[int]:
    """Return the first line's index of each traceback that belongs to a labelled sample.

    A label within the traceback, or in the two lines after the traceback, indicates such a sample.
    """
    if not any(_LABEL.match(split_rank(line)[1]) for line in lines):
        return set()
    return {
        each.start
        for each in read_tracebacks(lines)
        if any(_LABEL.match(split_rank(line)[1]) for line in lines[each.start + 1 : each.end + 3])
    }


def _find_labelled(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines that belong to labelled samples or are between two labels."""
    last: int | None = None
    inside = _list_raised_in_samples(lines)
    for at, line in enumerate(lines):
        text = split_rank(line)[1]
        if _LABEL.match(text):
            yield from range(at if last is None else last, at + 1)
            last = at
        elif last is not None and (
            (_RECORD.match(text) and at not in inside)
            or is_launcher_line(text)
            or at - last > _MOST_LINES
        ):
            last = None
        elif last is not None and is_progress(line):  # the program continued after the sample
            yield from range(last, at)
            last = None


def _find_chats(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines with chat template text, one-line samples and quotes."""
    opened: int | None = None
    for at, line in enumerate(lines):
        if _SAMPLE.match(line) or _CITED.match(line):
            yield at
        if opened is None and _OPENED.search(line):
            opened = at
        if opened is not None and _CLOSED.search(line):
            yield from range(opened, at + 1)
            opened = None if _OPENED.search(line) is None else at
        if opened is not None and at - opened > _MOST_LINES:
            opened = None


def _find_code(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines with statements and code listings outside of tracebacks."""
    if not any(map(_STATEMENT.match, lines)):
        return
    code = [at for at, line in enumerate(lines) if _STATEMENT.match(line) or _LISTED.match(line)]
    inside = {at for each in read_tracebacks(lines) for at in range(each.start, each.end + 1)}
    run: list[int] = []
    for at in (*(each for each in code if each not in inside), len(lines) + _MOST_LINES):
        if run and at - run[-1] > _MOST_GAP + 1:
            yield from _take_listing(lines, run)
            run = []
        run.append(at)


def _take_listing(lines: Sequence[str], run: Sequence[int]) -> Iterator[int]:
    statements = [at for at in run if _STATEMENT.match(lines[at])]
    yield from statements
    if not statements or len(run) < _LEAST_CODE:
        return
    for at in range(max(0, run[0] - _MOST_GAP), min(len(lines), run[-1] + _MOST_GAP + 1)):
        if run[0] <= at <= run[-1] or _COMMENT.match(lines[at]):
            yield at


def _find_expected(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines about failures that a test run expected.

    If a test run had no failures, the lines of pytest's tracebacks before its summary are included.
    """
    yield from (at for at, line in enumerate(lines) if _EXPECTED.match(line))
    heads = [(at, found[1]) for at, line in enumerate(lines) if (found := _SECTION.match(line))]
    for (at, name), (end, _) in pairwise((*heads, (len(lines), ""))):
        if name.strip() == "XFAILURES":
            yield from range(at, end)
        if _PASSED.search(name) and not _FAILED.search(name):
            yield from (index for index in range(at) if _OF_PYTEST.match(lines[index]))


def _find_tables(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines that belong to a drawn table, if training progress follows.

    Only tables with three or more columns count.
    """
    rows = [at for at, line in enumerate(lines) if line[:1] in {"│", "┃", "║"} and _ROW.match(line)]
    if rows:
        last = max(
            (at for at, line in enumerate(lines) if is_progress(line) and not _ROW.match(line)),
            default=-1,
        )
        yield from (at for at in rows if at < last)


_FINDERS: tuple[Callable[[tuple[str, ...]], Iterable[int]], ...] = (
    _find_diff,
    _find_fenced,
    _find_ended,
    _find_labelled,
    _find_chats,
    find_indented,
    _find_tables,
    _find_code,
    _find_expected,
    find_trials,
    find_items,
    find_programs,
    find_foreign_jobs,
    find_asides,
)
