"""The containers of the Compose project, as Compose lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict, cast

from trainvitals.stack.project import Project

# Compose clears a line of the terminal even where there is none.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Container:
    """One container of the stack.

    Attributes:
        service: The service that it is of.
        id: Docker's id of it.
        state: Docker's word: created, running, restarting, paused, exited, dead.
        health: `healthy`, `unhealthy`, `starting`, or empty where nobody asks.
        exit_code: Of its last end; 0 while it runs.
        ports: The ports of this machine that it has.
    """

    service: str
    id: str
    state: str
    health: str
    exit_code: int
    ports: frozenset[int]

    @property
    def condition(self) -> str:
        """One word for both: the health of what runs, else the state."""
        return self.state if self.state != "running" or self.is_healthy else self.health

    @property
    def is_healthy(self) -> bool:
        """Whether it runs and says that it can do its work."""
        return self.state == "running" and self.health in {"healthy", ""}


class _Publisher(TypedDict):
    PublishedPort: int


class _Row(TypedDict):
    Service: str
    ID: str
    State: str
    Health: str
    ExitCode: int
    Publishers: list[_Publisher] | None


def list_containers(project: Project) -> tuple[Container, ...]:
    """List the containers that there are; none where the engine does not answer."""
    told = project.docker.ask(*project.words("ps", "--all", "--format", "json"))
    if told.code:
        return ()
    return tuple(
        Container(
            service=row["Service"],
            id=row["ID"],
            state=row["State"],
            health=row.get("Health", ""),
            exit_code=row["ExitCode"],
            ports=frozenset(each["PublishedPort"] for each in row["Publishers"] or ()),
        )
        for row in _read_rows(told.output)
    )


def _read_rows(text: str) -> Iterator[_Row]:
    # Until 2.20 one list, since then an object a line.
    try:
        for line in text.splitlines():
            told = json.loads(line)
            yield from cast("list[_Row]", told if isinstance(told, list) else [told])
    except ValueError:
        return


def read_last_words(project: Project, service: str, *, lines: int = 10) -> list[str]:
    """Give the last lines that the containers of a service logged."""
    told = project.docker.ask(
        *project.words("logs", "--no-color", "--no-log-prefix", "--tail", str(lines), service)
    )
    text = _ESCAPES.sub("", told.output + told.complaint)
    return text.splitlines()[-lines:] if not told.code else []
