"""The formats of logs that are known without configuration."""

from __future__ import annotations

import time

import pytest

from trainvitals.sources.runs.formats import FORMATS
from trainvitals.sources.runs.formats.entry import Format, list_patterns
from trainvitals.sources.runs.lines import LineMatcher, LineReader
from trainvitals.sources.runs.profiles import PROFILES
from trainvitals.sources.runs.scalars import FoundRun

_MEGABYTE = 1 << 20
NAMES = [entry.name for entry in FORMATS]


def read(text: str) -> FoundRun:
    """Read a log with all formats."""
    reader = LineReader()
    matcher = LineMatcher(PROFILES)
    for line in text.splitlines():
        matcher.take(line, lambda _: reader)
    return reader.scalars.describe("run", "log", "path", started_time=None, last_time=0.0)


@pytest.mark.parametrize("entry", FORMATS, ids=NAMES)
def test_the_example_of_a_format_is_read(entry: Format):
    """All its numbers have their words and units, and no other words are read from it."""
    run = read(entry.example)
    values = dict(run.values)
    values |= {
        name: value
        for name, value in (("step", run.step), ("epoch", run.epoch))
        if value is not None
    }
    assert values == pytest.approx(dict(entry.reads))


@pytest.mark.parametrize("entry", FORMATS, ids=NAMES)
def test_a_megabyte_of_near_matches_takes_no_time(entry: Format):
    """Every expression is searched for in its own lines, without their ends, a million characters long."""
    near = [line[:-1] for line in entry.example.splitlines()]
    texts = [(line * (_MEGABYTE // len(line) + 1))[:_MEGABYTE] for line in near if line]
    for pattern in list_patterns(entry):
        for text in texts:
            began = time.thread_time()
            pattern.regex.search(text)
            assert time.thread_time() - began < 1, pattern.regex.pattern


def test_every_format_has_one_name():
    """Names are those of the table in the documentation."""
    assert len(set(NAMES)) == len(NAMES)
