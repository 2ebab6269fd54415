"""Explain which lines in a run's file are understood, and why the other lines are not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainvitals.foreign_files import open_named
from trainvitals.foreign_text import strip_escape_codes
from trainvitals.sources.runs.line_formats import (
    STATE_NAME,
    LineFormat,
    choose_format,
    read_state,
    record_totals,
)
from trainvitals.sources.runs.line_matcher import LineMatcher
from trainvitals.sources.runs.lines import LineReader
from trainvitals.sources.runs.mlflow import parse_metric
from trainvitals.sources.runs.named_numbers import parse_number
from trainvitals.sources.runs.patterns import Pattern
from trainvitals.sources.runs.scalars import RunScalars
from trainvitals.sources.runs.taken import Taken
from trainvitals.sources.runs.tfrecords import RecordParser, Records
from trainvitals.sources.runs.vocabulary import Split

MOST_BYTES = 1 << 26
_HEAD_BYTES = 1 << 16
_EVENT_FILE = "events.out.tfevents."
_MLFLOW_FOLDER = "metrics"
_MOST_KEPT = 100_000
# The pattern groups that match texts instead of numbers.
_TEXT_GROUPS = frozenset({"pairs", "validation_pairs", "run", "name", "heading", "row"})


@dataclass(frozen=True, slots=True)
class ExplainedLine:
    """The explanation of a line, row or record in a file.

    Attributes:
        number: The line number, counted from 1.
        text: The text of the line.
        format: The name of the line's pattern or format; empty if the line was not understood.
        numbers: The numbers that were read from the line, by name.
        reason: The reason why the line, or a number in the line, was not read; empty if everything
            was read.
    """

    number: int
    text: str
    format: str
    numbers: Mapping[str, float]
    reason: str

    @property
    def is_understood(self) -> bool:
        """Whether a number was read from the line."""
        return bool(self.format and self.numbers)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a file.

    Attributes:
        path: The path of the file.
        kind: The kind of file: `log`, `csv`, `json`, `tensorboard` or `mlflow`.
        lines: The explanations of the lines; at most 100,000.
        step: The step after the last line; None if no step was read.
        values: The values after the last line that have a word in run files, by word.
        metrics: All other values after the last line, by name.
        is_cut: Whether only a part of the file was read because the file is too long.
    """

    path: str
    kind: str
    lines: tuple[ExplainedLine, ...]
    step: int | None
    values: dict[str, float]
    metrics: dict[str, float]
    is_cut: bool

    @property
    def understood(self) -> int:
        """The number of lines in the file that were understood."""
        return sum(line.is_understood for line in self.lines)


def explain_file(path: Path, patterns: Sequence[Pattern]) -> Explanation:
    """Read a file in the same way as the exporter, and explain each line.

    Args:
        path: The path of the file.
        patterns: The patterns for log lines, in the order in which they are tried.

    Raises:
        OSError: The file cannot be read.
    """
    with closing(open_named(path)) as file:
        data = file.read(MOST_BYTES + 1)
    is_cut, data = len(data) > MOST_BYTES, data[:MOST_BYTES]
    if path.name.startswith(_EVENT_FILE):
        return _explain_events(path, data, is_cut=is_cut)
    if _MLFLOW_FOLDER in path.parts[:-1] and _is_mlflow(path, data):
        return _explain_mlflow(path, data, is_cut=is_cut)
    return _explain_lines(path, data, patterns, is_cut=is_cut)


class _Listener(RunScalars):
    """Records the numbers of a run, and keeps the numbers of the last line separately."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[str, float] = {}

    def record(self, name: str, value: float, split: Split = "") -> None:
        self.heard[name] = value
        super().record(name, value, split)

    def record_again(self, name: str, value: float, split: Split = "") -> None:
        self.heard[name] = value
        super().record_again(name, value, split)

    def record_event(self, name: str, value: float, split: Split, step: int, time: float) -> None:
        self.heard |= {"step": float(step), name: value}
        super().record_event(name, value, split, step, time)

    def set_word(self, word: str, value: float) -> None:
        self.heard[word] = value
        super().set_word(word, value)

    def move(self, step: int, time: float | None = None) -> None:
        self.heard["step"] = float(step)
        super().move(step, time)


class _Explainer:
    """Explains the lines in a file one by one.

    Attributes:
        lines: The explanations of the lines so far.
    """

    def __init__(self) -> None:
        self.lines: list[ExplainedLine] = []
        self._readers: dict[str, LineReader] = {}
        self._listeners: list[_Listener] = []

    def find_reader(self, run: str) -> LineReader:
        """Return the reader that collects a run's numbers, and create it if the run is new."""
        if run not in self._readers:
            self._readers[run] = LineReader()
            self._readers[run].scalars = listener = _Listener()
            self._listeners.append(listener)
        return self._readers[run]

    def explain(self, number: int, text: str, take: Callable[[], Taken]) -> None:
        """Read a line, and keep the explanation.

        Args:
            number: The line number.
            text: The text of the line.
            take: A function that reads the line and returns the result.
        """
        for listener in self._listeners:
            listener.heard = {}
        taken = take()
        numbers: dict[str, float] = {}
        for listener in self._listeners:
            numbers |= listener.heard
        reason = taken.reason
        if taken.format and (unread := _list_unread(taken)):
            reason = f"not a number: {', '.join(unread)}"
        self.lines.append(ExplainedLine(number, text, taken.format, numbers, reason))

    def finish(self, path: Path, kind: str, *, is_cut: bool) -> Explanation:
        """Return the explanation of the file, with the last values of the first run in the file."""
        scalars = self._listeners[0] if self._listeners else RunScalars()
        found = scalars.describe("", "log", "", started_time=None, last_time=0.0)
        epoch = {} if found.epoch is None else {"epoch": found.epoch}
        return Explanation(
            path=os.fspath(path),
            kind=kind,
            lines=tuple(self.lines),
            step=found.step,
            values={**found.values, **epoch},
            metrics={f"{name} {split}".strip(): v for (name, split), v in found.metrics.items()},
            is_cut=is_cut,
        )


def _list_unread(taken: Taken) -> list[str]:
    """Return the numeric groups in a pattern's match whose texts are not numbers."""
    groups = taken.match.groupdict() if taken.match is not None else {}
    return [
        name
        for name, text in groups.items()
        if text and name not in _TEXT_GROUPS and parse_number(text) is None
    ]


def _explain_lines(
    path: Path, data: bytes, patterns: Sequence[Pattern], *, is_cut: bool
) -> Explanation:
    head = "\n".join(_split(data[:_HEAD_BYTES]))
    form = choose_format(os.fspath(path), head, LineMatcher(patterns))
    explainer = _Explainer()
    document = data.decode(errors="replace") if form.is_document else ""
    state = read_state(document) if document else None
    if state is not None:
        return _explain_state(path, form, *state, is_cut=is_cut)
    texts = [document] if form.is_document else _split(data)
    for number, text in enumerate(texts[:_MOST_KEPT], start=1):
        if text.strip():
            explainer.explain(number, text, partial(_take, form, text, explainer.find_reader))
    return explainer.finish(path, form.source, is_cut=is_cut or len(texts) > _MOST_KEPT)


def _explain_state(
    path: Path,
    form: LineFormat,
    entries: list[dict[str, object]],
    totals: dict[str, int],
    *,
    is_cut: bool,
) -> Explanation:
    """Explain the log entries, and then the totals, in the state file of a Hugging Face Trainer."""
    explainer = _Explainer()
    texts = [json.dumps(entry) for entry in entries]
    for number, text in enumerate(texts, start=1):
        whole = f'{{"log_history": [{text}]}}'
        explainer.explain(number, text, partial(_take, form, whole, explainer.find_reader))
    if totals:
        record = partial(record_totals, explainer.find_reader("").scalars, totals)
        take = partial(_record, STATE_NAME, record)
        explainer.explain(len(texts) + 1, json.dumps(totals), take)
    return explainer.finish(path, form.source, is_cut=is_cut)


def _take(form: LineFormat, text: str, reader_of: Callable[[str], LineReader]) -> Taken:
    if len(text) > form.longest:
        return Taken(reason=f"longer than {form.longest} characters")
    return form.take(text, reader_of)


def _explain_events(path: Path, data: bytes, *, is_cut: bool) -> Explanation:
    explainer = _Explainer()
    scalars = explainer.find_reader("").scalars
    records = RecordParser().parse(data)
    for number, (moment, step, tag, value) in enumerate(records.scalars[:_MOST_KEPT], start=1):
        record = partial(scalars.record_event, tag, value, "", step, moment)
        explainer.explain(number, f"step {step} {tag}", partial(_record, "scalar", record))
    for reason in _list_faults(records):
        explainer.explain(len(explainer.lines) + 1, "", partial(Taken, reason=reason))
    return explainer.finish(path, "tensorboard", is_cut=is_cut)


def _record(name: str, record: Callable[[], None]) -> Taken:
    record()
    return Taken(name)


def _list_faults(records: Records) -> Iterator[str]:
    if records.damaged:
        yield f"{records.damaged} damaged records were left out"
    if records.then == "garbage":
        yield f"the file is damaged at byte {records.length_bytes}, and the rest is not read"
    if not records.scalars:
        yield "the file has no scalar; histograms, images and texts are not read"


def _explain_mlflow(path: Path, data: bytes, *, is_cut: bool) -> Explanation:
    explainer = _Explainer()
    scalars = explainer.find_reader("").scalars
    parts = path.parts
    name = "/".join(parts[len(parts) - parts[::-1].index(_MLFLOW_FOLDER) :])

    def take(text: str) -> Taken:
        parsed = parse_metric(text)
        if parsed is None:
            return Taken(reason="not a time, a value and a step")
        moment, value, step = parsed
        scalars.record_event(name, value, "", step, moment)
        return Taken("MLflow metric")

    for number, text in enumerate(_split(data)[:_MOST_KEPT], start=1):
        if text.strip():
            explainer.explain(number, text, partial(take, text))
    return explainer.finish(path, "mlflow", is_cut=is_cut)


def _is_mlflow(path: Path, data: bytes) -> bool:
    first = _split(data[:_HEAD_BYTES])[0]
    return not path.suffix and parse_metric(first) is not None


def _split(data: bytes) -> list[str]:
    text = strip_escape_codes(data.decode(errors="replace"))
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x08", "\n").split("\n")
