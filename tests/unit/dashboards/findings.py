"""What a check finds: where, what is wrong, and what to do."""

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
    """Everything that boards are compared with.

    Attributes:
        boards: The boards.
        house: The rules and metrics.
        units: The ids of Grafana's units.
        settings: Grafana's provisioning files by their path in `grafana/provisioning`.
    """

    boards: tuple[Board, ...]
    house: House
    units: frozenset[str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def panels(self) -> Iterator[tuple[Board, Panel]]:
        """Every panel with its board."""
        return ((board, panel) for board in self.boards for panel in board.panels)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong somewhere.

    Attributes:
        place: Where.
        says: What.
    """

    place: Place
    says: str


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of the lint.

    Attributes:
        id: Its name, by which `exclusions.yml` calls it.
        find: Finds its faults.
        act: What to do about one.
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
        """Write where, what, which check and what to do, on one line."""
        return f"{self.fault.place}: {self.fault.says} [{self.check.id}: {self.check.act}]"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A fault that is meant.

    Attributes:
        board: The board's title.
        rule: The id of the check.
        reason: Why it is meant.
        panel: Row and title of the panel, as `Disk > Fill by mount`; empty: of the whole board.
        query: The letter of the query; empty: all of them.
    """

    board: str
    rule: str
    reason: str
    panel: str = ""
    query: str = ""

    def covers(self, finding: Finding) -> bool:
        """Return whether a finding is meant."""
        place = finding.fault.place
        panel = " > ".join(part for part in (place.row, place.panel) if part)
        return (self.board, self.rule, self.panel) == (place.board, finding.check.id, panel) and (
            self.query in ("", place.query)
        )


def read_exclusions(path: Path) -> tuple[Exclusion, ...]:
    """Read what is meant.

    Raises:
        TypeError: An entry lacks a board, a rule or a reason, or has a key that none has.
    """
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["exclusions"] or ()
    return tuple(Exclusion(**entry) for entry in entries)
