"""How the small boards of `samples` are broken: each function gives a change of one thing."""

from __future__ import annotations

from tests.unit.dashboards.samples import find_panel

FLEET, RUN, CARDS, HOST = (
    f"trainvitals-{name}" for name in ("fleet", "run", "accelerators", "host")
)


def expr(title, old, new, at=0):
    """Change a query of a panel of the fleet."""

    def break_it(boards):
        target = find_panel(boards, FLEET, title)["targets"][at]
        assert old in target["expr"]
        target["expr"] = target["expr"].replace(old, new)

    return break_it


def put(title, *path: object, uid=FLEET):
    """Put the last of a path where the others lead to, in a panel."""
    *steps, key, value = path

    def break_it(boards):
        part = find_panel(boards, uid, title)
        for step in steps:
            part = part[step]
        part[key] = value

    return break_it


def put_into_board(*path, at=0):
    """Put the last of a path where the others lead to, in the first board."""
    *steps, key, value = path

    def break_it(boards):
        part = boards[at]
        for step in steps:
            part = part[step]
        part[key] = value

    return break_it


def variable(at, **changed):
    """Change a variable of the first board."""
    return lambda boards: boards[0]["templating"]["list"][at].update(changed)


def annotation(at, **changed):
    """Change an annotation of the first board."""
    return lambda boards: boards[0]["annotations"]["list"][at].update(changed)


def describe(title, old, new, uid=FLEET):
    """Change what stands under a panel's title."""

    def break_it(boards):
        panel = find_panel(boards, uid, title)
        assert old in panel["description"]
        panel["description"] = panel["description"].replace(old, new)

    return break_it


def ask_variable(text):
    """Have the variable `run` of the first board ask something else."""
    return variable(3, query={"qryType": 1, "query": text, "refId": "A"}, definition=text)


def override(title, *properties, at=1):
    """Change a property of the first column of a table."""

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
