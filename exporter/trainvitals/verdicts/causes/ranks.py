"""The rank that wrote a log line, and the rank that failed first.

PyTorch writes a prefix such as `[rank1]: ` before each line of a rank's traceback. torchrun writes
`[default1]:` before all output of a rank, Ray writes `(train pid=71) `, and Open MPI writes
`[1,0]<stderr>:`. The report of torchrun ends with the table `Failures:` and the section `Root Cause
(first observed failure):`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RANK = re.compile(r"\[(?:rank|default)([0-9]{1,6})\]:? ?")
_PREFIX = re.compile(
    r"\[1,([0-9]{1,6})\]<std(?:err|out)>:|\([^()]{0,60}pid=[0-9]{1,9}[^()]{0,60}\) "
)
_LAUNCHER_LINE = re.compile(r"[WEIC][0-9]{4} [0-9:.]{8,20} ")
_ROOT_CAUSE = "Root Cause (first observed failure)"
_FIELD = re.compile(
    r" {0,8}(rank|exitcode|host) {1,8}: (\S{1,200})(?: \((?:local_rank|pid): ([0-9]+)\))?"
)


@dataclass(frozen=True, slots=True)
class RootCause:
    """The first failure according to torchrun's report.

    A numeric field that the report does not contain is None.

    Attributes:
        line: The index, from 0, of the log line at which the report of the failure begins.
        rank: The rank that failed.
        exit_code: The exit code of the rank's process; negative for a signal.
        pid: The ID of the rank's process within the container.
        host: The name of the rank's host or container; an empty string if the report does not
            contain the name.
    """

    line: int
    rank: int | None = None
    exit_code: int | None = None
    pid: int | None = None
    host: str = ""


def split_rank(line: str) -> tuple[int | None, str]:
    """Return the rank that wrote a line, and the line without the rank's prefixes.

    The rank is None if the line has no such prefix.
    """
    rank = None
    while line.startswith(("[", "(")) and (found := _RANK.match(line) or _PREFIX.match(line)):
        rank = int(found[1]) if found[1] is not None else rank
        line = line[found.end() :]
    return rank, line


def read_root_cause(lines: Sequence[str]) -> RootCause | None:
    """Read the first failure from torchrun's last report; None if the log contains no report."""
    for index in range(len(lines) - 1, -1, -1):
        if _ROOT_CAUSE in lines[index]:
            return _read_fields(lines, index)
    return None


def _read_fields(lines: Sequence[str], index: int) -> RootCause:
    fields: dict[str, re.Match[str]] = {}
    for line in lines[index + 1 : index + 8]:
        found = _FIELD.match(line)
        if found is not None:
            fields.setdefault(found[1], found)
    rank, code, host = (fields.get(name) for name in ("rank", "exitcode", "host"))
    return RootCause(
        line=index,
        rank=_integer(rank[2]) if rank else None,
        exit_code=_integer(code[2]) if code else None,
        pid=_integer(code[3]) if code else None,
        host=host[2] if host else "",
    )


def read_table_rank(line: str) -> int | None:
    """Return the rank that a line of torchrun's table names; None if the line names no rank."""
    found = _FIELD.match(line)
    return _integer(found[2]) if found is not None and found[1] == "rank" else None


def _integer(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 10 else None  # noqa: PLR2004


def is_launcher_line(line: str) -> bool:
    """Return whether a log line was written by torchrun itself."""
    return _LAUNCHER_LINE.match(line) is not None
