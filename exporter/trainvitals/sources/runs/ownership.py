"""What the owner and the mode of the run directory let other users do.

The first training process makes the directory, so any user may own it.
"""

from __future__ import annotations

import logging
import shlex
import stat
from pathlib import Path
from typing import NamedTuple

from trainvitals.sources.runs.owners import is_trusted

DEFAULT_RUN_DIR = Path("/dev/shm/trainvitals")  # noqa: S108 - the documented default
_log = logging.getLogger("trainvitals")


class Exposure(NamedTuple):
    """What users may, or may not, do in a run directory.

    Attributes:
        words: The sentence, without a period.
        command: A shell command of root that mends it. A user who owns the directory cannot turn it
            against another one by a link.
        hides_runs: Whether the owner, who is not trusted, keeps all others from having runs there.
    """

    words: str
    command: str
    hides_runs: bool = False


def find_exposure(
    path: Path, *, user: int | None = None, usual: Path = DEFAULT_RUN_DIR
) -> Exposure | None:
    """Return what is wrong with the owner or the mode of a run directory.

    Args:
        path: The directory.
        user: The user who reads it, by number; None for ours.
        usual: The directory where every user's runs are; others may be one user's on purpose.

    Returns:
        None if nothing is, or if there is no such directory.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    owner, place = status.st_uid, shlex.quote(str(path))
    is_open, is_sticky = status.st_mode & stat.S_IWOTH, status.st_mode & stat.S_ISVTX
    is_closed = path == usual and not is_open
    if not is_trusted(owner, user):
        means = "who may remove the run files of others"
        if is_closed:
            means = "and other users cannot have runs there"
        command = f"sudo mv -T {place} {place}.old && sudo mkdir -m 1777 {place}"
        return Exposure(f"{path} belongs to user {owner}, {means}", command, is_closed)
    if is_closed:
        words = f"{path} belongs to user {owner}, and other users cannot have runs there"
    elif is_open and not is_sticky:
        words = f"every user may remove the run files of others in {path}"
    else:
        return None
    return Exposure(words, f"sudo chmod 1777 {place}")


class OwnershipCheck:
    """Logs once what is wrong with the owner or the mode of the run directory.

    Args:
        path: The directory.
        usual: The directory where every user's runs are.
    """

    def __init__(self, path: Path, *, usual: Path = DEFAULT_RUN_DIR) -> None:
        self._path = path
        self._usual = usual
        self._logged: set[str] = set()

    def complain(self) -> str | None:
        """Return which user keeps the runs of others away, with the remedy; None if no user does."""
        found = find_exposure(self._path, usual=self._usual)
        if found is None:
            return None
        text = f"{found.words}; between two runs: {found.command}"
        if text not in self._logged:
            self._logged.add(text)
            _log.warning("%s", text)
        return text if found.hides_runs else None
