"""What a `daemon.json` does now, what is wrong with it, and what would make it right."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.dockerlogging.checking import Check, check_file
from trainvitals.dockerlogging.document import Document, read_document
from trainvitals.dockerlogging.flags import DEFAULT_FILE, find_flags
from trainvitals.dockerlogging.placing import Backup, place, read_file
from trainvitals.dockerlogging.plan import Plan, make_plan, show_diff
from trainvitals.dockerlogging.problems import Problem, Surroundings, find_problems
from trainvitals.dockerlogging.running import Running, ask_engine
from trainvitals.dockerlogging.wanted import Wanted
from trainvitals.errors import ConfigurationError
from trainvitals.sources.containers.engine import EngineClient, EngineError, find_engine

_RULES = "there is nothing to write"
# A person would rather wait than read that a busy engine does not answer.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Findings:
    """A look at a `daemon.json` and its engine.

    Attributes:
        file: The file.
        before: What it says; None where there is none.
        broken: Why it cannot be read as JSON, with the place; None where it can.
        problems: What is wrong with it.
        plan: What `--apply` would make of it; None where it is broken.
        check: Who checked that, and what was found.
        running: What the engine says; None where it was not asked or did not answer.
        silence: Why the engine did not say anything; None where it did or was not asked.
    """

    file: Path
    before: bytes | None
    broken: str | None
    problems: tuple[Problem, ...]
    plan: Plan | None
    check: Check
    running: Running | None
    silence: str | None

    @property
    def diff(self) -> str:
        """What would change, as `diff -u` shows it; empty for nothing."""
        if self.plan is None or self.plan.text is None:
            return ""
        before = (self.before or b"").decode("utf-8-sig")
        return show_diff(self.file, before, self.plan.text)

    @property
    def is_right(self) -> bool:
        """Whether there is nothing to do."""
        wrong = any(problem.effect != "note" for problem in self.problems)
        return not wrong and self.plan is not None and self.plan.text is None and not self.waits

    @property
    def waits(self) -> bool:
        """Whether the file is right and the engine has not taken it up yet."""
        if self.running is None or self.plan is None or self.plan.text is not None:
            return False
        options = read_document(self.file, self.before or b"").options
        return options.get("live-restore") is True and not self.running.has_live_restore


def look(
    file: Path,
    wanted: Wanted,
    *,
    engine: str | None = None,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Findings:
    """Look at a `daemon.json` and, where it is that of this machine's engine, at the engine.

    Nothing is changed, and the engine is only read.

    Args:
        file: The file; it need not exist.
        wanted: What it is to say.
        engine: The engine's address, `none` for not to ask; None for this machine's, and only
            where the file is the usual one.
        environ: Where Docker's variables and `PATH` are read.
        root: Where `/proc` and the units of systemd are looked for.

    Raises:
        ConfigurationError: The file cannot be read, or the address is none.
    """
    before = read_file(file)
    running, silence = _ask(engine, file, environ)
    around = Surroundings(
        flags=find_flags(file, root=root),
        plugins=running.plugins if running else frozenset(),
        is_in_swarm=running.is_in_swarm if running else _has_swarm(root),
    )
    try:
        document = read_document(file, before or b"")
    except ConfigurationError as error:
        broken = f"{error}; dockerd does not start with it"
        return Findings(file, before, broken, (), None, Check(_RULES), running, silence)
    plan = make_plan(document, wanted, around)
    check = Check(_RULES)
    if plan.text:
        check = check_file(plan.text.encode(), environ=environ, root=root)
    problems = (*_judge_whole(document, before), *find_problems(document.options, around))
    return Findings(file, before, None, problems, plan, check, running, silence)


def _ask(
    engine: str | None, file: Path, environ: Mapping[str, str]
) -> tuple[Running | None, str | None]:
    if engine is None and file != DEFAULT_FILE:
        return None, None
    address = find_engine(engine, environ=environ, rootfs=Path("/"))
    if address is None:
        return None, None
    try:
        return ask_engine(
            EngineClient(address, timeout_seconds=_PATIENCE_SECONDS, environ=environ)
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
        Problem(name, "it stands there more than once, and the last one counts", "note")
        for name in document.repeated
    ]
    if document.has_mark:
        text = "it begins with a byte order mark, with which Docker 20.10 does not start"
        found.insert(0, Problem("", text, "daemon"))
    if before is not None and document.is_empty:
        text = "it is empty, with which Docker before 23 does not start"
        found.insert(0, Problem("", text, "daemon"))
    return tuple(found)


def apply(findings: Findings, *, time: float) -> Backup | None:
    """Write what was planned.

    Args:
        findings: The look at the file.
        time: Now, seconds since 1970.

    Returns:
        The backup of what was there; None where nothing was to be changed.

    Raises:
        ConfigurationError: The file is broken, dockerd or new containers would not start with
            what would be written, or it cannot be written.
    """
    if findings.broken or findings.plan is None:
        raise ConfigurationError(f"{findings.broken}; correct it first, nothing was changed")
    for problem in findings.plan.remaining:
        raise ConfigurationError(
            f"{findings.file}: {problem.place}: {problem.text}; correct it first, nothing was changed"
        )
    if findings.check.complaint:
        raise ConfigurationError(
            f"dockerd would not start: {findings.check.complaint}; correct "
            f"{findings.file} first, nothing was changed"
        )
    if findings.plan.text is None:
        return None
    return place(findings.file, findings.plan.text.encode(), findings.before, time=time)
