"""The ends of logs: success, further progress after an error, and a run that was resumed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from trainvitals.verdicts.causes.log_reading import read_log
from trainvitals.verdicts.causes.others import find_killed_training
from trainvitals.verdicts.causes.ranks import split_rank
from trainvitals.verdicts.causes.success import FINISHED, SAVED, is_written
from trainvitals.verdicts.causes.suspicious import REPORT, is_trouble
from trainvitals.verdicts.causes.tracebacks import read_tracebacks
from trainvitals.verdicts.causes.words import find_status, is_progress

# A finished download is only a part of a run.
_OF_A_PART = re.compile(
    r"\bdownload(?:ing|ed|s)? (?:is |was )?(?:completed?|finished|done)", re.IGNORECASE
)
_CRASHED = re.compile(
    r"Traceback \(most|core dumped|Segmentation fault|terminate called|\bKilled\b|\bAborted\b|Fatal Python"
    r"|\bsrun: error|slurmstepd: error: (?!Exceeded)|exitcode +: -?[1-9]|\bSIG(?:KILL|TERM|SEGV|ABRT|BUS)\b|\bXid\b"
    r"|\b[Ee]xit [Cc]ode:? -?[1-9]|\b(?:[Jj]ob|[Tt]raining|[Rr]un) failed\b|\bExited with exit code [1-9]"
)
# The messages of a scheduler about a restart, and of a program that resumes from a checkpoint.
_RESUMED = re.compile(
    r"\b(?:restor(?:ed|ing)|resum(?:ed|ing)|load(?:ed|ing))\b.{0,40}\b(?:checkpoint|ckpt|states?)(?![A-Za-z])"
    r"|\bresum(?:ed|ing) (?:training|(?:from|at) (?:step|epoch|iter))|\brestart(?:_count|s)?[ =:]{1,3}[1-9]",
    re.IGNORECASE,
)
# LSF writes its job report before the job's output.
_OUTPUT_FOLLOWS = "The output (if any) follows:"
_SOON = 12
# Slurm sends SIGTERM with its notice, and SIGKILL after 30 seconds or the configured time.
_ENDS_JOB, _MOST_STEPS_BEFORE_KILL = "CANCELLED AT", 500
# The prefixes of Slurm's lines, which count job steps instead of training steps.
OF_SLURM = ("srun:", "slurmstepd", "salloc:", "sbatch:")
_SKELETON_LENGTH = 24
# A program that was requested to stop may continue for a grace period.
_MOST_STEPS_OF_GRACE = 10
# A server whose engine has failed answers its last requests and then exits.
_ENGINE_DEAD = re.compile(
    r"EngineDeadError|EngineCore|EngineGenerationError|[Ee]ngine (?:process )?(?:is )?(?:dead|failed|died)"
)
_FEW_STEPS = 2


def goes_on(lines: tuple[str, ...]) -> bool:
    """Return whether a log ends with training progress, a saved checkpoint or a success.

    An error after the last of these lines may have ended the program. Lines after an error do not
    always show that the program continued: after a traceback, a progress bar may be redrawn or
    buffered output may be written, and after a report that the program ended, its last steps may be
    written.
    """
    lines = _drop_dropped(_put_report_last(lines))
    tracebacks = [each for each in read_tracebacks(lines) if not each.is_aside]
    if tracebacks and not _advances(lines, tracebacks[-1].start, tracebacks[-1].end):
        return False
    if find_success(lines):
        return True
    notice = next((at for at in range(len(lines) - 1, -1, -1) if _ENDS_JOB in lines[at]), None)
    if notice is not None and is_being_ended(lines, notice):
        return False
    steps, reading = 0, read_log(lines)
    for at in range(len(lines) - 1, -1, -1):
        text = reading.simple[at]
        if find_status(text.upper()) is not None:
            steps += 1
            continue
        if is_trouble(text) and (not steps or REPORT.search(text)):
            return False
        if steps and is_resumed(text):
            break
        steps += reading.steps[at] or SAVED.search(text) is not None or is_written(lines[at])
        if steps > _MOST_STEPS_OF_GRACE:
            break
    return steps > 0


def _drop_dropped(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines, with exceptions that Python ignores replaced by empty strings."""
    dropped = {
        at
        for each in read_tracebacks(lines)
        if each.is_dropped
        for at in range(each.start, each.errors[-1].line + 1)
    }
    return (
        tuple("" if at in dropped else line for at, line in enumerate(lines)) if dropped else lines
    )


def is_resumed(line: str) -> bool:
    """Return whether a line reports that a run was restarted or resumed from a checkpoint."""
    return _RESUMED.search(line) is not None


def is_being_ended(lines: Sequence[str], at: int) -> bool:
    """Return whether a line is Slurm's notice that ends a run, which continues until it is killed.

    The next progress line after the notice must have a higher number than the last progress line
    before the notice, and at most 500 progress lines may follow.
    """
    if _ENDS_JOB not in lines[at]:
        return False
    steps = [line for line in lines[at + 1 :] if _is_of_run(line)]
    before = next(filter(_is_of_run, reversed(lines[:at])), "")
    after = next(filter(_is_of_run, lines[at + 1 : at + _SOON]), "")
    is_next = find_skeleton(before) == find_skeleton(after) and _count(before) < _count(after)
    return is_next and len(steps) <= _MOST_STEPS_BEFORE_KILL


def _is_of_run(line: str) -> bool:
    return is_progress(line) and not line.startswith(OF_SLURM)


def precedes_output(line: str) -> bool:
    """Return whether a line ends a scheduler's report that precedes the output of the job."""
    return line.strip() == _OUTPUT_FOLLOWS


def _put_report_last(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines, with a scheduler's report before the job's output moved to the end."""
    at = next((index for index, line in enumerate(lines) if precedes_output(line)), None)
    return lines if at is None else (*lines[at + 1 :], *lines[: at + 1])


def find_success(lines: tuple[str, ...]) -> str:
    """Return the line that reports success, or an empty string if there is no such line.

    At most two steps and no crash may follow the line. Errors may follow, because libraries may log
    errors while the program exits.
    """
    lines = _put_report_last(lines)
    at = _find_success_at(lines)
    return "" if at is None else lines[at].strip()


def drop_after_success(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines, with all lines after the report of success replaced by empty strings."""
    at = _find_success_at(lines)
    return lines if at is None else (*lines[: at + 1], *[""] * (len(lines) - at - 1))


@lru_cache(maxsize=8)  # A case reads its log with and without survived errors.
def _find_success_at(lines: tuple[str, ...]) -> int | None:
    if not FINISHED.may_be_in(lines):
        return None
    aside = {
        index
        for each in read_tracebacks(lines)
        if each.is_aside
        for index in range(each.start, each.end + 1)
    }
    reading, steps = read_log(lines), 0
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        if index in aside:
            continue
        if _CRASHED.search(line) or steps > _FEW_STEPS:
            return None
        if FINISHED(line) and not _OF_A_PART.search(line):
            is_own = not is_trouble(reading.simple[index]) and not _is_of_wrapper(lines, index)
            return index if is_own else None
        steps += reading.steps[index]
    return None


def _is_of_wrapper(lines: tuple[str, ...], at: int) -> bool:
    """Return whether a success is reported only by a shell, after the training crashed."""
    killed = find_killed_training(lines[:at])
    if killed < 0 or sum(read_log(lines).steps[killed + 1 : at]) > _FEW_STEPS:
        return False
    return _find_success_at(lines[:killed]) is None


def _advances(lines: Sequence[str], start: int, end: int) -> bool:
    """Return whether the program continued after a traceback.

    A server continued if it answered requests after the traceback, unless the traceback reports
    that its engine failed. Any other program continued if a counter rose, or if more than two steps
    or a success followed. Steps of ranks other than the rank of the traceback do not count.
    """
    steps, rank = read_log(tuple(lines)).steps, split_rank(lines[start])[0]
    rest = zip(lines[end + 1 :], steps[end + 1 :], strict=True)
    after = [line for line, is_step in rest if is_step and not SAVED.search(line)]
    after = [line for line in after if rank is None or split_rank(line)[0] in {None, rank}]
    if any(find_status(line) is not None for line in lines[end + 1 :]):
        return not any(map(_ENGINE_DEAD.search, lines[start : end + 1]))
    if any(FINISHED(line) for line in lines[end + 1 :]) or len(after) > _FEW_STEPS:
        return True
    before = {find_skeleton(line): _count(line) for line in lines[:start] if is_progress(line)}
    return any(
        before.get(find_skeleton(line), ()) < _count(line)
        for line in after
        if find_skeleton(line) in before
    )


def find_skeleton(line: str) -> str:
    """Return the first words of a line, without digits and punctuation."""
    return re.sub(r"[^A-Za-z]+", " ", line)[:_SKELETON_LENGTH]


def _count(line: str) -> tuple[int, ...]:
    """Return the integers in a line, except those in dates, times, fractions and percentages."""
    plain = re.sub(
        r"(?<![0-9])[0-9]+(?:[:.,-][0-9]+)+|(?<![0-9.])[0-9.]+e[+-]?[0-9]+|(?<![0-9])[0-9]+%",
        " ",
        line,
    )
    return tuple(map(int, re.findall(r"(?<![\w.])[0-9]{1,12}(?![\w.])", plain)))
