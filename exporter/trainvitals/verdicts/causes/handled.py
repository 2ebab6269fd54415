"""Errors in a log that the program survived by a retry, by a skip or by continued training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice, pairwise

from trainvitals.verdicts.causes.others import find_killed_training
from trainvitals.verdicts.causes.ranks import split_rank
from trainvitals.verdicts.causes.signs import read_log
from trainvitals.verdicts.causes.success import FINISHED, is_written
from trainvitals.verdicts.causes.tracebacks import Traceback, read_tracebacks
from trainvitals.verdicts.causes.words import (
    KILLED,
    NOT_COUNTED,
    SEGFAULT,
    find_status,
    is_progress,
    may_be_trouble,
)

_HANDLED = re.compile(
    r"\b(?:skip(?:s|ped|ping)?|retr(?:y|ying|ied)|ignor(?:ed|ing)|continu(?:es?|ed|ing)"
    r"|fall(?:s|ing)?[ -]?back|fell back|recover(?:ed|ing)|resum(?:ed|ing)|reconnect(?:s|ed|ing)"
    r"|will try|try(?:ing)? (?:again|once more|with|on|port|next|another|a different|the next)"
    r"|as planned|as expected|as intended|on purpose|by design|non-fatal|not fatal|harmless|handled|us(?:ing|ed) .{1,60} instead|instead us(?:ing|ed)"
    r"|(?:us(?:es?|ed|ing)|tak(?:es?|ing)|took|load(?:s|ed|ing)|substitut(?:es?|ed|ing)|pick(?:s|ed|ing)) (?:(?:a|an|the|its|one|some) )?(?:random |next |previous |last |valid |other |empty |blank |dummy |black )?"
    r"(?:another|next|previous|other|default|defaults|neighbou?r(?:ing)?|fallback|placeholder|substitute|replacement|random (?:sample|item|one|image)|(?:empty|blank|dummy|black|zero) (?:sample|image|item|tensor))"
    r"|substituted|resampl(?:ed|ing)|is (?:left out|omitted)"
    r"|(?:reduc|halv|lower|shrink)(?:ed|ing)|back(?:ing|ed)? ?off|default(?:ed|ing) to|switch(?:ed|ing) to"
    r"|proceed(?:s|ed|ing)|mov(?:ed|ing) on|drop(?:ped|ping)|exclud(?:ed|ing)|replac(?:ed|ing)"
    r"|quarantined|rolled back|rolling back|restor(?:ed|ing)|reload(?:ed|ing)|restart(?:ed|ing)"
    r"|respawn(?:ed|ing)|empt(?:ied|ying) (?:the )?cache|clear(?:ed|ing) (?:the )?cache|from scratch"
    r"|accept(?:ed|ing) (?:this|that|it|the)|succeeded after|sleeping|waiting [0-9]|offline mode|cached (?:copy|version|file)"
    r"|attempt [0-9]+(?: of |/)[0-9]+|next attempt|non-critical|best[ -]effort|try later|(?:un|not )affected"
    r"|keep(?:s|ing)? (?:the )?(?:old|previous|last|going|training))\b"
    # The same words in other languages: skipped, tried again, ignored, continued, used instead.
    r"|跳过|跳過|略过|忽略|重试|重試|已恢复|继续(?:训练|运行)|改用|从头开始|スキップ|再試行|リトライ|無視|続行|건너|재시도|무시"
    r"|\b(?:übersprungen|überspringe|übersprungene|ignoriert|erneuter versuch|versuche (?:es )?(?:erneut|nochmal)|wird fortgesetzt|weiter mit"
    r"|пропус(?:к|каем|каю|кается|щен|щена|щено|щены)|повторная попытка|повтор через|игнорируется|продолжаем|продолжаю"
    r"|ignorée?s?|sautée?s?|nouvel essai|réessaie|nouvelle tentative|on continue"
    r"|se omite|omitid[oa]s?|omitiendo|reintentando|se reintenta|ignorad[oa]s?|se ignora|continuando"
    r"|pulad[oa]s?|tentando novamente|saltat[oaie]|ignorat[oaie]|riprovo)\b",
    re.IGNORECASE,
)
_NOW = re.compile(
    r"\W{0,3}(?:skipping|ignoring|continuing|retrying|falling|recovering|resuming|proceeding|reducing|restarting)\b",
    re.IGNORECASE,
)
# Actions that are not possible, and a gradient scaler's search, which may never end.
_NOT_HANDLED = re.compile(
    r"(?:can(?:not|'t)|could not|unable to|not able to|refus\w{1,5} to|never|to)"
    r" (?:be )?(?:skip|retry|ignore|continue|recover|resume|reconnect)\b"
    r"|overflow|fork: retry|giving up|gave up|retries exceeded|retries exhausted|after [0-9]+ retr|last attempt"
    r"|(?:\bnot|n't) (?:\w{1,20} ){0,3}as expected|discontinu|\bnot (?:retrying|continuing|resuming|ignored|skipped)",
    re.IGNORECASE,
)
# A test's report of the observed end of a program together with the expected end.
_EXPECTED = re.compile(
    r"\b(?:code|status|signal) (-?[0-9]{1,5})\b.{0,100}\bexpected:? (?:exit )?(?:code |status |signal )?\1\b"
    r"|\bobserved: .{0,200}\(expected \S"
)
_ERROR_NAME = re.compile(
    r"\s*(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt)\b"
)
# A finished download is only part of a run.
_OF_A_PART = re.compile(
    r"\bdownload(?:ing|ed|s)? (?:is |was )?(?:completed?|finished|done)", re.IGNORECASE
)
_SAVED = re.compile(
    r"\b(?:sav(?:e|ed|ing)|wrote|written)\b.{0,80}\b(?:checkpoint|model|weights|state|ckpt)"
    r"|\b(?:checkpoint|model|weights)\b.{0,80}\b(?:saved|written)\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"(?<![a-z_])error|exception|traceback|\bfatal|\bkill|\babort|\bfault|\bfail|\bnan\b(?! (?:iterations?|counts?)\b)|\binf\b"
    r"|\bsig[a-z]{3,5}\b|\bsignal|core dumped|\bterminat|\btimed[ -]?out|\btime-?outs?\b|\btimes out\b|\bcancel"
    r"|preempt|evict|cannot|can't|unable|denied|\bexceed|out of memory|\boom\b|no such|not found"
    r"|refused|no space left|low on resource|\bhangup\b|unavailable|reclaimed|reached its|interrupt|corrupt|\bbus\b|\billegal|insufficient|\binvalid|mismatch|requeue|time limit"
    r"|exit(?:ed)? (?:with )?(?:code|status) [1-9]|exitcode|return code|non-zero status|stalled|unresponsive|\blost\b"
    rf"|{'|'.join((*KILLED, *SEGFAULT))}"
    r"|\bnot (?:match|support)|\bbusy\b|\bstuck\b|\bhung\b|shared memory|deadline|unreachable|in use\b|\berrno|could ?n(?:ot|'t)|\bproblem|\bcrash|\bdied\b|reset by peer|NCCL WARN|\bXid\b",
    re.IGNORECASE,
)
# Metrics, zero counts, options and Python's warnings also contain such words.
_NO_TROUBLE = re.compile(
    r"error(?: rate)?[\w ]{0,20}[=:]? *[0-9]+[.%][0-9]*|\b(?:no|0|without) (?:errors|failures|failed)"
    r"|^(?![^:=]{0,60}\b(?:code|exit|status|rank|pid)\b)[^:=]{0,60}\b(?:errors|failed|failures|skipped|timeouts|crashe[sd]|timed out)\b[^:=]{0,24}[:=] {0,40}[0-9]+\W*$"
    r"|\b(?:errors|failed|failures|skipped)[=:] *0\b|\berrors?['\"]?[=:] ?(?:(?:None|null|false)\b|\[\])|time-?outs?[=:] ?[0-9]|\wWarning:|\bWARNING\b"
    r"|warnings\.warn",
    re.IGNORECASE,
)
# Reports by services and launchers about the end of a program, some of them at warning level.
_REPORT = re.compile(
    r"death signal|closing signal|\b(?:kubelet|default-scheduler|job-controller)\b|is going down|instructions, but these|assertion `"
    r"|\b(?:job)?state ?[:=] ?(?:out_of_memory|node_fail|boot_fail|preempted|cancelled|timeout|deadline)|double free|\bexit status: -[1-9]"
    r"|detected keyboardinterrupt|terminating training|\bterm_(?:owner|preempt|memlimit|runlimit)|cancelled at|error response from daemon|nodes are available: "
)
# A launcher's report about a failed rank, which shows that an earlier traceback was not handled.
_FAILED = re.compile(
    r"exitcode {0,8}:? {0,8}-?[1-9]|ChildFailedError|returned non-zero exit status|return code =? ?-?[1-9]"
    r"|srun: error: |(?:exited|crashed) with (?:exit )?(?:code|status) -?[1-9]|Container failed !!!"
)
# Reports about single attempts and remarks about earlier lines do not concern the next traceback.
_NOT_OF_NEXT = re.compile(r"Retrying \(Retry\(|\babove this line\b", re.IGNORECASE)
# Each of Megatron's lines contains the number of iterations with NaN.
_NOT_A_NUMBER = re.compile(rf"\bnan\b{NOT_COUNTED}", re.IGNORECASE)
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
_DEFINITE = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|[A-Z]\w+(?:Error|Exception))\b|[Ff]atal|core dumped|\b[Kk]illed\b|\b[Aa]borted\b"
)
_NEXT_LINES, _FEW_STEPS, _MOST_SUSPICIOUS = 3, 2, 3
_SOON = 12
# Slurm sends SIGTERM with its notice, and SIGKILL after 30 seconds or the configured time.
_ENDS_JOB, _MOST_STEPS_BEFORE_KILL = "CANCELLED AT", 500
# The prefixes of Slurm's lines, which count job steps instead of training steps.
OF_SLURM = ("srun:", "slurmstepd", "salloc:", "sbatch:")
_SKELETON_LENGTH = 24
# A program that is asked to stop may continue for a grace period.
_MOST_STEPS_OF_GRACE = 10


# Connections that parts of a program lose during the shutdown, and the lines that are logged before
# and during the shutdown.
_LOST_CONNECTIONS = ("StreamClosedError", "CommClosedError", "ConnectionResetError", "EOFError")
_LOGGED = re.compile(r"\b(?:ERROR|WARNING|WARN)\b")
_CLOSING = re.compile(r"\b(?:closed|closing|shut(?:ting)? ?down|stopp(?:ed|ing))\b", re.IGNORECASE)
# A server whose engine has failed answers its last requests and then exits.
_ENGINE_DEAD = re.compile(
    r"EngineDeadError|EngineCore|EngineGenerationError|[Ee]ngine (?:process )?(?:is )?(?:dead|failed|died)"
)
# A data loader's line about one item, with the item's number or file.
_ITEM = re.compile(
    r"^(?:\W{0,2}[\w./:, -]{0,60}\W{1,3})?(?:[Ss]ample|[Ii]tem|[Rr]ecord|[Ii]mage|[Vv]ideo|[Rr]ow|[Ee]xample|[Ii]ndex|[Ii]dx|[Dd]ocument|[Uu]tterance)\b[ #:='\"]{1,3}(?:[0-9]{1,12}|\S{1,300}\.\w{2,5})[\"']? ?:"
)
_LAST_ATTEMPT = re.compile(r"\battempt ([0-9]{1,4})(?: of |/)\1\b", re.IGNORECASE)


def drop_handled(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines, with the lines about handled errors replaced by empty strings.

    A traceback is handled if the line before it or one of the three lines after it reports this,
    for example as a retry or a skip. Empty lines are ignored.
    """
    simple = read_log(lines).simple
    marked = {
        index
        for index, text in enumerate(simple)
        if (_is_handled(text) or ("expected" in text and _EXPECTED.search(lines[index])))
        and not _ERROR_NAME.match(split_rank(lines[index])[1])
        and not _LAST_ATTEMPT.search(lines[index])
    }
    dropped = {index for index in marked if _TROUBLE.search(simple[index])}
    dropped |= {
        index
        for index, (text, following) in enumerate(pairwise((*simple, "")))
        if following.startswith("retrying in ") and _TROUBLE.search(text)
    }
    dropped |= _find_items(lines)
    dropped |= {
        index + 1
        for index, text in enumerate(simple[:-1])
        if text.startswith("exception ignored in") and not lines[index + 1].startswith("Traceback")
    }
    last_failed = find_failed(lines)
    for traceback in read_tracebacks(lines):
        before = [
            index
            for index in _find_text(lines, range(traceback.start - 1, -1, -1), 1)
            if _TROUBLE.search(lines[index])
            and not _NOT_OF_NEXT.search(lines[index])
            and not _is_one_of_many(lines, index)
        ]
        if last_failed > traceback.end:
            before = []
        after = _find_text(lines, range(traceback.end + 1, len(lines)), _NEXT_LINES)
        inside = range(traceback.start, traceback.end + 1)
        dropped.difference_update(inside)
        if _goes_on_in_message(lines, traceback):
            after.append(traceback.end)
        if marked.intersection(before) or marked.intersection(after):
            dropped.update(inside)
        elif _is_of_shutdown(lines, traceback):
            dropped.update(before, inside)
    return tuple("" if index in dropped else line for index, line in enumerate(lines))


def _find_items(lines: Sequence[str]) -> set[int]:
    """Return the indices of lines about a single data item that are followed by progress."""
    last = max((at for at, line in enumerate(lines) if is_progress(line)), default=0)
    return {
        at
        for at, line in enumerate(lines[:last])
        if _ITEM.search(line) and not _ERROR_NAME.match(line)
    }


def _is_of_shutdown(lines: Sequence[str], traceback: Traceback) -> bool:
    """Return whether a connection was lost while the program shut down after it saved its outcome.

    The exception is logged after the outcome without progress in between, and is followed only by
    similar exceptions and messages about the shutdown.
    """
    if not traceback.errors[-1].name.endswith(_LOST_CONNECTIONS):
        return False
    if not any(map(_LOGGED.search, lines[max(0, traceback.start - 1) : traceback.start])):
        return False
    own = {at for each in read_tracebacks(tuple(lines)) for at in range(each.start, each.end + 1)}
    rest = [line for at, line in enumerate(lines) if at > traceback.end and at not in own]
    if not all(_CLOSING.search(line) or _LOGGED.search(line) for line in rest if line.strip()):
        return False
    for at in range(traceback.start - 1, -1, -1):
        if at in own:
            continue
        if _SAVED.search(lines[at]) or is_written(lines[at]):
            return True
        if is_progress(lines[at]):
            return False
    return False


def _goes_on_in_message(lines: Sequence[str], traceback: Traceback) -> bool:
    """Return whether output directly after an exception reports that the exception was handled.

    Such output looks like a part of the exception's message.
    """
    is_behind = traceback.end > traceback.errors[-1].line
    return is_behind and _NOW.match(split_rank(lines[traceback.end])[1]) is not None


@lru_cache(maxsize=4096)  # many lines in a log differ only in their numbers
def _is_handled(simple: str) -> bool:
    if not _HANDLED.search(simple) or _NOT_HANDLED.search(simple):
        return False
    return not _REPORT.search(simple)


def _find_text(lines: Sequence[str], indices: range, most: int) -> list[int]:
    return list(islice((index for index in indices if lines[index].strip()), most))


def find_failed(lines: Sequence[str]) -> int:
    """Return the index of a launcher's last report about a failed rank; -1 if none was found."""
    return max((at for at, line in enumerate(lines) if _FAILED.search(line)), default=-1)


def goes_on(lines: tuple[str, ...]) -> bool:
    """Return whether a log ends with training progress, a saved checkpoint or a success.

    An error after the last of these lines may have ended the program. After a traceback, a progress
    bar may be redrawn and buffered output may follow; after a report that the program
    ended, its last steps may follow.
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
        if _is_trouble(text) and (not steps or _REPORT.search(text)):
            return False
        if steps and is_resumed(text):
            break
        steps += reading.steps[at] or _SAVED.search(text) is not None or is_written(lines[at])
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
    """Return whether a line is Slurm's notice to a run that continues until it is killed.

    A progress line soon after the notice must have a higher number than the last one before it.
    """
    if _ENDS_JOB not in lines[at]:
        return False
    steps = [line for line in lines[at + 1 :] if _is_of_run(line)]
    before = next(filter(_is_of_run, reversed(lines[:at])), "")
    after = next(filter(_is_of_run, lines[at + 1 : at + _SOON]), "")
    is_next = _skeleton(before) == _skeleton(after) and _count(before) < _count(after)
    return is_next and len(steps) <= _MOST_STEPS_BEFORE_KILL


def _is_of_run(line: str) -> bool:
    return is_progress(line) and not line.startswith(OF_SLURM)


def precedes_output(line: str) -> bool:
    """Return whether a scheduler's report ends with this line and the job's output follows."""
    return line.strip() == _OUTPUT_FOLLOWS


def _put_report_last(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines with a scheduler's report moved from before the job's output to the end."""
    at = next((index for index, line in enumerate(lines) if precedes_output(line)), None)
    return lines if at is None else (*lines[at + 1 :], *lines[: at + 1])


def find_success(lines: tuple[str, ...]) -> str:
    """Return the line that reports success, or an empty string if no such line exists.

    At most two steps and no crash may follow the line, but libraries may log errors while the
    program exits.
    """
    lines = _put_report_last(lines)
    at = _find_success_at(lines)
    return "" if at is None else lines[at].strip()


def drop_after_success(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines, with all lines after the success message replaced by empty strings."""
    at = _find_success_at(lines)
    return lines if at is None else (*lines[: at + 1], *[""] * (len(lines) - at - 1))


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
            is_own = not _is_trouble(reading.simple[index]) and not _is_of_wrapper(lines, index)
            return index if is_own else None
        steps += reading.steps[index]
    return None


def _is_of_wrapper(lines: tuple[str, ...], at: int) -> bool:
    """Return whether a success message is from a shell script whose training program crashed."""
    killed = find_killed_training(lines[:at])
    if killed < 0 or sum(read_log(lines).steps[killed + 1 : at]) > _FEW_STEPS:
        return False
    return _find_success_at(lines[:killed]) is None


def find_suspicious(lines: tuple[str, ...]) -> list[int]:
    """Return the indices of the three most suspicious lines, in the order of the log.

    Lines with definite words are preferred to others, and later lines to earlier ones.
    """
    troubled = [index for index, text in enumerate(read_log(lines).simple) if _is_trouble(text)]
    ranked = sorted(troubled, key=lambda at: (_DEFINITE.search(lines[at]) is not None, at))
    return sorted(ranked[-_MOST_SUSPICIOUS:])


@lru_cache(maxsize=4096)  # see `_is_handled`
def _is_trouble(simple: str) -> bool:
    if not may_be_trouble(simple):
        return False
    if _REPORT.search(simple):
        return True
    if not _TROUBLE.search(simple):
        return False
    return _NOT_A_NUMBER.search(simple) is not None or not _NO_TROUBLE.search(simple)


def _advances(lines: Sequence[str], start: int, end: int) -> bool:
    """Return whether the program continued after a traceback.

    A server that answered requests after the traceback continued, unless the traceback reports that
    its engine failed. Any other program continued if a counter rose, or if more than two steps or a
    success followed. The steps of another rank do not show that the rank of the traceback
    continued.
    """
    steps, rank = read_log(tuple(lines)).steps, split_rank(lines[start])[0]
    rest = zip(lines[end + 1 :], steps[end + 1 :], strict=True)
    after = [line for line, is_step in rest if is_step and not _SAVED.search(line)]
    after = [line for line in after if rank is None or split_rank(line)[0] in {None, rank}]
    if any(find_status(line) is not None for line in lines[end + 1 :]):
        return not any(map(_ENGINE_DEAD.search, lines[start : end + 1]))
    if any(FINISHED(line) for line in lines[end + 1 :]) or len(after) > _FEW_STEPS:
        return True
    before = {_skeleton(line): _count(line) for line in lines[:start] if is_progress(line)}
    return any(
        before.get(_skeleton(line), ()) < _count(line)
        for line in after
        if _skeleton(line) in before
    )


def _is_one_of_many(lines: Sequence[str], index: int) -> bool:
    """Return whether a line and the line before it report the same about different items."""
    return index > 0 and _skeleton(lines[index]) == _skeleton(lines[index - 1])


def _skeleton(line: str) -> str:
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
