"""Lasting faults of a container: a failing health check, and repeated restarts."""

from __future__ import annotations

from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.pod import find_failing_sidecar
from trainvitals.units import count_noun, format_duration
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.verdict import Cause, Finding

_LOOP_SECONDS = 600.0
_MOST_OUTPUT = 200


def _detect_unhealthy(case: Case) -> Finding | None:
    state = case.evidence.state
    healths = case.list_events("health_status: unhealthy", "health_status: healthy")
    health = state.health if state is not None else None
    if health != "unhealthy" and not (healths and healths[-1].action.endswith("unhealthy")):
        return None
    if health == "healthy" and not case.has_ended:
        return None
    ended = case.has_ended
    when = "failed before the container ended" if ended else "fails while the container runs"
    return Finding(
        "unhealthy",
        f"The health check {when}.",
        "low" if ended else "high",
        _describe_probes(case),
        ("A failing health check alone does not end a container.",) if ended else (),
        (
            (
                f"Read the probe's output: `{case.program} inspect -f '{{{{json .State.Health}}}}'"
                f" {case.evidence.name}`."
            ),
            (
                "Restart the container, which the engine does not do by itself, or correct"
                " `HEALTHCHECK` (`--health-timeout`, `--health-start-period`)."
            ),
        ),
    )


def _describe_probes(case: Case) -> tuple[str, ...]:
    state = case.evidence.state
    if state is None or not state.probes:
        return ("The engine reported the event `health_status: unhealthy`.",)
    last, streak = state.probes[-1], state.failing_streak
    output = last.output.strip()[:_MOST_OUTPUT]
    # Docker records exit code -1 for a probe that reached its timeout.
    how = "timed out (-1)" if last.exit_code == -1 else f"had exit code {last.exit_code}"
    printed = f" and printed `{output}`" if output else " and printed nothing"
    return (
        f"{count_noun(streak, 'probe')} in a row failed.",
        f"The last probe {how}{printed}.",
    )


def _detect_loop(case: Case) -> Finding | None:
    evidence = case.evidence
    if sidecar := find_failing_sidecar(evidence.pod or ()):
        return _write_sidecar(sidecar)
    latest = evidence.ended
    if latest is None:
        latest = max(evidence.earlier_deaths, default=None)
    if latest is None:
        return None
    deaths = {time for time in evidence.earlier_deaths if 0 <= latest - time <= _LOOP_SECONDS}
    count = len(deaths | {latest})
    if count == 1 or count < case.thresholds["container_restart_loop:restarts"]:
        return None
    if not _is_restarted(evidence):
        return None
    policy = evidence.settings.restart_policy if evidence.settings is not None else ""
    span = format_duration(latest - min(deaths))
    sentences = []
    if evidence.restarts:
        sentences.append(f"The engine has restarted it {count_noun(evidence.restarts, 'time')}.")
    if policy not in {"", "no"}:
        sentences.append(f"Its restart policy is `{policy}`.")
    return Finding(
        "crash-loop",
        f"The container ended {count} times within {span} and was restarted each time.",
        "high",
        tuple(sentences),
        (),
        (
            f"Disable restarts while you investigate: `{case.program} update --restart=no {evidence.name}`.",
            f"Read the log of the last start: `{case.program} logs --tail 100 {evidence.name}`.",
            "Limit the restart policy: `--restart on-failure:3`.",
        ),
    )


def _write_sidecar(name: str) -> Finding:
    return Finding(
        "crash-loop",
        f"The container `{name}` of the pod ends again and again; the one that trains runs.",
        "high",
        (f"Kubernetes reports `CrashLoopBackOff` of `{name}` alone.",),
        (),
        (f"Read its last log: `kubectl logs POD -c {name} --previous`.",),
    )


def _is_restarted(evidence: Evidence) -> bool:
    if evidence.restarts:
        return True
    return evidence.settings is None or evidence.settings.restart_policy not in {"", "no"}


UNHEALTHY = Cause(
    "unhealthy",
    "The health check fails",
    "An event or state `health_status: unhealthy` while it runs.",
    "The probe fails, or reaches its timeout (exit code -1). The engine does not restart the"
    " container.",
    (
        "Read the probe's output: `docker inspect -f '{{json .State.Health}}' NAME`.",
        "Correct `HEALTHCHECK`: `--health-timeout`, `--health-start-period`.",
    ),
    "high",
    _detect_unhealthy,
)
LOOP = Cause(
    "crash-loop",
    "Repeated deaths",
    "3 or more ends within 10 minutes, with restarts.",
    "The same cause ends it after every start. Where that cause is known, it is the verdict and the"
    " loop contributes.",
    (
        "Disable restarts while you investigate: `docker update --restart=no NAME`.",
        "Limit the restart policy: `--restart on-failure:3`.",
    ),
    "high",
    _detect_loop,
)
