"""Formats the findings about a `daemon.json` as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainvitals.doctor.docker_logging.backups import Backup
from trainvitals.doctor.docker_logging.inspection import Findings
from trainvitals.doctor.docker_logging.problems import EFFECTS, Problem
from trainvitals.foreign_text import name_rest
from trainvitals.units import count_noun, format_bytes

_SHOWN = 20
_RELOAD = (
    "`{control} reload docker`, or SIGHUP to dockerd: applies live-restore without affecting "
    "containers"
)
_RESTART = (
    (
        "`docker info --format '{{{{.LiveRestoreEnabled}}}}'`: continue only if this prints true, as "
        "the next step otherwise ends every running container"
    ),
    (
        "`{control} restart docker`: applies the log settings to containers created from then on; "
        "a reload is not enough"
    ),
    (
        "recreate existing containers, for example with `docker compose up -d --force-recreate`: "
        "they keep the log settings that they were created with"
    ),
)
_REVERTING = (
    "`{control} reload docker`, or SIGHUP to dockerd: applies live-restore as it is in the file now",
    (
        "`{control} restart docker`: applies the log settings to containers created from then on; if "
        "live-restore is off now, this ends every running container"
    ),
)
_CAUTION = (
    "do not run `{control} daemon-reload`, which is not needed: with the systemd cgroup driver, "
    "running containers lose their GPUs"
)


def list_steps(findings: Findings, *, is_reverted: bool = False) -> tuple[str, ...]:
    """Return the steps that make the daemon use a changed `daemon.json`.

    The user must take these steps, because a restart of the daemon may stop containers.
    """
    steps: list[str] = list(_REVERTING) if is_reverted else []
    if findings.plan and not is_reverted:
        if findings.needs_reload or "live-restore" in findings.plan.changes:
            steps.append(_RELOAD)
        if findings.plan.changes.keys() & {"log-driver", "log-opts"}:
            steps += _RESTART
    is_rootless = ".config" in findings.file.parts
    control = "systemctl --user" if is_rootless else "systemctl"
    return tuple(step.format(control=control) for step in (*steps, _CAUTION)) if steps else ()


def format_findings(findings: Findings) -> str:
    """Return the findings about a `daemon.json` and the changes that `--apply` makes, as text."""
    return "\n".join(_write_findings(findings))


def _write_findings(findings: Findings) -> Iterator[str]:
    yield from _write_state(findings)
    if running := findings.running:
        live = "on" if running.has_live_restore else "off"
        yield (
            f"in effect: Docker {running.version}, driver {running.log_driver}, live-restore {live}"
        )
    elif findings.engine_error:
        yield f"the engine did not respond: {findings.engine_error}"
    yield from _write_left(findings)
    if findings.diff:
        yield "\n`trainvitals docker-logging --apply` would write:\n"
        yield findings.diff
        yield f"\nvalidated {findings.validation.by}"
    yield from _write_obstacles(findings)
    if steps := list_steps(findings):
        yield "\nthen, to apply it:" if findings.diff else "\nnot applied yet; to apply it:"
        yield from _number(steps)
    yield from _write_endless(findings)


def _write_state(findings: Findings) -> Iterator[str]:
    if findings.syntax_error:
        yield findings.syntax_error
        return
    wrong = [each for each in findings.problems if each.effect != "note"]
    if findings.before is None:
        yield f"{findings.file}: does not exist, so Docker's defaults apply"
    elif not wrong and findings.plan and findings.plan.text is None:
        yield f"{findings.file}: correct, nothing to do"
    else:
        yield f"{findings.file}: {count_noun(len(wrong), 'problem')}"
    for problem in findings.problems:
        place = f"{problem.place}: " if problem.place else ""
        effect = f" ({EFFECTS[problem.effect]})" if problem.is_fatal else ""
        yield f"  {place}{problem.text}{effect}"


def _write_left(findings: Findings) -> Iterator[str]:
    for line in findings.plan.untouched if findings.plan else ():
        yield f"unchanged: {line}"


def _write_obstacles(findings: Findings) -> Iterator[str]:
    if findings.syntax_error:
        yield "--apply refuses until this is corrected"
    elif findings.validation.error:
        yield f"--apply refuses: dockerd would not start: {findings.validation.error}"
    elif findings.plan and findings.plan.remaining:
        yield "--apply refuses until this is corrected:"
        for problem in findings.plan.remaining:
            yield f"  {problem.place}: {problem.text}"


def _write_endless(findings: Findings) -> Iterator[str]:
    endless = findings.running.endless if findings.running else ()
    if endless:
        yield "\nlogs that never rotate until their containers are recreated:"
    for log in endless[:_SHOWN]:
        size = "size unknown" if log.log_bytes is None else format_bytes(log.log_bytes)
        yield f"  {log.name}  {'running' if log.is_running else 'stopped'}  {size}"
    if len(endless) > _SHOWN:
        yield f"  {name_rest(len(endless) - _SHOWN)}"
    if any(log.log_bytes is None for log in endless):
        yield "  run this with sudo to see the sizes"


def _number(steps: tuple[str, ...]) -> Iterator[str]:
    for number, step in enumerate(steps, start=1):
        yield f"{number}. {step}"


def format_applied(findings: Findings, backup: Backup | None) -> str:
    """Return text about the applied changes and the remaining steps."""
    steps = _number(list_steps(findings))
    if backup is None:
        return "\n".join([f"{findings.file}: nothing to do", *_write_left(findings), *steps])
    was = "there was no file before" if backup.was_absent else f"the backup is {backup.path}"
    return "\n".join(
        [
            f"wrote {findings.file}, validated {findings.validation.by}; {was}",
            *_write_left(findings),
            "not applied yet; to apply it:",
            *steps,
            "`trainvitals docker-logging --revert` undoes this",
            *_write_endless(findings),
        ]
    )


def format_reverted(findings: Findings, used: Backup, kept: Path | None) -> str:
    """Return text about the restored file and the remaining steps."""
    did = f"restored {findings.file}"
    if used.was_absent:
        did = f"removed {findings.file}, as there was none before"
    return "\n".join(
        [
            f"{did}; the file that was replaced is {kept}" if kept else did,
            "not applied yet; to apply it:",
            *_number(list_steps(findings, is_reverted=True)),
        ]
    )


def format_json(
    findings: Findings,
    *,
    action: str = "look",
    backup: Backup | None = None,
    kept: Path | None = None,
) -> str:
    """Return the findings about a `daemon.json` as JSON.

    Args:
        findings: The findings about the file before the change.
        action: The action of the command: `look`, `apply` or `revert`.
        backup: The backup that the action made or restored; None if there is no backup.
        kept: The path of the file that a revert replaced; None if no file was replaced.
    """
    plan, running = findings.plan, findings.running
    document = {
        "file": str(findings.file),
        "exists": findings.before is not None,
        "action": action,
        "right": findings.is_correct,
        "changed": backup is not None,
        "broken": findings.syntax_error,
        "problems": _list_problems(findings.problems),
        "obstacles": _list_problems(plan.remaining if plan else ()),
        "changes": dict(plan.changes) if plan else {},
        "left": list(plan.untouched) if plan else [],
        "diff": findings.diff,
        "checked": findings.validation.by,
        "complaint": findings.validation.error,
        "backup": str(backup.path) if backup else None,
        "kept": str(kept) if kept else None,
        "engine": running
        and {
            "version": running.version,
            "log_driver": running.log_driver,
            "live_restore": running.has_live_restore,
            "swarm": running.is_in_swarm,
        },
        "engine_error": findings.engine_error,
        "endless_logs": [
            {"name": log.name, "id": log.id, "running": log.is_running, "bytes": log.log_bytes}
            for log in (running.endless if running else ())
        ],
        "steps": list(list_steps(findings, is_reverted=action == "revert")),
    }
    return json.dumps(document, indent=2)


def _list_problems(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [{"place": each.place, "text": each.text, "effect": each.effect} for each in problems]
