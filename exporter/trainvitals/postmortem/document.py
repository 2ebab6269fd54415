"""A run after its end as JSON.

The shape is stable: members may be added, none is renamed or removed. What is not known is null.
Times are UTC in ISO 8601, durations seconds, sizes bytes. A value that is no finite number is one
of the texts `NaN`, `Infinity` and `-Infinity`.

================== ==============================================================================
member             value
================== ==============================================================================
`format`           the number 1
`run`              the run's name
`reason`           one of `REASONS`: the verdict on the last attempt; a rank that ended badly goes
                   before those that live
`summary`          the same in a sentence
`ended`            when the last of its processes ended; null while the run goes on
`world_size`       how many ranks there are on all machines
`ranks_alive`      how many processes live here
`restarts`         how often it was started again after it had died
`lost_steps`       how many steps were done in vain because of that, and `lost_seconds` how long
                   they took
`telling`          `rank` and `attempt` of the start that tells the most
`meaning`          what this usually means, a list of sentences
`next`             what to do next, likewise
`ranks`            a list with one object for each start of each rank, see below
`other_runs`       a list of the other runs: `run`, `reason`, `summary`, `ended`
`left_aside`       how many files are no run files, damaged, or of an unknown version
`omitted`          how many run files there are beyond the limit
`disbelieved`      how many notes on an end were not believed
================== ==============================================================================

Each rank has `rank`, `local_rank`, `attempt`, `reason`, `exit_code`, `signal`, `exception`,
`evidence`, `started`, `ended`, `is_end_seen` (false where `ended` is when it was last heard of),
`host_pid`, `stall` (`stopped`, `no_progress` or null), `phase`, `phase_seconds`,
`progress_age_seconds` (before its end, or before now while it lives), `step`, `loss`,
`last_checkpoint` and `last_checkpoint_step`, `events` (`time`, `event`, `value`; the oldest first),
`machine` (numbers by name, as they were at the end), `description` (what describes the process:
framework, host, script), `metrics` (`name`, `split`, `value`), and `record`: the words of its run
file by their names (see `trainvitals.runfile`), those that are unknown left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import timezone

from trainvitals.postmortem.advice import advise
from trainvitals.postmortem.cases import Run, Start, clean_text
from trainvitals.postmortem.findings import Findings
from trainvitals.postmortem.quantities import write_iso
from trainvitals.postmortem.screen import describe_run
from trainvitals.runfile import ABSENT, STATE, STATE_WORDS, STEP_WORDS, Record

_FORMAT = 1
_METRICS = STATE["metric_0"]
_NO_VALUES = ("sequence", "used", "mono_ns", "metric_", "event_", "names")


def format_json(findings: Findings, run: Run) -> str:
    """Write a run for a program; see above."""
    advice, telling = advise(run), run.telling
    document = {
        "format": _FORMAT,
        **_describe_run(run),
        "world_size": run.world_size,
        "ranks_alive": run.ranks_alive,
        "restarts": run.losses.restarts,
        "lost_steps": run.losses.steps,
        "lost_seconds": run.losses.seconds,
        "telling": {"rank": telling.rank, "attempt": telling.attempt},
        "meaning": advice.meaning,
        "next": advice.steps,
        "ranks": [_describe_start(start) for start in run.starts],
        "other_runs": [_describe_run(other) for other in findings.runs if other is not run],
        "left_aside": findings.incompatible,
        "omitted": findings.omitted,
        "disbelieved": findings.disbelieved,
    }
    return json.dumps(_name_numbers(document), indent=2, allow_nan=False)


def _describe_run(run: Run) -> dict[str, object]:
    return {
        "run": run.name,
        "reason": run.reason,
        "summary": f"{run.name}: {describe_run(run, timezone.utc)}",
        "ended": write_iso(run.ended_time),
    }


def _describe_start(start: Start) -> dict[str, object]:
    ending, identity = start.ending, start.identity
    return {
        "rank": start.rank,
        "local_rank": identity.local_rank if identity.local_rank >= 0 else None,
        "attempt": start.attempt,
        "reason": start.reason,
        "exit_code": None if ending is None else ending.exit_code,
        "signal": None if ending is None else ending.signal,
        "exception": None if ending is None else ending.exception,
        "evidence": None if ending is None else ending.evidence,
        "started": write_iso(identity.created_time),
        "ended": None if ending is None else write_iso(ending.time),
        "is_end_seen": ending is not None and start.is_end_seen,
        "host_pid": start.liveness.host_pid,
        "stall": start.stall,
        "phase": start.phase,
        "phase_seconds": start.phase_seconds,
        "progress_age_seconds": start.progress_age_seconds,
        "step": start.count("global_step"),
        "loss": start.value("loss"),
        "last_checkpoint": write_iso(start.seconds("last_checkpoint_time")),
        "last_checkpoint_step": start.find_checkpoint(),
        "events": [
            {"time": write_iso(event.time), "event": event.name, "value": event.value}
            for event in start.list_events()
        ],
        "machine": {} if ending is None else dict(ending.machine),
        "description": dict(start.static),
        "metrics": _list_metrics(start.record),
        "record": _describe_record(start.record),
    }


def _list_metrics(record: Record) -> list[dict[str, object]]:
    return [
        {"name": clean_text(name), "split": split, "value": record.state[_METRICS + number]}
        for number, (name, split) in enumerate(record.metrics)
        if name and record.state[_METRICS + number] != ABSENT
    ]


def _describe_record(record: Record) -> dict[str, float]:
    # Both records have a word of when they were written; that of the steps is the one that counts.
    words = dict(zip((*STATE_WORDS, *STEP_WORDS), (*record.state, *record.step), strict=True))
    return {
        name: value
        for name, value in words.items()
        if value != ABSENT and not name.startswith(_NO_VALUES)
    }


def _name_numbers(value: object) -> object:
    """Put a text in the place of each number that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _name_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_name_numbers(each) for each in value]
    return value
