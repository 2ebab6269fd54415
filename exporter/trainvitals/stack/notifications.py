"""Where alerts go: set up anew from `.env`, checked, told to a running Alertmanager, tried out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from trainvitals.errors import StackError
from trainvitals.listen import find_port_holder
from trainvitals.notify import (
    Alertmanager,
    Delivery,
    Destinations,
    Rendered,
    check_configuration,
    read_version,
    send_test_messages,
    write_configuration,
)
from trainvitals.notify.destinations import NOWHERE
from trainvitals.stack.debian import find_program
from trainvitals.stack.destinations import DIRECTORY, find_amtool, remember_destinations
from trainvitals.stack.handover import hand_over_alertmanager, is_handed_over
from trainvitals.stack.lineup import find_links
from trainvitals.stack.programs import Program, find_host, recall_programs
from trainvitals.stack.settings import Settings
from trainvitals.stack.shipped import find_shipped
from trainvitals.stack.ways import recall_way

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Notifications:
    """What became of setting notifications up.

    Attributes:
        path: The configuration that Alertmanager reads.
        destinations: Where alerts go.
        is_checked: Whether amtool has approved the configuration.
        is_loaded: Whether a running Alertmanager has read it.
        deliveries: What became of test messages; empty where none was asked for.
    """

    path: Path
    destinations: Destinations
    is_checked: bool
    is_loaded: bool
    deliveries: tuple[Delivery, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether alerts go somewhere and every test message arrived."""
        return not self.destinations.is_nowhere and all(
            delivery.is_delivered for delivery in self.deliveries
        )


def set_up_notifications(
    settings: Settings,
    *,
    report: Report,
    sends_test: bool = False,
    find: Callable[[str], Path] | None = None,
    shipped: Callable[[str], Path] = find_shipped,
) -> Notifications:
    """Write Alertmanager's configuration from the variables, and have a running one read it.

    Args:
        settings: The state directory, the ports, and the variables with the receivers.
        report: Told in one line at a time what was done and where alerts go.
        sends_test: Whether a test message goes to every channel.
        find: Gives the path of a program; None looks here, then in Debian's packages.
        shipped: Gives the path of a shipped file or directory by its name.

    Raises:
        ConfigurationError: A variable cannot be, or the configuration is refused.
        StackError: A test was asked for and Alertmanager does not run, or does not answer.
    """
    programs = {program.name: program for program in recall_programs(settings.state_dir)}
    alertmanager = Alertmanager(_find_address(settings, programs.get("alertmanager")))
    running = alertmanager.find_version()
    amtool = find_amtool(find or (lambda name: find_program(name, report=report)))
    known = read_version(amtool) if amtool else None
    is_checked = amtool is not None and (running is None or known is None or known >= running)
    rendered = write_configuration(
        settings.variables,
        settings.state_dir / DIRECTORY,
        shipped=shipped("alertmanager"),
        links=find_links(settings, has_grafana="grafana" in programs or not programs),
        version=running or known,
        report=report,
        check=lambda path: (
            check_configuration(path, amtool=amtool) if is_checked and amtool else None
        ),
    )
    if is_handed_over(settings.state_dir):
        hand_over_alertmanager(settings.state_dir, rendered.path)
    is_loaded = running is not None and _is_read(
        settings, programs.get("alertmanager"), rendered.path
    )
    if is_loaded:
        alertmanager.reload()
    if is_loaded or running is None:
        remember_destinations(settings.state_dir, rendered.destinations.describe())
    _report_outcome(
        rendered,
        report,
        is_checked=is_checked,
        reader=_describe_reader(alertmanager.url, is_there=running is not None, reads=is_loaded),
    )
    deliveries: tuple[Delivery, ...] = ()
    if sends_test:
        if running is None:
            raise StackError(
                f"nothing answers at {alertmanager.url}, so no test message was sent: "
                "start Alertmanager with `trainvitals up`"
            )
        deliveries = send_test_messages(
            alertmanager,
            rendered.destinations,
            log=_find_log(settings),
            report=lambda delivery: report(delivery.describe()),
        )
    return Notifications(rendered.path, rendered.destinations, is_checked, is_loaded, deliveries)


def _find_log(settings: Settings) -> Path | None:
    """Give Alertmanager's log; None for one in a container, whose log the engine has."""
    is_in_container = recall_way(settings.state_dir) == "compose"
    return None if is_in_container else settings.state_dir / "logs/alertmanager.log"


def _is_read(settings: Settings, program: Program | None, path: Path) -> bool:
    """Whether the running Alertmanager reads this file; one whose command is not known may."""
    if program is None and not is_handed_over(settings.state_dir):
        # It may be that of another state directory, or the system's.
        command = _read_command(settings.alertmanager_port)
        return not command or f"--config.file={path}" in command
    given = [word for word in (program.command if program else ()) if "--config.file=" in word]
    return not given or given == [f"--config.file={path}"]


def _read_command(port: int) -> list[str]:
    """Give the words of whoever listens on a port; empty where that cannot be seen."""
    holder = find_port_holder(port)
    try:
        return psutil.Process(holder[0]).cmdline() if holder else []
    except psutil.Error:
        return []


def _describe_reader(url: str, *, is_there: bool, reads: bool) -> str:
    if reads:
        return "the running Alertmanager has read it"
    if is_there:
        return f"the Alertmanager at {url} reads another file; `trainvitals up` starts one with it"
    return "`trainvitals up` starts Alertmanager with it"


def _find_address(settings: Settings, program: Program | None) -> str:
    if program is not None:
        return program.address
    port = settings.alertmanager_port
    return Program("alertmanager", (), port, "/", find_host(settings.bind_address)).address


def _report_outcome(rendered: Rendered, report: Report, *, is_checked: bool, reader: str) -> None:
    checked = "checked by amtool" if is_checked else "not checked, for want of an amtool of its age"
    report(f"{rendered.path} is {checked}; {reader}")
    if rendered.destinations.is_nowhere:
        report(f"alerts go nowhere: {NOWHERE}")
        if rendered.destinations.has_deadman:
            report(rendered.destinations.describe()[-1])
    else:
        for line in rendered.destinations.describe():
            report(line)


def format_notifications(notifications: Notifications) -> str:
    """Write it for a program: the fields of `Notifications`, `fine`, and the lines for a person."""
    return json.dumps(
        {
            "fine": notifications.fine,
            **asdict(notifications),
            "described": notifications.destinations.describe(),
        },
        default=str,
        indent=2,
    )
