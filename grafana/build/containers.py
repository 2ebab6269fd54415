"""The containers dashboard: running containers, exits with reasons, and containers low on memory.

The dashboard shows one machine with at most 128 containers, so graphs are limited to the ten most
relevant containers. The exit reason distinguishes whether a container was killed at its own memory
limit or because the machine had run out of memory.
"""

from __future__ import annotations

from typing import Final

from grafana.build.containers_deaths import DEATHS, write_deaths
from grafana.build.containers_devices import write_accelerators
from grafana.build.containers_now import write_now
from grafana.build.containers_use import write_memory, write_use
from grafana.build.layout import Board, Variable
from grafana.build.parts import CONTAINERS, JOB, ONE_HOST, OOM_KILLS, mark_alerts

_CONTAINER: Final = Variable(
    "container",
    "Container",
    "label_values(container_info{@host}, name)",
    "Containers by name; some ended, and stay for ten minutes after they were removed",
    is_multiple=True,
)


def build() -> Board:
    """Return the dashboard."""
    return Board(
        uid=CONTAINERS,
        title="Vitals / Containers & OOM",
        question="What died, whose memory ran out, and which container is next?",
        variables=(JOB, ONE_HOST, _CONTAINER),
        annotations=(
            mark_alerts('@container, component="container"'),
            DEATHS,
            OOM_KILLS,
        ),
        rows=(
            write_now(),
            write_deaths(),
            write_memory(),
            write_accelerators(),
            write_use(),
        ),
    )
