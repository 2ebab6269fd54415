"""Exceptions that ended a thread other than the main thread, but did not end the process."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.lines import clean
from trainvitals.verdicts.causes.log_matches import quote
from trainvitals.verdicts.causes.tracebacks import read_tracebacks
from trainvitals.verdicts.causes.verdict import Finding

_WELL = frozenset({"finished", "running"})


def add_thread_error(case: Case, finding: Finding) -> Finding:
    """Return a finding with the last exception that ended a thread as evidence.

    The exception may have ended the training loop, after which the process waits, or exits with
    code 0. The exception is evidence against the causes `finished` and `running`.
    """
    tracebacks = read_tracebacks(clean(case.evidence.thread_log))
    if not tracebacks:
        return finding
    last = tracebacks[-1]
    place = f", raised at {last.place}" if last.place else ""
    said = (
        f"{quote(last.errors[-1].headline)}{place}, ended a thread other than the main one, which does"
        " not end the process or change its exit code."
    )
    if finding.reason in _WELL:
        return replace(finding, speaks_against=(*finding.speaks_against, said))
    return replace(finding, speaks_for=(*finding.speaks_for, said))
