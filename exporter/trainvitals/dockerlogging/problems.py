"""What is wrong with the settings of a daemon: by rules of our own.

`dockerd --validate` finds the misspelt, but calls a setting fine with which no container starts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trainvitals.dockerlogging.flags import Flag
from trainvitals.dockerlogging.keys import (
    DRIVERS,
    JSON_FILE_LOG_OPTIONS,
    KEYS,
    KINDS,
    LOCAL_LOG_OPTIONS,
    Kind,
)
from trainvitals.dockerlogging.sizes import read_size
from trainvitals.dockerlogging.wanted import JSON_FILE

Effect = Literal["daemon", "containers", "logs", "note"]

EFFECTS: Mapping[Effect, str] = {
    "daemon": "dockerd does not start",
    "containers": "no new container starts",
    "logs": "logs or containers are lost, or the disk fills up",
    "note": "to know",
}
# Go's, which Docker reads such a string with.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_LEAST_FILES = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        place: The option, as `log-opts.max-size`; empty for the whole file.
        text: What is wrong with it and what to do.
        effect: What comes of it.
    """

    place: str
    text: str
    effect: Effect

    @property
    def is_fatal(self) -> bool:
        """Whether the daemon or new containers do not start with it."""
        return self.effect in {"daemon", "containers"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides besides the file.

    Attributes:
        flags: What dockerd is given on its command line.
        plugins: The log drivers that the engine has; empty where it was not asked.
        is_in_swarm: Whether the engine is a node of a swarm.
    """

    flags: tuple[Flag, ...] = ()
    plugins: frozenset[str] = frozenset()
    is_in_swarm: bool = False


def find_problems(
    options: Mapping[str, object], around: Surroundings = Surroundings()
) -> tuple[Problem, ...]:
    """Look for what is wrong with the options of a `daemon.json`.

    Args:
        options: Its members.
        around: What decides besides them.

    Returns:
        The problems, those first that keep the daemon or containers from starting.
    """
    found = [
        *_judge_keys(options),
        *_judge_flags(options, around.flags),
        *_judge_driver(options, around),
        *_judge_live_restore(options, around),
    ]
    order: list[Effect] = list(EFFECTS)
    return tuple(sorted(found, key=lambda problem: order.index(problem.effect)))


def _judge_keys(options: Mapping[str, object]) -> Iterator[Problem]:
    for key, value in options.items():
        kind = KINDS.get(key)
        if key not in KEYS:
            yield _judge_unknown(key)
        elif kind and not _is_a(kind, value):
            yield Problem(key, f"must be {kind}, not {_name(value)}", "daemon")


def _judge_unknown(key: str) -> Problem:
    if near := _find_near(key, KEYS):
        return Problem(key, f"there is no such option: is {near} meant?", "daemon")
    return Problem(
        key, "Docker 29 has no such option, and does not start with one that it lacks", "note"
    )


def _find_near(name: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=1, cutoff=0.75)
    return near[0] if near else None


def _is_a(kind: Kind, value: object) -> bool:
    match kind:
        case "true or false":
            return isinstance(value, bool)
        case "a string":
            return isinstance(value, str)
        case "a whole number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "a list":
            return isinstance(value, list)
        case "an object":
            return isinstance(value, dict)


def _name(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "an object"
    return "null"


def _judge_flags(options: Mapping[str, object], flags: tuple[Flag, ...]) -> Iterator[Problem]:
    for flag in flags:
        # Runtimes alone may come from both.
        if flag.key in options and flag.key != "runtimes":
            yield Problem(
                flag.key,
                f"it is given to dockerd as {flag.word} in {flag.where} too: take one of them out",
                "daemon",
            )


def _judge_driver(options: Mapping[str, object], around: Surroundings) -> Iterator[Problem]:
    driver = options.get("log-driver") or JSON_FILE
    if not isinstance(driver, str):  # told already
        driver = JSON_FILE
    log_options = options.get("log-opts")
    given = log_options if isinstance(log_options, dict) else {}
    for name, value in given.items():
        if not isinstance(value, str):
            yield Problem(f"log-opts.{name}", f'must be a string: write "{_bare(value)}"', "daemon")
    if driver in {JSON_FILE, "local"}:
        known = JSON_FILE_LOG_OPTIONS if driver == JSON_FILE else LOCAL_LOG_OPTIONS
        yield from _judge_option_names(given, driver, known)
        strings = {name: value for name, value in given.items() if isinstance(value, str)}
        yield from _judge_rotation(strings, driver, set(given), around)
    elif driver == "none":
        yield Problem("log-driver", "none keeps no log: `docker logs` has nothing to show", "logs")
    elif driver not in DRIVERS | around.plugins:
        near = _find_near(driver, DRIVERS)
        yield Problem(
            "log-driver",
            f"Docker has no driver {driver}: "
            + (f"is {near} meant?" if near else "is its plugin installed?"),
            "containers",
        )


def _bare(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _judge_option_names(
    given: Mapping[str, object], driver: str, known: frozenset[str]
) -> Iterator[Problem]:
    for name in given:
        if name not in known:
            near = _find_near(name, known)
            yield Problem(
                f"log-opts.{name}",
                f"the driver {driver} has no such option" + (f": is {near} meant?" if near else ""),
                "daemon",
            )


def _judge_rotation(
    given: Mapping[str, str], driver: str, named: set[str], around: Surroundings
) -> Iterator[Problem]:
    size, files, compress = given.get("max-size"), given.get("max-file"), given.get("compress")
    if size is not None and read_size(size) is None:
        yield Problem("log-opts.max-size", f"{size!r} is no size: write one as 100m", "containers")
    count = int(files) if files is not None and files.isascii() and files.isdigit() else None
    if files is not None and not count:
        yield Problem(
            "log-opts.max-file", f"{files!r} is no number of files from 1 on", "containers"
        )
    if compress is not None and compress not in _TRUE | _FALSE:
        yield Problem("log-opts.compress", f"{compress!r}: write true or false", "containers")
    if driver != JSON_FILE:
        return  # it rotates and compresses by itself
    rotates = "max-size" in named
    if compress in _TRUE and (not rotates or (count or 1) < _LEAST_FILES):
        yield Problem(
            "log-opts.compress", "it needs max-size, and max-file of 2 at least", "containers"
        )
    if not rotates and not any(flag.key == "log-opts" for flag in around.flags):
        begins = (
            "max-file alone never rotates" if files else "json-file without max-size never rotates"
        )
        yield Problem("log-opts", f"{begins}: a log grows until the disk is full", "logs")


def _judge_live_restore(options: Mapping[str, object], around: Surroundings) -> Iterator[Problem]:
    value = options.get("live-restore", False)
    if around.is_in_swarm:
        if value is True:
            yield Problem("live-restore", "a node of a swarm cannot have it", "daemon")
    elif value is False and not any(flag.key == "live-restore" for flag in around.flags):
        yield Problem("live-restore", "it is off: containers end when dockerd does", "logs")
