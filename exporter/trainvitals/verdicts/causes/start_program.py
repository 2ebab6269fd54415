"""Failures of containers whose command could not be executed."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.start_device import GPU_TOOLKIT
from trainvitals.verdicts.causes.start_error import (
    LONGEST_QUOTE,
    conclude_start,
    find_last,
    read_start_error,
)
from trainvitals.verdicts.causes.verdict import Cause, Finding

# Shells and the engine return 127 for a command that was not found, and 126 for a command that was
# found but could not be executed.
_NO_COMMAND, _NO_PERMISSION = 127, 126
_OPTION_CODES = frozenset({None, 1, 2, _NO_PERMISSION, _NO_COMMAND})
_FORMAT_CODES = frozenset({None, 1, _NO_PERMISSION, 255})

_COMMAND = re.compile(
    r'exec:? \\?"?([^":\\]{0,400})\\?"?: (?:executable file not found|stat [^:]{0,400}: no such file|no such file)'
    r"|executable file [`'\"]([^`'\"]{1,400})[`'\"]:? not found"
)
_NOT_FOUND = re.compile(
    r"(?<![\w./-])([\w./-]{1,400}): (?:command )?not found$|exec: ([\w./-]{1,400}): not found$"
    r"|execve\(\): ([\w./-]{1,400}): No such file or directory$"
)
_OF_SHELL = re.compile(
    r"^(?:-?(?:ba|da|z)?sh: |sudo: |slurmstepd: error: execve\(\): |/\S{1,200}: line [0-9]+: "
    r"|\S{1,200}\.sh: line [0-9]+: )"
)
# Messages of `make` and similar programs about a failed command, after the command's own last line.
_STATUS = re.compile(r"^(?:exit status [0-9]{1,3}$|make(?:\[[0-9]{1,2}\])?: \*\*\* )")
# The message of an entry point, such as NVIDIA's, that runs `exec "$@"` and was given options
# instead of a command.
_OPTION = re.compile(r"\bexec: (-\S{0,80}): invalid option$")
_PERMISSION = re.compile(r'exec:? "?([^":]{0,400})"?: permission denied')
_DENIED = re.compile(r"(?<![\w./-])([\w./-]{1,400}): (?:Permission denied|cannot execute)")
_FORMAT = re.compile(r"exec format error|[Ee]xec format error|cannot execute binary file")


def _detect_command(case: Case) -> Finding | None:
    error = read_start_error(case)
    if GPU_TOOLKIT.search(error):
        return None
    if error and (match := _COMMAND.search(error)):
        summary = f"The container has no command `{match[1] or match[2]}`."
        return conclude_start(case, "start-cmd", summary, _advise_command(case))
    if not error and (found := find_last(case, _OPTION)) and case.exit_code in _OPTION_CODES:
        return conclude_start(
            case,
            "start-cmd",
            f"The entry point took the option `{found[1]}` for a command.",
            _advise_command(case),
            f"The log contains `{found[0]}`.",
        )
    if error or not _may_be(case, _NO_COMMAND):
        return None
    found = find_last(case, _NOT_FOUND)
    if found is None:
        return None
    return conclude_start(
        case,
        "start-cmd",
        f"The shell did not find the command `{found[1] or found[2] or found[3]}`.",
        _advise_command(case),
        f"{_describe_code(case)}he log contains `{found[0]}`.",
    )


def _may_be(case: Case, code: int) -> bool:
    """Return whether the exit code is `code`, or is unknown and the last log line is a shell's."""
    if case.exit_code is not None:
        return case.exit_code == code
    lines = (line for line in reversed(case.lines) if line.strip() and not _STATUS.match(line))
    last = next(lines, "")
    return case.has_ended and case.signal is None and _OF_SHELL.match(last) is not None


def _describe_code(case: Case) -> str:
    return "T" if case.exit_code is None else f"The exit code is {case.exit_code}, and t"


def _advise_command(case: Case) -> tuple[str, ...]:
    command = " ".join(case.evidence.settings.command) if case.evidence.settings else ""
    had = f"; it was `{command[:LONGEST_QUOTE]}`" if command else ""
    image = case.evidence.image or "IMAGE"
    return (
        f"Correct `ENTRYPOINT`, `CMD` or the command after the image's name{had}.",
        (
            f"Check the image's files: `{case.program} run --rm -it --entrypoint sh {image}`, then"
            " `command -v NAME` and `echo $PATH`."
        ),
    )


def _detect_permission(case: Case) -> Finding | None:
    error = read_start_error(case)
    if error and (match := _PERMISSION.search(error)):
        return _conclude_permission(case, match[1])
    if error or not _may_be(case, _NO_PERMISSION):
        return None
    found = find_last(case, _DENIED)
    if found is None:
        return None
    evidence = f"{_describe_code(case)}he log contains `{found[0]}`."
    return _conclude_permission(case, found[1], evidence)


def _conclude_permission(case: Case, path: str, *evidence: str) -> Finding:
    steps = (
        f"Make it executable: `chmod +x {path}` before the image is built (`COPY --chmod=755`).",
        "Check its first line (`head -1`): the interpreter that it names must exist.",
        "Check that its mount does not have the option `noexec`: `findmnt -T PATH`.",
    )
    summary = f"`{path}` could not be executed: permission denied."
    return conclude_start(case, "start-perm", summary, steps, *evidence)


def _detect_format(case: Case) -> Finding | None:
    error = read_start_error(case)
    found = None if error else find_last(case, _FORMAT)
    if not (_FORMAT.search(error) or (found and case.exit_code in _FORMAT_CODES)):
        return None
    return conclude_start(
        case,
        "start-format",
        "The host cannot execute this program: it is for another architecture, or is a script without"
        " a `#!` line.",
        (
            (
                f"Compare `{case.program} image inspect -f '{{{{.Architecture}}}}'"
                f" {case.evidence.image or 'IMAGE'}` with `uname -m`; pull or build with `--platform`."
            ),
            "Add a first line such as `#!/bin/sh` to a script.",
        ),
        *((f"The log contains `{found.string.strip()}`.",) if found else ()),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "start-cmd",
        "Command not found",
        "Never started, exit code 127, `executable file not found`; or exit code 127 and `not found`"
        " at the end of the log.",
        "The command, or PATH, is wrong.",
        ("Correct `ENTRYPOINT` or `CMD`; check with `docker run --rm -it --entrypoint sh IMAGE`.",),
        "high",
        _detect_command,
    ),
    Cause(
        "start-perm",
        "Command not executable",
        "Never started, exit code 126, `permission denied`; or exit code 126 and `Permission denied`"
        " at the end of the log.",
        "The file has no execute permission, names an interpreter that does not exist, or is on a"
        " mount with `noexec`.",
        ("`chmod +x`; check its first line and its mount (`findmnt -T PATH`).",),
        "high",
        _detect_permission,
    ),
    Cause(
        "start-format",
        "Wrong executable format",
        "`exec format error`.",
        "The image is for another CPU architecture, or a script has no first line with `#!`.",
        ("Compare `docker image inspect -f '{{.Architecture}}' IMAGE` with `uname -m`.",),
        "high",
        _detect_format,
    ),
)
