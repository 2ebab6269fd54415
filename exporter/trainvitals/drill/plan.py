"""A drill's pipeline made of what the stack of this machine is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import yaml

from trainvitals.drill.pipeline import Plan
from trainvitals.drill.speed import Document
from trainvitals.errors import StackError
from trainvitals.notify import check_configuration, read_version, write_configuration
from trainvitals.stack.destinations import find_amtool
from trainvitals.stack.settings import Settings
from trainvitals.stack.shipped import find_shipped
from trainvitals.stack.templatepath import prefix_command
from trainvitals.stack.writing import refuse_closed_directory

SPEED = 60.0
"""What a drill divides durations by unless it is to be real."""


def make_plan(
    settings: Settings,
    directory: Path,
    *,
    speed: float,
    find: Callable[[str], Path],
    shipped: Callable[[str], Path] = find_shipped,
) -> Plan:
    """Take the rules and routes that the stack has, or would have if it were started now.

    Args:
        settings: The stack's.
        directory: An empty one, for everything that the drill writes.
        speed: What every duration is divided by.
        find: Gives the path of a program by its name, or raises StackError.
        shipped: Gives the path of a shipped file or directory, or raises StackError.

    Raises:
        StackError: A program or a file is not to be had, a rule file cannot be read, or the state
            directory is another user's.
        ConfigurationError: A variable of `.env` cannot be, or the routes are refused.
    """
    refuse_closed_directory(settings.state_dir)
    alertmanager = find("prometheus-alertmanager")
    present = settings.state_dir / "config/alertmanager/alertmanager.yml"
    if not present.exists() or settings.variables.get("ALERTMANAGER_CONFIG"):
        present = write_configuration(
            settings.variables,
            directory / "routes",
            shipped=shipped("alertmanager"),
            version=read_version(alertmanager),
        ).path
    routes = _read(present)
    # Its own message says what is wrong; where there is none, ours says where.
    if amtool := find_amtool(find):
        check_configuration(present, amtool=amtool)
    if not _has_receivers(routes):
        raise StackError(f"{present} has no list of receivers: correct it")
    return Plan(
        speed=speed,
        rules=_read_rules(settings.state_dir / "config/prometheus", shipped("prometheus")),
        routes=routes,
        prometheus=find("prometheus"),
        alertmanager=(*prefix_command(alertmanager, directory / "usr-share"), str(alertmanager)),
        directory=directory,
    )


def _read_rules(configured: Path, shipped: Path) -> dict[str, Document]:
    """Read the rules that the stack of this machine has, which may be a person's own."""
    place = configured if (configured / "rules").is_dir() else shipped
    rules = {path.name: _read(path) for path in sorted(place.glob("rules/*.yml"))}
    for name, document in rules.items():
        if not _has_rules(document):
            raise StackError(f"{place}/rules/{name} has no groups of rules: correct it")
    return rules


def _has_rules(document: object) -> bool:
    groups = document.get("groups") if isinstance(document, dict) else None
    return isinstance(groups, list) and all(
        isinstance(group, dict)
        and isinstance(group.get("rules"), list)
        and all(isinstance(rule, dict) and "expr" in rule for rule in group["rules"])
        for group in groups
    )


def _has_receivers(routes: object) -> bool:
    return isinstance(routes, dict) and isinstance(routes.get("receivers"), list)


def _read(path: Path) -> Document:
    try:
        return cast("Document", yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise StackError(f"cannot read {path}: {reason}; correct it") from error
