"""The targets of clicks: the address of a link, filled in as by Grafana, and its dashboard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import parse_qsl, quote, urlsplit

from tests.integration.dashboards.live.grafana import Answer
from tests.unit.dashboards.boards import Panel

# A reference to a column of a row, a label of a series, or a variable of the dashboard.
_FIELD = re.compile(
    r"\$\{(?:__data\.fields\.|__field\.labels\.)?(?P<title>\w+)(?::(?P<format>\w+))?\}"
)
_PARAMETERS = re.compile(r"\$\{(?:datasource:queryparam|__url_time_range)\}&?")
# The characters that `encodeURI` does not escape; Grafana uses it for fields without a format.
_KEPT_IN_ADDRESSES = ";/?:@&=+$,#-_.~"


def list_rows(panel: Panel, answers: Sequence[Answer]) -> list[dict[str, str]]:
    """Return the rows of a table, each as the texts of its cells by column title."""
    titles = dict(panel.renamed)
    states = read_states(panel)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for answer in answers:
        if answer.question.panel is not panel:
            continue
        column = titles.get(f"Value #{answer.question.place.query}") or titles["Value"]
        for series in answer.series:
            keys = {titles.get(label, label): value for label, value in series.labels.items()}
            value = series.samples[-1][1]
            cell = states.get(column, {}).get(value, f"{value:g}")
            rows.setdefault(tuple(keys.values()), keys)[column] = cell
    return [*rows.values()]


def read_states(panel: Panel) -> Mapping[str, Mapping[float, str]]:
    """Return the texts of numbers by column title; a stat's texts have an empty title."""
    texts = {"": _read_texts(panel.defaults.get("mappings") or ())}
    for matcher, mappings in panel.find_properties("mappings"):
        texts[str(matcher.get("options"))] = _read_texts(mappings)
    return texts


def _read_texts(mappings: Sequence[Mapping[str, object]]) -> dict[float, str]:
    texts: dict[float, str] = {}
    for mapping in mappings:
        options = mapping["options"]
        if mapping.get("type") == "value" and isinstance(options, dict):
            found = {n: shown.get("text") for n, shown in options.items() if _is_number(n)}
            texts |= {float(number): str(text) for number, text in found.items()}
    return texts


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def list_clicks(
    panel: Panel, answers: Sequence[Answer], chosen: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the target of each link of a panel once: a dashboard and its chosen variables.

    Args:
        panel: The panel.
        answers: The answers to the queries of the panel's dashboard.
        chosen: The chosen values of the panel's dashboard, one for each variable.
    """
    links = [*panel.json.get("links", ()), *panel.defaults.get("links", ())]
    links += [link for _, several in panel.find_properties("links") for link in several]
    titles = dict(panel.renamed)
    places = [
        {**chosen, **{titles.get(label, label): value for label, value in series.labels.items()}}
        for answer in answers
        if answer.question.panel is panel
        for series in answer.series
    ]
    clicks = (
        open_address(link["url"], place)
        for link in links
        for place in places
        if all(place.get(found["title"]) for found in _find_fields(link["url"]))
    )
    seen = {(uid, tuple(variables.items())): variables for uid, variables in clicks}
    yield from ((uid, variables) for (uid, _), variables in seen.items())


def _find_fields(url: str) -> Iterator[re.Match[str]]:
    return _FIELD.finditer(_PARAMETERS.sub("", url))


def click(panel: Panel, column: str, row: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the uid of the dashboard that a click on a cell opens, and its chosen variables."""
    (url,) = (
        link["url"]
        for matcher, links in panel.find_properties("links")
        if matcher == {"id": "byName", "options": column}
        for link in links
    )
    return open_address(url, row)


def open_address(url: str, row: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the uid and the variables of an address that is filled in from a row."""

    def write(found: re.Match[str]) -> str:
        safe = "-_.~" if found["format"] == "percentencode" else _KEPT_IN_ADDRESSES
        return quote(row.get(found["title"], ""), safe=safe)

    filled = _FIELD.sub(write, _PARAMETERS.sub("", url))
    assert "${" not in filled, f"this is not filled in: {filled}"
    address = urlsplit(filled)
    chosen = dict(parse_qsl(address.query))
    return address.path.removeprefix("/d/"), {
        name.removeprefix("var-"): value for name, value in chosen.items()
    }
