"""Log lines that report trouble of any cause."""

from __future__ import annotations

import re
from functools import lru_cache

from trainvitals.verdicts.causes.log_reading import read_log
from trainvitals.verdicts.causes.words import KILLED, NOT_COUNTED, SEGFAULT, may_be_trouble

TROUBLE = re.compile(
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
REPORT = re.compile(
    r"death signal|closing signal|\b(?:kubelet|default-scheduler|job-controller)\b|is going down|instructions, but these|assertion `"
    r"|\b(?:job)?state ?[:=] ?(?:out_of_memory|node_fail|boot_fail|preempted|cancelled|timeout|deadline)|double free|\bexit status: -[1-9]"
    r"|detected keyboardinterrupt|terminating training|\bterm_(?:owner|preempt|memlimit|runlimit)|cancelled at|error response from daemon|nodes are available: "
)
# Each of Megatron's lines contains the number of iterations with NaN.
_NOT_A_NUMBER = re.compile(rf"\bnan\b{NOT_COUNTED}", re.IGNORECASE)
_DEFINITE = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|[A-Z]\w+(?:Error|Exception))\b|[Ff]atal|core dumped|\b[Kk]illed\b|\b[Aa]borted\b"
)
_MOST_SUSPICIOUS = 3


def find_suspicious(lines: tuple[str, ...]) -> list[int]:
    """Return the indices of the three most suspicious lines, in the order of the log.

    Lines with an unambiguous word, such as `ERROR` or `Killed`, are preferred. If several lines are
    equal in this respect, the later lines are preferred.
    """
    troubled = [index for index, text in enumerate(read_log(lines).simple) if is_trouble(text)]
    ranked = sorted(troubled, key=lambda at: (_DEFINITE.search(lines[at]) is not None, at))
    return sorted(ranked[-_MOST_SUSPICIOUS:])


@lru_cache(maxsize=4096)  # many lines in a log differ only in their numbers
def is_trouble(simple: str) -> bool:
    """Return whether a log line, in the form of `Reading.simple`, reports trouble."""
    if not may_be_trouble(simple):
        return False
    if REPORT.search(simple):
        return True
    if not TROUBLE.search(simple):
        return False
    return _NOT_A_NUMBER.search(simple) is not None or not _NO_TROUBLE.search(simple)
