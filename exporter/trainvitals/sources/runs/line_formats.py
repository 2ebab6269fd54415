r"""Recognize and read the formats of files that are read line by line.

**CSV.** The first line that does not begin with `#` is the header. The names in the header are
separated by commas, semicolons or tabs, and may be padded with spaces, as in YOLOv5's
`results.csv`. Each other line contains at most as many cells as the header contains names. Empty
cells are ignored: Lightning's CSVLogger writes a training loss and a validation loss to different
lines of `metrics.csv`. A line that consists of names replaces the header. Lightning rewrites the
file when a column is added to the header, and Lightning Fabric rewrites the file at each save. A
rewritten file is read again from the start. Examples::

                   epoch,      train/box_loss,      train/obj_loss
                       0,            0.046203,            0.068541

    epoch,step,train_loss,val_loss
    0,49,0.8312,
    0,99,,0.7421

**JSON lines.** Each line is a JSON object with names and numbers, as in LLaMA-Factory's
`trainer_log.jsonl`, OpenMMLab's `scalars.json`, detectron2's `metrics.json` and the files of many
loggers. A line that is not JSON is read as a log line. Examples::

    {"current_steps": 10, "total_steps": 300, "loss": 1.4, "lr": 5e-05, "epoch": 0.1}
    {"lr": 0.01, "data_time": 0.01, "loss": 0.9, "time": 0.3, "epoch": 1, "iter": 50, "step": 50}

**The state of the Hugging Face Trainer**, `trainer_state.json`, is a JSON document that the Trainer
writes with each checkpoint and at the end of the training. The member `log_history` is a list of
rows; `max_steps` and `num_train_epochs` are the total numbers of steps and epochs. A document of
more than 4 MiB is not read. Example::

    {"global_step": 100, "max_steps": 300, "num_train_epochs": 3,
     "log_history": [{"step": 50, "epoch": 0.5, "loss": 1.2, "learning_rate": 4e-05}]}

**Logs** are all other files; their lines are matched against the patterns.

The format of a file is determined from the file's name and its first line. The module `rows`
describes the meaning of the names in a row.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from trainvitals.foreign_numbers import read_count
from trainvitals.sources.runs.line_matcher import LineMatcher
from trainvitals.sources.runs.lines import LineReader
from trainvitals.sources.runs.named_numbers import parse_number
from trainvitals.sources.runs.patterns import LONGEST_LINE
from trainvitals.sources.runs.rows import STEP_NAMES, is_training, make_row, record_row
from trainvitals.sources.runs.scalars import RunScalars, Source
from trainvitals.sources.runs.taken import Taken

MOST_DOCUMENT_BYTES = 1 << 22
_LONGEST_ROW = 1 << 16
_MOST_ENTRIES = 100_000
_TABLES = (".csv", ".tsv")
_JSON_LINES = (".jsonl", ".ndjson")
_STATE = "trainer_state.json"
STATE_NAME = "Hugging Face state"
_TOTALS = {"max_steps": "total_steps", "num_train_epochs": "total_epochs"}
# File names that do not identify a run; a run with such a file is named after the file's folder.
WELL_KNOWN_NAMES = frozenset(
    {"results.csv", "metrics.csv", "trainer_log.jsonl", _STATE, "metrics.json", "scalars.json"}
)
_HEADER_NAME = re.compile(r"[A-Za-z_][\w ./()@:%-]{0,127}")

Readers = Callable[[str], "LineReader | None"]


class LineFormat(Protocol):
    """A protocol for the formats of files that are read line by line, or as one document.

    Attributes:
        source: The kind of file, as in `FoundRun`.
        longest: The maximum length of a line that is read.
        is_rewritten: The meaning of a file that no longer begins with the known content: True if
            the file was rewritten and describes the same run, False if it is the run's next log.
        takes_tail: Whether a last line without a line break can be read.
        is_document: Whether the file is one document, which is passed to `take` as a whole.
    """

    source: Source
    longest: int
    is_rewritten: bool
    takes_tail: bool
    is_document: bool

    def take(self, line: str, reader_of: Readers) -> Taken:
        """Read a line, and pass the line's numbers to the reader for the run.

        Args:
            line: The line, or the document.
            reader_of: A function that returns the reader for a run name.

        Returns:
            The name of the format, and the reason why the line, or a number in the line, was not
            read.
        """
        ...


class LogFormat:
    """The format of logs, whose lines are matched against patterns."""

    source: Source = "log"
    longest = LONGEST_LINE
    is_rewritten = is_document = False
    takes_tail = True

    def __init__(self, matcher: LineMatcher) -> None:
        self._matcher = matcher

    def take(self, line: str, reader_of: Readers) -> Taken:
        """Match a line against the patterns, and record the line's numbers."""
        taken = self._matcher.take(line, reader_of)
        return taken if any(taken) else Taken(reason="no pattern matches")


class CsvFormat:
    """The format of CSV tables, whose first line contains the column names."""

    source: Source = "csv"
    longest = _LONGEST_ROW
    is_rewritten = True
    takes_tail = is_document = False

    def __init__(self) -> None:
        self._names: list[str] = []
        self._separator = ","

    def take(self, line: str, reader_of: Readers) -> Taken:
        """Read the header, or record a row of the CSV table."""
        if not line.strip() or line.startswith("#"):
            return Taken(reason="it is empty or a comment")
        names = _read_header(line)
        if names or not self._names:
            return self._take_header(line, names)
        cells = _split(line, self._separator)
        if len(cells) > len(self._names):
            words = f"it has {len(cells)} cells, and the header has {len(self._names)} names"
            return Taken(reason=words)
        return _record(zip(self._names, cells, strict=False), reader_of)

    def _take_header(self, line: str, names: list[str]) -> Taken:
        if not names:
            return Taken(reason="the file has no line with the names of its columns")
        if not is_training(names):
            return Taken(reason="its columns have neither a step or epoch, nor a loss")
        self._names, self._separator = names, _find_separator(line)
        return Taken("header")


class JsonFormat:
    """The format of files with a JSON object in each line; other lines are read as log lines."""

    source: Source = "json"
    longest = _LONGEST_ROW
    is_rewritten = is_document = False
    takes_tail = True

    def __init__(self, matcher: LineMatcher) -> None:
        self._log = LogFormat(matcher)

    def take(self, line: str, reader_of: Readers) -> Taken:
        """Record the numbers in a JSON object, or read the line as a log line."""
        found = _parse_object(line)
        if found is not None:
            return _record(found.items(), reader_of)
        if len(line) <= LONGEST_LINE:
            return self._log.take(line, reader_of)
        return Taken(reason="it is not a JSON object, and is too long for a log line")


class StateFormat:
    """The format of the Hugging Face Trainer's state, which is one JSON document."""

    source: Source = "json"
    longest = MOST_DOCUMENT_BYTES
    is_rewritten = is_document = True
    takes_tail = False

    def take(self, line: str, reader_of: Readers) -> Taken:
        """Record all entries in the document's history; return the result for the last entry."""
        found = _parse_object(line)
        if found is None:
            return Taken(reason="it is not a complete JSON object")
        entries = _list_entries(found)
        if entries is None:
            return Taken(reason="it has no list `log_history`")
        taken = Taken(reason="its `log_history` is empty")
        for entry in entries:
            taken = _record(entry.items(), reader_of)
        reader = reader_of("")
        if reader is not None and taken.format:
            record_totals(reader.scalars, list_totals(found))
        return taken._replace(format=STATE_NAME) if taken.format else taken


def read_state(document: str) -> tuple[list[dict[str, object]], dict[str, int]] | None:
    """Return the entries in the history of a Trainer's state, and the state's totals by name.

    The result is None if the state has no history.
    """
    found = _parse_object(document) or {}
    entries = _list_entries(found)
    return None if entries is None else (entries, list_totals(found))


def list_totals(document: Mapping[str, object]) -> dict[str, int]:
    """Return the known totals in a Trainer's state, by name."""
    totals = ((name, document.get(name)) for name in _TOTALS)
    counts = {name: read_count(total) for name, total in totals if isinstance(total, (int, float))}
    return {name: count for name, count in counts.items() if count}


def record_totals(scalars: RunScalars, totals: Mapping[str, int]) -> None:
    """Record the totals of a Trainer's state."""
    for name, count in totals.items():
        scalars.set_word(_TOTALS[name], float(count))


def _list_entries(document: Mapping[str, object]) -> list[dict[str, object]] | None:
    history = document.get("log_history")
    if not isinstance(history, list):
        return None
    return [entry for entry in history[-_MOST_ENTRIES:] if isinstance(entry, dict)]


def choose_format(path: str, head: str, matcher: LineMatcher) -> LineFormat:
    """Return the format of a file.

    Args:
        path: The path of the file.
        head: The first lines of the file.
        matcher: The patterns for log lines.
    """
    name = path.rpartition("/")[2].lower()
    if name == _STATE or (name.endswith(".json") and '"log_history"' in head):
        return StateFormat()
    lines = (line for line in head.splitlines() if line.strip() and not line.startswith("#"))
    first = next(lines, "")
    if _parse_object(first) is not None:
        return JsonFormat(matcher)
    if name.endswith(_TABLES) or _is_plain_header(first):
        return CsvFormat()
    return JsonFormat(matcher) if name.endswith(_JSON_LINES) else LogFormat(matcher)


def _record(cells: Iterable[tuple[str, object]], reader_of: Readers) -> Taken:
    reader = reader_of("")
    row = make_row(cells)
    return record_row(reader.scalars, row) if reader is not None else Taken(reason="too many runs")


def _parse_object(line: str) -> dict[str, object] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _find_separator(line: str) -> str:
    return max(",;\t", key=line.count)


def _split(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []


def _read_header(line: str) -> list[str]:
    """Return the names in a header; an empty list if the line is not a header."""
    names = [name.strip() for name in _split(line, _find_separator(line))]
    if len(names) > 1 and not names[0]:
        names[0] = "index"  # pandas writes its index without a name
    is_header = len(names) > 1 and all(_is_name(name) for name in names)
    return names if is_header else []


def _is_plain_header(line: str) -> bool:
    """Return whether a line is the header of a training table, regardless of the file's name."""
    names = _read_header(line)
    counts = {name.lower() for name in names} & {*STEP_NAMES, "epoch"}
    return bool(counts) and not any(" " in name for name in names)


def _is_name(cell: str) -> bool:
    return bool(_HEADER_NAME.fullmatch(cell)) and parse_number(cell) is None
