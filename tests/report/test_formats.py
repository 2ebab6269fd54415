"""Text, Markdown, HTML and JSON of one report, also with names that want to be something else."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies

from trainvitals.errors import ConfigurationError
from trainvitals.report.document import format_document, parse_document
from trainvitals.report.figures import Coverage, Gap, Price, Report
from trainvitals.report.hardware import Accelerators, Disk, Heat, Hosts, Use
from trainvitals.report.html import format_html
from trainvitals.report.markdown import escape, format_markdown
from trainvitals.report.message import make_message
from trainvitals.report.text import format_text
from trainvitals.report.training import Attempt, Best, Runs
from trainvitals.report.troubles import Deaths, Incident

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
    """Make a report in which a name stands wherever one can."""
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
    """Lists the tags and attributes of a page, and whether they are closed."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Note a tag."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "rect", "circle", "path", "line"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Note a tag that ends at once."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        """Note the end of a tag."""
        if tag in self.open:
            assert self.open.pop() == tag


@pytest.mark.parametrize("kind", ["daily", "weekly"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_no_more_than_a_name_in_html(name, kind):
    """The page has the same tags and attributes as with a tame name, and is whole."""
    tame, hostile = (
        Page(format_html(make(kind=kind))),
        Page(format_html(make(name, name, kind=kind))),
    )
    assert hostile.tags == tame.tags
    assert [key for key, _ in hostile.attributes] == [key for key, _ in tame.attributes]
    assert hostile.open == []


def test_the_page_needs_nothing_from_outside():
    """It has no script, no address to load from, and says so to the browser."""
    page = format_html(make())
    parsed = Page(page)
    names = {key for key, _ in parsed.attributes}
    assert not names & {"src", "href", "srcset", "action", "onload", "onclick"}
    assert not {"script", "link", "iframe", "img", "object"} & set(parsed.tags)
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page
    assert parsed.tags.count("svg") == 5
    assert page.count('role="img"') == 5


def test_the_page_knows_light_and_dark():
    """It follows what the reader's system is set to."""
    page = format_html(make())
    assert "color-scheme: light dark" in page
    assert "prefers-color-scheme: dark" in page


def test_an_axis_says_something_else_at_each_line():
    """Also where a metric hardly moves."""
    best = Best("iou", "", "seg", "node-1", 0.7971, is_lower_better=False)
    flat = tuple((BEGIN + HOUR * n, 0.797 + n * 1e-5) for n in range(1, 9))
    report = replace(make(), runs=Runs(is_told=True, best=(replace(best, by_hour=flat),)))
    (picture,) = re.findall(r"<figcaption>iou</figcaption>.*?</figure>", format_html(report))
    marks = re.findall(r'text-anchor="end">([^<]*)<', picture)
    assert len(set(marks)) == len(marks) == 5


def test_each_bar_says_what_it_is():
    """Whoever points at a bar reads the hour, the figure and the cause."""
    assert "<title>00:00: 0.03 h training at full speed</title>" in format_html(make())
    assert "<title>Tuesday, 2026-03-10: 8.3 h training at full speed</title>" in format_html(
        make(kind="weekly")
    )


@pytest.mark.parametrize("kind", ["daily", "weekly"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_breaks_no_line_of_text(name, kind):
    """The text has as many lines as with a tame name of that length, and nothing moves the cursor."""
    length = max(4, min(len(name), 120))
    hostile = format_text(make(name, name, kind=kind))
    assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]*", hostile)
    tame = format_text(make("x" * length, "x" * length, kind=kind))
    headings = [line for line in tame.splitlines() if line.endswith(":")]
    assert [line for line in hostile.splitlines() if line in headings] == headings


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_no_more_than_a_name_in_markdown(name):
    """Every sign that Markdown would read has a backslash before it, and rows have their cells."""
    text = format_markdown(make(name, name))
    plain = re.sub(r"`[^`\n]*`", "", text)
    assert not re.search(r"(?<!\\)[<>\[\]!@]", plain)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) in {4, 6, 7, 8}


@given(strategies.text(alphabet="`\\<>|[]()!@#*_ab \n"))
def test_what_is_escaped_holds_no_live_sign(text):
    """Outside of code each sign is behind a backslash."""
    outside = re.sub(r"`[^`]*`", "", escape(text))
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>\[\]|@!*_#]", outside)


def test_a_document_gives_the_same_report():
    """What is read is what was written, to the last figure."""
    for name in ("bert", *HOSTILE):
        report = make(name, name)
        assert parse_document(format_document(report)) == report


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(version=2), "is of version 2, and this program reads 1"),
        (lambda d: d.update(format="x"), "is no report"),
        (lambda d: d["report"].pop("end"), "report.end is missing"),
        (lambda d: d["report"].update(more=1), "report.more is not known"),
        (lambda d: d["report"].update(begin="x"), "report.begin: a number is wanted"),
        (lambda d: d["report"].update(begin=True), "report.begin: a number is wanted"),
        (lambda d: d["report"].update(kind="hourly"), "report.kind: one of daily, weekly"),
        (lambda d: d["report"]["runs"].update(is_told=1), "is_told: true or false is wanted"),
        (lambda d: d["report"]["runs"].update(best={}), "report.runs.best: a list is wanted"),
        (lambda d: d["report"]["hosts"].update(names=[1]), r"names\[0\]: a text is wanted"),
        (lambda d: d["report"].update(hosts=[]), "report.hosts: an object is wanted"),
        (lambda d: d["report"]["incidents"][0].update(spans=[[1]]), "a list of 2 is wanted"),
        (lambda d: d["report"]["accelerators"].update(count=1.5), "count: a whole number"),
        (lambda d: d["report"].update(begin=1e999), "report.begin: a number is wanted"),
        (lambda d: d["report"]["accelerators"].update(uses=[{"cause": "x"}]), "is missing"),
    ],
)
def test_a_document_that_is_none_is_refused(change, words):
    """The message names the place and what is wanted there."""
    document = json.loads(format_document(make()))
    change(document)
    with pytest.raises(ConfigurationError, match=words):
        parse_document(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_json_is_refused(text):
    """As is JSON that is something else."""
    with pytest.raises(ConfigurationError, match=r"is no JSON|is no report"):
        parse_document(text)


def test_a_message_is_short_in_a_chat_and_whole_in_a_mail():
    """The text is what the template has; tables and pictures are in the page."""
    message = make_message(make())
    assert message.title == "trainvitals Daily Monitoring Report, 2026-03-10"
    assert message.severity == "critical"
    assert "Training Status:" in message.text
    assert "Next Actions:" in message.text
    assert "Wasted Accelerator-Hours" not in message.text
    assert "<svg" in message.html
    assert "Wasted Accelerator-Hours" in message.html


def test_a_metric_that_nobody_told_is_named():
    """The words say which one, and no placeholder is left."""
    report = make()
    text = format_text(replace(report, runs=replace(report.runs, best=())))
    assert "- Best IoU Today: unknown: no run told a metric named iou, " in text
    assert "- Best Dice Today: unknown: no run told a metric named dice, " in text
    assert "{" not in text
