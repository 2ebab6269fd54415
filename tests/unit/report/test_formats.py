"""Tests for the text, Markdown, HTML and JSON of a report, also with hostile names."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, strategies

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_text import escape_markdown
from trainvitals.report.charts import Course, Picture, draw
from trainvitals.report.document import format_document, parse_document
from trainvitals.report.figures import (
    Accelerators,
    Advice,
    Coverage,
    Disk,
    Gap,
    Heat,
    Hosts,
    Price,
    Report,
    Use,
)
from trainvitals.report.html import format_html
from trainvitals.report.text import format_markdown, format_text, make_message
from trainvitals.report.training import Attempt, Best, Deaths, Expectation, Incident, Runs

BEGIN, HOUR = 1773100800, 3600
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></svg><b>",
    "\x1b[2J\x1b]0;title\x07\rred\nnew line",
    "[click](http://evil.example/) ![x](y) @everyone | <!-- `",
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
    "a" * 5000,
)


def make(name="bert", host="node-1", *, kind="daily"):
    """Return a report with this name in every place that can have a name."""
    end = BEGIN + 24 * HOUR
    hours = tuple((BEGIN + HOUR * n, 100.0 * n) for n in range(1, 25))
    attempt = Attempt(name, (host,), BEGIN, BEGIN + HOUR, "failed", 1, is_resumed=False)
    return Report(
        kind=kind,
        begin=BEGIN,
        planned_end=end,
        end=end,
        zone="UTC",
        utc_offset_seconds=((BEGIN, 0.0),),
        asked=end + 60,
        source="http://127.0.0.1:9090",
        instances=(host,),
        only_runs=(name,),
        coverage=Coverage(BEGIN, end, 24 * HOUR, ((BEGIN, BEGIN + HOUR),)),
        hosts=Hosts((host,), (name,), 1.0, 2.0, 0.5, host, (Disk(host, name, 1.0, 1e12),)),
        runs=Runs(
            is_told=True,
            attempts=(attempt, replace(attempt, outcome="active", ended=None)),
            best=(
                Best(name, name, name, host, 0.5, is_lower_better=False, target=0.9, by_hour=hours),
            ),
            expected=(
                Expectation(name, host, "pace", 20.0, 18.0, hours),
                Expectation(name, host, "memory", 7e9),
            ),
        ),
        accelerators=Accelerators(
            count=1,
            seconds=24 * HOUR,
            busy_seconds=HOUR,
            hottest=Heat(host, name, 80.0, end),
            energy_joules=3.6e6,
            uses=(Use("training", 2 * HOUR, hours), Use("idle", HOUR, hours)),
            busy_by_hour=tuple((moment, 0.5) for moment, _ in hours),
            joules_by_hour=hours,
            celsius_by_hour=tuple((moment, 60.0) for moment, _ in hours),
        ),
        incidents=(
            Incident(
                name,
                "critical",
                host,
                name,
                name,
                ((BEGIN, end),),
                is_firing=True,
                resolution="still fires",
            ),
        ),
        deaths=(Deaths(host, name, name, 3, end, is_running=None),),
        price=Price(0.3, name),
        gaps=(Gap(name, "it was refused"),),
    )


class Page(HTMLParser):
    """A parser that records the tags and attributes of a page and checks that tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Record an opening tag."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "rect", "circle", "path", "line"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Record a self-closing tag."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        """Record a closing tag."""
        if tag in self.open:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page():
    """The HTML page of a daily report; drawing its charts takes a second."""
    return format_html(make())


@pytest.fixture
def sparklines(monkeypatch):
    """Make matplotlib missing, so that charts are sparklines, which take no time."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def compare(hostile, tame):
    """Compare the tags and attributes of a page with hostile names and of one without."""
    hostile, tame = Page(hostile), Page(tame)
    assert hostile.tags == tame.tags
    assert [key for key, _ in hostile.attributes] == [key for key, _ in tame.attributes]
    assert hostile.open == []


@pytest.mark.usefixtures("sparklines")
@pytest.mark.parametrize("kind", ["daily", "weekly"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_no_more_than_a_name_in_html(name, kind):
    """A hostile name does not change the tags and attributes of the HTML page."""
    compare(format_html(make(name, name, kind=kind)), format_html(make(kind=kind)))


@pytest.mark.parametrize("is_stacked", [True, False])
def test_a_hostile_name_is_no_more_than_a_name_in_a_chart(is_stacked):
    """Hostile names do not change the tags and attributes of a chart that matplotlib draws."""

    def draw_named(title, names):
        slots = tuple((f"{place:02}", name) for place, name in enumerate(names))
        courses = tuple(Course(name, 1, (1.0,) * len(names)) for name in names)
        return draw(Picture(title, slots, courses, 1.0, str, is_stacked, target=2.0), "p0")

    chart = draw_named("".join(HOSTILE), HOSTILE)
    compare(chart, draw_named("title", ["name"] * len(HOSTILE)))
    assert Page(chart).tags.count("title") == 2 + len(HOSTILE) ** 2


def test_the_page_needs_nothing_from_outside(page):
    """The HTML page has no scripts and loads no resources, and its policy forbids both."""
    parsed = Page(page)
    names = {key for key, _ in parsed.attributes}
    assert not names & {"src", "href", "srcset", "action", "onload", "onclick"}
    assert not {"script", "link", "iframe", "img", "object"} & set(parsed.tags)
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page
    assert parsed.tags.count("svg") == 6
    assert page.count('role="img"') == 6


@pytest.mark.usefixtures("sparklines")
def test_a_command_is_code_in_the_page():
    """Backticks in advice become a code element, and its text is escaped."""
    advice = Advice(0, "Run `trainvitals postmortem 'a<b'`", "killed")
    page = format_html(replace(make(), advice=(advice,)))
    assert "Run <code>trainvitals postmortem &#39;a&lt;b&#39;</code> (killed)" in page


def test_a_table_in_markdown_has_an_empty_line_before_and_none_doubled():
    """In Markdown, each table follows an empty line, and no empty line is doubled."""
    lines = format_markdown(make()).splitlines()
    heads = [place for place, line in enumerate(lines) if line.startswith("| ---")]
    assert heads
    assert all(lines[place - 2] == "" for place in heads)
    assert not any(pair == ("", "") for pair in pairwise(lines))


def test_the_page_knows_light_and_dark(page):
    """The HTML page supports the light and the dark colour scheme of the system."""
    assert "color-scheme: light dark" in page
    assert "prefers-color-scheme: dark" in page


def test_an_axis_says_something_else_at_each_line():
    """The labels of an axis differ, even if the metric hardly changes."""
    best = Best("iou", "", "seg", "node-1", 0.7971, is_lower_better=False)
    flat = tuple((BEGIN + HOUR * n, 0.797 + n * 1e-5) for n in range(1, 9))
    runs = Runs(is_told=True, best=(replace(best, by_hour=flat),))
    report = replace(make(), runs=runs, accelerators=Accelerators())
    (picture,) = re.findall(
        r"<figcaption>iou</figcaption>.*?</figure>", format_html(report), re.DOTALL
    )
    marks = [mark for mark in re.findall(r"<text [^>]*>([^<]*)<", picture) if "." in mark]
    assert len(set(marks)) == len(marks) >= 3


@pytest.mark.usefixtures("sparklines")
def test_without_matplotlib_the_page_has_sparklines():
    """Without matplotlib, the page shows each chart as a sparkline with its maximum."""
    page = format_html(make())
    assert page.count('<svg class="spark"') == 7
    assert "at most 2400, target 20</p>" in page
    assert "training at full speed, at most 0.67 h" in page
    assert "bert, at most 2400" in page
    assert Page(page).open == []


def test_pictures_have_no_identifier_twice(page):
    """The ids of the elements of all charts in a page are unique."""
    every = [text for key, text in Page(page).attributes if key == "id"]
    assert len(set(every)) == len(every) > 0


def test_a_picture_has_the_colours_of_the_page(page):
    """The placeholders for colours in charts are replaced with the colours of the page."""
    assert "fill: var(--c1)" in page
    assert "#0101" not in page
    assert "#0102" not in page


def test_each_bar_says_what_it_is(page):
    """The tooltip of each bar has the time, the value and the cause."""
    assert "<title>00:00: 0.03 h training at full speed</title>" in page
    assert "<title>Tuesday, 2026-03-10: 8.3 h training at full speed</title>" in format_html(
        make(kind="weekly")
    )


@pytest.mark.parametrize("kind", ["daily", "weekly"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_breaks_no_line_of_text(name, kind):
    """A hostile name adds no heading to the text and no control character."""
    length = max(4, min(len(name), 120))
    hostile = format_text(make(name, name, kind=kind))
    assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]*", hostile)
    tame = format_text(make("x" * length, "x" * length, kind=kind))
    headings = [line for line in tame.splitlines() if line.endswith(":")]
    assert [line for line in hostile.splitlines() if line in headings] == headings


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_no_more_than_a_name_in_markdown(name):
    """Special characters of a hostile name are escaped in Markdown and add no table cells."""
    text = format_markdown(make(name, name))
    plain = re.sub(r"`[^`\n]*`", "", text)
    assert not re.search(r"(?<!\\)[<>\[\]!@]", plain)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) in {4, 6, 7, 8}


@given(strategies.text(alphabet="`\\<>|[]()!@#*_ab \n"))
def test_what_is_escaped_holds_no_live_sign(text):
    """Outside of code, each special character of Markdown is escaped."""
    outside = re.sub(r"`[^`]*`", "", escape_markdown(text))
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>\[\]|@!*_#]", outside)


def test_a_document_gives_the_same_report():
    """A report that is written to JSON and read again is equal to the original."""
    for name in ("bert", *HOSTILE):
        report = make(name, name)
        assert parse_document(format_document(report)) == report


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(version=2), "has version 2, but this program reads 1"),
        (lambda d: d.update(format="x"), "is not a report"),
        (lambda d: d["report"].pop("end"), "report.end is missing"),
        (lambda d: d["report"].update(more=1), "report.more is unknown"),
        (lambda d: d["report"].update(begin="x"), "report.begin: expected a number"),
        (lambda d: d["report"].update(begin=True), "report.begin: expected a number"),
        (lambda d: d["report"].update(kind="hourly"), "report.kind: expected one of daily, weekly"),
        (lambda d: d["report"]["runs"].update(is_told=1), "is_told: expected true or false"),
        (lambda d: d["report"]["runs"].update(best={}), "report.runs.best: expected a list"),
        (lambda d: d["report"]["hosts"].update(names=[1]), r"names\[0\]: expected a string"),
        (lambda d: d["report"].update(hosts=[]), "report.hosts: expected an object"),
        (lambda d: d["report"]["incidents"][0].update(spans=[[1]]), "expected a list of 2"),
        (lambda d: d["report"]["accelerators"].update(count=1.5), "count: expected a whole number"),
        (lambda d: d["report"].update(begin=1e999), "report.begin: expected a number"),
        (lambda d: d["report"]["accelerators"].update(uses=[{"cause": "x"}]), "is missing"),
    ],
)
def test_a_document_that_is_none_is_refused(change, words):
    """An invalid document is refused with the place and the expected value."""
    document = json.loads(format_document(make()))
    change(document)
    with pytest.raises(ConfigurationError, match=words):
        parse_document(json.dumps(document))


def test_a_document_of_before_is_read():
    """In a document of an earlier version, a missing member gets its default value."""
    report = make()
    document = json.loads(format_document(report))
    del document["report"]["runs"]["expected"]
    assert parse_document(json.dumps(document)) == replace(
        report, runs=replace(report.runs, expected=())
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_json_is_refused(text):
    """Text that is not JSON, or JSON that is not a report, is refused."""
    with pytest.raises(ConfigurationError, match=r"is not JSON|is not a report"):
        parse_document(text)


@pytest.mark.usefixtures("sparklines")
def test_a_message_is_short_in_a_chat_and_whole_in_a_mail():
    """The text of a message is the short template, and its HTML has the tables and charts."""
    message = make_message(make())
    assert message.title == "trainvitals Daily Monitoring Report, 2026-03-10"
    assert message.severity == "critical"
    assert "Training Status:" in message.text
    assert "Next Actions:" in message.text
    assert "Wasted Accelerator-Hours" not in message.text
    assert "<svg" in message.html
    assert "Wasted Accelerator-Hours" in message.html


def test_a_metric_that_nobody_told_is_named():
    """A metric that no run reported is named as unknown in the text."""
    report = make()
    text = format_text(replace(report, runs=replace(report.runs, best=())))
    assert "- Best IoU Today: unknown: no run reported a metric named iou, " in text
    assert "- Best Dice Today: unknown: no run reported a metric named dice, " in text
    assert "{" not in text
