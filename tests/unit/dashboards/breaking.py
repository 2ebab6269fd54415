"""Functions that return one change which breaks the small dashboards of `samples`."""

from __future__ import annotations

from tests.unit.dashboards.samples import find_panel

FLEET, RUN, CARDS, HOST = (
    f"trainvitals-{name}" for name in ("fleet", "run", "accelerators", "host")
)


def expr(title, old, new, at=0):
    """Return a change of a query of a panel of the fleet dashboard."""

    def break_it(boards):
        target = find_panel(boards, FLEET, title)["targets"][at]
        assert old in target["expr"]
        target["expr"] = target["expr"].replace(old, new)

    return break_it


def put(title, *path: object, uid=FLEET):
    """Return a change that sets a value in a panel; the path ends with key and value."""
    *steps, key, value = path

    def break_it(boards):
        part = find_panel(boards, uid, title)
        for step in steps:
            part = part[step]
        part[key] = value

    return break_it


def put_into_board(*path, at=0):
    """Return a change that sets a value in a dashboard; the path ends with key and value."""
    *steps, key, value = path

    def break_it(boards):
        part = boards[at]
        for step in steps:
            part = part[step]
        part[key] = value

    return break_it


def variable(at, **changed):
    """Return a change of a variable of the first dashboard."""
    return lambda boards: boards[0]["templating"]["list"][at].update(changed)


def annotation(at, **changed):
    """Return a change of an annotation of the first dashboard."""
    return lambda boards: boards[0]["annotations"]["list"][at].update(changed)


def describe(title, old, new, uid=FLEET):
    """Return a change of a panel's description."""

    def break_it(boards):
        panel = find_panel(boards, uid, title)
        assert old in panel["description"]
        panel["description"] = panel["description"].replace(old, new)

    return break_it


def ask_variable(text):
    """Return a change of the query of the variable `run` of the first dashboard."""
    return variable(3, query={"qryType": 1, "query": text, "refId": "A"}, definition=text)


def override(title, *properties, at=1):
    """Return a change that adds properties to an override of a table of the fleet dashboard."""

    def break_it(boards):
        panel = find_panel(boards, FLEET, title)
        panel["fieldConfig"]["overrides"][at]["properties"] += properties

    return break_it


DEFAULTS = ("fieldConfig", "defaults")
CUSTOM = (*DEFAULTS, "custom")
STATED = [
    {
        "type": "value",
        "options": {
            "0": {"text": "fine", "color": "text"},
            "10": {"text": "killed", "color": "red"},
        },
    }
]
STEPS = (*DEFAULTS, "thresholds", "steps")

COLOURED = {"id": "custom.cellOptions", "value": {"type": "color-text"}}
