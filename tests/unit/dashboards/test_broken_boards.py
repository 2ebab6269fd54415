"""Tests that the lint finds one fault in each of the five dashboards and names the faulty panel."""

import re

import pytest

from tests.unit.dashboards import lint
from tests.unit.dashboards.boards import walk_json
from tests.unit.dashboards.boardwide import BOARDS
from tests.unit.dashboards.samples import change


def find(id_, view, exclusions):
    """Return the findings of one check as text."""
    (check,) = (one for one in lint.CHECKS if one.id == id_)
    return list(map(str, lint.find(check, view, exclusions)))


def list_panels(board):
    """Yield each panel of a dashboard's JSON, also from closed rows, with the title of its row."""
    row = ""
    for entry in board["panels"]:
        row = entry["title"] if entry["type"] == "row" else row
        yield from ((row, panel) for panel in entry.get("panels", ()))
        if entry["type"] != "row":
            yield row, entry


def break_unit(panel):
    """Misspell a unit."""
    defaults = panel["fieldConfig"]["defaults"]
    if defaults.get("unit") in (None, "short"):
        return False
    defaults["unit"] = "seconds"
    return True


def break_legend(panel):
    """Name a label that no series has."""
    for target in panel["targets"]:
        if "{{" in target["legendFormat"]:
            target["legendFormat"] += " {{card}}"
            return True
    return False


def break_query(panel):
    """Query a metric that does not exist."""
    target = panel["targets"][0]
    before = target["expr"]
    target["expr"] = re.sub(
        r"\b(accelerator|training|host|container|instance|run)([_:])", r"no_\1\2", before
    )
    return target["expr"] != before  # fmt: skip


def break_threshold(panel):
    """Move a threshold step to a value at which no alert fires."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    if "Alerts: " not in panel["description"] or len(steps) < 2:
        return False
    steps[-1]["value"] = 123456
    return True


def break_link(panel):
    """Change a link to point to a dashboard that does not exist."""
    links = [link for path, link in walk_links(panel)]
    for link in links[:1]:
        link["url"] = link["url"].replace("/d/trainvitals-", "/d/trainvitals-old-")
    return bool(links)


def break_timeline(panel):
    """Colour states by thresholds."""
    if panel["type"] != "state-timeline":
        return False
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "thresholds"}
    return True


def break_reach(panel):
    """Let the text for a table without data also appear in its empty cells."""
    overrides = panel["fieldConfig"]["overrides"]
    kept = [one for one in overrides if one["properties"][0]["id"] != "noValue"]
    panel["fieldConfig"]["overrides"] = kept
    return panel["type"] == "table"


def break_label(panel):
    """Set a numeric unit as the default of a table, so that labels are formatted as numbers."""
    panel["fieldConfig"]["defaults"]["unit"] = "short"
    return panel["type"] == "table"


def break_unknown(panel):
    """Remove the mappings, so that a missing value has the colour of the lowest step."""
    panel["fieldConfig"]["defaults"]["mappings"] = []
    return panel["type"] == "stat"


def break_fill(panel):
    """Fill the area under each of several lines."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    if (custom.get("drawStyle"), custom.get("lineWidth")) != ("line", 1):
        return False
    custom["fillOpacity"] = 8
    return any("{{" in target["legendFormat"] for target in panel["targets"])


def break_axis(panel):
    """Remove the soft maximum of an axis."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    return custom.pop("axisSoftMax", None) is not None


def break_figure(panel):
    """Colour the background of a stat panel."""
    panel["options"]["colorMode"] = "background"
    return panel["type"] == "stat"


def break_calm(panel):
    """Colour the lowest step of a stat panel green."""
    panel["fieldConfig"]["defaults"].get("thresholds", {"steps": [{}]})["steps"][0]["color"] = (
        "green"
    )
    return panel["type"] == "stat"


def break_order(panel):
    """Change the severity mappings so that alerts are sorted alphabetically by severity."""
    for override in panel["fieldConfig"]["overrides"]:
        for one in override["properties"]:
            if override["matcher"]["options"] == "Severity" and one["id"] == "mappings":
                options = one["value"][0]["options"]
                named = {key.partition(" ")[2]: shown for key, shown in options.items()}
                one["value"][0]["options"] = named
                return True
    return False


def break_bars(panel):
    """Replace the query of a bar chart with an `increase` over overlapping windows."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    for target in panel["targets"]:
        pattern = r"clamp_min\((.*?) - .* offset \$__interval, 0\)"
        broken = re.sub(pattern, r"increase(\1[$__rate_interval])", target["expr"])
        if custom.get("drawStyle") == "bars" and broken != target["expr"]:
            target["expr"] = broken
            return True
    return False


def break_room(panel):
    """Put a legend of several series below a graph of little height."""
    panel["gridPos"]["h"] = 6
    names = [target["legendFormat"] for target in panel["targets"]]
    panel["options"].get("legend", {})["placement"] = "bottom"
    table = panel["options"].get("legend", {}).get("displayMode") == "table"
    return panel["type"] == "timeseries" and table and any("{{" in name for name in names)


def walk_links(part, path=()):
    """Yield every link in a panel's JSON."""
    if isinstance(part, dict):
        if str(part.get("url", "")).startswith("/d/"):
            yield path, part
        for key, inner in part.items():
            yield from walk_links(inner, (*path, key))
    elif isinstance(part, list):
        for at, inner in enumerate(part):
            yield from walk_links(inner, (*path, at))


@pytest.mark.parametrize("uid", BOARDS)
@pytest.mark.parametrize(
    ("break_it", "rule"),
    [
        (break_unit, "panel-units"),
        (break_legend, "L4"),
        (break_query, "L7"),
        (break_threshold, "L8-limit"),
        (break_link, "L6"),
        (break_timeline, "timelines"),
        (break_reach, "reach"),
        (break_label, "label-units"),
        (break_unknown, "unknown"),
        (break_fill, "fills"),
        (break_axis, "soft-axes"),
        (break_figure, "figures"),
        (break_calm, "calm"),
        (break_order, "order"),
        (break_bars, "bars"),
        (break_room, "legend-table"),
    ],
)
def test_a_broken_panel_is_named(view, exclusions, uid, break_it, rule):
    """The finding names the broken panel by dashboard, row and title."""
    broken = []

    def break_one(boards):
        (board,) = [board for board in boards if board["uid"] == uid]
        for row, panel in list_panels(board):
            if break_it(panel):
                broken.append(f"{board['title']} > {row} > {panel['title']}")
                return

    found = find(rule, change(view, break_one), exclusions)
    assert broken
    assert any(one.startswith(broken[0]) for one in found), found


def test_a_variable_without_a_name_of_its_query_is_told(view, exclusions):
    """A missing `refId` is reported for each query variable of each dashboard."""

    def forget(boards):
        for board in boards:
            for variable in board["templating"]["list"]:
                if variable["type"] == "query":
                    del variable["query"]["refId"]

    found = find("refId", change(view, forget), exclusions)
    asked = [one for board in view.boards for one in board.questions if one.kind == "variable"]
    assert len(found) == len(asked) > len(BOARDS)


@pytest.mark.parametrize("uid", BOARDS)
def test_a_wrong_uid_is_told(view, exclusions, uid):
    """A wrong uid is reported for the dashboard and for the alerts that link to it."""

    def rename(boards):
        (board,) = [board for board in boards if board["uid"] == uid]
        board["uid"] = "trainvitals-other"

    renamed = change(view, rename)
    assert any("uid 'trainvitals-other'" in one for one in find("family", renamed, exclusions))
    assert any(uid in one for one in find("L8-address", renamed, exclusions))


def test_every_alert_has_one_home_to_lose(view, exclusions):
    """Each alert that its dashboard no longer names is reported with the name of the dashboard."""
    homes = [(board, name) for board, panel in view.panels for name in panel.alerts]
    assert {name for _, name in homes} == {alert.name for alert in view.house.book.alerts}

    def forget(boards):
        for board in boards:
            for _, panel in list_panels(board):
                text = panel["description"]
                panel["description"] = re.sub(r"\n\nAlerts: [^\n]*", "", text)

    found = find("L8-home", change(view, forget), exclusions)
    assert len(found) == len(view.house.book.alerts)
    assert any(one.startswith("Vitals / Host > alert > HostDiskFull: ") for one in found)


def test_nothing_of_a_board_is_left_out_of_sight(view):
    """The lint reads the queries of all panels, including panels in closed rows."""
    for board in view.boards:
        titles = [
            value for path, value in walk_json(board.json["panels"]) if path.endswith("/type")
        ]
        queries = [path for path, _ in walk_json(board.json["panels"]) if path.endswith("/refId")]
        seen = [one for one in board.questions if one.kind == "target"]
        assert titles
        assert len(queries) == len(seen)
