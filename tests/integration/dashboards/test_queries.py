"""The dashboards' queries, as Prometheus parses them."""

import json
import subprocess

import pytest

from tests.unit.dashboards import lint, queries
from tests.unit.dashboards.boards import Board
from tests.unit.dashboards.filling import fill_thrice, find_variables


@pytest.mark.parametrize("check", lint.OF_QUERIES, ids=lambda check: check.id)
def test_queries_are_in_order(view, exclusions, check):
    """No check of the dashboards' queries reports a fault."""
    assert list(map(str, lint.find(check, view, exclusions))) == []


def test_there_are_queries_of_all_kinds(view):
    """The dashboards have many queries of each kind, so that the checks have something to check."""
    asked = [question.kind for _, question in queries.list_questions(view)]
    assert min(asked.count(kind) for kind in ("variable", "annotation", "target")) > 10
    assert asked.count("target") > 100


def test_promtool_takes_every_query(promtool, view, tmp_path):
    """`promtool` parses every query with one, several and all values of its variables."""
    asked = [(board, one) for board, one in queries.list_questions(view) if one.expr]
    texts = {text: str(one.place) for board, one in asked for text in fill_thrice(one.expr, board)}
    rules = [
        {"record": f"query:{at}", "expr": text, "labels": {"place": place}}
        for at, (text, place) in enumerate(texts.items())
    ]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(
        (promtool, "check", "rules", path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.fixture
def board():
    """Return a dashboard with a variable of several values and a variable of one value."""
    variables = [
        {"name": "job", "type": "query", "multi": True, "includeAll": True, "allValue": ".+"},
        {"name": "instance", "type": "query"},
    ]
    return Board({"title": "T", "templating": {"list": variables}})


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        (
            'a{job=~"$job"}',
            ('a{job=~"trainvitals"}', 'a{job=~"(trainvitals|prometheus)"}', 'a{job=~".+"}'),
        ),
        ("a{i=~`${job:regex}`}", ("a{i=~`trainvitals`}", "a{i=~`(trainvitals|prometheus)`}", "a{i=~`.+`}")),
        ('a{i="[[instance]]"}', ('a{i="gpu-box:9200"}', 'a{i="gaudi-box:9200"}', 'a{i="gaudi-box:9200"}')),
        ("a[$__rate_interval]", ("a[20s]", "a[20m5s]", "a[20s]")),
        ("a[$__range]", ("a[3600s]", "a[604800s]", "a[3600s]")),
        ("$nobody $1", ("$nobody $1",) * 3),
    ],
)  # fmt: skip
def test_variables_are_filled_in_as_grafana_does_it(board, text, filled):
    """A query is filled in with one value, several values and all values of its variables."""
    assert fill_thrice(text, board) == filled


def test_groups_of_a_pattern_are_no_variables():
    """The `$1` of `label_replace` is not a variable of Grafana."""
    assert find_variables('label_replace(a{b="$job"}, "c", "$1", "d", "${run:regex}")') == {
        "job",
        "run",
    }
