"""Checks of Grafana's provisioning files for data sources and dashboards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.rulebook import ROOT
from tests.unit.dashboards.boards import Place
from tests.unit.dashboards.findings import Fault, View

Faults = Iterator[Fault]

PROVISIONING = ROOT / "grafana/provisioning"
_WHERE = "grafana/provisioning"

# Grafana ignores unknown keys, so it does not report a misspelt key.
_SOURCE_KEYS = frozenset(
    {
        *("name", "type", "uid", "access", "url", "isDefault", "editable", "jsonData", "orgId"),
        *("basicAuth", "basicAuthUser", "secureJsonData", "withCredentials", "version"),
    }
)
_JSON_DATA_KEYS: Mapping[str, frozenset[str]] = {
    "prometheus": frozenset(
        {
            *("timeInterval", "queryTimeout", "httpMethod", "manageAlerts", "alertmanagerUid"),
            *("prometheusType", "prometheusVersion", "cacheLevel", "incrementalQuerying"),
            *("incrementalQueryOverlapWindow", "disableMetricsLookup", "customQueryParameters"),
            *("allowAsRecordingRulesTarget", "defaultEditor", "disableRecordingRules"),
            *("exemplarTraceIdDestinations", "seriesEndpoint", "seriesLimit"),
        }
    ),
    "alertmanager": frozenset({"implementation", "handleGrafanaManagedAlerts"}),
}
_PROVIDER_KEYS = frozenset(
    {
        *("name", "orgId", "folder", "folderUid", "type", "disableDeletion", "options"),
        *("updateIntervalSeconds", "allowUiUpdates"),
    }
)
_OPTION_KEYS = frozenset({"path", "foldersFromFilesStructure"})
# Grafana reads these folders at each start and reports an error if one is missing: `notifiers` up
# to version 10, the others in 10.4 to 13. Files with other suffixes are skipped, in `alerting` with
# a warning.
_FOLDERS = ("alerting", "dashboards", "datasources", "notifiers", "plugins")
_SUFFIXES = (".yaml", ".yml")


def read_settings(directory: Path = PROVISIONING) -> dict[str, Any]:
    """Read all provisioning files, by path."""
    paths = sorted(directory.glob("*/*"))
    return {
        str(path.relative_to(directory)): yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in paths
    }


def check_folders(view: View) -> Faults:
    """Check that each folder that Grafana reads has a file, and each file an accepted suffix."""
    folders = {name.partition("/")[0] for name in view.settings}
    for missing in sorted(set(_FOLDERS) - folders):
        yield Fault(Place(f"{_WHERE}/{missing}"), "is missing: an error at each start of Grafana")
    for name in view.settings:
        if not name.endswith(_SUFFIXES):
            yield Fault(_place(name), "has a suffix that Grafana skips")


def check_keys(view: View) -> Faults:
    """Check that Grafana knows every key."""
    for name, document in view.settings.items():
        kind = name.partition("/")[0]
        listed = {"datasources": "datasources", "dashboards": "providers"}.get(kind, "")
        yield from _find_unknown(
            name, document, {"apiVersion", "prune", "deleteDatasources", listed}
        )
        if document.get("apiVersion") != 1:
            yield Fault(_place(name), f"apiVersion is {document.get('apiVersion')}, not 1")
        for entry in document.get(listed) or ():
            yield from _check_entry(name, entry, kind)


def _check_entry(name: str, entry: Mapping[str, Any], kind: str) -> Faults:
    where = f"{name} > {entry.get('name')}"
    if kind == "dashboards":
        yield from _find_unknown(where, entry, _PROVIDER_KEYS)
        yield from _find_unknown(f"{where} > options", entry.get("options") or {}, _OPTION_KEYS)
        return
    yield from _find_unknown(where, entry, _SOURCE_KEYS)
    known = _JSON_DATA_KEYS.get(str(entry.get("type")), frozenset())
    yield from _find_unknown(f"{where} > jsonData", entry.get("jsonData") or {}, known)


def _find_unknown(where: str, document: Mapping[str, Any], known: Iterator[str] | Any) -> Faults:
    for key in document:
        if key not in known:
            yield Fault(_place(where), f"{key} is no key of Grafana's")


def _place(where: str) -> Place:
    file, _, entry = where.partition(" > ")
    return Place(f"{_WHERE}/{file}", entry)


def _list(view: View, kind: str, key: str) -> list[tuple[str, Mapping[str, Any]]]:
    files = [(name, one) for name, one in view.settings.items() if name.startswith(f"{kind}/")]
    return [(name, entry) for name, one in files for entry in one.get(key) or ()]


def check_sources(view: View) -> Faults:
    """Check the data sources: the default, the scrape interval, and references to other uids."""
    sources = _list(view, "datasources", "datasources")
    uids = [entry.get("uid") for _, entry in sources]
    if view.settings and [entry.get("type") for _, entry in sources if entry.get("isDefault")] != [
        "prometheus"
    ]:
        yield Fault(Place(f"{_WHERE}/datasources"), "the default is not Prometheus alone")
    for name, entry in sources:
        place, data = _place(f"{name} > {entry.get('name')}"), entry.get("jsonData") or {}
        if entry.get("editable") is not False or not entry.get("uid"):
            yield Fault(place, "can be edited, or has no uid of its own")
        interval = f"{view.house.scrape_interval_seconds:g}s"
        if entry.get("type") == "prometheus" and data.get("timeInterval") != interval:
            says = (
                f"timeInterval is {data.get('timeInterval')}, Prometheus scrapes every {interval}"
            )
            yield Fault(place, says)
        if data.get("alertmanagerUid") not in (*uids, None):
            yield Fault(place, f"there is no data source {data['alertmanagerUid']}")


def check_providers(view: View) -> Faults:
    """Check that one provider loads the dashboards into a fixed, read-only folder of Grafana."""
    providers = _list(view, "dashboards", "providers")
    if view.settings and len(providers) != 1:
        yield Fault(Place(f"{_WHERE}/dashboards"), f"{len(providers)} providers, not one")
    for name, entry in providers:
        place, options = _place(f"{name} > {entry.get('name')}"), entry.get("options") or {}
        if entry.get("type") != "file" or not options.get("path"):
            yield Fault(place, "does not read files of a path")
        if not entry.get("folderUid") or options.get("foldersFromFilesStructure"):
            yield Fault(place, "its folder has no uid that stays")
        if entry.get("allowUiUpdates") or not entry.get("disableDeletion"):
            yield Fault(place, "the boards can be changed or deleted in the browser")
