"""Tests that the dashboards pass every check of the lint."""

import json
import re

import pytest

from tests.support.rulebook import read_names
from tests.unit.dashboards import lint
from tests.unit.dashboards.arrangement import count_queries
from tests.unit.dashboards.boardwide import BOARDS
from tests.unit.dashboards.catalogue import PIPELINE
from tests.unit.dashboards.queries import parse_all


@pytest.mark.parametrize(
    "check", [*lint.OF_PANELS, *lint.OF_BOARDS, *lint.OF_OTHERS], ids=lambda check: check.id
)
def test_boards_are_in_order(view, exclusions, check):
    """No check reports a fault; each reported fault would name its panel and the fix."""
    assert list(map(str, lint.find(check, view, exclusions))) == []


def test_every_exclusion_excludes_something(view, exclusions):
    """Each exclusion suppresses a finding, names an existing check and has a reason."""
    assert lint.find_unused(view, exclusions) == []
    ids = {check.id for check in lint.CHECKS}
    for exclusion in exclusions:
        assert exclusion.rule in ids
        assert exclusion.reason.strip().endswith(".")


def test_everything_that_is_allowed_is_asked_for(view):
    """Each metric in the list of Prometheus's own metrics is queried by a dashboard."""
    asked = {name for _, _, node in parse_all(view) for name in read_names(node)}
    assert PIPELINE.keys() - asked == set()


@pytest.mark.parametrize("uid", BOARDS)
def test_a_board_that_opens_asks_little(view, uid):
    """Opening a dashboard runs more than 10 and at most 40 queries."""
    (board,) = [board for board in view.boards if board.uid == uid]
    assert 10 < count_queries(board) <= 40


def test_what_a_panel_calls_dashed_is_drawn_dashed(view):
    """Each panel whose description mentions a dashed line draws a series or a threshold dashed."""
    found = []
    for panel in (panel for board in view.boards for panel in board.panels):
        patterns = [
            re.compile(override["matcher"]["options"].strip("/"))
            for override in panel.overrides
            for prop in override["properties"]
            if prop["id"] == "custom.lineStyle" and prop["value"]["fill"] == "dash"
        ]
        legends = [target.get("legendFormat") or "" for target in panel.targets]
        hits = {legend for each in patterns for legend in legends if each.search(legend)}
        defaults = panel.json.get("fieldConfig", {}).get("defaults", {})
        style = defaults.get("custom", {}).get("thresholdsStyle", {}).get("mode")
        if "dashed" in panel.json.get("description", "").lower():
            assert hits or style == "dashed", panel.json["title"]
            found += sorted(hits)
    assert found.count("expected") == 2  # the panels of the pace of epochs and of memory


def test_requests_are_counted_in_requests(view):
    """Panels use the unit `reqps` for requests, not `cps`, which Grafana displays as "c/s"."""
    drawn = {
        panel.json["title"]: json.dumps(panel.json)
        for board in view.boards
        for panel in board.panels
    }
    assert [title for title, text in drawn.items() if '"cps"' in text] == []
    assert [title for title, text in drawn.items() if '"reqps"' in text]
