"""Writes `docs/diagnosis.md`, the table of all causes of death, from their definitions."""
# ruff: noqa: INP001 - a script

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainvitals.verdicts.causes import (
    container_faults,
    guards,
    hardware,
    memory,
    outcomes,
    outside,
    pods,
    requests,
    signals,
    start,
    training,
    workers,
)
from trainvitals.verdicts.causes.judge import BY_LOG, CAUSES
from trainvitals.verdicts.causes.verdict import Cause

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/diagnosis.md"

HEAD = """\
# Causes of death

<!-- Written by `make docs` from exporter/trainvitals/verdicts/causes; change the causes there instead. -->

`trainvitals diagnose NAME` reports why a container, a process or a run ended, the confidence of the verdict, the evidence for and against it, and what to do.
The exporter uses the same causes for each death it observes: `container_deaths_total` and `container_last_death_info` have the reason as a label.
The reasons are a closed set, listed here in order of precedence.


## Order of evaluation

Every cause is checked against all the evidence: the engine's events and state, the kernel log, the control group, the last lines of the log.
The first match is the verdict; further matches are listed as contributing.

1. A failed start comes first: such a container never ran, and there is no event `die`.
2. Requests to the engine, in the order of its events: a kill, a stop that reached its timeout, a stop.
   An OOM kill before a `docker kill` is contributing, with its time.
3. The kernel's message about an OOM kill, which names the control group and thereby the limit: its own, that of a parent group, or the host's memory.
4. The event `oom` or `OOMKilled` together with exit code 137; then an OOM-killed worker.
   Both can be wrong: engines miss kills, mark other containers, and keep the mark over a restart.
5. A SIGKILL or SIGTERM that none of these explains.
6. The signal of a crash.
   A log line with a definite cause takes precedence: `terminate called after …` followed by NCCL's watchdog is a timeout of NCCL, and the abort is contributing.
7. The log, and last the exit code.

An uncertain cause yields to a log line with a definite one.
A log line after which training continued for many steps is not the cause of its death, nor is an error that the log reports as skipped, retried or ignored.
A log alone, without an engine, a control group or an exit code, is examined as that of something that ended: nothing is called `running` without a sign of it.
If such a log continues after an error, with progress, a saved checkpoint or a success, the error only contributes.
Exit code 0 is `finished` regardless of the log, unless a process was OOM-killed.
The log of a running container is not sufficient for a verdict; it may be `unhealthy`, in a `crash-loop`, or have lost a process (`oom-worker-alive`).
Exit code 137 alone does not indicate an OOM kill: `kill-operator`, `stop-timeout` and `kill-outside` have it too.

`high`: no other cause produces this evidence, or two independent sources agree; `medium`: another cause is possible; `low`: the evidence is weak.
The column shows the confidence with complete evidence; a verdict on less evidence has less confidence and lists what is missing.
"""

GROUPS: Sequence[tuple[str, str, Sequence[Cause]]] = (
    (
        "Kubernetes did not start the pod, or ended it",
        "Determined by `kubectl describe pod`, saved as `pod.txt`, or by such lines in the log.",
        pods.CAUSES,
    ),
    (
        "The container could not be started",
        "The engine reports the reason; `docker ps` shows `Created`, and there is no event `die`.",
        start.CAUSES,
    ),
    (
        "The stop was requested",
        "Determined by the order of the engine's events.",
        requests.CAUSES,
    ),
    (
        "The kernel's OOM killer ended it",
        "Determined by the kernel log, the engine's events and state, and the control group.",
        memory.CAUSES,
    ),
    (
        "The OOM killer ended one of its processes",
        "The main process continued, or exited by itself.",
        workers.CAUSES,
    ),
    (
        "The host ended it",
        "Determined by lines of the kernel and of the host's services in the kernel log or the journal.",
        (*guards.CAUSES, *hardware.CAUSES),
    ),
    (
        "It was ended from outside, or its end was not observed",
        "Without a request to the engine and without an OOM kill.",
        outside.CAUSES,
    ),
    (
        "Finished",
        "No failure.",
        (outcomes.FINISHED,),
    ),
    (
        "Native code crashed",
        "Determined by the signal, and by the log where it names the crash.",
        signals.CAUSES,
    ),
    (
        "The log names the cause",
        "Colours, progress bars and rank prefixes are removed before lines are compared.",
        BY_LOG,
    ),
    (
        "Lasting faults, and no cause of death",
        "`log-lost` is reported beside other causes and is never the verdict.",
        (
            container_faults.UNHEALTHY,
            pods.LOOP,
            outcomes.LOG_LOST,
            training.STALLED,
            outcomes.RUNNING,
            outcomes.UNKNOWN,
        ),
    ),
)


def write_page() -> str:
    """Return the whole document.

    Raises:
        ValueError: The causes in GROUPS differ from CAUSES, or have another order.
    """
    if tuple(cause for _, _, causes in GROUPS for cause in causes) != CAUSES:
        raise ValueError("GROUPS in docs/build/diagnosis.py differs from CAUSES in causes/judge.py")
    parts = [HEAD, *(_write_group(title, text, causes) for title, text, causes in GROUPS)]
    return "\n\n".join(parts) + "\n"


def _write_group(title: str, text: str, causes: Sequence[Cause]) -> str:
    rows = [
        "| reason | cause | evidence | meaning | what to do | confidence |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_write_row, causes),
    ]
    return "\n".join([f"## {title}", "", text, "", *rows])


def _write_row(cause: Cause) -> str:
    cells = (
        f"`{cause.reason}`",
        cause.title,
        cause.signs,
        cause.meaning,
        "<br>".join(cause.steps),
        cause.confidence,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main() -> None:
    """Write `docs/diagnosis.md`."""
    PAGE.write_text(write_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
