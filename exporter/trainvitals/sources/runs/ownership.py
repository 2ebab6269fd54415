"""Check what the owner and mode of the run directory permit other users to do.

The first training process creates the run directory, so any user may own the directory.
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
    """A problem with the owner or mode of a run directory.

    Attributes:
        words: A sentence that describes the problem, without a final period.
        command: A shell command for root that fixes the problem. A user who owns the directory
            cannot redirect the command to another directory with a link.
        hides_runs: Whether the owner is not trusted and prevents all other users from having runs
            in the directory.
    """

    words: str
    command: str
    hides_runs: bool = False


def find_exposure(
    path: Path, *, user: int | None = None, usual: Path = DEFAULT_RUN_DIR
) -> Exposure | None:
    """Return the problem with the owner or mode of a run directory.

    Args:
        path: The directory.
        user: The ID of the user who reads the directory; None for this process's user.
        usual: The default directory, which all users share; any other directory may intentionally
            belong to one user.

    Returns:
        The problem; None if there is no problem or the directory does not exist.
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
    """Logs each problem with the owner or mode of the run directory once.

    Args:
        path: The directory.
        usual: The default directory, which all users share.
    """

    def __init__(self, path: Path, *, usual: Path = DEFAULT_RUN_DIR) -> None:
        self._path = path
        self._usual = usual
        self._logged: set[str] = set()

    def complain(self) -> str | None:
        """Log a new problem; return the problem if the owner prevents other users' runs.

        The result includes the remedy. It is None if the owner does not prevent other users' runs.
        """
        found = find_exposure(self._path, usual=self._usual)
        if found is None:
            return None
        text = f"{found.words}; between two runs: {found.command}"
        if text not in self._logged:
            self._logged.add(text)
            _log.warning("%s", text)
        return text if found.hides_runs else None
