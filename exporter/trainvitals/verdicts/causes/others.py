"""Log lines about failures of trials, items, helpers or other jobs that did not end the program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainvitals.sources.containers.log_owner import find_times, read_stamp
from trainvitals.verdicts.causes.ranks import split_rank
from trainvitals.verdicts.causes.success import FINISHED, RESULT
from trainvitals.verdicts.causes.tracebacks import read_tracebacks
from trainvitals.verdicts.causes.words import KILLED, SEGFAULT, is_progress

_MOST_LINES, _FEW_STEPS = 200, 2
_TRACEBACK = "Traceback (most recent"
_TRIAL = re.compile(r"\bTrial [0-9]{1,9} failed with parameters\b|Trial task failed for trial ")
_TRIAL_END = re.compile(r"\bTrial [0-9]{1,9} failed with value\b")
_STUDY = re.compile(
    r"\bTrial [0-9]{1,9} (?:finished|pruned|failed)\b|\bBest (?:trial|value|params|hyperparameters)\b"
    r"|\bStudy statistics\b|\bNumber of (?:finished )?trials\b|== Status =="
)
_STUDY_FAILED = re.compile(r"\bTuneError\b|Trials did not complete")
_WORDS = rf"(?:{'|'.join((*KILLED, *SEGFAULT))}|Terminated|Aborted|Bus error|Hangup)"
_JOB = re.compile(
    rf"\S{{1,200}}: line [0-9]{{1,6}}: +[0-9]{{1,9}} {_WORDS}\b *(?:\(core dumped\) *)?(\S.*)"
    rf"|((?:\S{{0,200}}/)[\w.-]{{1,80}}|a\.out): {_WORDS}\b"
)
_OF_TRAINING = re.compile(
    r"\b(?:python[0-9.]*|torchrun|accelerate|deepspeed|srun|mpirun|horovodrun|julia|train\w*)\b",
    re.IGNORECASE,
)
_ITEM = re.compile(r"([\w.-]{1,60})/[0-9]{1,7}: (?:passed|failed)\b")
_LEAST_ITEMS = 3
_OTHERS = re.compile(
    rf"^(?:\S{{0,200}}/)?[\w.-]{{1,80}}: {_WORDS}|^\S{{1,80}}: line [0-9]{{1,6}}: +[0-9]{{1,9}} {_WORDS}"
    r"|^terminate called|^\s{0,4}what\(\):"
)
_SLURM = re.compile(r"(?:slurmstepd|srun)(?:-\S{1,80})?: |\*\*\* (?:JOB|STEP) ")
_CANCELLED = re.compile(r"\b(?:JOB|STEP) ([0-9]{1,12})\b.{0,120}\bCANCELLED AT (\S{10,40})")
_OWN_JOB = re.compile(
    r"SLURM_JOB_?ID ?[:=] ?\"?([0-9]{1,12})|^Job(?: ID:)? ([0-9]{1,12}) (?:running|started)",
    re.IGNORECASE | re.MULTILINE,
)
_TEXT_BEFORE = re.compile(r"[a-z]{2} [a-z]{2}|[\"'`]")
# Messages of an epilog and of a tracker that finished after the program, and Python's warnings at
# exit.
_ASIDE = re.compile(
    r"^epilog: |^.{0,200}\bresource_tracker: .{0,200}(?:leaked|\[Errno 2\])"
    r"|^.{0,100}\bmlflow\b.{0,200}\b(?:[Ff]ailed|[Uu]nable) to (?:log|upload|send)"
)
_MAY_BE_ASIDE = re.compile(r"epilog: |resource_tracker: |mlflow")
_TRACKER, _TRACKER_END = (
    "wandb: ",
    re.compile(r"wandb: .{0,40}(?:Find logs at|Synced |You can sync)"),
)
_DAY_SECONDS = 86_400.0
_MOST_DAYS = 30


def find_trials(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines about failed trials after which the study continued."""
    spans: list[tuple[int, int]] = []
    for at, line in enumerate(lines):
        if "Trial " in line and _TRIAL.search(line) and (not spans or at > spans[-1][1]):
            spans.append((at, _find_trial_end(lines, at)))
    rest = lines[spans[-1][1] + 1 :] if spans else ()
    if any(_TRACEBACK in line or _STUDY_FAILED.search(line) for line in rest):
        return
    for start, end in spans:
        if any(map(_STUDY.search, lines[end + 1 :])):
            yield from range(start, end + 1)


def _find_trial_end(lines: Sequence[str], at: int) -> int:
    """Return the index of the last log line that a study writes about a failed trial."""
    end = min(len(lines), at + _MOST_LINES)
    for index in range(at + 1, end):
        if _TRIAL_END.search(lines[index]):
            return index
        if _TRIAL.search(lines[index]) or _STUDY.search(lines[index]):
            end = index
            break
    return next((at + 1 + each.end for each in read_tracebacks(lines[at + 1 : end])), at)


def find_programs(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines in which a shell reports that another program crashed.

    A line counts only if a result or a success message follows later or directly precedes the line.
    """
    found = {at: each[1] or each[2] for at, line in enumerate(lines) if (each := _JOB.match(line))}
    results = (
        [
            at
            for at, line in enumerate(lines)
            if at not in found
            and (RESULT.search(line) or FINISHED(line))
            and not _TRIAL.search(line)
        ]
        if found
        else []
    )
    for at, program in found.items():
        before = max((result for result in results if result < at), default=None)
        is_after = (
            before is not None and sum(map(is_progress, lines[before + 1 : at])) <= _FEW_STEPS
        )
        if (is_after or (results and results[-1] > at)) and not _OF_TRAINING.search(program):
            yield at


def find_killed_training(lines: Sequence[str]) -> int:
    """Return the index of the shell's last report of a training crash; -1 if none was found."""
    found = ((at, _JOB.match(line)) for at, line in enumerate(lines))
    programs = ((at, (each[1] or each[2]).split()[0]) for at, each in found if each is not None)
    return max((at for at, program in programs if _OF_TRAINING.search(program)), default=-1)


def find_items(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines about evaluated items and their crashes, if a result follows."""
    items = [at for at, line in enumerate(lines) if _ITEM.match(line)]
    behind = range(len(lines) - 1, items[-1] - 1, -1) if items else ()
    result = next((at for at in behind if RESULT.search(lines[at])), -1)
    if result < 0:
        return
    if len(items) >= _LEAST_ITEMS or any(
        _OTHERS.match(lines[at]) for at in range(items[0], result)
    ):
        yield from items
        yield from (at for at in range(items[0], result) if _OTHERS.match(lines[at]))


def find_foreign_jobs(lines: Sequence[str]) -> Iterator[int]:
    """Yield the line indices of Slurm messages that are quoted, or that are about another job.

    Another job is recognized by its ID, or by a time that is not near the times in the log.
    """
    said = [at for at, line in enumerate(lines) if "slurmstepd" in line or "CANCELLED AT" in line]
    if not said:
        return
    own = {next(filter(None, found.groups())) for found in _OWN_JOB.finditer("\n".join(lines))}
    times = find_times(line for at, line in enumerate(lines) if at not in said)
    for at in said:
        text = split_rank(lines[at])[1]
        found, start = _CANCELLED.search(text), _SLURM.search(text)
        is_within = start is not None and _TEXT_BEFORE.search(text[: start.start()]) is not None
        is_other = found is not None and bool(own) and found[1] not in own
        if is_within or is_other or (found is not None and _is_apart(found[2], times)):
            yield at


def _is_apart(stamp: str, times: tuple[float, float] | None) -> bool:
    """Return whether a time is over a day before a log's first time or 30 days after its last."""
    time = read_stamp(stamp)
    if time is None or times is None:
        return False
    return not times[0] - _DAY_SECONDS <= time <= times[1] + _MOST_DAYS * _DAY_SECONDS


def find_asides(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of lines that trackers and epilogs wrote.

    Trackers and epilogs run during or after the training.
    """
    ends = [at for at, line in enumerate(lines) if _TRACKER_END.match(line)]
    for at, line in enumerate(lines):
        is_of_tracker = line.startswith(_TRACKER) and bool(ends) and at < ends[-1]
        if is_of_tracker or (_MAY_BE_ASIDE.search(line) and _ASIDE.match(line)):
            yield at
