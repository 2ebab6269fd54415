"""Tests that the annotation Alerts shades an alert only on the dashboards that the alert concerns.

The labels of the alerts are those that the rule tests in `tests/rules` expect. A dashboard is
opened for the host, run, device and container of the alert, or for others.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import promql_parser
import pytest
import yaml
from promql_parser import Matcher, MatchOp, VectorSelector

from tests.integration.dashboards.live.grafana import Choice, Look, write_query
from tests.support.promql import walk
from tests.support.rulebook import TESTS, Loader, read_rulebook
from tests.support.rulelint.wording import find_dashboard
from tests.unit.dashboards.boards import read_boards

FLEET = "trainvitals-fleet"
BOARDS = {board.uid: board for board in read_boards()}
EXPECTED = yaml.safe_load(Path(__file__).with_name("shading.yml").read_text(encoding="utf-8"))
ALERTS = {alert.name: alert for alert in read_rulebook().alerts}

_EVERY = Choice((), is_multiple=True, all_value=".+")
_OTHERS = {"instance": "other:9200", "run": "another", "name": "other", "device": "7"}
_VARIABLES = {"instance": "instance", "run": "run", "name": "container", "device": "device"}
_MACHINES = ("trainvitals", "node")  # jobs whose targets are hosts


def read_labels() -> dict[str, list[dict[str, str]]]:
    """Return the labels with which each alert fires in the rule tests."""
    found: dict[str, list[dict[str, str]]] = {}
    for path in sorted(TESTS.glob("[A-Z]*.yml")):
        document = yaml.load(path.read_text(encoding="utf-8"), Loader)
        for test in document["tests"]:
            for asked in test.get("alert_rule_test") or ():
                several = found.setdefault(asked["alertname"], [])
                several += [dict(one["exp_labels"]) for one in asked.get("exp_alerts") or ()]
    return found


LABELS = read_labels()


def look_at(labels: Mapping[str, str], board: str) -> Look:
    """Return a view of a dashboard with the host and run of an alert; the default host is n1."""
    choices = dict.fromkeys(("job", "rank", "kind", "device", "container"), _EVERY)
    is_of_a_machine = labels.get("job", _MACHINES[0]) in _MACHINES and "instance" in labels
    instance = labels["instance"] if is_of_a_machine else "n1"
    choices["instance"] = _EVERY if board == FLEET else Choice((instance,))
    choices["run"] = Choice((labels.get("run", "another"),))
    return Look(end=3600, seconds=3600, choices=choices)


def is_shaded(labels: Mapping[str, str], board: str, look: Look) -> bool:
    """Return whether the annotation Alerts of a dashboard selects an alert with these labels."""
    return any(
        all(_takes(matcher, labels) for matcher in selector.matchers.matchers)
        for selector in _list_selectors(board, look)
    )


def _list_selectors(board: str, look: Look) -> Iterator[VectorSelector]:
    for annotation in BOARDS[board].annotations:
        if annotation["name"] == "Alerts":
            node = promql_parser.parse(write_query(annotation["expr"], look, 30, look.seconds))
            selectors = (part for part in walk(node) if isinstance(part, VectorSelector))
            yield from (one for one in selectors if one.name == "ALERTS")


def _takes(matcher: Matcher, labels: Mapping[str, str]) -> bool:
    value = {**labels, "alertstate": "firing"}.get(matcher.name, "")
    if matcher.op in (MatchOp.Equal, MatchOp.NotEqual):
        return (value == matcher.value) == (matcher.op == MatchOp.Equal)
    return bool(re.fullmatch(matcher.value, value)) == (matcher.op == MatchOp.Re)


def find_boards(name: str) -> set[str]:
    """Return the dashboards that shade an alert when they show the subject of the alert."""
    return {
        uid.removeprefix("trainvitals-")
        for labels in LABELS[name]
        for uid in BOARDS
        if is_shaded({**labels, "alertname": name}, uid, look_at(labels, uid))
    }


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_shaded_where_it_concerns_somebody(name):
    """Each alert is shaded exactly on the dashboards in shading.yml; only Watchdog is on none."""
    assert LABELS.get(name), "no test of the rules lets it fire"
    assert find_boards(name) == {*EXPECTED[name]}
    assert EXPECTED[name] or name == "Watchdog"


def test_the_table_names_no_alert_that_is_gone():
    """The table in shading.yml has exactly one entry for each alert."""
    assert EXPECTED.keys() == ALERTS.keys()


@pytest.mark.parametrize(
    "name",
    [name for name in ALERTS if find_dashboard(ALERTS[name]) in BOARDS and name != "Watchdog"],
)
def test_an_alert_is_shaded_on_the_board_that_its_link_opens(name):
    """The dashboard that a notification links to shades the time during which the alert fired."""
    board = find_dashboard(ALERTS[name])
    assert any(
        is_shaded({**labels, "alertname": name}, board, look_at(labels, board))
        for labels in LABELS[name]
    )


@pytest.mark.parametrize("label", _OTHERS)
def test_nothing_is_shaded_of_what_nobody_looks_at(label):
    """A dashboard that shows another host, run, container or device does not shade the alert."""
    for name, several in LABELS.items():
        for labels in (one for one in several if one.get(label)):
            for uid in set(BOARDS) - {FLEET}:
                look = look_at(labels, uid)
                choices = {**look.choices, _VARIABLES[label]: Choice((_OTHERS[label],))}
                has_it = any(one["name"] == _VARIABLES[label] for one in BOARDS[uid].variables)
                other = Look(look.end, look.seconds, choices)
                assert not (has_it and is_shaded({**labels, "alertname": name}, uid, other)), name
