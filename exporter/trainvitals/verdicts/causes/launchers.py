"""Signals that a launcher or a shell received or reported, such as torchrun or mpirun."""

from __future__ import annotations

import re

from trainvitals.sources.signals import name_signal
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import LogMatch
from trainvitals.verdicts.causes.notices import find_notice
from trainvitals.verdicts.causes.signs import Sign, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding
from trainvitals.verdicts.causes.words import KILLED

_SIGHUP, _SIGTERM = 1, 15
# A shell's message, alone or after the script's name and line number.
_WORDS = {
    number: rf"^(?:\S{{1,80}}: line [0-9]{{1,6}}: +[0-9]{{1,9}} )?{word}\b *(?:$| {{2}})"
    for number, word in ((_SIGHUP, "Hangup"), (_SIGTERM, "Terminated"))
}


def _received(number: int) -> Sign:
    name, got = name_signal(number), r"\b(?:[Rr]eceived|[Cc]aught|[Gg]ot)"
    return matches(
        rf"Received (?:{number}|(?:Signals\.)?{name}) death signal|got signal: {number}\b"
        rf"|{got} (?:signal )?{name}\b(?! handler)|{got} signal {number}\b|\*\*\* {name} (?:received|\(@0x)"
        rf"|\bsignal {number} received\b|{_WORDS[number]}"
        + r"|`Termination signal` is detected"
        * (number == _SIGTERM),
        without=("submitit ",),  # submitit logs why Slurm sent the signal.
    )


# A program that handles SIGHUP logs its reaction; schedulers send SIGHUP too.
_HANDLED_HUP = re.compile(
    r"\b(?:preempt|timed[- ]out|requeu|checkpoint|sav(?:e|ing)\b|reload|re-?read|rotat|ignor|bypass|handl)",
    re.IGNORECASE,
)
_TERM, _HUP = _received(_SIGTERM), _received(_SIGHUP)

_KILLED_WORD = rf"(?:{'|'.join(KILLED)})"
_KILLED = re.compile(
    rf"(?:^|\]|[0-9]%) *{_KILLED_WORD}(?: {{2,}}|$)|(?:\bz?sh:|^\[[0-9]{{1,4}}\] {{1,4}}[+-]? {{0,4}}[0-9]{{1,9}}) killed {{2}}|^ {{0,16}}[0-9]{{2,9}} +{_KILLED_WORD} {{2,}}\||: \w{{4,8}} [0-9]{{1,6}} ?: +[0-9]{{1,9}} +{_KILLED_WORD}(?: |$)"
    r"|srun: error: [^ ]{1,80}: tasks? [0-9,-]{1,80}: Killed$|\] Error 137\b|EXIT STRING: Killed \(signal 9\)"
    r"|(?:exit(?:ed)?|returned|completed|terminated|failed)(?: with)?(?: (?:a )?non-zero)?(?: exit)? (?:code|status):? 137\b"
    r"|code=killed, status=9/KILL|DeadKernelError|[Kk]ernel (?:appears to have )?died\b|KernelRestarter: restarting kernel"
    r"|JobState=FAILED Reason=RaisedSignal:9\b|\bExitCode=0:9\b"
)
_LAST_LINES = 6
# After a rank has failed, Lightning's launcher and `srun` kill the other ranks and the process that
# started the ranks.
_ENDS_OTHERS = re.compile(
    r"terminated with code (?!-9\b|137\b)-?[0-9]{1,3}\. Forcefully terminating all other processes"
    r"|srun: error: \S{1,200}: tasks? \S{1,200}: Exited with exit code (?!137\b)[1-9]"
)


def find_reported_kill(case: Case) -> str | None:
    """Return the line at the end of a log in which a shell or Slurm reports SIGKILL.

    The result is None if no line contains such a report, or if a launcher reports that it killed
    the other ranks because a rank had failed.
    """
    last = [line for line in case.lines if line.strip()][-_LAST_LINES:]
    if any(map(_ENDS_OTHERS.search, last)):
        return None
    return next((line for line in reversed(last) if _KILLED.search(line)), None)


def detect_term(case: Case) -> Finding | None:
    """Detect a launcher that received SIGTERM and then ended the ranks."""
    match = find_notice(case, _TERM)
    if match is None or not case.has_ended:
        return None
    return match.cap("medium").conclude(
        "term-outside",
        "The launcher received SIGTERM and ended its ranks; the sender is unknown. Likely senders are a"
        " shutdown, a scheduler's time limit or the preemption of a spot instance.",
        (
            "Save a checkpoint on SIGTERM: `signal.signal(signal.SIGTERM, …)`.",
            (
                "Find the sender: `journalctl --since -1h | grep -iE 'shutdown|preempt|terminat'`,"
                " `sacct -j JOB`, `kubectl describe pod`."
            ),
        ),
    )


def _detect_hangup(case: Case) -> Finding | None:
    match = find_notice(case, _HUP)
    if match is not None and _HANDLED_HUP.search(match.text):
        match = None
    if case.signal == _SIGHUP and case.has_ended:
        match = match or LogMatch(0, "", "high", speaks_for=("Signal 1 (SIGHUP) ended it.",))
    if match is None:
        return None
    return match.conclude(
        "hangup", "The terminal or SSH session in which it ran was closed.", _STEPS
    )


_STEPS = (
    (
        "Start it in `tmux` or `screen`, or with `nohup … & disown`; `systemd-run --user --scope` where the"
        " session's end kills all (`loginctl enable-linger`)."
    ),
    "Keep the session: `ServerAliveInterval 60` in `~/.ssh/config`.",
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        "hangup",
        "The terminal was closed",
        "Signal 1 (SIGHUP), exit code 129, or torchrun's `Received 1 death signal`.",
        "The SSH session or terminal in which it ran ended, and took its programs with it.",
        _STEPS,
        "high",
        _detect_hangup,
    ),
)
