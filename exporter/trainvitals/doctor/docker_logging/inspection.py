"""Inspects a `daemon.json`, finds problems, and plans the correction of the problems."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.doctor.docker_logging.backups import Backup, read_file, replace_file
from trainvitals.doctor.docker_logging.dockerd import Running, Validation, read_engine, validate
from trainvitals.doctor.docker_logging.document import Document, read_document
from trainvitals.doctor.docker_logging.flags import DEFAULT_FILE, find_flags
from trainvitals.doctor.docker_logging.plan import LogSettings, Plan, make_plan
from trainvitals.doctor.docker_logging.problems import Daemon, Problem, find_problems
from trainvitals.errors import ConfigurationError
from trainvitals.sources.containers.address import find_engine
from trainvitals.sources.containers.engine import EngineClient, EngineError

_NOTHING_TO_WRITE = "there is nothing to write"
_TIMEOUT_SECONDS = 5.0  # a busy engine responds slowly


@dataclass(frozen=True, slots=True)
class Findings:
    """The state of a `daemon.json` and of the engine that uses it.

    Attributes:
        file: The path of the file.
        before: The content of the file; None if the file does not exist.
        syntax_error: The syntax error in the file and its position; None if the file is valid JSON.
        problems: The problems in the file.
        plan: The changes that `--apply` would make; None if the file is not valid JSON.
        validation: The result of validating the planned file with dockerd.
        running: The engine's settings; None if the engine was not queried or did not respond.
        engine_error: The reason why the engine did not respond; None if the engine responded, or if
            it was not queried.
    """

    file: Path
    before: bytes | None
    syntax_error: str | None
    problems: tuple[Problem, ...]
    plan: Plan | None
    validation: Validation
    running: Running | None
    engine_error: str | None

    @property
    def diff(self) -> str:
        """The planned change as a unified diff; empty if no change is planned."""
        if self.plan is None or self.plan.text is None:
            return ""
        before = (self.before or b"").decode("utf-8-sig").splitlines()
        after = self.plan.text.splitlines()
        name = str(self.file)
        return "\n".join(difflib.unified_diff(before, after, name, f"{name} (new)", lineterm=""))

    @property
    def is_correct(self) -> bool:
        """Whether the file needs no change and the engine needs no reload."""
        wrong = any(problem.effect != "note" for problem in self.problems)
        return (
            not wrong and self.plan is not None and self.plan.text is None and not self.needs_reload
        )

    @property
    def needs_reload(self) -> bool:
        """Whether the file enables live-restore but the engine has not loaded this setting yet."""
        if self.running is None or self.plan is None or self.plan.text is not None:
            return False
        options = read_document(self.file, self.before or b"").options
        return options.get("live-restore") is True and not self.running.has_live_restore


def inspect(
    file: Path,
    wanted: LogSettings,
    *,
    engine: str | None = None,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Findings:
    """Return the findings about a `daemon.json`, and about the engine if it uses this file.

    Neither the file nor the engine is changed.

    Args:
        file: The path of the file, which need not exist.
        wanted: The settings that the file should contain.
        engine: The engine's address, or `none` to query no engine. None means this machine's engine
            if the file is the default file, and no engine otherwise.
        environ: The environment variables; only Docker's variables and `PATH` are used.
        root: The root directory of the file system that contains `/proc` and systemd's units.

    Raises:
        ConfigurationError: The file cannot be read, or the address is invalid.
    """
    before = read_file(file)
    running, engine_error = _read_engine(engine, file, environ)
    daemon = Daemon(
        flags=find_flags(file, root=root),
        plugins=running.plugins if running else frozenset(),
        is_in_swarm=running.is_in_swarm if running else _has_swarm(root),
    )
    try:
        document = read_document(file, before or b"")
    except ConfigurationError as error:
        syntax_error = f"{error}; dockerd does not start with this file"
        validation = Validation(_NOTHING_TO_WRITE)
        return Findings(file, before, syntax_error, (), None, validation, running, engine_error)
    plan = make_plan(document, wanted, daemon)
    validation = Validation(_NOTHING_TO_WRITE)
    if plan.text:
        validation = validate(plan.text.encode(), environ=environ, root=root)
    problems = (*_judge_whole(document, before), *find_problems(document.options, daemon))
    return Findings(file, before, None, problems, plan, validation, running, engine_error)


def _read_engine(
    engine: str | None, file: Path, environ: Mapping[str, str]
) -> tuple[Running | None, str | None]:
    if engine is None and file != DEFAULT_FILE:
        return None, None
    address = find_engine(engine, environ=environ, rootfs=Path("/"))
    if address is None:
        return None, None
    try:
        return read_engine(
            EngineClient(address, timeout_seconds=_TIMEOUT_SECONDS, environ=environ)
        ), None
    except EngineError as error:
        return None, str(error)


def _has_swarm(root: Path) -> bool:
    try:
        return (root / "var/lib/docker/swarm/docker-state.json").exists()
    except OSError:
        return False


def _judge_whole(document: Document, before: bytes | None) -> tuple[Problem, ...]:
    found = [
        Problem(name, "set more than once; the last value applies", "note")
        for name in document.repeated
    ]
    if document.has_mark:
        text = "begins with a byte order mark, with which Docker 20.10 does not start"
        found.insert(0, Problem("", text, "daemon"))
    if before is not None and document.is_empty:
        text = "is empty, with which Docker before 23 does not start"
        found.insert(0, Problem("", text, "daemon"))
    return tuple(found)


def apply(findings: Findings, *, time: float) -> Backup | None:
    """Replace a `daemon.json` with the planned file.

    Args:
        findings: The findings about the file.
        time: The current time in Unix seconds.

    Returns:
        The backup of the old file; None if no change was necessary.

    Raises:
        ConfigurationError: The file is invalid or cannot be written, or dockerd or new containers
            would not start with the changes.
    """
    if findings.syntax_error or findings.plan is None:
        raise ConfigurationError(f"{findings.syntax_error}; correct it first; nothing was changed")
    for problem in findings.plan.remaining:
        raise ConfigurationError(
            f"{findings.file}: {problem.place}: {problem.text}; correct it first; nothing was changed"
        )
    if findings.validation.error:
        raise ConfigurationError(
            f"dockerd would not start: {findings.validation.error}; correct "
            f"{findings.file} first; nothing was changed"
        )
    if findings.plan.text is None:
        return None
    return replace_file(findings.file, findings.plan.text.encode(), findings.before, time=time)
