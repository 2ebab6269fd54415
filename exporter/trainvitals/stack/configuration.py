"""The configuration that Prometheus gets."""

from __future__ import annotations

from pathlib import Path

import yaml

from trainvitals.errors import StackError
from trainvitals.stack.settings import EXPORTER_PORT

_JOB = "trainvitals"


def find_prometheus_config(package: Path = Path(__file__).parent) -> Path:
    """Give the path of the shipped prometheus.yml.

    Args:
        package: This package's directory, installed or in a checkout.

    Raises:
        StackError: It is in neither place.
    """
    places = (package / "prometheus", package.parents[2] / "prometheus")
    for place in places:
        if (place / "prometheus.yml").is_file():
            return place / "prometheus.yml"
    raise StackError(
        f"no prometheus.yml in {places[0]} or {places[1]}: install trainvitals again, "
        "or run from a whole checkout"
    )


def choose_prometheus_config(shipped: Path, exporter_port: int, rendered: Path) -> Path:
    """Give the shipped file where it fits, else a copy that scrapes the exporter's port.

    Args:
        shipped: The shipped prometheus.yml.
        exporter_port: The port that the exporter has on 127.0.0.1.
        rendered: Where the copy is written.

    Raises:
        StackError: The shipped file cannot be read or has no job `trainvitals`.
    """
    if exporter_port == EXPORTER_PORT:
        return shipped
    try:
        config = yaml.safe_load(shipped.read_text(encoding="utf-8"))
        jobs = {job["job_name"]: job for job in config["scrape_configs"]}
        jobs[_JOB]["static_configs"] = [{"targets": [f"127.0.0.1:{exporter_port}"]}]
        # Prometheus looks for rules beside its configuration file, and the copy lies elsewhere.
        config["rule_files"] = [str(shipped.parent / path) for path in config.get("rule_files", ())]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise StackError(f"{shipped} has no job {_JOB} to change: {error!r}; restore it") from error
    rendered.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return rendered
