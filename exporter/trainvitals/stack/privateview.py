"""Runs a program in a mount namespace with a modified `/usr/share`.

`python privateview.py HOLD NAME DIRECTORY PROGRAM [ARGUMENT]...` executes PROGRAM with DIRECTORY as
`/usr/share/NAME`; the rest of `/usr/share` is unchanged, and other processes are not affected. HOLD
is an empty directory at which the real `/usr/share` is mounted.

If the process lacks the capability to create a mount namespace, the script first creates a user
namespace with the same user and group; some machines do not allow user namespaces.

This module is run as a script. To start quickly, the module imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

SHARE = Path("/usr/share")

# Constants from <sched.h> and <sys/mount.h>.
_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18

_CANNOT = 2
_LEAST_WORDS = 4


class _Libc(Protocol):
    def unshare(self, flags: int) -> int: ...

    def mount(
        self, source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None
    ) -> int: ...


def enter_view(hold: Path, name: str, directory: Path) -> None:
    """Move this process, which must be single-threaded, into a new mount namespace.

    Args:
        hold: An empty directory at which the real `/usr/share` is mounted.
        name: The name of the entry of `/usr/share` to replace.
        directory: The directory that replaces the entry.

    Raises:
        OSError: The kernel rejected a system call.
    """
    libc = cast("_Libc", ctypes.CDLL(None, use_errno=True))
    _leave_namespace(libc)
    _mount(libc, Path("none"), Path("/"), None, _MS_REC | _MS_PRIVATE)
    _mount(libc, SHARE, hold, None, _MS_BIND | _MS_REC)
    _mount(libc, Path("tmpfs"), SHARE, "tmpfs", 0)
    for each in hold.iterdir():
        if each.name != name:
            (SHARE / each.name).symlink_to(each)
    (SHARE / name).symlink_to(directory)
    SHARE.chmod(0o755)


def _leave_namespace(libc: _Libc) -> None:
    if libc.unshare(_CLONE_NEWNS) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
        _raise("unshare")
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")


def _mount(libc: _Libc, source: Path, target: Path, kind: str | None, flags: int) -> None:
    system = kind.encode() if kind else None
    if libc.mount(os.fsencode(source), os.fsencode(target), system, flags, None) != 0:
        _raise(f"mount {target}")


def _raise(act: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{act}: {os.strerror(number)}")


def main(words: Sequence[str]) -> int:
    """Enter the mount namespace and execute the program; return an exit code if this fails."""
    if len(words) < _LEAST_WORDS:
        sys.stderr.write("usage: privateview HOLD NAME DIRECTORY PROGRAM [ARGUMENT]...\n")
        return _CANNOT
    hold, name, directory, *command = words
    try:
        enter_view(Path(hold), name, Path(directory))
        os.execv(command[0], command)  # noqa: S606 - no shell is needed
    except OSError as error:
        sys.stderr.write(f"cannot create a private view of {SHARE}: {error.strerror}\n")
        return _CANNOT


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
