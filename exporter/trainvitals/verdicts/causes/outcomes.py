"""Outcomes without a cause of death: success, running, a lost log, and unknown."""

from __future__ import annotations

from pathlib import PurePosixPath

from trainvitals.sources.accelerators.xids import explain_xid
from trainvitals.sources.containers.evidence import Evidence, Settings
from trainvitals.sources.signals import name_signal
from trainvitals.units import format_duration
from trainvitals.verdicts.causes.case import Case, clean_log
from trainvitals.verdicts.causes.suspicious import find_suspicious
from trainvitals.verdicts.causes.verdict import Cause, Finding

_MOST_OUTPUT = 200
_MOST_LINES = 3
_SIGNALS = {
    3: "SIGQUIT is sent by Ctrl-\\, or by a watchdog that requests a core dump.",
    10: "Slurm can send SIGUSR1 before a time limit (`--signal`); without a handler it ends a process.",
    12: "Slurm can send SIGUSR2 before a time limit (`--signal`); without a handler it ends a process.",
    24: "SIGXCPU is sent when the CPU time limit (`ulimit -t`) is reached.",
    25: "SIGXFSZ is sent when a file exceeds the size limit (`ulimit -f`).",
}
_PYTHONS = ("python", "torchrun", "accelerate", "deepspeed", "jupyter")


def _detect_finished(case: Case) -> Finding | None:
    if case.is_end_unexplained:
        return _detect_success(case)
    if not case.has_ended or case.exit_code != 0:
        return None
    lasted = case.duration_seconds
    after = "" if lasted is None else f" after {format_duration(lasted)}"
    against: tuple[str, ...] = ()
    # Docker 24.0.0 to 24.0.2 recorded 0 instead of 255 after a crash of the host (moby/moby#45788).
    is_suspicious = case.is_container and not case.has_die_event and case.is_near_engine_start
    if is_suspicious:
        against = (
            (
                "The end was not observed and coincides with the start of the engine; some engines"
                " record exit code 0 after a crash of the host."
            ),
        )
    return Finding(
        "finished",
        f"{case.subject.capitalize()} ended by itself{after} with exit code 0.",
        "low" if is_suspicious else "high",
        ("Exit code 0 indicates success.",),
        against,
        ("Check that its checkpoints are complete: `ls -l`.",) if is_suspicious else (),
    )


def _detect_success(case: Case) -> Finding | None:
    """Detect a log that ends with a success message, if there is no contrary evidence."""
    evidence = case.evidence
    success = case.success
    if not success or evidence.xids or evidence.oom_kills or evidence.pod:
        return None
    return Finding(
        "finished",
        f"By its log {case.subject} ended regularly.",
        "medium",
        (f"The log reports `{success[:_MOST_OUTPUT]}`, and no crash after it.",),
        ("The exit code is unknown.",),
    )


def _detect_running(case: Case) -> Finding | None:
    if case.has_ended:
        return None
    if case.was_never_started:
        return Finding(
            "running",
            "The container was created and never started, so there is no end to explain.",
            "high",
            ("The engine's state is `created`, without an error.",),
            (),
            (f"Start it: `{case.program} start {case.evidence.name}`.",),
        )
    state = case.evidence.state
    status = "" if state is None else f" The engine's state is `{state.status}`."
    return Finding(
        "running",
        f"{case.subject.capitalize()} runs, and the evidence shows no fault.{status}",
        "high" if state is not None else "medium",
        (_describe_earlier(case.evidence),),
        (),
        (f"Read its latest output: `{case.program} logs --tail 50 {case.evidence.name}`.",)
        if case.is_container
        else (),
    )


def _describe_earlier(evidence: Evidence) -> str:
    if evidence.pod is None or not evidence.earlier_deaths:
        return "No end is recorded."
    before = (evidence.started or 0.0) - evidence.earlier_deaths[-1]
    return f"It was started again {format_duration(max(0.0, before))} after its last end."


def _detect_unknown(case: Case) -> Finding | None:
    gaps = case.evidence.gaps
    why = f"the evidence does not show why {case.subject} ended{_describe_code(case)}"
    if case.evidence.is_unobserved:
        shown = "no more than errors of a GPU" if case.evidence.xids else "no fault"
        why = f"the evidence shows {shown}, and not whether {case.subject} has ended"
    return Finding(
        "unknown",
        f"Unknown: {why}.",
        "low",
        _describe_last(case),
        tuple(f"Could not be read: {gap.what} ({gap.why})." for gap in gaps),
        tuple(dict.fromkeys([*(gap.remedy for gap in gaps if gap.remedy), *_advise_unknown(case)])),
    )


def _describe_xids(evidence: Evidence) -> tuple[str, ...]:
    """Return a sentence with the meaning and required action for each of the last Xid errors."""
    codes = {xid.code: xid for xid in evidence.xids or ()}
    return tuple(
        f"The kernel logged Xid {code} of GPU {xid.bus_id}, {explain_xid(code).meaning}: the GPU needs"
        f" {explain_xid(code).action}."
        for code, xid in list(codes.items())[-_MOST_LINES:]
    )


def _describe_code(case: Case) -> str:
    signal, code = case.signal, case.exit_code
    if signal is not None:
        return f" by {name_signal(signal)}"
    return "" if code is None else f" with exit code {code}"


def _describe_last(case: Case) -> tuple[str, ...]:
    if case.signal in _SIGNALS:
        return (_SIGNALS[case.signal],)
    if case.success:
        return _describe_doubt(case, case.success)
    return (*_describe_xids(case.evidence), *_describe_log(case))


def _describe_log(case: Case) -> tuple[str, ...]:
    """Return sentences that quote the log's most suspicious lines, or else the last lines."""
    lines = clean_log(case.evidence.log or (), case.evidence.exception)
    suspicious = find_suspicious(lines)
    if suspicious:
        return tuple(
            f"Log line {at + 1} of {len(lines)} may be about it: `{lines[at].strip()[:_MOST_OUTPUT]}`."
            for at in suspicious
        )
    last = [line.strip() for line in lines if line.strip()][-_MOST_LINES:]
    if case.evidence.log is None and not last:
        return ("The log could not be read.",) if _wants_log(case) else ()
    if not last:
        return ("The log is empty.",)
    return ("The log ends with: " + " / ".join(f"`{line[:_MOST_OUTPUT]}`" for line in last) + ".",)


def _describe_doubt(case: Case, success: str) -> tuple[str, ...]:
    """Return a sentence that states why the log's success message does not prove a success."""
    evidence = case.evidence
    against = [
        f"an OOM kill of `{kill.task}` (PID {kill.pid})" for kill in evidence.oom_kills or ()
    ]
    against += [f"Xid {xid.code} of GPU {xid.bus_id}" for xid in evidence.xids or ()]
    where = "the kernel log has " + ", ".join(against[-_MOST_LINES:])
    where = where if against else "the pod's state is not known"
    return (f"The log reports `{success[:_MOST_OUTPUT]}`, but {where}.",)


def _wants_log(case: Case) -> bool:
    """Return whether a log is expected; no log is expected if only a kernel log was given."""
    return not (case.evidence.is_unobserved and case.evidence.oom_kills is not None)


def _advise_unknown(case: Case) -> list[str]:
    """Return the steps that collect more evidence for the next diagnosis."""
    evidence, steps = case.evidence, []
    if evidence.is_unobserved:
        steps.append(_advise_more_files(evidence))
    if find_suspicious(clean_log(evidence.log or (), evidence.exception)):
        return steps
    if evidence.log is None and evidence.is_unobserved:
        return steps
    if not case.is_container:
        steps.append(
            "Check the scheduler (`sacct -j JOB`) or the unit (`journalctl -u UNIT`) that ran it."
        )
    if case.is_container and not case.has_die_event:
        steps.append(
            "Keep `trainvitals serve` running beside the engine, to record events, last log lines and"
            " memory usage the next time."
        )
    if evidence.oom_kills is None and not evidence.is_unobserved:
        steps.append(
            "Give `trainvitals` access to the kernel log: run it as root, or with `CAP_SYSLOG`."
        )
    settings = evidence.settings
    if settings is None or not settings.is_unbuffered:
        steps.append("Set `PYTHONUNBUFFERED=1`, so that the last log lines are not lost.")
    steps.append("Set `PYTHONFAULTHANDLER=1` for a Python traceback of crashes in native code.")
    return steps


def _advise_more_files(evidence: Evidence) -> str:
    """Return the step that adds the missing log or kernel log, or reports how the run ended."""
    if evidence.log is None and evidence.oom_kills is not None:
        return "Add the log of the run: `trainvitals diagnose LOG --kernel-log FILE`."
    step = "Report how it ended, with `--ended` or `--exit-code N`"
    if evidence.oom_kills is not None:
        return f"{step}."
    return f"{step}, and add the kernel log of its machine: `--kernel-log FILE`."


def _is_python(settings: Settings) -> bool:
    words = [word for part in settings.command for word in part.split()]
    return any(PurePosixPath(word).name.startswith(_PYTHONS) for word in words)


def _detect_log_lost(case: Case) -> Finding | None:
    settings, log = case.evidence.settings, case.evidence.log
    if log is None or any(line.strip() for line in log) or settings is None:
        return None
    # Python flushes standard output at a regular exit; an empty log then means that nothing was
    # printed.
    if case.signal is None or settings.is_unbuffered or settings.has_tty:
        return None
    if not case.has_ended or not _is_python(settings):
        return None
    service = case.evidence.compose_service
    where = f"`environment` of the service `{service}`" if service else "the image (`ENV`)"
    return Finding(
        "log-lost",
        "The log is empty because Python had not flushed its output when the signal ended it.",
        "high",
        (
            f"The log is empty, the command is Python, and {name_signal(case.signal)} ended it.",
            "`PYTHONUNBUFFERED` is not set and the command has no `-u`.",
        ),
        ("A program that prints nothing also leaves an empty log.",),
        (f"Set `PYTHONUNBUFFERED=1` in {where}, or run `python -u`.",),
    )


FINISHED = Cause(
    "finished",
    "Finished",
    "Exit code 0.",
    "The program ended by itself and reported success.",
    ("No action is needed; `docker logs NAME` shows its last output.",),
    "high",
    _detect_finished,
)
RUNNING = Cause(
    "running",
    "Running",
    "No end is recorded and the evidence shows no fault; or it was never started.",
    "There is no death to explain.",
    ("Read its latest output: `docker logs --tail 50 NAME`.",),
    "high",
    _detect_running,
)
UNKNOWN = Cause(
    "unknown",
    "Unknown",
    "No other cause matches.",
    "The evidence is not sufficient. The verdict lists what to collect the next time.",
    (
        "Keep `trainvitals serve` running beside the engine, with access to the kernel log.",
        "Set `PYTHONUNBUFFERED=1` and `PYTHONFAULTHANDLER=1`.",
    ),
    "low",
    _detect_unknown,
)
LOG_LOST = Cause(
    "log-lost",
    "Last log lines lost",
    "An empty log, a Python command, an end by a signal, and no `PYTHONUNBUFFERED`; reported beside"
    " the cause.",
    "Python buffers 8 KiB of output to a pipe, and a signal discards the buffer. The log driver is"
    " not at fault.",
    ("Set `PYTHONUNBUFFERED=1`, or run `python -u`.",),
    "high",
    _detect_log_lost,
)
