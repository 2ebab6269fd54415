"""Explain which lines of a file of a run are understood, and why the others are not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from trainvitals.foreign_files import open_named
from trainvitals.foreign_text import strip_escape_codes
from trainvitals.sources.runs.line_formats import MOST_DOCUMENT_BYTES, LineFormat, choose_format
from trainvitals.sources.runs.lines import LineMatcher, LineReader
from trainvitals.sources.runs.mlflow import parse_metric
from trainvitals.sources.runs.patterns import Pattern
from trainvitals.sources.runs.scalars import RunScalars
from trainvitals.sources.runs.taken import Taken
from trainvitals.sources.runs.tfrecords import RecordParser, Records

MOST_BYTES = 1 << 26
_HEAD_BYTES = 1 << 16
_EVENT_FILE = "events.out.tfevents."
_MLFLOW_FOLDER = "metrics"
_MOST_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class ExplainedLine:
    """A line, row or record of a file.

    Attributes:
        number: The number of the line, which begins with 1.
        text: The text of the line.
        taken: What was read from the line, or why it was not read.
    """

    number: int
    text: str
    taken: Taken


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was read from a file.

    Attributes:
        path: The path of the file.
        kind: The kind of file: `log`, `csv`, `json`, `tensorboard` or `mlflow`.
        lines: The lines, at most 100,000.
        step: The step after the last line; None if no step was read.
        values: The words of a run file and their values after the last line.
        metrics: The other names and their values after the last line.
        is_cut: Whether the file is longer than what was read.
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
        """The number of lines that were understood."""
        return sum(bool(line.taken.format and line.taken.numbers) for line in self.lines)


def explain_file(path: Path, patterns: Sequence[Pattern]) -> Explanation:
    """Read a file as the exporter does, and explain each line.

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


def _explain_lines(
    path: Path, data: bytes, patterns: Sequence[Pattern], *, is_cut: bool
) -> Explanation:
    matcher = LineMatcher(patterns)
    head = "\n".join(_split(data[:_HEAD_BYTES]))
    form = choose_format(os.fspath(path), head, matcher)
    readers: dict[str, LineReader] = {}

    def reader_of(run: str) -> LineReader:
        return readers.setdefault(run, LineReader())

    lines: list[ExplainedLine] = []
    texts = [data.decode(errors="replace")] if form.is_document else _split(data)
    for number, text in enumerate(texts[:_MOST_KEPT], start=1):
        if text.strip():
            lines.append(ExplainedLine(number, text, _take(form, text, reader_of)))
    scalars = next(iter(readers.values()), LineReader()).scalars
    return _finish(path, form.source, lines, scalars, is_cut=is_cut or len(texts) > _MOST_KEPT)


def _take(form: LineFormat, text: str, reader_of: object) -> Taken:
    longest = MOST_DOCUMENT_BYTES if form.is_document else form.longest
    if len(text) > longest:
        return Taken(reason=f"it is longer than {longest} characters")
    return form.take(text, reader_of)  # type: ignore[arg-type]


def _explain_events(path: Path, data: bytes, *, is_cut: bool) -> Explanation:
    scalars = RunScalars()
    lines: list[ExplainedLine] = []
    records = RecordParser().parse(data)
    for number, (moment, step, tag, value) in enumerate(records.scalars[:_MOST_KEPT], start=1):
        scalars.record_event(tag, value, "", step, moment)
        taken = Taken("TensorBoard scalar", (("step", float(step)), (tag, value)))
        lines.append(ExplainedLine(number, f"step {step} {tag}", taken))
    for reason in _list_faults(records):
        lines.append(ExplainedLine(len(lines) + 1, "", Taken(reason=reason)))
    return _finish(path, "tensorboard", lines, scalars, is_cut=is_cut)


def _list_faults(records: Records) -> Iterator[str]:
    if records.damaged:
        yield f"{records.damaged} damaged records were left out"
    if records.then == "garbage":
        yield f"the file is damaged at byte {records.length_bytes}, and the rest is not read"
    if not records.scalars:
        yield "the file has no scalar; histograms, images and texts are not read"


def _explain_mlflow(path: Path, data: bytes, *, is_cut: bool) -> Explanation:
    scalars = RunScalars()
    parts = path.parts
    name = "/".join(parts[len(parts) - parts[::-1].index(_MLFLOW_FOLDER) :])
    lines: list[ExplainedLine] = []
    for number, text in enumerate(_split(data)[:_MOST_KEPT], start=1):
        parsed = parse_metric(text)
        taken = Taken(reason="it is not a time, a value and a step")
        if parsed is not None:
            moment, value, step = parsed
            scalars.record_event(name, value, "", step, moment)
            taken = Taken("MLflow metric", (("step", float(step)), (name, value)))
        if text.strip():
            lines.append(ExplainedLine(number, text, taken))
    return _finish(path, "mlflow", lines, scalars, is_cut=is_cut)


def _is_mlflow(path: Path, data: bytes) -> bool:
    first = _split(data[:_HEAD_BYTES])[0]
    return not path.suffix and parse_metric(first) is not None


def _finish(
    path: Path, kind: str, lines: list[ExplainedLine], scalars: RunScalars, *, is_cut: bool
) -> Explanation:
    found = scalars.describe("", "log", "", started_time=None, last_time=0.0)
    metrics = {f"{name} {split}".strip(): value for (name, split), value in found.metrics.items()}
    values = dict(found.values)
    if found.epoch is not None:
        values["epoch"] = found.epoch
    return Explanation(
        os.fspath(path), kind, tuple(lines), found.step, values, metrics, is_cut=is_cut
    )


def _split(data: bytes) -> list[str]:
    text = strip_escape_codes(data.decode(errors="replace"))
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x08", "\n").split("\n")
