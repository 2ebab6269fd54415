"""Errors in a log that the program survived: it retried, skipped or continued to train."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice, pairwise

from trainvitals.verdicts.causes.log_ends import find_skeleton
from trainvitals.verdicts.causes.log_reading import read_log
from trainvitals.verdicts.causes.ranks import split_rank
from trainvitals.verdicts.causes.success import SAVED, is_written
from trainvitals.verdicts.causes.suspicious import REPORT, TROUBLE
from trainvitals.verdicts.causes.tracebacks import Traceback, read_tracebacks
from trainvitals.verdicts.causes.words import is_progress

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
# Reports of an action that failed, or of a gradient scaler's search, which may never end.
_NOT_HANDLED = re.compile(
    r"(?:can(?:not|'t)|could not|unable to|not able to|refus\w{1,5} to|never|to)"
    r" (?:be )?(?:skip|retry|ignore|continue|recover|resume|reconnect)\b"
    r"|overflow|fork: retry|giving up|gave up|retries exceeded|retries exhausted|after [0-9]+ retr|last attempt"
    r"|(?:\bnot|n't) (?:\w{1,20} ){0,3}as expected|discontinu|\bnot (?:retrying|continuing|resuming|ignored|skipped)",
    re.IGNORECASE,
)
# A test's report that a program ended as expected.
_EXPECTED = re.compile(
    r"\b(?:code|status|signal) (-?[0-9]{1,5})\b.{0,100}\bexpected:? (?:exit )?(?:code |status |signal )?\1\b"
    r"|\bobserved: .{0,200}\(expected \S"
)
_ERROR_NAME = re.compile(
    r"\s*(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt)\b"
)
# A launcher's report that a rank failed, so that an earlier traceback was not handled.
_FAILED = re.compile(
    r"exitcode {0,8}:? {0,8}-?[1-9]|ChildFailedError|returned non-zero exit status|return code =? ?-?[1-9]"
    r"|srun: error: |(?:exited|crashed) with (?:exit )?(?:code|status) -?[1-9]|Container failed !!!"
)
# Reports about a single attempt or about earlier lines do not concern the next traceback.
_NOT_OF_NEXT = re.compile(r"Retrying \(Retry\(|\babove this line\b", re.IGNORECASE)
# Connections that a program loses while it shuts down, and the log lines around such an error.
_LOST_CONNECTIONS = ("StreamClosedError", "CommClosedError", "ConnectionResetError", "EOFError")
_LOGGED = re.compile(r"\b(?:ERROR|WARNING|WARN)\b")
_CLOSING = re.compile(r"\b(?:closed|closing|shut(?:ting)? ?down|stopp(?:ed|ing))\b", re.IGNORECASE)
# A data loader's line about a single item, with the number or file of the item.
_ITEM = re.compile(
    r"^(?:\W{0,2}[\w./:, -]{0,60}\W{1,3})?(?:[Ss]ample|[Ii]tem|[Rr]ecord|[Ii]mage|[Vv]ideo|[Rr]ow|[Ee]xample|[Ii]ndex|[Ii]dx|[Dd]ocument|[Uu]tterance)\b[ #:='\"]{1,3}(?:[0-9]{1,12}|\S{1,300}\.\w{2,5})[\"']? ?:"
)
_LAST_ATTEMPT = re.compile(r"\battempt ([0-9]{1,4})(?: of |/)\1\b", re.IGNORECASE)
_NEXT_LINES = 3


def drop_handled(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines, with the lines about handled errors replaced by empty strings.

    A traceback is handled if the line before it or one of the three lines after it reports, for
    example, a retry or a skip. Empty lines are ignored.
    """
    simple = read_log(lines).simple
    marked = {
        index
        for index, text in enumerate(simple)
        if (_is_handled(text) or ("expected" in text and _EXPECTED.search(lines[index])))
        and not _ERROR_NAME.match(split_rank(lines[index])[1])
        and not _LAST_ATTEMPT.search(lines[index])
    }
    dropped = {index for index in marked if TROUBLE.search(simple[index])}
    dropped |= {
        index
        for index, (text, following) in enumerate(pairwise((*simple, "")))
        if following.startswith("retrying in ") and TROUBLE.search(text)
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
            if TROUBLE.search(lines[index])
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
    """Return the indices of lines about a single data item that precede a progress line."""
    last = max((at for at, line in enumerate(lines) if is_progress(line)), default=0)
    return {
        at
        for at, line in enumerate(lines[:last])
        if _ITEM.search(line) and not _ERROR_NAME.match(line)
    }


def _is_of_shutdown(lines: Sequence[str], traceback: Traceback) -> bool:
    """Return whether a connection was lost during a shutdown after the results were saved.

    No progress is logged between the saving and the exception. The exception is followed only by
    other tracebacks and by messages about the shutdown.
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
        if SAVED.search(lines[at]) or is_written(lines[at]):
            return True
        if is_progress(lines[at]):
            return False
    return False


def _goes_on_in_message(lines: Sequence[str], traceback: Traceback) -> bool:
    """Return whether the output directly after an exception reports that it was handled.

    Such output appears to be a part of the exception's message.
    """
    is_behind = traceback.end > traceback.errors[-1].line
    return is_behind and _NOW.match(split_rank(lines[traceback.end])[1]) is not None


@lru_cache(maxsize=4096)  # many lines in a log differ only in their numbers
def _is_handled(simple: str) -> bool:
    if not _HANDLED.search(simple) or _NOT_HANDLED.search(simple):
        return False
    return not REPORT.search(simple)


def _find_text(lines: Sequence[str], indices: range, most: int) -> list[int]:
    return list(islice((index for index in indices if lines[index].strip()), most))


def find_failed(lines: Sequence[str]) -> int:
    """Return the index of a launcher's last report about a failed rank; -1 if none was found."""
    return max((at for at, line in enumerate(lines) if _FAILED.search(line)), default=-1)


def _is_one_of_many(lines: Sequence[str], index: int) -> bool:
    """Return whether a line begins with the same words as the previous line, about another item."""
    return index > 0 and find_skeleton(lines[index]) == find_skeleton(lines[index - 1])
