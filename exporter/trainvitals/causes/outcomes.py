"""What is left when no cause explains the end, and what is no end at all."""

from __future__ import annotations

from trainvitals.causes.case import Case, name_signal
from trainvitals.causes.evidence import Evidence
from trainvitals.causes.figures import write_count, write_span
from trainvitals.causes.verdict import Cause, Finding

_LOST_CODE = 255
_ENGINE_NEAR_SECONDS = 120.0
_LOOP_DEATHS, _LOOP_SECONDS = 3, 600.0
_WORST_PROBES = 1
_MOST_OUTPUT = 200
_MOST_LINES = 3


def _is_near_engine_start(case: Case) -> bool:
    ended, started = case.evidence.ended, case.evidence.engine_started
    return (
        ended is not None and started is not None and abs(ended - started) <= _ENGINE_NEAR_SECONDS
    )


def _look_lost(case: Case) -> Finding | None:
    if not case.is_container or not case.has_ended or case.exit_code != _LOST_CODE:
        return None
    if case.was_end_watched:
        return None
    is_near = _is_near_engine_start(case)
    near = ("It is said to have ended when the engine was started.",) if is_near else ()
    return Finding(
        "daemon-lost",
        "The engine lost sight of it: the host or the engine went down while it ran.",
        "medium" if is_near else "low",
        ("Exit code 255 and no event `die`: the engine saw no end.", *near),
        ("A program that leaves with exit code 255 by itself, unobserved, looks the same.",),
        (
            "Read the end of the boot before: `journalctl -b -1 -e`, and `last -x reboot`.",
            f"Read the engine's log: `journalctl -u {case.program} --since -2h`.",
            (
                "Keep containers over a restart of the engine: `live-restore` in"
                " /etc/docker/daemon.json (`trainvitals docker-logging --apply`)."
            ),
        ),
    )


def _look_unhealthy(case: Case) -> Finding | None:
    state = case.evidence.state
    healths = case.list_events("health_status: unhealthy", "health_status: healthy")
    said = state.health if state is not None else None
    if said != "unhealthy" and not (healths and healths[-1].action.endswith("unhealthy")):
        return None
    if said == "healthy" and not case.has_ended:
        return None
    ended = case.has_ended
    return Finding(
        "unhealthy",
        "Its health check failed" + (" before its end." if ended else ", and it runs on."),
        "low" if ended else "high",
        _tell_probes(case),
        ("A failing health check alone ends nothing.",) if ended else (),
        (
            (
                f"Read what the probe says: `{case.program} inspect -f '{{{{json .State.Health}}}}'"
                f" {case.evidence.name}`."
            ),
            (
                "The engine does not restart it by itself: restart it, or correct `HEALTHCHECK`"
                " (`--health-timeout`, `--health-start-period`)."
            ),
        ),
    )


def _tell_probes(case: Case) -> tuple[str, ...]:
    state = case.evidence.state
    if state is None or not state.probes:
        return ("The engine told of `health_status: unhealthy`.",)
    last, streak = state.probes[-1], state.failing_streak
    output = last.output.strip()[:_MOST_OUTPUT]
    how = "took too long (-1)" if last.exit_code == -1 else f"had exit code {last.exit_code}"
    said = f", and said `{output}`" if output else ", and said nothing"
    return (
        f"{write_count(streak, 'probe')} in a row failed.",
        f"The last probe {how}{said}.",
    )


def _look_loop(case: Case) -> Finding | None:
    evidence = case.evidence
    latest = evidence.ended
    if latest is None:
        latest = max(evidence.earlier_deaths, default=None)
    if latest is None:
        return None
    deaths = {time for time in evidence.earlier_deaths if 0 <= latest - time <= _LOOP_SECONDS}
    count = len(deaths | {latest})
    if count < _LOOP_DEATHS or not _is_restarted(evidence):
        return None
    policy = evidence.settings.restart_policy if evidence.settings is not None else ""
    told = [f"It ended {count} times within {write_span(latest - min(deaths))}."]
    if evidence.restarts:
        told.append(f"The engine has restarted it {write_count(evidence.restarts, 'time')}.")
    if policy not in {"", "no"}:
        told.append(f"Its restart policy is `{policy}`.")
    return Finding(
        "crash-loop",
        "It ends and is restarted again and again.",
        "high",
        tuple(told),
        (),
        (
            f"Stop it while you look: `{case.program} update --restart=no {evidence.name}`.",
            f"Read its last start: `{case.program} logs --tail 100 {evidence.name}`.",
            "Limit the policy: `--restart on-failure:3`.",
        ),
    )


def _is_restarted(evidence: Evidence) -> bool:
    if evidence.restarts:
        return True
    return evidence.settings is None or evidence.settings.restart_policy not in {"", "no"}


def _look_finished(case: Case) -> Finding | None:
    if not case.has_ended or case.exit_code != 0:
        return None
    lasted = case.lasted_seconds
    after = "" if lasted is None else f" after {write_span(lasted)}"
    against: tuple[str, ...] = ()
    is_suspicious = case.is_container and not case.was_end_watched and _is_near_engine_start(case)
    if is_suspicious:
        against = (
            (
                "It is said to have ended when the engine was started, and nobody saw it: some engines"
                " say 0 after a crash of the host."
            ),
        )
    return Finding(
        "finished",
        f"It ended by itself{after}, with exit code 0.",
        "low" if is_suspicious else "high",
        ("Exit code 0 says success.",),
        against,
        ("Check that its results are whole: `ls -l` of its checkpoints.",) if is_suspicious else (),
    )


def _look_running(case: Case) -> Finding | None:
    if case.has_ended:
        return None
    if case.was_never_started:
        return Finding(
            "running",
            "It was made and never started, so there is no death to explain.",
            "high",
            ("Its state is `created`, without an error.",),
            (),
            (f"Start it: `{case.program} start {case.evidence.name}`.",),
        )
    state = case.evidence.state
    status = "" if state is None else f" Its state is `{state.status}`."
    return Finding(
        "running",
        f"It runs, and nothing is seen to be wrong with it.{status}",
        "high" if state is not None else "medium",
        ("No end of it is known.",),
        (),
        (f"See what it does: `{case.program} logs --tail 50 {case.evidence.name}`.",)
        if case.is_container
        else (),
    )


def _look_unknown(case: Case) -> Finding | None:
    gaps = case.evidence.gaps
    return Finding(
        "unknown",
        f"The evidence does not say why {case.thing} ended{_tell_code(case)}.",
        "low",
        _tell_last(case),
        tuple(f"Not known: {gap.what}, because {gap.why}." for gap in gaps),
        tuple(dict.fromkeys([*(gap.remedy for gap in gaps if gap.remedy), *_advise_unknown(case)])),
    )


def _tell_code(case: Case) -> str:
    signal, code = case.signal, case.exit_code
    if signal is not None:
        return f" by {name_signal(signal)}"
    return "" if code is None else f" with exit code {code}"


def _tell_last(case: Case) -> tuple[str, ...]:
    said = [line.strip() for line in case.lines if line.strip()][-_MOST_LINES:]
    if case.evidence.log is None and not said:
        return ("Its log could not be read.",)
    if not said:
        return ("Its log is empty.",)
    return ("The log ends with: " + " / ".join(f"`{line[:_MOST_OUTPUT]}`" for line in said) + ".",)


def _advise_unknown(case: Case) -> list[str]:
    """Say what to collect the next time."""
    evidence, steps = case.evidence, []
    if case.is_container and not case.was_end_watched:
        steps.append(
            "Let `trainvitals serve` run beside the engine, so that events, last lines and memory"
            " are there the next time."
        )
    if evidence.oom_kills is None:
        steps.append("Let it read the kernel log: run it as root, or with `CAP_SYSLOG`.")
    settings = evidence.settings
    if settings is None or not settings.is_unbuffered:
        steps.append("Set `PYTHONUNBUFFERED=1`, so that the last lines are not lost.")
    steps.append("Set `PYTHONFAULTHANDLER=1`, so that a crash in native code names its line.")
    return steps


LOST = Cause(
    "daemon-lost",
    "The engine lost sight of it",
    "255, no event `die`, and it is said to have ended when the engine was started",
    "The host crashed or lost power, or the engine was killed together with its shims.",
    (
        "Read the end of the boot before: `journalctl -b -1 -e`, `last -x reboot`.",
        "Set `live-restore` in /etc/docker/daemon.json (`trainvitals docker-logging --apply`).",
    ),
    "medium",
    _look_lost,
)
UNHEALTHY = Cause(
    "unhealthy",
    "The health check fails",
    "`health_status: unhealthy` while it runs",
    "What the probe asks for does not answer, or answers too late (exit code -1). The engine does not"
    " restart it.",
    (
        "Read the probe's output: `docker inspect -f '{{json .State.Health}}' NAME`.",
        "Correct `HEALTHCHECK`: `--health-timeout`, `--health-start-period`.",
    ),
    "high",
    _look_unhealthy,
)
LOOP = Cause(
    "crash-loop",
    "It dies again and again",
    "3 ends or more within 10 minutes, with restarts",
    "Whatever ends it does so at every start. Where that is known, it comes first and this beside it.",
    (
        "Stop it while you look: `docker update --restart=no NAME`.",
        "Limit the policy: `--restart on-failure:3`.",
    ),
    "high",
    _look_loop,
)
FINISHED = Cause(
    "finished",
    "It finished",
    "exit code 0",
    "It ended by itself and says that all went well.",
    ("Nothing to do; `docker logs NAME` has its last words.",),
    "high",
    _look_finished,
)
RUNNING = Cause(
    "running",
    "It runs",
    "no end is known, and nothing is wrong with it; or it was never started",
    "There is no death to explain.",
    ("See what it does: `docker logs --tail 50 NAME`.",),
    "high",
    _look_running,
)
UNKNOWN = Cause(
    "unknown",
    "Not known",
    "none of the others",
    "The evidence does not say. What to collect the next time is said with the verdict.",
    (
        "Let `trainvitals serve` run beside the engine, with access to the kernel log.",
        "Set `PYTHONUNBUFFERED=1` and `PYTHONFAULTHANDLER=1`.",
    ),
    "low",
    _look_unknown,
)
