"""Tests for reports from a Prometheus server whose series have extreme values."""

from __future__ import annotations

import json
from random import Random
from urllib.parse import parse_qs

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.report.test_formats import make
from tests.unit.report.test_period import NOW, choose
from trainvitals.errors import ConfigurationError, StackError
from trainvitals.report.document import format_document, parse_document
from trainvitals.report.gathering import make_report
from trainvitals.report.text import format_markdown, format_text, make_message
from trainvitals.sources.prometheus import Prometheus

# Values in the notation of Prometheus.
VALUES = (
    *("NaN", "+Inf", "-Inf", "1e+308", "-1e+308", "1e+30", "-0", "0", "1", "-1", "137", "0.5"),
    *("9223372036854775808", "18446744073709551616", "1e-320", "4e+09", "1790000000", "3600"),
)
PERIOD = ("begin", "end", "planned_end", "utc_offset_seconds")
LABELS = {
    "instance": ("node-1", "node-2"),
    "run": ("bert", "llama"),
    "rank": ("0", "1", "nan"),
    "reason": ("oom", "exception", "finished"),
    "name": ("iou", "loss"),
    "split": ("validation", ""),
    "uuid": ("GPU-1", "GPU-2"),
    "kind": ("gpu",),
    "device": ("0", "1e999"),
    "gpu_uuid": ("GPU-1", "GPU-1,GPU-2"),
    "alertname": ("TrainingStalled",),
    "alertstate": ("firing",),
    "severity": ("critical",),
    "mountpoint": ("/",),
}


def answer(random: Random, form: dict[str, list[str]]) -> bytes:
    """Return a response with series of random labels and values."""
    begin = float(form.get("start", form.get("time", ["0"]))[0])
    end, step = float(form.get("end", [begin])[0]), float(form.get("step", ["60"])[0])
    moments = [begin + step * n for n in range(min(5, int((end - begin) / step) + 1))]
    result = [
        {
            "metric": {name: random.choice(values) for name, values in LABELS.items()},
            "values": [(moment, random.choice(VALUES)) for moment in moments],
        }
        for _ in range(random.randrange(1, 4))
    ]
    return json.dumps({"data": {"result": result}}).encode()


def make_prometheus(seed: int) -> Prometheus:
    """Return a client of Prometheus that gets random responses."""
    random = Random(seed)

    class Extreme(Prometheus):
        def _fetch(self, _path: str, body: bytes | None) -> bytes:
            return answer(random, parse_qs((body or b"").decode()))

    return Extreme("http://127.0.0.1:9090")


@pytest.mark.untraced
@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(["daily", "weekly"]))
@example(7, "html")
@example(98653158, "daily")  # two values at one moment
def test_no_number_of_prometheus_costs_the_report(seed: int, kind: str):
    """A report of extreme values can be written in every format and read from JSON."""
    draws = kind == "html"  # charts take a second
    try:
        report = make_report(make_prometheus(seed), choose("daily" if draws else kind), now=NOW)
    except StackError:  # the random response has no data of the period
        return
    for form in (make_message,) if draws else (format_text, format_markdown):
        form(report)
    document = format_document(report)
    json.loads(document, parse_constant=pytest.fail)
    assert format_document(parse_document(document)) == document


def replace_numbers(value: object, number: float) -> object:
    """Return a document with all numbers replaced, except those of its period."""
    if isinstance(value, dict):
        return {
            name: each if name in PERIOD else replace_numbers(each, number)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [replace_numbers(each, number) for each in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return type(value)(number) if is_number else value


@pytest.mark.parametrize("number", [3.4e38, -3.4e38, 0.0, -1.0, 1e-300, 2.0**63])
def test_any_number_in_a_document_can_be_written(number: float):
    """A document with any number can be written in every format, or is refused with its place."""
    document = json.loads(format_document(make()))
    document["report"] = replace_numbers(document["report"], number)
    if number <= 0:
        with pytest.raises(ConfigurationError, match=r"report\.hosts\.disks\[0\]\.size_bytes"):
            parse_document(json.dumps(document))
        document["report"]["hosts"]["disks"] = document["report"]["runs"]["expected"] = []
    report = parse_document(json.dumps(document))
    for form in (format_text, format_markdown, make_message, format_document):
        form(report)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("begin", -1),
        ("end", 10**12),
        ("planned_end", 10**15),
        ("begin", 2 * 10**9),
        ("utc_offset_seconds", [[0.0, 1e9]]),
    ],
)
def test_a_period_of_which_no_calendar_can_be_made_is_refused(member: str, value: object):
    """A period that is negative, reversed or too far in the future is refused."""
    document = json.loads(format_document(make()))
    document["report"][member] = value
    with pytest.raises(ConfigurationError, match="report"):
        parse_document(json.dumps(document))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1e308", "1" + "0" * 400, "9" * 4000])
@pytest.mark.parametrize("member", ["begin", "asked"])
def test_a_document_with_such_a_number_is_refused(number: str, member: str):
    """A number that is infinite, NaN or too large is refused in one line with its place."""
    document = json.loads(format_document(make()))
    document["report"][member] = "HERE"
    with pytest.raises(ConfigurationError, match=f"report.{member}: expected a") as raised:
        parse_document(json.dumps(document).replace('"HERE"', number))
    assert "\n" not in str(raised.value)
