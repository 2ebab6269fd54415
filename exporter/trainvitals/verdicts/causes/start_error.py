"""The engine's error about a container that could not be started (`State.Error`)."""

from __future__ import annotations

import re
from functools import lru_cache

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.ranks import is_launcher_line
from trainvitals.verdicts.causes.verdict import Confidence, Finding

LONGEST_QUOTE = 400
_NEVER_RAN = frozenset({"created", "initialized", "configured", "exited", "dead", "stopped"})
_LAST_LINES = 5
_LAST_OF_A_COMMAND = 30


_OF_ENGINE = re.compile(
    r"Error response from daemon: |OCI runtime (?:create|exec|start)|oci runtime error|starting container process"
    r"|Cannot start (?:service|container|Docker container)|nvidia-container-cli: |exec user process caused"
    r"|could not select device driver|^docker: (?!command not found)|[Ff]ailed to create (?:shim task|containerd task)"
    r"|Cannot connect to the Docker daemon|^FATAL: +(?:container creation failed|while |could not open image)|pyxis: (?:couldn't|container start)"
    r"|[Ff]ailed to (?:create pod sandbox|get sandbox runtime)"
    r"|^(?:\S{1,80}: )?(?:time=\S{1,60} .{0,80})?(?:Error: )?crun: |[Ss]etting up CDI devices|unresolvable CDI device"
    r"|enroot-\w{1,20}\b.{0,40}(?:failed|error)|Unknown runtime specified|unable to start container process"
)


def read_start_error(case: Case) -> str:
    """Return the engine's error about a failed start, from the container's state or else the log.

    If the state is unknown, the log of a command that starts containers may contain the error. The
    result is an empty string if no error is found.
    """
    state = case.evidence.state
    if state is not None:
        return state.error if state.status in _NEVER_RAN else ""
    if not case.has_ended or case.signal is not None:
        return ""
    return _find_error((*case.lines[-_LAST_OF_A_COMMAND:], *(case.evidence.pod or ())))


@lru_cache(maxsize=4)  # About twenty causes read the same lines in turn.
def _find_error(lines: tuple[str, ...]) -> str:
    """Return the engine's last error in the lines, or an empty string."""
    found = (line for line in reversed(lines) if _OF_ENGINE.search(line))
    error = next((line for line in found if not is_launcher_line(line)), "")
    return error.replace("\\", "").strip()


def conclude_error(
    case: Case, reason: str, pattern: re.Pattern[str], summary: str, *steps: str
) -> Finding | None:
    """Return a finding if the engine's error matches the pattern; otherwise None."""
    error = read_start_error(case)
    if not error or pattern.search(error) is None:
        return None
    return conclude_start(case, reason, summary, steps)


def conclude_start(
    case: Case,
    reason: str,
    summary: str,
    steps: tuple[str, ...],
    *evidence: str,
    confidence: Confidence = "high",
) -> Finding:
    """Return a finding about a failed start, with the engine's error and further evidence."""
    error = read_start_error(case)
    code = case.evidence.state.exit_code if case.evidence.state is not None else None
    sentences = [f"The engine reported the error `{_shorten(error)}`."] if error else []
    if case.was_never_started:
        sentences.append(f"Its state is `created` with exit code {code}, so it never ran.")
    return Finding(reason, summary, confidence, (*sentences, *evidence), (), steps)


def _shorten(error: str) -> str:
    """Return a message truncated in the middle, because runtimes name the cause at the end."""
    if len(error) <= LONGEST_QUOTE:
        return error
    return f"{error[: LONGEST_QUOTE // 4]}…{error[-3 * LONGEST_QUOTE // 4 :]}"


def find_last(case: Case, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Return the last match of a pattern in the last 5 lines of the log; None without a match."""
    found = (pattern.search(line) for line in reversed(case.lines[-_LAST_LINES:]))
    return next((match for match in found if match), None)
