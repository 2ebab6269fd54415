"""The checks of a dashboard's titles, descriptions, links and annotation texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from promql_parser import VectorSelector

from tests.support.promql import walk
from tests.support.rulelint.produced import find_labels
from tests.unit.dashboards.boards import Board, Panel, Place, walk_json
from tests.unit.dashboards.filling import find_variables
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import parse

Faults = Iterator[Fault]

_HEADS = ("Normal: ", "If not: ")
_METRICS = "Metrics: "
# The dashboard to which a table column with this label links.
_SUBJECTS = {"instance": "trainvitals-host", "run": "trainvitals-run"}
_OF_ALERTS = "alertname"
_RULES = "/alerting/"  # Grafana's pages of Prometheus rules, by data source and name
_KEEPS = ("${datasource:queryparam}", "${__url_time_range}")


def check_descriptions(view: View) -> Faults:
    """Find panels without a title, or with a description that lacks a part or a queried metric."""
    for board, panel in view.panels:
        if not panel.json.get("title"):
            yield Fault(panel.place, "has no title")
        first, *_ = (*panel.paragraphs, "")
        if not first or first.startswith((*_HEADS, "Alerts: ", _METRICS)):
            yield Fault(panel.place, "does not say what it shows")
        elif not first.endswith((".", "!", "?")):
            yield Fault(panel.place, f"what it shows is no sentence: {first}")
        for head in _HEADS:
            said = panel.read_paragraph(head)
            if not said or not said.endswith("."):
                yield Fault(panel.place, f"has no sentence under {head.strip()}")
        yield from _check_named_metrics(board, panel)


def _check_named_metrics(board: Board, panel: Panel) -> Faults:
    last = panel.paragraphs[-1] if panel.paragraphs else ""
    named = set(re.findall(r"`([^`]+)`", last)) if last.startswith(_METRICS) else set()
    for name in sorted(_find_asked(board, panel) ^ named):
        is_named = name in named
        says = f"names {name} and does not ask for it" if is_named else f"does not name {name}"
        yield Fault(panel.place, f"its last paragraph {says}")


def _find_asked(board: Board, panel: Panel) -> set[str]:
    nodes = [parse(one, board) for one in board.questions if one.panel is panel]
    parts = [part for node in nodes if node is not None for part in walk(node)]
    return {part.name for part in parts if isinstance(part, VectorSelector) and part.name}


def check_links(view: View) -> Faults:
    """Find links to an unknown dashboard or variable, or without the data source or time range."""
    boards = {board.uid: board for board in view.boards}
    for board in view.boards:
        for place, url in _list_links(board):
            address = urlsplit(url)
            if address.path.startswith(_RULES):
                yield from _check_rule(view, board, place, url)
                continue
            found = re.fullmatch(r"/d/([\w-]+)(?:/[\w-]*)?", address.path)
            target = boards.get(found[1]) if found else None
            if target is None:
                yield Fault(place, f"links to {address.path}, where no board is")
                continue
            for kept in _KEEPS:
                if kept not in url:
                    yield Fault(place, f"the link to {target.uid} loses {kept}")
            yield from _check_values(board, place, target, url)
            yield from _check_fields(view, board, place, url)


def _check_rule(view: View, board: Board, place: Place, url: str) -> Faults:
    """Find alert links that do not lead to Grafana's page of the alert's rule."""
    panel = next((one for one in board.panels if one.place == place), None)
    title = panel.renamed.get("alertname") if panel else None
    if url != f"{_RULES}${{datasource:text}}/${{__data.fields.{title}:percentencode}}/find":
        yield Fault(place, f"links to {url}, where no rule is")
    yield from _check_fields(view, board, place, url)


def _list_links(board: Board) -> Iterator[tuple[Place, str]]:
    for panel in board.panels:
        for path, value in walk_json(panel.json):
            if path.endswith("/url") and isinstance(value, str):
                yield panel.place, value
    for link in board.json.get("links") or ():
        if link.get("url"):
            yield board.place, link["url"]


def _check_values(board: Board, place: Place, target: Board, url: str) -> Faults:
    names, kept = _list_names(target), _find_shared(board, target)
    for key, value in parse_qsl(urlsplit(url).query):
        if key.startswith("var-") and key.removeprefix("var-") not in names:
            yield Fault(place, f"{target.uid} has no variable {key.removeprefix('var-')}")
        if key.startswith("var-") and not value:
            yield Fault(place, f"the link gives {key} no value")
    for name in sorted(find_variables(url) & board.multiple - kept):
        says = f"carries ${name}, which may be several or all, to {target.uid}, which "
        yield Fault(place, says + ("takes one" if name in names else "has none"))


def _check_fields(view: View, board: Board, place: Place, url: str) -> Faults:
    """Find links that use a column that the table lacks, or a label that no series has."""
    panel = next((one for one in board.panels if one.place == place), None)
    if panel is None:
        return
    titles = set(panel.renamed.values())
    for quoted, plain in re.findall(r"\$\{__data\.fields(?:\[\"?([^\]\"]+)\"?\]|\.([^:}]+))", url):
        if (quoted or plain) not in titles:
            yield Fault(place, f"a link takes {quoted or plain}, which is no column")
    nodes = [parse(one, board) for one in board.questions if one.panel is panel]
    labels = [find_labels(node, view.house) for node in nodes if node is not None]
    for label in re.findall(r"\$\{__field\.labels\.(\w+)", url):
        if not any(label in found for found in labels):
            yield Fault(place, f"a link takes the label {label}, which no series has")


def check_rows_lead_on(view: View) -> Faults:
    """Find table columns of alerts, hosts or runs that do not link to the rule or the dashboard."""
    for board, panel in view.panels:
        title = panel.renamed.get(_OF_ALERTS)
        linked = [matcher.get("options") for matcher, _ in panel.find_properties("links")]
        if panel.kind == "table" and title and title not in linked:
            yield Fault(panel.place, f"column {title} does not lead to its rule")
        for label, uid in _SUBJECTS.items():
            title = panel.renamed.get(label)
            if panel.kind == "table" and title and board.uid != uid:
                links = [
                    link["url"]
                    for matcher, value in panel.find_properties("links")
                    if matcher == {"id": "byName", "options": title}
                    for link in value
                ]
                if not any(urlsplit(link).path == f"/d/{uid}" for link in links):
                    yield Fault(panel.place, f"column {title} does not lead to {uid}")


def check_family(view: View) -> Faults:
    """Find dashboards whose top links omit another dashboard or a variable that both share."""
    for board in view.boards:
        links = board.json.get("links") or ()
        for link in links:
            if link.get("type") != "link" or link.get("includeVars"):
                yield Fault(board.place, f"{link.get('title')} carries all that is chosen")
        for other in (one for one in view.boards if one is not board):
            urls = [url for link in links if _leads_to(url := str(link.get("url")), other)]
            if len(urls) != 1:
                yield Fault(board.place, f"has {len(urls)} links to {other.title} at the top")
            for name in sorted(_find_shared(board, other) - find_variables("".join(urls))):
                yield Fault(board.place, f"its link to {other.title} loses ${name}")


def _leads_to(url: str, board: Board) -> bool:
    return urlsplit(url).path == f"/d/{board.uid}"


def _find_shared(board: Board, other: Board) -> set[str]:
    """Return the variables of a dashboard whose every selection another dashboard accepts."""
    return {
        name
        for name in _list_names(board) & _list_names(other)
        if name in other.multiple or name not in board.multiple
    }


def _list_names(board: Board) -> set[str]:
    return {str(variable.get("name")) for variable in board.variables}


def check_annotation_texts(view: View) -> Faults:
    """Find annotations without a title, or whose text uses a label that no series has."""
    for board in view.boards:
        for question in (one for one in board.questions if one.kind == "annotation"):
            node = parse(question, board)
            texts = f"{question.json.get('titleFormat')} {question.json.get('textFormat')}"
            named = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", texts))
            if node is not None:
                for label in sorted(named - find_labels(node, view.house)):
                    yield Fault(question.place, f"says {label}, which no series has")
            if not question.json.get("titleFormat"):
                yield Fault(question.place, "has no title")
