"""Implements `trainvitals notify`: writes, checks, loads and tests Alertmanager's configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from trainvitals.alerting.alertmanager import Alertmanager
from trainvitals.alerting.channels import advise_variables
from trainvitals.alerting.configfile import Rendered
from trainvitals.alerting.receivers import Destinations
from trainvitals.alerting.testmessages import Delivery, send_test_messages
from trainvitals.errors import StackError
from trainvitals.http.listen import find_port_holder
from trainvitals.shipped import find_shipped
from trainvitals.sources.external_program import read_version
from trainvitals.stack.configuration import (
    find_amtool,
    save_destinations,
    write_alertmanager_config,
)
from trainvitals.stack.container_files import is_config_shared, share_alertmanager_config
from trainvitals.stack.debian import find_program
from trainvitals.stack.plan import find_links
from trainvitals.stack.programs import Program, find_host, load_programs
from trainvitals.stack.settings import Settings
from trainvitals.stack.ways import load_way

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Notifications:
    """The result of `trainvitals notify`.

    Attributes:
        path: The path of Alertmanager's configuration file.
        destinations: The destinations of alerts, for each severity and team.
        is_checked: Whether amtool checked and accepted the configuration.
        is_loaded: Whether a running Alertmanager has loaded the configuration.
        deliveries: The results of the test messages; empty if no test message was sent.
    """

    path: Path
    destinations: Destinations
    is_checked: bool
    is_loaded: bool
    deliveries: tuple[Delivery, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether alerts have a destination and every test message was delivered."""
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
    """Write Alertmanager's configuration from the variables, and reload a running Alertmanager.

    Args:
        settings: The settings, with the state directory, the ports, and the receivers' variables.
        report: Called with each line of the report about actions and destinations.
        sends_test: Whether to send a test message to every channel.
        find: Returns the path of a program; None to use installed programs and packages.
        shipped: Returns the path of a shipped file or directory.

    Raises:
        ConfigurationError: A variable is invalid, or amtool rejects the configuration.
        StackError: Test messages were requested, and Alertmanager does not run or does not respond.
    """
    programs = {program.name: program for program in load_programs(settings.state_dir)}
    started = programs.get("alertmanager")
    alertmanager = Alertmanager(_find_address(settings, started))
    running = alertmanager.find_version()
    amtool = find_amtool(find or (lambda name: find_program(name, report=report)))
    known = read_version(amtool) if amtool else None
    if running is not None and known is not None and known < running:
        amtool = None  # An older amtool may reject a valid configuration.
    rendered = write_alertmanager_config(
        settings,
        shipped=shipped("alertmanager"),
        links=find_links(settings, has_grafana="grafana" in programs or not programs),
        version=running or known,
        amtool=amtool,
        report=report,
    )
    if is_config_shared(settings.state_dir):
        share_alertmanager_config(settings.state_dir, rendered.path)
    is_loaded = running is not None and _uses_file(settings, started, rendered.path)
    if is_loaded:
        alertmanager.reload()
    if is_loaded or running is None:
        save_destinations(settings.state_dir, rendered.destinations.describe())
    checked = "checked by amtool" if amtool else "not checked, as amtool is missing or too old"
    use = _describe_use(alertmanager.url, is_running=running is not None, uses_file=is_loaded)
    report(f"{rendered.path} is {checked}; {use}")
    _report_destinations(rendered.destinations, report)
    if sends_test and running is None:
        raise StackError(
            f"no test message was sent, as no Alertmanager responds at {alertmanager.url}: start "
            "one with `trainvitals up`"
        )
    deliveries = _send_tests(alertmanager, rendered, settings, report) if sends_test else ()
    return Notifications(
        rendered.path, rendered.destinations, amtool is not None, is_loaded, deliveries
    )


def _send_tests(
    alertmanager: Alertmanager, rendered: Rendered, settings: Settings, report: Report
) -> tuple[Delivery, ...]:
    if rendered.destinations.is_nowhere:
        report("no test message was sent, as no channel is configured")
    return send_test_messages(
        alertmanager,
        rendered.destinations,
        log=_find_log(settings),
        report=lambda delivery: report(delivery.describe()),
    )


def format_notifications(notifications: Notifications) -> str:
    """Return the result as JSON: its fields, `fine`, and the lines about alert destinations."""
    return json.dumps(
        {
            "fine": notifications.fine,
            **asdict(notifications),
            "described": notifications.destinations.describe(),
        },
        default=str,
        indent=2,
    )


def _find_log(settings: Settings) -> Path | None:
    """Return the path of Alertmanager's log; None if the container engine stores the log."""
    is_in_container = load_way(settings.state_dir) == "compose"
    return None if is_in_container else settings.state_dir / "logs/alertmanager.log"


def _uses_file(settings: Settings, program: Program | None, path: Path) -> bool:
    """Return whether the running Alertmanager uses a file; True if its command is unknown."""
    if program is None and not is_config_shared(settings.state_dir):
        # The running Alertmanager may belong to another state directory or be a system service.
        command = _read_command(settings.alertmanager_port)
        return not command or f"--config.file={path}" in command
    given = [word for word in (program.command if program else ()) if "--config.file=" in word]
    return not given or given == [f"--config.file={path}"]


def _read_command(port: int) -> list[str]:
    """Return the command line of the process that listens on a port; empty if it is unknown."""
    holder = find_port_holder(port)
    try:
        return psutil.Process(holder.pid).cmdline() if holder else []
    except psutil.Error:
        return []


def _describe_use(url: str, *, is_running: bool, uses_file: bool) -> str:
    if uses_file:
        return "the running Alertmanager uses it"
    if is_running:
        return f"the Alertmanager at {url} uses another file; `trainvitals up` starts one with this file"
    return "`trainvitals up` starts an Alertmanager with it"


def _find_address(settings: Settings, program: Program | None) -> str:
    if program is not None:
        return program.address
    port = settings.alertmanager_port
    return Program("alertmanager", (), port, "/", find_host(settings.bind_address)).address


def _report_destinations(destinations: Destinations, report: Report) -> None:
    if not destinations.is_nowhere:
        for line in destinations.describe():
            report(line)
        return
    report(f"no channel is configured, so alerts reach no one: {advise_variables()} in .env")
    if destinations.has_deadman:
        report(destinations.describe_deadman())
