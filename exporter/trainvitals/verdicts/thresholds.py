"""The thresholds of the alerts, read from the file that the alert rules use.

`prometheus/rules/thresholds.yml` records each threshold as `threshold:NAME` with the expression
`vector(NUMBER)`. Prometheus and this package read the same file, so an edit changes the thresholds
of both. The file in force is the first of the following files that exists:

1. the file that `--thresholds.file` or `TRAINVITALS_THRESHOLDS_FILE` names
2. the stack's file, which `trainvitals up` keeps in its state directory
3. the file that was installed with this package, or the file in the checkout
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from trainvitals.errors import ConfigurationError
from trainvitals.shipped import find_shipped
from trainvitals.yamlfile import load_yaml

VARIABLE = "TRAINVITALS_THRESHOLDS_FILE"

Thresholds = Mapping[str, float]

_NAME = "prometheus/rules/thresholds.yml"
_PREFIX = "threshold:"
_CONSTANT = re.compile(r"vector\(\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*\)")


def find_thresholds(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the thresholds file in force, as defined in the module's description.

    Args:
        environ: The environment variables of the process.

    Raises:
        StackError: No file is in force, because the package was installed without a thresholds
            file.
    """
    named = environ.get(VARIABLE)
    if named:
        return Path(named)
    edited = _locate_state(environ) / "config" / _NAME
    return edited if edited.is_file() else find_shipped(_NAME)


def read_thresholds(path: Path | None = None) -> Thresholds:
    """Return the thresholds by name without `threshold:`, such as `high_memory_usage:ratio`.

    A threshold that the file does not contain has the value from the shipped file.

    Args:
        path: The path of the thresholds file; None for the file in force.

    Raises:
        StackError: The package was installed without the shipped thresholds file.
        ConfigurationError: The file cannot be read, is not YAML, or an expression is not
            `vector(NUMBER)`.
    """
    chosen = find_thresholds() if path is None else path
    shipped = find_shipped(_NAME)
    defaults = {} if _is_same(chosen, shipped) else dict(_read(shipped))
    return MappingProxyType({**defaults, **dict(_read(chosen))})


class ThresholdsFile:
    """A thresholds file that is read again after each change.

    Args:
        path: The path of the thresholds file; None for the file that is in force at the first
            reading.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._kept: Thresholds | None = None
        self._trouble = ""

    def latest(self) -> tuple[Thresholds, str]:
        """Return the thresholds, and the reason why they may differ from the file's content.

        The reason is an empty string if the thresholds are those in the file.

        As in Prometheus, the previous thresholds remain in force if the file cannot be read; if the
        first reading fails, the shipped thresholds apply.

        Raises:
            StackError: The package was installed without the shipped thresholds file.
        """
        path = self._path = self._path or find_thresholds()
        stamp = _stamp(path)
        if self._kept is not None and stamp == self._stamp and stamp is not None:
            return self._kept, self._trouble
        self._stamp = stamp
        try:
            self._kept, self._trouble = read_thresholds(path), ""
        except ConfigurationError as error:
            self._kept = self._kept or read_thresholds(find_thresholds({}))
            self._trouble = str(error)
        return self._kept, self._trouble


def _locate_state(environ: Mapping[str, str]) -> Path:
    base = Path(environ.get("XDG_STATE_HOME", ""))
    home = Path(environ.get("HOME", "/")) / ".local/state"
    return (base if base.is_absolute() else home) / "trainvitals"


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _read(path: Path) -> Iterator[tuple[str, float]]:
    for rule in _list_rules(path):
        name, expression = str(rule.get("record")), str(rule.get("expr"))
        constant = _CONSTANT.fullmatch(expression.strip())
        if not name.startswith(_PREFIX) or constant is None:
            raise ConfigurationError(
                f"{path}: {name}: {expression} is no threshold; write `record: {_PREFIX}NAME` and "
                "`expr: vector(NUMBER)`"
            )
        yield name.removeprefix(_PREFIX), float(constant[1])


def _list_rules(path: Path) -> list[dict[str, object]]:
    content = load_yaml(path, flag=VARIABLE)
    groups = content.get("groups") if isinstance(content, dict) else None
    rules: list[object] = []
    for group in groups if isinstance(groups, list) else ():
        found = group.get("rules") if isinstance(group, dict) else None
        rules += found if isinstance(found, list) else ()
    if not rules or not all(isinstance(rule, dict) for rule in rules):
        raise ConfigurationError(f"{path}: it has no rules; copy the shipped {_NAME}")
    return cast("list[dict[str, object]]", rules)
