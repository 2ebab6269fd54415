"""Where alerts go: Alertmanager's configuration, and what it says in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.notify import Links, check_configuration, read_version, write_configuration
from trainvitals.stack.settings import Settings
from trainvitals.stack.writing import make_private, write_private

DIRECTORY = "config/alertmanager"
_REMEMBERED = "destinations.json"


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """An Alertmanager that is installed or unpacked here.

    Attributes:
        path: The program.
        prefix: What must precede its command so that it finds its template.
        amtool: Checks a configuration; None where there is none.
    """

    path: Path
    prefix: tuple[str, ...] = ()
    amtool: Path | None = None


def write_alertmanager_config(
    settings: Settings,
    alertmanager: Alertmanager,
    *,
    shipped: Path,
    links: Links,
    report: Callable[[str], None],
) -> Path:
    """Write Alertmanager's configuration below the state directory, and remember what it says.

    Args:
        settings: The state directory, and the variables with the receivers.
        alertmanager: The program that will read it.
        shipped: The shipped directory `alertmanager`.
        links: Where links in messages lead unless a variable says otherwise.
        report: Told what a person should know about it.

    Returns:
        The file that Alertmanager is to read.

    Raises:
        ConfigurationError: A variable is no address, token or key, or the result is refused.
        StackError: The directory cannot be written.
    """
    rendered = write_configuration(
        settings.variables,
        settings.state_dir / DIRECTORY,
        shipped=shipped,
        links=links,
        version=read_version(alertmanager.path),
        report=report,
        check=lambda path: _check(path, alertmanager),
    )
    remember_destinations(settings.state_dir, rendered.destinations.describe())
    return rendered.path


def _check(path: Path, alertmanager: Alertmanager) -> None:
    if alertmanager.amtool is not None:
        check_configuration(path, amtool=alertmanager.amtool)


def find_amtool(find: Callable[[str], Path]) -> Path | None:
    """Give amtool's path; None where it is not to be had, and Alertmanager alone will judge."""
    try:
        return find("amtool")
    except StackError:
        return None


def remember_destinations(state_dir: Path, lines: tuple[str, ...]) -> None:
    """Keep where alerts go, for the status.

    Raises:
        StackError: It cannot be written.
    """
    make_private(state_dir / DIRECTORY)
    write_private(state_dir / DIRECTORY / _REMEMBERED, json.dumps(lines) + "\n")


def recall_destinations(state_dir: Path) -> tuple[str, ...]:
    """Tell where alerts go, in lines for a person; empty before the first start."""
    try:
        written = json.loads((state_dir / DIRECTORY / _REMEMBERED).read_text(encoding="utf-8"))
        return tuple(str(line) for line in written)
    except (OSError, ValueError, TypeError):
        return ()
