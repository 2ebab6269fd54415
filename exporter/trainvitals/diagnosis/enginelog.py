"""What a container engine logs about itself: the lines that tell of trouble.

Docker writes `time="…" level=… msg="…"`; journald and syslog put their own words before that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from trainvitals.causes.evidence import Gap
from trainvitals.diagnosis.dates import DatedLine, read_stamp
from trainvitals.diagnosis.text import make_harmless
from trainvitals.masking import mask_text

_FIELDS = re.compile(r'\btime="?(?P<time>[^" ]+)"? level=(?P<level>\w+) (?P<rest>.*)')
_LEVELS = frozenset({"warning", "warn", "error", "fatal", "panic"})
_TELLING = re.compile(r"failed to exit within|using the force|panic:|fatal error:|\bOOM\b")
# What each container that ends leaves, and says nothing.
_NOISE = re.compile(r"ignoring event|shim disconnected|cleaning up (?:after shim|dead shim)")
_SYSLOG = re.compile(r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d+) (?P<clock>\d\d:\d\d:\d\d) ")
_MOST_CHARACTERS = 1000
_FILES = ("var/log/docker.log", "var/log/upstart/docker.log")
_MOST_BYTES = 2 << 20
_AROUND_SECONDS, _PATIENCE_SECONDS = 60, 5.0


def parse_engine_log(text: str) -> tuple[DatedLine, ...]:
    """Give the lines that tell of trouble, masked; the oldest first."""
    chosen = []
    for line in text.split("\n"):
        found = _FIELDS.search(line)
        if found is None:
            if _TELLING.search(line) and not _NOISE.search(line):
                chosen.append((_read_head(line), line.strip()))
            continue
        is_telling = found["level"] in _LEVELS or _TELLING.search(found["rest"])
        if is_telling and not _NOISE.search(found["rest"]):
            chosen.append((read_stamp(found["time"]), f"{found['level']}: {found['rest'].strip()}"))
    return tuple(DatedLine(time, mask_text(words[:_MOST_CHARACTERS])) for time, words in chosen)


def _read_head(line: str) -> float | None:
    """Read the time before a line of syslog, which has no year; None where there is none."""
    stamp = read_stamp(line)
    if stamp is not None:
        return stamp
    found = _SYSLOG.match(line)
    if found is None:
        return None
    now = datetime.now(timezone.utc).astimezone()
    words = f"{now.year} {found['month']} {found['day']} {found['clock']}"
    try:
        moment = datetime.strptime(words, "%Y %b %d %H:%M:%S").astimezone()
    except ValueError:
        return None
    if moment > now:
        moment = moment.replace(year=now.year - 1)
    return moment.timestamp()


def read_engine_log(
    around: float,
    *,
    rootfs: Path = Path("/"),
    find: Callable[[str], str | None] = shutil.which,
) -> tuple[tuple[DatedLine, ...], Gap | None]:
    """Read what the engine logged around a time, from journald or its log file.

    Args:
        around: Seconds since 1970.
        rootfs: The host's root directory.
        find: Finds a program.

    Returns:
        The telling lines, and why there are none where it could not be read.
    """
    path = next((rootfs / name for name in _FILES if (rootfs / name).is_file()), None)
    if path is not None:
        return _read_file(path)
    journalctl = find("journalctl") if rootfs == Path("/") else None
    if journalctl is None:
        return (), Gap(
            "the engine's log",
            f"there is no journal here, and no /{_FILES[0]}",
            "run `dockerd` by systemd, or have it write to /var/log/docker.log",
        )
    return _ask_journal(journalctl, around)


def _read_file(path: Path) -> tuple[tuple[DatedLine, ...], Gap | None]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES))
            return parse_engine_log(file.read().decode(errors="replace")), None
    except OSError as error:
        return (), Gap("the engine's log", f"{path}: {error.strerror}", "run it as root")


def _ask_journal(journalctl: str, around: float) -> tuple[tuple[DatedLine, ...], Gap | None]:
    command = [
        journalctl,
        "--no-pager",
        "--quiet",
        "--output=short-iso-precise",
        "--unit=docker",
        "--unit=podman",
        f"--since=@{around - _AROUND_SECONDS:.0f}",
        f"--until=@{around + _AROUND_SECONDS:.0f}",
    ]
    remedy = "be a member of the group systemd-journal or adm, or run it as root"
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), Gap("the engine's log", f"journalctl: {error}", remedy)
    said = answer.stderr.decode(errors="replace").strip()
    if answer.returncode or (said and not answer.stdout):
        why = make_harmless(said.partition("\n")[0]) or "journalctl failed"
        return (), Gap("the engine's log", why, remedy)
    return parse_engine_log(answer.stdout[-_MOST_BYTES:].decode(errors="replace")), None
