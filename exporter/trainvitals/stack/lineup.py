"""Which programs the stack has on this machine, and how each is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.notify import Links
from trainvitals.stack.configuration import name_machine, write_prometheus_config
from trainvitals.stack.debian import find_web_assets
from trainvitals.stack.destinations import (
    Alertmanager,
    find_amtool,
    remember_destinations,
    write_alertmanager_config,
)
from trainvitals.stack.grafana import HOW_TO_GET, keep_admin_password
from trainvitals.stack.programs import Program, find_host, join_address
from trainvitals.stack.settings import Settings
from trainvitals.stack.shipped import find_shipped
from trainvitals.stack.templatepath import prefix_command

Report = Callable[[str], None]

_MEMORY_LIMIT = "ACCELERATOR_MEMORY_LIMIT"
_PROMETHEUS = "TRAINVITALS_PROMETHEUS_URL"
_RETENTION_TIME, _RETENTION_SIZE = "15d", "8GB"
# What repeat_interval may be at most: a shorter memory of what was sent repeats it earlier.
_NOTIFICATIONS_KEPT = "120h"
_EVERYWHERE = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 - nothing is bound
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Supply:
    """Where the stack's programs and files come from.

    Attributes:
        find: Gives the path of a program by its name, or raises StackError.
        shipped: Gives the path of a shipped file or directory, or raises StackError.
        report: Told what is missing, and why.
    """

    find: Callable[[str], Path]
    shipped: Callable[[str], Path] = find_shipped
    report: Report = lambda _: None


def plan_programs(settings: Settings, supply: Supply) -> tuple[Program, ...]:
    """List the programs that this machine can run: without a Prometheus, the exporter alone.

    Their configuration is written on the way.

    Raises:
        StackError: The configuration cannot be written, or a shipped file is missing.
    """
    try:
        prometheus = supply.find("prometheus")
    except StackError as error:
        supply.report(f"no Prometheus: {error}")
        return (_plan_exporter(settings),)
    exporter = _plan_exporter(settings, prometheus=_nameless(settings, "prometheus"))
    grafana = _plan_grafana(settings, supply)
    alertmanager = _plan_alertmanager(settings, supply, has_grafana=grafana is not None)
    scraped = {"trainvitals": exporter, "prometheus": _nameless(settings, "prometheus")}
    if alertmanager:
        scraped["alertmanager"] = alertmanager
    config = write_prometheus_config(
        settings.state_dir / "config/prometheus",
        shipped=supply.shipped("prometheus"),
        addresses={job: join_address(each.host, each.port) for job, each in scraped.items()},
        machine=name_machine(settings.variables),
    )
    planned = (exporter, _plan_prometheus(settings, prometheus, config), alertmanager, grafana)
    return tuple(program for program in planned if program is not None)


def expected_programs(settings: Settings) -> tuple[Program, ...]:
    """List what would run with these settings, for showing it while nothing runs."""
    others = (_nameless(settings, name) for name in ("prometheus", "alertmanager"))
    return (_plan_exporter(settings), *others)


def _nameless(settings: Settings, name: str) -> Program:
    """Give a program of which only its address is known yet."""
    port, path = {
        "prometheus": (settings.prometheus_port, "/-/ready"),
        "alertmanager": (settings.alertmanager_port, "/-/ready"),
    }[name]
    return Program(name, (), port, path, find_host(settings.bind_address))


def _plan_exporter(settings: Settings, prometheus: Program | None = None) -> Program:
    port = settings.exporter_port
    # It reads this in its environment, where what stands in `.env` alone does not get by itself.
    limit = settings.variables.get(_MEMORY_LIMIT)
    environment = {_MEMORY_LIMIT: limit} if limit else {}
    if prometheus is not None:
        address = f"http://{join_address(prometheus.host, prometheus.port)}"
        environment[_PROMETHEUS] = settings.variables.get(_PROMETHEUS) or address
    return Program(
        "exporter",
        (*settings.exporter_command, f"--web.listen-address={_listen(settings, port)}"),
        port,
        "/-/healthy",
        find_host(settings.bind_address),
        environment,
    )


def _plan_prometheus(settings: Settings, prometheus: Path, config: Path) -> Program:
    assets, given = find_web_assets(prometheus), settings.variables
    port = settings.prometheus_port
    command = (
        str(prometheus),
        f"--config.file={config}",
        f"--storage.tsdb.path={settings.state_dir / 'prometheus'}",
        f"--storage.tsdb.retention.time={given.get('PROMETHEUS_RETENTION_TIME', _RETENTION_TIME)}",
        f"--storage.tsdb.retention.size={given.get('PROMETHEUS_RETENTION_SIZE', _RETENTION_SIZE)}",
        f"--web.listen-address={_listen(settings, port)}",
        f"--web.external-url={given.get('PROMETHEUS_EXTERNAL_URL') or own_url(settings, port)}",
        *((f"--web.local-assets={assets}",) if assets else ()),
    )
    return Program("prometheus", command, port, "/-/ready", find_host(settings.bind_address))


def _plan_alertmanager(settings: Settings, supply: Supply, *, has_grafana: bool) -> Program | None:
    try:
        alertmanager = _find_alertmanager(settings, supply)
    except StackError as error:
        supply.report(f"no Alertmanager, so alerts reach nobody: {error}")
        remember_destinations(settings.state_dir, ("nobody: there is no Alertmanager here",))
        return None
    config = write_alertmanager_config(
        settings,
        alertmanager,
        shipped=supply.shipped("alertmanager"),
        links=find_links(settings, has_grafana=has_grafana),
        report=supply.report,
    )
    port = settings.alertmanager_port
    url = settings.variables.get("ALERTMANAGER_EXTERNAL_URL") or own_url(settings, port)
    command = (
        *alertmanager.prefix,
        str(alertmanager.path),
        f"--config.file={config}",
        f"--storage.path={settings.state_dir / 'alertmanager-data'}",
        f"--data.retention={_NOTIFICATIONS_KEPT}",
        f"--web.listen-address={_listen(settings, port)}",
        f"--web.external-url={url}",
        "--cluster.listen-address=",
    )
    return Program("alertmanager", command, port, "/-/ready", find_host(settings.bind_address))


def find_links(settings: Settings, *, has_grafana: bool) -> Links:
    """Tell where the links in messages lead unless a variable says otherwise."""
    return Links(
        grafana_url=own_url(settings, settings.grafana_port) if has_grafana else None,
        runbook_url=f"{own_url(settings, settings.exporter_port)}/runbooks",
    )


def _find_alertmanager(settings: Settings, supply: Supply) -> Alertmanager:
    program = supply.find("prometheus-alertmanager")
    return Alertmanager(
        program,
        prefix_command(program, settings.state_dir / "config/usr-share"),
        find_amtool(supply.find),
    )


def _plan_grafana(settings: Settings, supply: Supply) -> Program | None:
    program = _find_grafana(supply.find)
    if program is None:
        supply.report(HOW_TO_GET)
        return None
    server, words = program
    data, port = settings.state_dir / "grafana", settings.grafana_port
    boards = supply.shipped("grafana/dashboards")
    password = keep_admin_password(settings.state_dir, settings.variables, report=supply.report)
    host = find_host(settings.bind_address)
    return Program(
        "grafana",
        (str(server), *words, *_homepath(server)),
        port,
        "/api/health",
        host,
        {
            "GF_PATHS_DATA": str(data),
            "GF_PATHS_LOGS": str(data / "log"),
            "GF_PATHS_PLUGINS": str(data / "plugins"),
            "GF_PATHS_PROVISIONING": str(supply.shipped("grafana/provisioning")),
            "GF_LOG_MODE": "console",
            "GF_SERVER_HTTP_ADDR": settings.bind_address,
            "GF_SERVER_HTTP_PORT": str(port),
            "GF_SERVER_ROOT_URL": settings.variables.get("GRAFANA_URL") or own_url(settings, port),
            # Only the image's start script knows variables that end in __FILE.
            "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{password}}}",
            "GF_AUTH_ANONYMOUS_ENABLED": "false",
            "GF_USERS_ALLOW_SIGN_UP": "false",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
            "GF_NEWS_NEWS_FEED_ENABLED": "false",
            "GF_PLUGINS_PREINSTALL_AUTO_UPDATE": "false",
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(boards / "trainvitals-fleet.json"),
            "DASHBOARDS_PATH": str(boards),
            "PROMETHEUS_URL": f"http://{join_address(host, settings.prometheus_port)}",
            "ALERTMANAGER_URL": f"http://{join_address(host, settings.alertmanager_port)}",
        },
    )


def _find_grafana(find: Callable[[str], Path]) -> tuple[Path, tuple[str, ...]] | None:
    try:
        return find("grafana-server"), ()
    except StackError:
        pass
    try:
        return find("grafana"), ("server",)  # newer releases
    except StackError:
        return None


def _homepath(server: Path) -> tuple[str, ...]:
    places = (server.resolve().parent.parent, Path("/usr/share/grafana"))
    home = next((place for place in places if (place / "conf/defaults.ini").is_file()), None)
    return (f"--homepath={home}",) if home else ()


def _listen(settings: Settings, port: int) -> str:
    return join_address(settings.bind_address, port)


def own_url(settings: Settings, port: int) -> str:
    """Give the address that a link in a message has."""
    address = settings.bind_address
    if address in _EVERYWHERE:
        return f"http://{name_machine(settings.variables)}:{port}"
    return f"http://{join_address('localhost' if address in _LOOPBACK else address, port)}"
