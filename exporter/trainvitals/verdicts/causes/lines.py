"""Removal of colours, redrawn progress bars and prefixes from log lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trainvitals.foreign_text import strip_escape_codes
from trainvitals.verdicts.causes.words import is_progress

LONGEST_LINE = 4096
_MOST_REDRAWN = 500

_CONTROLS = dict.fromkeys((*range(9), *range(11, 13), *range(14, 32), 127))
_BAR_SIGNS = ("%|", "it/s", "s/it", "B/s", "━", "█")

_SERVICE = re.compile(r"^([\w.-]{1,80}) {1,40}\| ?")
# The line prefixes in the kubelet's log files and in the output of Docker Compose, `srun --label`,
# operators and `kubectl logs --prefix`. The number at the end of a pod name is used as the rank.
_PREFIXES = (
    (re.compile(r"^[0-9-]{10}T[0-9:.]{8,18}(?:Z|[+-][0-9:]{5}) (?:stderr|stdout) [FP](?: |$)"), ""),
    (_SERVICE, ""),
    (re.compile(r"^ {0,6}([0-9]{1,6}):(?: |$)"), r"[rank\1]: "),
    (
        re.compile(
            r"^\[(?:pod/)?[A-Za-z][A-Za-z.-]{0,80}[-_ ]([0-9]{1,6})(?:/[\w.-]{1,60})?\](?: |$)"
        ),
        r"[rank\1]: ",
    ),
)
_BEHIND_BAR = re.compile(
    r"\[(?:rank|default)[0-9]{1,6}\]: ?(?=\S)|Traceback \(most recent call last"
)
_NOTICED = re.compile(r"(?:prterun|mpirun|mpiexec|orterun|prun)\b.{0,40} noticed that process\b")
_MOST_WRAPPED = 4
# The table of `sacct`: its header, and the row of a job or a step, whose state may be truncated.
_JOBS = re.compile(r"^\s{0,20}(?:User[ |]{1,40})?JobID(?:Raw)?[ |].{0,800}\bState\b")
_JOB = re.compile(r"\s{0,20}(?:[a-z]\S{0,31}[ |]{1,40})?[0-9]{1,10}[0-9_+]{0,12}(\.\w{1,10})?[ |]")
_STATE = re.compile(r"(?<=[ |])([A-Z_]{4,20})\+?(?: by [0-9]{1,10})?(?=[ |]|$)")
_KILLED_BY = re.compile(r"(?<=[ |])0:([1-9][0-9]?)(?=[ |]|$)")
_JOB_STATES = (
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "DEADLINE",
    "NODE_FAIL",
    "BOOT_FAIL",
    "PREEMPTED",
    "CANCELLED",
    "FAILED",
    "COMPLETED",
)
_MOST_COMPARED, _NEARLY_ALL = 400, 0.8
_ZERO = re.compile(r"(?<![0-9.])0(?![0-9.])")
_SIMPLER = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\0", b"abcdefghijklmnopqrstuvwxyz" + b"1" * 10 + b"0"
)


def clean(log: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of a log as a terminal shows them after all output.

    Colours, other control sequences, and prefixes that nearly all lines share are removed. Only the
    last state of a progress bar is kept, and text after a progress bar becomes a separate line. A
    line is truncated to 4,096 characters. If a line was redrawn more than 500 times, only the last
    500 versions are considered. In a Compose log, lines of services that do not train become empty.

    Args:
        log: The lines of the log as they were written, with or without line endings.
    """
    return _strip_prefixes(redraw(log))


def join_reports(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Join a sentence that an MPI launcher wrapped, and append job states to `sacct` rows.

    The state of a job is appended in the format of `scontrol`. If all jobs are completed, the text
    `job completed` is appended instead.
    """
    joined = list(_name_states(lines))
    for at, line in enumerate(lines[:-1]):
        if _NOTICED.match(line) and not line.endswith("."):
            rest = lines[at + 1 : at + _MOST_WRAPPED]
            end = next((index for index, text in enumerate(rest) if text.endswith(".")), 0)
            joined[at] = " ".join((line, *map(str.strip, rest[: end + 1])))
            joined[at + 1 : at + 2 + end] = [""] * (end + 1)
    return tuple(joined)


def _name_states(lines: tuple[str, ...]) -> tuple[str, ...]:
    if not any(map(_JOBS.match, lines)):
        return lines
    is_inside, states = False, dict[int, str]()
    for at, line in enumerate(lines):
        is_inside = _JOBS.match(line) is not None or (is_inside and not _is_other(line))
        row = _JOB.match(line) if is_inside else None
        state = _read_state(line) if row is not None else ""
        # A step ends with its job, so its state is used only if the kernel killed the step.
        if row is not None and state and (not row[1] or state == "OUT_OF_MEMORY"):
            states[at] = f"JobState={state}"
            if state == "FAILED" and (signal := _KILLED_BY.search(line)) is not None:
                states[at] += f" Reason=RaisedSignal:{signal[1]}"
    if set(states.values()) == {"JobState=COMPLETED"}:
        states = dict.fromkeys(states, "job completed")
    return tuple(f"{line} {states.get(at, '')}".rstrip() for at, line in enumerate(lines))


def _is_other(line: str) -> bool:
    """Return whether a line is not part of a `sacct` table of jobs."""
    return bool(line.strip(" -|")) and _JOB.match(line) is None


def _read_state(line: str) -> str:
    words = (found[1] for found in _STATE.finditer(line))
    return next((state for word in words for state in _JOB_STATES if state.startswith(word)), "")


def redraw(log: Iterable[str]) -> tuple[str, ...]:
    """Return the same lines as `clean`, but with the prefixes that a log collector added."""
    return tuple(piece for line in log for piece in _split(line))


def simplify(text: str) -> str:
    """Return a text with ASCII letters in lower case and 1 for each digit except a single 0."""
    data = _ZERO.sub("\0", text).encode("utf-8", "surrogatepass")
    return data.translate(_SIMPLER).decode("utf-8", "surrogatepass")


def _keep_trainers(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return a Compose log with the lines of services that do not train replaced by empty lines."""
    services = [found[1] if (found := _SERVICE.match(line)) else "" for line in lines]
    training = {
        service
        for service, line in zip(services, lines, strict=True)
        if service and (_BEHIND_BAR.search(line) or is_progress(line))
    }
    if not training:
        return lines
    pairs = zip(services, lines, strict=True)
    return tuple(line if service in training or not service else "" for service, line in pairs)


def _strip_prefixes(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines without the prefix that a log collector added to nearly all lines."""
    written = [line for line in lines if line]
    for pattern, replacement in _PREFIXES:
        found = sum(pattern.match(line) is not None for line in written[:_MOST_COMPARED])
        if found and found >= _NEARLY_ALL * len(written[:_MOST_COMPARED]):
            lines = _keep_trainers(lines) if pattern is _SERVICE else lines
            return tuple(pattern.sub(replacement, line, count=1) for line in lines)
    return lines


def _split(line: str) -> Iterator[str]:
    for part in line.rstrip("\r\n").split("\n"):
        pieces = (
            strip_escape_codes(part)
            .translate(_CONTROLS)
            .rsplit("\r", _MOST_REDRAWN)[-_MOST_REDRAWN:]
        )
        drawn = [piece for piece in pieces if piece.strip()]
        if not drawn:
            yield ""
            continue
        for piece, following in zip(drawn, [*drawn[1:], None], strict=True):
            if following is None or not _is_redrawn(piece, following):
                yield from _split_bar(piece[:LONGEST_LINE].rstrip())


def _split_bar(piece: str) -> Iterator[str]:
    """Yield a progress bar and, as a second line, any text of a rank or traceback after the bar."""
    found = _BEHIND_BAR.search(piece, 1) if any(sign in piece for sign in _BAR_SIGNS) else None
    at = len(piece) if found is None else found.start()
    yield piece[:at].rstrip()
    if found is not None:
        yield piece[at:]


def _is_redrawn(piece: str, following: str) -> bool:
    if any(sign in piece for sign in _BAR_SIGNS):
        return True
    return piece.split(maxsplit=1)[0] == following.split(maxsplit=1)[0]
