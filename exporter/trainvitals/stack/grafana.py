"""Plans the start of Grafana, and checks that Grafana's version supports the dashboards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from trainvitals.http.listen import Address
from trainvitals.sources.external_program import Version, parse_version
from trainvitals.sources.http_client import fetch_page
from trainvitals.stack.packages import GRAFANA
from trainvitals.stack.programs import Program, find_host
from trainvitals.stack.settings import Settings

HEALTH = "/api/health"

# From 13.1, Grafana's own package stores the data source plug-ins outside its home directory.
_BUNDLED_PLUGINS = Path("/var/lib/grafana/plugins-bundled")


def plan_grafana(
    settings: Settings,
    server: Path,
    *,
    boards: Path,
    provisioning: Path,
    password: Path,
    root_url: str,
    bundled_plugins: Path = _BUNDLED_PLUGINS,
) -> Program:
    """Return the program entry that starts Grafana.

    Args:
        settings: The stack's ports and directories.
        server: The path of `grafana`, or of `grafana-server` in older releases.
        boards: The directory of the dashboards.
        provisioning: The directory of Grafana's provisioning files.
        password: The file with the password of the user `admin`.
        root_url: The URL at which users open Grafana.
        bundled_plugins: The directory in which a Grafana package may store data source plug-ins.
    """
    data, port = settings.state_dir / "grafana", settings.grafana_port
    host = find_host(settings.bind_address)
    home = _find_home(server)
    environment = {
        "GF_PATHS_DATA": str(data),
        "GF_PATHS_LOGS": str(data / "log"),
        "GF_PATHS_PLUGINS": str(data / "plugins"),
        "GF_PATHS_PROVISIONING": str(provisioning),
        "GF_LOG_MODE": "console",
        "GF_SERVER_HTTP_ADDR": settings.bind_address,
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_SERVER_ROOT_URL": root_url,
        # Only the start script of the image supports variables whose names end in __FILE.
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
        "PROMETHEUS_URL": f"http://{Address(host, settings.prometheus_port)}",
        "ALERTMANAGER_URL": f"http://{Address(host, settings.alertmanager_port)}",
    }
    if home and bundled_plugins.is_dir() and not (home / "data/plugins-bundled").exists():
        environment["GF_PATHS_BUNDLED_PLUGINS"] = str(bundled_plugins)
    words = ("server",) if server.name == "grafana" else ()
    homepath = (f"--homepath={home}",) if home else ()
    return Program("grafana", (str(server), *words, *homepath), port, HEALTH, host, environment)


def _find_home(server: Path) -> Path | None:
    places = (server.resolve().parent.parent, Path("/usr/share/grafana"))
    return next((place for place in places if (place / "conf/defaults.ini").is_file()), None)


def explain_version(program: Program) -> str | None:
    """Return a warning if a running Grafana is too old for the dashboards; otherwise None.

    Args:
        program: The program entry of a Grafana that is ready. A Grafana that does not report its
            version causes no warning.
    """
    version, least = _ask_version(program), GRAFANA.oldest
    if version is None or least is None or version >= least:
        return None
    found, needed = (".".join(map(str, each)) for each in (version, least))
    return (
        f"the boards do not work in Grafana {found} at {program.address}: install {needed} or newer, "
        "or name its image with GRAFANA_IMAGE"
    )


def _ask_version(program: Program) -> Version | None:
    page = fetch_page(program.port, HEALTH, host=program.host)
    try:
        health = json.loads(page or b"")
    except (ValueError, RecursionError):
        return None
    told = health.get("version") if isinstance(health, Mapping) else None
    return parse_version(told) if isinstance(told, str) else None
