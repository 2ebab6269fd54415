"""Writes `docs/diagnosis.md`, the table of all causes of death, from the causes themselves."""
# ruff: noqa: INP001 - a script

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainvitals.causes import endings, logs, memory, outcomes, signals, start, workers
from trainvitals.causes.table import CAUSES, TOLD_BY_LOG
from trainvitals.causes.verdict import Cause

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/diagnosis.md"

HEAD = """\
# Why did it die?

<!-- Written by `make docs` from exporter/trainvitals/causes; change the causes there instead. -->

`trainvitals diagnose NAME` says why a container, a process or a run ended, how sure that is, what speaks for and against it, and what to do.
The exporter judges each death as it happens, by the same causes: `container_deaths_total` and `container_last_death_info` have the reason as a label.
The reasons are a closed set; they are listed here in the order in which they go before one another.


## How the verdict is found

Every cause looks at all the evidence: the engine's events and state, the kernel log, the control group, the log's last lines.
The first that fits is the verdict; the others that fit are told as contributing.

1. A start that failed goes before everything: such a container never ran, and there is no event `die`.
2. Then comes what somebody asked the engine for, by the order of its events: a kill, a stop that ran into its timeout, a stop.
   An OOM kill before a `docker kill` contributes, with its time; it was not the end.
3. Then the kernel's line about an OOM kill, which names the control group, and so the one limit of three that was hit: its own, that of a group above it, or the host's memory.
4. Then the event `oom` or `OOMKilled` together with exit code 137; then a worker that was OOM-killed.
   Both can be wrong: engines miss kills, mark innocent neighbours, and keep the mark over a restart.
5. Then a SIGKILL or SIGTERM that none of these explains.
6. Then the signal of a crash.
   Where a line of the log says for sure what went wrong, that goes first: `terminate called after …` with NCCL's watchdog behind it is a timeout of NCCL, and the abort contributes.
7. Then the log, and last the exit code.

A cause that is not sure gives way to a line of the log that is.
A line that the training survived by many steps is not the cause of its death.
Exit code 0 is `finished` whatever the log says, unless something was OOM-killed.
While a container runs, its log alone is no verdict; it may be `unhealthy`, in a `crash-loop`, or have lost a process (`oom-worker-alive`).
An exit code of 137 alone is no OOM: `kill-operator`, `stop-timeout` and `kill-outside` have it too.

`high` means that nothing else looks like this; `medium` that something else may; `low` that it is the best guess.
The column says how sure it is where the signs are all there; a verdict can be less sure, and says why.
"""

GROUPS: Sequence[tuple[str, str, Sequence[Cause]]] = (
    (
        "It could not be started",
        "The engine says why; `docker ps` shows `Created`, and there is no event `die`.",
        start.CAUSES,
    ),
    (
        "Somebody asked for its end",
        "Told by the order of the engine's events.",
        endings.CAUSES,
    ),
    (
        "The kernel's OOM killer ended it",
        "Told by the kernel log, the engine's events and state, and the control group.",
        memory.CAUSES,
    ),
    (
        "The OOM killer ended a part of it",
        "The main process went on, or gave up by itself.",
        workers.CAUSES,
    ),
    (
        "It was ended from outside, or lost sight of",
        "What is left when nobody asked the engine and nothing ran out of memory.",
        (*endings.OUTSIDE, outcomes.LOST),
    ),
    (
        "It finished",
        "No failure.",
        (outcomes.FINISHED,),
    ),
    (
        "Native code crashed",
        "Told by the signal, and by the log where it says more.",
        signals.CAUSES,
    ),
    (
        "The log says why",
        "Colours, progress bars and the marks of ranks are taken off first.",
        TOLD_BY_LOG,
    ),
    (
        "Trouble that lasts, and the rest",
        "`log-lost` is told beside other causes and is never the verdict.",
        (
            outcomes.UNHEALTHY,
            outcomes.LOOP,
            *logs.CAUSES,
            outcomes.RUNNING,
            outcomes.UNKNOWN,
        ),
    ),
)


def write_page() -> str:
    """Write the whole document.

    Raises:
        ValueError: If the groups are not the table, in its order.
    """
    if tuple(cause for _, _, causes in GROUPS for cause in causes) != CAUSES:
        raise ValueError("the groups of docs/build/diagnosis.py are not causes/table.py")
    parts = [HEAD, *(_write_group(title, text, causes) for title, text, causes in GROUPS)]
    return "\n\n".join(parts) + "\n"


def _write_group(title: str, text: str, causes: Sequence[Cause]) -> str:
    rows = [
        "| reason | what | signs | meaning | what to do | sure |",
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
    """Write the document to its place."""
    PAGE.write_text(write_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
