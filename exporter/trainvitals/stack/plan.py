"""Plans the native stack's programs and their command lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainvitals.alerting.configuration import Links
from trainvitals.errors import StackError
from trainvitals.http.host_names import VARIABLE as ALLOWED_HOST_VARIABLE
from trainvitals.http.host_names import is_loopback_name
from trainvitals.http.listen import Address
from trainvitals.shipped import find_shipped
from trainvitals.sources.accelerators.limits import (
    MEMORY_LIMIT_VARIABLE,
    TEMPERATURE_LIMIT_VARIABLE,
)
from trainvitals.sources.external_program import read_version
from trainvitals.sources.prometheus_address import (
    LOGIN_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
    URL_VARIABLE,
)
from trainvitals.sources.runs.baselines import VARIABLE as BASELINES_VARIABLE
from trainvitals.sources.runs.owners import VARIABLE as USERS_VARIABLE
from trainvitals.stack.configuration import (
    Retention,
    configures_retention,
    ensure_admin_password,
    find_amtool,
    has_our_retention,
    name_machine,
    read_retention,
    save_destinations,
    write_alertmanager_config,
    write_prometheus_config,
)
from trainvitals.stack.debian import find_web_assets, prefix_command
from trainvitals.stack.grafana import plan_grafana
from trainvitals.stack.programs import EVERYWHERE, Program, find_host
from trainvitals.stack.settings import Settings
from trainvitals.verdicts.thresholds import VARIABLE as THRESHOLDS_VARIABLE

Report = Callable[[str], None]

# Variables, not flags: a URL may contain a password, and all users can read command lines.
_PASSED_ON = (
    ALLOWED_HOST_VARIABLE,
    USERS_VARIABLE,
    MEMORY_LIMIT_VARIABLE,
    TEMPERATURE_LIMIT_VARIABLE,
    BASELINES_VARIABLE,
    THRESHOLDS_VARIABLE,
    URL_VARIABLE,
    LOGIN_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
)
# The longest repeat_interval in the routes. With a shorter retention, Alertmanager would repeat
# notifications too early.
_NOTIFICATIONS_KEPT = "120h"


@dataclass(frozen=True, slots=True)
class Supply:
    """The sources of the stack's programs and files.

    Attributes:
        find: Returns the path of a program, or raises StackError.
        shipped: Returns the path of a shipped file or directory, or raises StackError.
        report: Called with one line for each missing program.
    """

    find: Callable[[str], Path]
    shipped: Callable[[str], Path] = find_shipped
    report: Report = lambda _: None


def plan_programs(settings: Settings, supply: Supply) -> tuple[Program, ...]:
    """Return the programs that this machine can run: only the exporter if Prometheus is missing.

    This function also writes the programs' configuration.

    Raises:
        StackError: The configuration cannot be written, or a shipped file is missing.
    """
    try:
        prometheus = supply.find("prometheus")
    except StackError as error:
        supply.report(f"no Prometheus: {error}")
        return (_plan_exporter(settings),)
    exporter = _plan_exporter(settings, prometheus=_locate(settings, "prometheus"))
    grafana = _plan_grafana(settings, supply)
    alertmanager = _plan_alertmanager(settings, supply, has_grafana=grafana is not None)
    scraped = {"trainvitals": exporter, "prometheus": _locate(settings, "prometheus")}
    if alertmanager:
        scraped["alertmanager"] = alertmanager
    retention = read_retention(settings.variables)
    config = write_prometheus_config(
        settings.state_dir / "config/prometheus",
        shipped=supply.shipped("prometheus"),
        addresses={job: str(Address(each.host, each.port)) for job, each in scraped.items()},
        machine=name_machine(settings.variables),
        retention=retention if configures_retention(read_version(prometheus)) else None,
    )
    server = _plan_prometheus(settings, prometheus, config, retention)
    planned = (exporter, server, alertmanager, grafana)
    return tuple(program for program in planned if program is not None)


def expected_programs(settings: Settings) -> tuple[Program, ...]:
    """Return the programs except Grafana that would be started, for a stopped stack's status."""
    others = (_locate(settings, name) for name in ("prometheus", "alertmanager"))
    return (_plan_exporter(settings), *others)


def _locate(settings: Settings, name: str) -> Program:
    """Return a program entry that contains a name and an address, but no command."""
    port, path = {
        "prometheus": (settings.prometheus_port, "/-/ready"),
        "alertmanager": (settings.alertmanager_port, "/-/ready"),
    }[name]
    return Program(name, (), port, path, find_host(settings.bind_address))


def _plan_exporter(settings: Settings, prometheus: Program | None = None) -> Program:
    port = settings.exporter_port
    # The exporter does not read `.env`.
    environment = {name: value for name in _PASSED_ON if (value := settings.variables.get(name))}
    flags = [f"--web.listen-address={_listen(settings, port)}"]
    if prometheus is not None and URL_VARIABLE not in environment:
        address = f"http://{Address(prometheus.host, prometheus.port)}"
        flags.append(f"--web.prometheus={address}")
        if THRESHOLDS_VARIABLE not in environment:
            rules = settings.state_dir / "config/prometheus/rules"
            flags.append(f"--thresholds.file={rules / 'thresholds.yml'}")
    return Program(
        "exporter",
        (*settings.exporter_command, *flags),
        port,
        "/-/healthy",
        find_host(settings.bind_address),
        environment,
    )


def _plan_prometheus(
    settings: Settings, prometheus: Path, config: Path, retention: Retention
) -> Program:
    assets, given = find_web_assets(prometheus), settings.variables
    port = settings.prometheus_port
    command = (
        str(prometheus),
        f"--config.file={config}",
        f"--storage.tsdb.path={settings.state_dir / 'prometheus'}",
        # Without these flags, a user's own file would lead to a retention of 15 days and no size
        # limit.
        *(() if has_our_retention(config) else retention.flags),
        f"--web.listen-address={_listen(settings, port)}",
        f"--web.external-url={given.get('PROMETHEUS_EXTERNAL_URL') or own_url(settings, port)}",
        *((f"--web.local-assets={assets}",) if assets else ()),
    )
    return Program("prometheus", command, port, "/-/ready", find_host(settings.bind_address))


def _plan_alertmanager(settings: Settings, supply: Supply, *, has_grafana: bool) -> Program | None:
    try:
        program = supply.find("prometheus-alertmanager")
        prefix = prefix_command(program, settings.state_dir / "config/usr-share")
    except StackError as error:
        supply.report(f"no Alertmanager, so alerts reach no one: {error}")
        save_destinations(settings.state_dir, ("no one, as there is no Alertmanager",))
        return None
    rendered = write_alertmanager_config(
        settings,
        shipped=supply.shipped("alertmanager"),
        links=find_links(settings, has_grafana=has_grafana),
        version=read_version(program),
        amtool=find_amtool(supply.find),
        report=supply.report,
    )
    save_destinations(settings.state_dir, rendered.destinations.describe())
    port = settings.alertmanager_port
    url = settings.variables.get("ALERTMANAGER_EXTERNAL_URL") or own_url(settings, port)
    command = (
        *prefix,
        str(program),
        f"--config.file={rendered.path}",
        f"--storage.path={settings.state_dir / 'alertmanager-data'}",
        f"--data.retention={_NOTIFICATIONS_KEPT}",
        f"--web.listen-address={_listen(settings, port)}",
        f"--web.external-url={url}",
        "--cluster.listen-address=",
    )
    return Program("alertmanager", command, port, "/-/ready", find_host(settings.bind_address))


def find_links(settings: Settings, *, has_grafana: bool) -> Links:
    """Return the default links in notifications, which variables can override."""
    return Links(
        grafana_url=own_url(settings, settings.grafana_port) if has_grafana else None,
        runbook_url=f"{own_url(settings, settings.exporter_port)}/runbooks",
    )


def _plan_grafana(settings: Settings, supply: Supply) -> Program | None:
    try:
        server = supply.find("grafana")
    except StackError as error:
        live_page = own_url(settings, settings.exporter_port)
        supply.report(f"no Grafana, so no boards: {error}; the live page is at {live_page}")
        return None
    return plan_grafana(
        settings,
        server,
        boards=supply.shipped("grafana/dashboards"),
        provisioning=supply.shipped("grafana/provisioning"),
        password=ensure_admin_password(
            settings.state_dir, settings.variables, report=supply.report
        ),
        root_url=settings.variables.get("GRAFANA_URL") or own_url(settings, settings.grafana_port),
    )


def _listen(settings: Settings, port: int) -> str:
    return str(Address(settings.bind_address, port))


def own_url(settings: Settings, port: int) -> str:
    """Return the URL of the program on a port, for links in notifications."""
    address = settings.bind_address
    if address in EVERYWHERE:
        return f"http://{name_machine(settings.variables)}:{port}"
    return f"http://{Address('localhost' if is_loopback_name(address) else address, port)}"
