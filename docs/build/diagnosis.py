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
The exporter uses the same causes for each death that it observes: the metrics `container_deaths_total` and `container_last_death_info` have the reason as a label.
The reasons are a closed set, and are listed here in order of precedence.


## Order of evaluation

Every cause is checked against all the evidence: the engine's events and state, the kernel log, the control group, and the last lines of the log.
The first matching cause is the verdict, with the exceptions described in the list and below it.
Further matching causes are listed as contributing.
The causes are checked in this order:

1. Kubernetes did not start the pod, or ended the pod.
2. A failed start: the container never ran, and there is no event `die`.
3. Requests to the engine, in the order of the engine's events: a kill, a stop that reached its timeout, or a stop.
   An OOM kill before a `docker kill` is listed as contributing, with the time of the OOM kill.
4. The kernel's message about an OOM kill, which names the control group that reached its limit: the container's own group, a parent group, or the whole host.
5. The event `oom` or `OOMKilled` together with exit code 137, and then an OOM-killed worker.
   The event and `OOMKilled` can be wrong: engines miss OOM kills, mark other containers as `OOMKilled`, and keep the mark after a restart.
6. The host: an OOM guard in user space, a shutdown, or faulty memory.
7. A SIGKILL or SIGTERM that none of these causes explains.
8. Exit code 0.
9. The signal of a crash.
   A log line that names a definite cause takes precedence: if `terminate called after …` is followed by a timeout of NCCL's watchdog, the timeout is the verdict, and the abort is contributing.
10. The log.
11. Faults that last, and subjects that are still running.

If the first matching cause is uncertain and a log line names a definite cause, the definite cause is the verdict.
If training continued for many steps after a log line, this line is not the cause of the death.
An error that the log reports as skipped, retried or ignored is not the cause either.
If there is only a log, without an engine, a control group or an exit code, `trainvitals diagnose` assumes that the subject has ended: the verdict is `running` only if there is evidence for it.
If such a log continues with progress, a saved checkpoint or a success after an error, the error is only contributing.
Exit code 0 means `finished` regardless of the log, unless a stop was requested or a process was OOM-killed.
The log of a running container is not sufficient for a verdict.
The verdict on a running container may be `unhealthy`, `crash-loop`, or `oom-worker-alive` if the container lost a process.
Exit code 137 alone does not indicate an OOM kill: it also occurs with `kill-operator`, `stop-timeout` and `kill-outside`.

The confidence is `high` if no other cause produces this evidence or if two independent sources agree, `medium` if another cause is possible, and `low` if the evidence is weak.
The column `confidence` shows the confidence with complete evidence.
A verdict on incomplete evidence has a lower confidence and lists the missing evidence.
"""

GROUPS: Sequence[tuple[str, str, Sequence[Cause]]] = (
    (
        "Kubernetes did not start the pod, or ended it",
        "Determined by the output of `kubectl describe pod`, saved as `pod.txt`, or by lines of this output in the log.",
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
        "Determined by lines that the kernel or the host's services wrote to the kernel log or the journal.",
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
        "Determined by the signal, and by the log if the log names the crash.",
        signals.CAUSES,
    ),
    (
        "The log names the cause",
        "Colors, progress bars and rank prefixes are removed from log lines before the lines are compared.",
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
