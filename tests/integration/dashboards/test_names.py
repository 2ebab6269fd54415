"""Names with special characters of regular expressions, of PromQL strings and of URLs."""

import json
import re
from urllib.parse import parse_qs, quote

import pytest

from grafana.build.layout import write_address
from grafana.build.parts import RUN
from tests.integration.dashboards.live.choosing import _cut
from tests.integration.dashboards.live.grafana import Choice, Look, write_query
from tests.support.promtool import run_promtool
from tests.unit.dashboards.boards import read_boards, walk_json

NAMES = (
    "bert.v1 (uid 1000)",
    "it's",
    'the "big" one',
    r"a\b",
    r"a\d+",
    "{a|b}",
    "a|b",
    "a&b=c#d?e",
    "100% + 5",
    "$run ${run} $__range",
    "größe 模型",
    "[x]^y*z?",
    "-",
)
BOARDS = {board.uid: board for board in read_boards()}
_EVERY = Choice((), is_multiple=True, all_value=".+")
_CHOICES = dict.fromkeys(("job", "instance", "rank"), _EVERY)


_RUN = re.compile(r"\brun=~`\|?(.+?)`")
_METRIC = re.compile(r"\bname=~`(.+?)`")


def fill(expr: str, name: str, *metrics: str) -> str:
    """Return a query of the run dashboard, filled in with a run and with metrics."""
    chosen = Choice(metrics, is_multiple=True) if metrics else _EVERY
    choices = {
        **_CHOICES,
        "run": Choice((name,)),
        "metric": chosen,
        "target": Choice(("",)),
    }
    return write_query(expr, Look(end=3600, seconds=3600, choices=choices), 30, 3600)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_any_name_is_chosen_and_no_other(name):
    """Every `run` matcher of the run dashboard matches the chosen name and no other."""
    written = [fill(question.expr, name) for question in BOARDS[RUN].questions]
    patterns = [pattern for expr in written for pattern in _RUN.findall(expr)]
    assert len(patterns) == sum(one.expr.count("${run") for one in BOARDS[RUN].questions) > 100
    for pattern in dict.fromkeys(patterns):
        assert re.fullmatch(pattern, name)
        assert not re.fullmatch(pattern, f"{name}x")
        assert not re.fullmatch(pattern, "another")


@pytest.mark.parametrize("name", NAMES)
def test_metrics_of_any_name_are_chosen(name):
    """The matcher of metric names matches one or several chosen names and no other."""
    (panel,) = (one for one in BOARDS[RUN].panels if one.title == "Metrics by name")
    for chosen in ((name,), (name, 'dice "b"')):
        (pattern,) = _METRIC.findall(fill(panel.targets[0]["expr"], "bert", *chosen))
        assert all(re.fullmatch(pattern, one) for one in chosen)
        assert not re.fullmatch(pattern, "iou")


def test_prometheus_takes_every_query_with_any_name(promtool, tmp_path):
    """Prometheus parses every query of the run dashboard with every name filled in."""
    rules = [
        {"record": "asked", "expr": fill(question.expr, name, name, "iou")}
        for name in NAMES
        for question in BOARDS[RUN].questions
        if question.expr
    ]
    path = tmp_path / "asked.yml"
    path.write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    done = run_promtool(promtool, "check", "rules", "--lint=none", path)
    assert done.returncode == 0, done.stderr[:2000]


def test_a_run_with_a_backtick_is_not_offered():
    """The run variable does not offer names with a backtick, which no selector could quote."""
    (run,) = (one for one in BOARDS[RUN].variables if one["name"] == "run")
    found = [f'{{run="{name}"}} 1795359764.99 1795359810000' for name in (*NAMES, "a`b")]
    assert tuple(_cut(found, run["regex"])) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_address_keeps_a_name_whole(name):
    """A link to the run dashboard percent-encodes the run's name, so that any name is preserved."""
    url = write_address(RUN, run="${__data.fields.Run}")
    assert "var-run=${__data.fields.Run:percentencode}&" in url
    filled = url.replace("${__data.fields.Run:percentencode}", quote(name, safe="-_.~"))
    assert parse_qs(filled.partition("?")[2])["var-run"] == [name]


def test_every_link_escapes_what_is_filled_in():
    """Every value in a link is percent-encoded, as Grafana itself keeps `&`, `#` and `+`."""
    links = [
        text
        for board in BOARDS.values()
        for panel in board.panels
        for path, text in walk_json(panel.json)
        if path.endswith("/url")
    ]
    assert len(links) > 30
    for link in links:
        # The values are those of the parameters and of the fields in the path.
        values = re.findall(r"var-\w+=([^&]*)|/(\$\{__[^/]*)/", str(link))
        values = [value for pair in values for value in pair if value]
        assert values
        assert all(re.fullmatch(r"\$\{[^:}]+:percentencode\}", value) for value in values), link
