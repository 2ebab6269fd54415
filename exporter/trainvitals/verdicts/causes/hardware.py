"""Failures caused by uncorrectable memory errors in the host's hardware."""

from __future__ import annotations

import re

from trainvitals.sources.containers.log_owner import read_owner
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import quote
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.verdict import Cause, Confidence, Finding

_SIGBUS, _SIGKILL = 7, 9
_FAULT = matches(
    r"Uncorrected hardware memory error|EDAC .{0,100}: [0-9]{1,6} UE |due to hardware memory corruption"
    r"|failure to unmap corrupted page"
)
_SENT = re.compile(
    r"(?:Sending SIGBUS to|[Kk]illing) (.{1,15}):([0-9]{1,10}) (?:due to hardware|because of failure to unmap)"
)
_BUS = matches(r"\bBus error\b|\bSIGBUS\b|exitcode {0,4}: -7\b")
_MOST_QUOTED = 3


def list_memory_errors(case: Case) -> tuple[str, ...]:
    """Return the lines of the kernel log about memory errors that may concern the subject.

    The result is empty if there are no such lines, or if the lines name only other processes.
    """
    lines = tuple(line for line in case.evidence.kernel_lines if _FAULT(line))
    sent = [found for line in lines if (found := _SENT.search(line))]
    if not sent:
        return lines
    owner = read_owner(case.evidence.log)
    return lines if any(owner.may_own_process(one[1], int(one[2])) for one in sent) else ()


def _detect_memory(case: Case) -> Finding | None:
    lines = list_memory_errors(case)
    if not lines or not case.has_ended or case.exit_code == 0:
        return None
    return Finding(
        "memory-hardware",
        f"The memory of the host has an error that cannot be corrected, and {case.subject} used it.",
        _grade(case, lines),
        tuple(f"The kernel logged {quote(line)}." for line in lines[-_MOST_QUOTED:]),
        (),
        _STEPS,
    )


def _grade(case: Case, lines: tuple[str, ...]) -> Confidence:
    is_sent = any(map(_SENT.search, lines))
    is_alone = case.evidence.log is None and case.exit_code is None
    is_signalled = case.signal == _SIGBUS or (case.signal is None and case.search(_BUS) is not None)
    if is_sent and (is_alone or is_signalled or case.signal == _SIGKILL):
        return "high"
    return "medium" if is_alone or is_signalled else "low"


_STEPS = (
    (
        "Take the machine out of use and replace the memory module that the kernel names:"
        " `sudo ras-mc-ctl --errors`, `sudo edac-util -v`, `sudo ipmitool sel list`."
    ),
    "Resume from the last checkpoint on another machine; compare the checkpoint's loss first.",
    "Test it before it is used again: `memtest86+`, or the vendor's diagnosis.",
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        "memory-hardware",
        "The host's memory is faulty",
        "The kernel logged `Sending SIGBUS to … due to hardware memory corruption`, `mce: Uncorrected"
        " hardware memory error` or an uncorrected error (UE) of EDAC.",
        "A memory module has an error that ECC cannot correct; the kernel ends the programs that use"
        " the page.",
        _STEPS,
        "high",
        _detect_memory,
    ),
)
