"""Formats the postmortem of a run as JSON.

The format is stable: members may be added, but none is renamed or removed. Unknown values are null.
Times are in UTC and in the format of ISO 8601, durations are in seconds, and sizes are in bytes. A
number that is not finite is written as one of the strings `NaN`, `Infinity` and `-Infinity`.

================== ==============================================================================
member             value
================== ==============================================================================
`format`           the number 1
`run`              the run's name
`reason`           the cause, one of the closed set in `docs/diagnosis.md`, as in `trainvitals
                   diagnose`; `confidence`, `summary`, `speaks_for`, `speaks_against`, `steps`,
                   `contributing` and `gaps` are as in `trainvitals.views.death.document`
`ending`           how the last attempt ended: `finished`, `exception`, `signal`, `oom`, `unknown`
                   or `running`; a failed rank takes precedence over ranks that are alive
`outcome`          the ending in a sentence
`ended`            the time at which the run's last process ended; null while a process is running
`world_size`       the number of ranks on all machines
`ranks_alive`      the number of ranks whose processes are alive on this machine
`restarts`         the number of restarts after a rank died
`lost_steps`       the steps that were lost by restarts; `lost_seconds` is their total duration
`telling`          `rank` and `attempt` of the start to which the verdict refers
`meaning`          `summary` and `speaks_for` as one list
`next`             the same as `steps`
`ranks`            a list with one object for each start of each rank, see below
`other_runs`       the other runs, a list of objects: `run`, `reason`, `summary`, `ending`,
                   `outcome`, `ended`
`left_aside`       the number of files that are damaged, have an unknown version or are not run
                   files
`omitted`          the number of run files beyond the limit
`disbelieved`      the number of end notes that were ignored because another user wrote them
================== ==============================================================================

Each object in `ranks` contains `rank`, `local_rank`, `attempt`, `reason`, `ending`, `exit_code`,
`signal`, `exception`, `evidence`, `started`, `ended`, `is_end_seen` (false if `ended` is the time
of the last record), `host_pid`, `stall` (`stopped`, `no_progress` or null), `phase`,
`phase_seconds`, `progress_age_seconds` (up to the end, or up to now while the rank is alive),
`step`, `loss`, `last_checkpoint` and `last_checkpoint_step`, `events` (`time`, `event`, `value`;
the oldest first), `machine` (numbers by name at the end), `description` (framework, host and script
of the process), `metrics` (`name`, `split`, `value`), and `record`, which contains the fields of
the rank's run file by name (see `trainvitals.runfile`), except fields without a known value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timezone

from trainvitals.foreign_text import clean_text
from trainvitals.runfile import ABSENT, STATE, STATE_WORDS, STEP_WORDS, Record
from trainvitals.sources.runs.past_runs import LONGEST_TEXT, Run, Start
from trainvitals.units import format_iso
from trainvitals.verdicts.causes.diagnosis import Postmortem
from trainvitals.verdicts.causes.verdict import Verdict
from trainvitals.views.death.document import describe_finding
from trainvitals.views.death.run_screen import describe_run

_FORMAT = 1
_METRICS = STATE["metric_0"]
_NO_VALUES = ("sequence", "used", "mono_ns", "metric_", "event_", "names")


def format_json(postmortem: Postmortem) -> str:
    """Return the postmortem of a run as a JSON document in the format of this module."""
    history, run = postmortem.history, postmortem.run
    diagnosis, telling = postmortem.diagnose(), run.telling
    finding = diagnosis.verdict.finding
    document = {
        "format": _FORMAT,
        **_describe_run(run),
        **describe_finding(finding),
        "contributing": [describe_finding(each) for each in diagnosis.verdict.contributing],
        "gaps": [asdict(gap) for gap in diagnosis.gaps],
        "world_size": run.world_size,
        "ranks_alive": run.ranks_alive,
        "restarts": run.losses.restarts,
        "lost_steps": run.losses.steps,
        "lost_seconds": run.losses.seconds,
        "telling": {"rank": telling.rank, "attempt": telling.attempt},
        "meaning": (finding.summary, *finding.speaks_for),
        "next": finding.steps,
        "ranks": [
            {**_describe_start(start), "reason": postmortem.judge_start(start).reason}
            for start in run.starts
        ],
        "other_runs": [
            _describe_other(other, postmortem.judge_run(other))
            for other in history.runs
            if other is not run
        ],
        "left_aside": history.incompatible,
        "omitted": history.omitted,
        "disbelieved": history.disbelieved,
    }
    return json.dumps(name_numbers(document), indent=2, allow_nan=False)


def _describe_run(run: Run) -> dict[str, object]:
    return {
        "run": run.name,
        "ending": run.reason,
        "outcome": f"{run.name}: {describe_run(run, timezone.utc)}",
        "ended": format_iso(run.ended_time),
    }


def _describe_other(run: Run, verdict: Verdict) -> dict[str, object]:
    return {**_describe_run(run), "reason": verdict.reason, "summary": verdict.summary}


def _describe_start(start: Start) -> dict[str, object]:
    ending, identity = start.ending, start.identity
    return {
        "rank": start.rank,
        "local_rank": identity.local_rank if identity.local_rank >= 0 else None,
        "attempt": start.attempt,
        "ending": start.reason,
        "exit_code": None if ending is None else ending.exit_code,
        "signal": None if ending is None else ending.signal,
        "exception": None if ending is None else ending.exception,
        "evidence": None if ending is None else ending.evidence,
        "started": format_iso(identity.created_time),
        "ended": None if ending is None else format_iso(ending.time),
        "is_end_seen": ending is not None and start.is_end_seen,
        "host_pid": start.liveness.host_pid,
        "stall": start.stall,
        "phase": start.phase,
        "phase_seconds": start.phase_seconds,
        "progress_age_seconds": start.progress_age_seconds,
        "step": start.count("global_step"),
        "loss": start.value("loss"),
        "last_checkpoint": format_iso(start.seconds("last_checkpoint_time")),
        "last_checkpoint_step": start.find_checkpoint(),
        "events": [
            {"time": format_iso(event.time), "event": event.name, "value": event.value}
            for event in start.list_events()
        ],
        "machine": {} if ending is None else dict(ending.machine),
        "description": dict(start.static),
        "metrics": _list_metrics(start.record),
        "record": _describe_record(start.record),
    }


def _list_metrics(record: Record) -> list[dict[str, object]]:
    return [
        {
            "name": clean_text(name, most=LONGEST_TEXT),
            "split": split,
            "value": record.state[_METRICS + number],
        }
        for number, (name, split) in enumerate(record.metrics)
        if name and record.state[_METRICS + number] != ABSENT
    ]


def _describe_record(record: Record) -> dict[str, float]:
    # Both records contain the fields for the time of writing; the step record takes precedence.
    words = dict(zip((*STATE_WORDS, *STEP_WORDS), (*record.state, *record.step), strict=True))
    return {
        name: value
        for name, value in words.items()
        if value != ABSENT and not name.startswith(_NO_VALUES)
    }


def name_numbers(value: object) -> object:
    """Return a value with strings in place of non-finite numbers, which JSON does not support."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): name_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [name_numbers(each) for each in value]
    return value
