"""The findings as text for a person and as JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from trainvitals.dockerlogging.findings import Findings
from trainvitals.dockerlogging.placing import Backup
from trainvitals.dockerlogging.problems import EFFECTS
from trainvitals.dockerlogging.running import EndlessLog, Running
from trainvitals.dockerlogging.sizes import write_size

_SHOWN = 20
_RELOAD = (
    "`{control} reload docker`, or SIGHUP to dockerd: takes up live-restore, and no container "
    "notices"
)
_RESTART = (
    (
        "`docker info --format '{{{{.LiveRestoreEnabled}}}}'`: only where that says true do "
        "running containers outlive the next step"
    ),
    (
        "`{control} restart docker`: containers that are made from then on log by the new "
        "settings; a reload does not do it"
    ),
    (
        "make those anew that are to rotate, as with `docker compose up -d --force-recreate`: "
        "each keeps the log settings that it was made with"
    ),
)
_REVERTING = (
    "`{control} reload docker`, or SIGHUP to dockerd: takes up live-restore as the file has it now",
    (
        "`{control} restart docker`: containers that are made from then on log by it; where "
        "live-restore is off now, this ends every running container"
    ),
)
_CAUTION = (
    "never `{control} daemon-reload` for this: with the systemd cgroup driver it cuts running "
    "containers off their GPUs, and a restart of Docker does not need it"
)


def list_steps(findings: Findings, *, is_reverted: bool = False) -> tuple[str, ...]:
    """Tell what a person does so that the daemon takes up a file that was changed.

    Nothing of it is done unasked, for a restart of the daemon is not to come as a surprise.
    """
    control = "systemctl --user" if _is_rootless(findings.file) else "systemctl"
    if is_reverted:
        return tuple(step.format(control=control) for step in (*_REVERTING, _CAUTION))
    plan = findings.plan
    steps: list[str] = []
    if findings.waits or (plan and plan.sets_live_restore):
        steps.append(_RELOAD)
    if plan and plan.sets_log:
        steps += _RESTART
    return tuple(step.format(control=control) for step in (*steps, _CAUTION)) if steps else ()


def _is_rootless(file: Path) -> bool:
    return ".config" in file.parts


def format_look(findings: Findings) -> str:
    """Write what was found and what `--apply` would do."""
    return "\n".join(_write_look(findings))


def _write_look(findings: Findings) -> Iterator[str]:
    yield from _write_state(findings)
    if findings.running:
        yield _describe(findings.running)
    elif findings.silence:
        yield f"the engine was not asked: {findings.silence}"
    if findings.plan:
        for line in findings.plan.left:
            yield f"left as it is: {line}"
    if findings.diff:
        yield "\n`trainvitals docker-logging --apply` would write:\n"
        yield findings.diff
        yield f"\nchecked {findings.check.by}"
    yield from _write_obstacles(findings)
    if steps := list_steps(findings):
        yield "\nand then, by you:" if findings.diff else "\nnot taken up yet; by you:"
        yield from _number(steps)
    if findings.running and findings.running.endless:
        yield from _write_endless(findings.running.endless)


def _write_state(findings: Findings) -> Iterator[str]:
    if findings.broken:
        yield findings.broken
        return
    wrong = [each for each in findings.problems if each.effect != "note"]
    if findings.before is None:
        yield f"{findings.file}: there is none, so Docker's defaults hold"
    elif not wrong and findings.plan and findings.plan.text is None:
        yield f"{findings.file}: right, nothing to do"
    else:
        yield f"{findings.file}: {len(wrong)} {'problem' if len(wrong) == 1 else 'problems'}"
    for problem in findings.problems:
        place = f"{problem.place}: " if problem.place else ""
        effect = f" ({EFFECTS[problem.effect]})" if problem.is_fatal else ""
        yield f"  {place}{problem.text}{effect}"


def _describe(running: Running) -> str:
    live = "on" if running.has_live_restore else "off"
    return (
        f"now in force: Docker {running.version}, driver {running.log_driver}, live-restore {live}"
    )


def _write_obstacles(findings: Findings) -> Iterator[str]:
    if findings.broken:
        yield "--apply leaves it alone until that is corrected"
    elif findings.check.complaint:
        yield f"--apply refuses: dockerd would not start: {findings.check.complaint}"
    elif findings.plan and findings.plan.remaining:
        yield "--apply refuses until this is corrected:"
        for problem in findings.plan.remaining:
            yield f"  {problem.place}: {problem.text}"


def _write_endless(endless: tuple[EndlessLog, ...]) -> Iterator[str]:
    yield "\nlogs that never rotate, until their containers are made anew:"
    for log in endless[:_SHOWN]:
        size = "size not known" if log.log_bytes is None else write_size(log.log_bytes)
        yield f"  {log.name}  {'running' if log.is_running else 'stopped'}  {size}"
    if len(endless) > _SHOWN:
        yield f"  and {len(endless) - _SHOWN} more"
    if any(log.log_bytes is None for log in endless):
        yield "  sizes: run it with sudo"


def _number(steps: tuple[str, ...]) -> Iterator[str]:
    for number, step in enumerate(steps, start=1):
        yield f"{number}. {step}"


def format_applied(findings: Findings, backup: Backup | None) -> str:
    """Write what was done, and what is left to do."""
    if backup is None:
        lines = [f"{findings.file}: nothing to do"]
        lines += [f"left as it is: {line}" for line in findings.plan.left] if findings.plan else []
        return "\n".join([*lines, *_number(list_steps(findings))])
    was = "there was no file before" if backup.was_absent else f"what it said is in {backup.path}"
    left = [f"left as it is: {line}" for line in findings.plan.left] if findings.plan else []
    lines = [
        f"wrote {findings.file}, checked {findings.check.by}; {was}",
        *left,
        "not in force yet; by you:",
        *_number(list_steps(findings)),
        "`trainvitals docker-logging --revert` takes it back",
    ]
    if findings.running and findings.running.endless:
        lines += _write_endless(findings.running.endless)
    return "\n".join(lines)


def format_reverted(findings: Findings, used: Backup, kept: Path | None) -> str:
    """Write what was taken back, and what is left to do."""
    did = (
        f"removed {findings.file}, for there was none before"
        if used.was_absent
        else f"put back {findings.file} as it was"
    )
    return "\n".join(
        [
            f"{did}; what it said now is in {kept}" if kept else did,
            "not in force yet; by you:",
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
    """Write the findings for a program.

    Args:
        findings: The look at the file, from before the change.
        action: `look`, `apply` or `revert`.
        backup: What was kept of what was there, or what was put back.
        kept: Where that is kept which a revert took away.
    """
    plan, running = findings.plan, findings.running
    told = {
        "file": str(findings.file),
        "exists": findings.before is not None,
        "action": action,
        "right": findings.is_right,
        "changed": backup is not None,
        "broken": findings.broken,
        "problems": [
            {"place": each.place, "text": each.text, "effect": each.effect}
            for each in findings.problems
        ],
        "obstacles": [
            {"place": each.place, "text": each.text, "effect": each.effect}
            for each in (plan.remaining if plan else ())
        ],
        "changes": dict(plan.changes) if plan else {},
        "left": list(plan.left) if plan else [],
        "diff": findings.diff,
        "checked": findings.check.by,
        "complaint": findings.check.complaint,
        "backup": str(backup.path) if backup else None,
        "kept": str(kept) if kept else None,
        "engine": running
        and {
            "version": running.version,
            "log_driver": running.log_driver,
            "live_restore": running.has_live_restore,
            "swarm": running.is_in_swarm,
        },
        "engine_error": findings.silence,
        "endless_logs": [
            {"name": log.name, "id": log.id, "running": log.is_running, "bytes": log.log_bytes}
            for log in (running.endless if running else ())
        ],
        "steps": list(list_steps(findings, is_reverted=action == "revert")),
    }
    return json.dumps(told, indent=2)
