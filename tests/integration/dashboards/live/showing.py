"""What Grafana makes of answers: the names and units of series, and how many of them there are."""

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
    """What a panel got.

    Attributes:
        panel: The panel.
        answers: Its answers, in the order of its queries.
    """

    panel: Panel
    answers: tuple[Answer, ...]

    @property
    def has_data(self) -> bool:
        """Whether there is anything to be drawn."""
        return any(_count(answer) for answer in self.answers)


def group_by_panel(answers: Iterable[Answer]) -> list[PanelAnswers]:
    """Put the answers of each panel together; annotations are left out."""
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
    """Count what a panel draws: series, or the rows of a table."""
    if found.panel.kind == "table":
        return _count_rows(found)
    return sum(_count(answer) for answer in found.answers)


def name_series(answer: Answer, series: Series) -> str:
    """Return the text of a legend; for what Grafana names by itself, the labels."""
    legend = str(answer.question.json.get("legendFormat") or "__auto")
    if legend == "__auto":
        return ", ".join(f"{key}={value}" for key, value in sorted(series.labels.items()))
    return _LABEL.sub(lambda found: series.labels.get(found[1], ""), legend)


def find_missing_labels(answer: Answer, series: Series) -> list[str]:
    """Name the labels that a legend wants and a series has not."""
    legend = str(answer.question.json.get("legendFormat") or "")
    return [found[1] for found in _LABEL.finditer(legend) if not series.labels.get(found[1])]


def find_unit(answer: Answer, series: Series) -> str:
    """Find the unit that a series is shown with: an override's, or that of the whole panel."""
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
    """Count rows as `merge` makes them: those are one whose labels in all answers are the same."""
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
