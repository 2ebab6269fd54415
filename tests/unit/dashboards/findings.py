"""The input and the findings of the lint: places, faults, checks and exclusions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.rulelint.house import House
from tests.unit.dashboards.boards import Board, Panel, Place


@dataclass(frozen=True, slots=True)
class View:
    """The dashboards and all data that the checks compare them with.

    Attributes:
        boards: The dashboards.
        house: The rules and metrics.
        units: The ids of Grafana's units.
        settings: Grafana's provisioning files, by path in `grafana/provisioning`.
    """

    boards: tuple[Board, ...]
    house: House
    units: frozenset[str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def panels(self) -> Iterator[tuple[Board, Panel]]:
        """Every panel with its dashboard."""
        return ((board, panel) for board in self.boards for panel in board.panels)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a dashboard.

    Attributes:
        place: The place of the fault.
        says: The description of the fault.
    """

    place: Place
    says: str


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of the lint.

    Attributes:
        id: The name of the rule, which `exclusions.yml` uses.
        find: The function that finds the faults.
        act: The advice on how to fix a fault.
    """

    id: str
    find: Callable[[View], Iterator[Fault]]
    act: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a check found.

    Attributes:
        check: The check.
        fault: The fault.
    """

    check: Check
    fault: Fault

    def __str__(self) -> str:
        """Return the place, the fault, the check and the advice on one line."""
        return f"{self.fault.place}: {self.fault.says} [{self.check.id}: {self.check.act}]"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """An intended fault.

    Attributes:
        board: The title of the dashboard.
        rule: The id of the check.
        reason: The reason for the exclusion.
        panel: Row and title of the panel, as `Disk > Fill by mount`; empty for the dashboard.
        query: The letter of the query; empty for all queries.
    """

    board: str
    rule: str
    reason: str
    panel: str = ""
    query: str = ""

    def covers(self, finding: Finding) -> bool:
        """Return whether the exclusion applies to a finding."""
        place = finding.fault.place
        panel = " > ".join(part for part in (place.row, place.panel) if part)
        return (self.board, self.rule, self.panel) == (place.board, finding.check.id, panel) and (
            self.query in ("", place.query)
        )


def read_exclusions(path: Path) -> tuple[Exclusion, ...]:
    """Read the exclusions from a file.

    Raises:
        TypeError: An entry lacks a board, a rule or a reason, or has an unknown key.
    """
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["exclusions"] or ()
    return tuple(Exclusion(**entry) for entry in entries)
