"""The names, units and numbers of the series that Grafana shows for answers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.integration.dashboards.live.grafana import Answer, Series
from tests.unit.dashboards.boards import Panel

_LABEL = re.compile(r"\{\{\s*(.+?)\s*\}\}")


@dataclass(frozen=True, slots=True)
class PanelAnswers:
    """The answers to the queries of a panel.

    Attributes:
        panel: The panel.
        answers: The answers, in the order of the queries.
    """

    panel: Panel
    answers: tuple[Answer, ...]

    @property
    def has_data(self) -> bool:
        """Whether any answer has a value."""
        return any(_count(answer) for answer in self.answers)


def group_by_panel(answers: Iterable[Answer]) -> list[PanelAnswers]:
    """Return the answers of each panel, without those of annotations."""
    groups: dict[int, list[Answer]] = {}
    for answer in answers:
        if answer.question.panel is not None:
            groups.setdefault(id(answer.question.panel), []).append(answer)
    return [
        PanelAnswers(group[0].question.panel, tuple(group))
        for group in groups.values()
        if group[0].question.panel is not None
    ]


def count_series(found: PanelAnswers) -> int:
    """Return the number of series in a panel, or of rows in a table."""
    if found.panel.kind == "table":
        return _count_rows(found)
    return sum(_count(answer) for answer in found.answers)


def name_series(answer: Answer, series: Series) -> str:
    """Return a series' text in the legend; without a format, the text has all labels."""
    legend = str(answer.question.json.get("legendFormat") or "__auto")
    if legend == "__auto":
        return ", ".join(f"{key}={value}" for key, value in sorted(series.labels.items()))
    return _LABEL.sub(lambda found: series.labels.get(found[1], ""), legend)


def find_missing_labels(answer: Answer, series: Series) -> list[str]:
    """Return the labels in the legend's format that the series does not have."""
    legend = str(answer.question.json.get("legendFormat") or "")
    return [found[1] for found in _LABEL.finditer(legend) if not series.labels.get(found[1])]


def find_unit(answer: Answer, series: Series) -> str:
    """Return the unit with which a series is shown, from an override or from the whole panel."""
    panel = answer.question.panel
    assert panel is not None
    letter = answer.question.place.query
    column = panel.renamed.get(f"Value #{letter}") or panel.renamed.get("Value")
    name = column if panel.kind == "table" and column else name_series(answer, series)
    unit = str(panel.defaults.get("unit", ""))
    for matcher, value in panel.find_properties("unit"):
        options = matcher.get("options")
        if (
            (matcher["id"] == "byName" and options == name)
            or (matcher["id"] == "byFrameRefID" and options == letter)
            or (matcher["id"] == "byRegexp" and re.search(str(options).strip("/"), name))
        ):
            unit = str(value)
    return unit


def _count(answer: Answer) -> int:
    return sum(
        any(not math.isnan(value) for _, value in series.samples) for series in answer.series
    )


def _count_rows(found: PanelAnswers) -> int:
    """Return the number of rows that `merge` makes: one for results with equal shared labels."""
    columns = [
        {label for series in answer.series for label in series.labels}
        for answer in found.answers
        if answer.series
    ]
    shared = set.intersection(*columns) if columns else set()
    rows = [
        Counter(tuple(series.labels.get(label, "") for label in shared) for series in answer.series)
        for answer in found.answers
    ]
    most: Counter[tuple[str, ...]] = Counter()
    for each in rows:
        most |= each
    return most.total()
