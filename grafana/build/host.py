"""The dashboard `Vitals / Host`: the resources that the machine lacks for its runs."""

from __future__ import annotations

from typing import Final

from grafana.build.host_clock import write_clock
from grafana.build.host_disks import write_disks
from grafana.build.host_exporter import write_exporter
from grafana.build.host_files import write_file_systems
from grafana.build.host_loaders import write_loaders
from grafana.build.host_network import write_network
from grafana.build.host_now import write_now
from grafana.build.host_use import write_cpu, write_memory
from grafana.build.layout import Board
from grafana.build.parts import HOST, JOB, ONE_HOST, OOM_KILLS, mark_alerts

# Alerts of components with a separate dashboard are shaded on that dashboard. A training alert
# without a run concerns the machine.
_OF_THE_MACHINE: Final = '@host, component!~"accelerator|container", run=""'


def build() -> Board:
    """Return the dashboard."""
    return Board(
        uid=HOST,
        title="Vitals / Host",
        question="What does the machine below the runs lack: cores, memory, disks, network, time?",
        variables=(JOB, ONE_HOST),
        annotations=(mark_alerts(_OF_THE_MACHINE), OOM_KILLS),
        rows=(
            write_now(),
            write_cpu(),
            write_memory(),
            write_disks(),
            write_file_systems(),
            write_network(),
            write_loaders(),
            write_clock(),
            write_exporter(),
        ),
    )
