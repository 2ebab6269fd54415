"""Chooses the account under which the native stack's programs run if root starts the stack.

The exporter needs root to read other users' processes, the run files in these users' containers,
file systems that other users cannot access, and the kernel log. The supervisor needs root to start
programs as two users. All other programs run under one unprivileged account. This account may only
read the programs' configuration and write the programs' data. Root remains the owner of the
directories that contain the configuration and the secrets.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trainvitals.stack.programs import Program
from trainvitals.stack.writing import as_stack_errors, make_private

DATA = {"prometheus": "prometheus", "alertmanager": "alertmanager-data", "grafana": "grafana"}
_NAMES = ("trainvitals", "nobody")
_AS_ROOT = frozenset({"exporter"})
# The file modes with which the group can enter a directory, list a directory, and read a file.
_ENTERED, _LISTED, _READ = 0o710, 0o750, 0o640
_SECRETS = ("config/alertmanager", "secrets")
# A script that prints the first path that the account cannot use.
_LOOK = 'for path; do [ -r "$path" ] || [ -x "$path" ] || { echo "$path"; exit 1; }; done'
_LOOK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Account:
    """A user account under which programs run.

    Attributes:
        name: The account's user name.
        uid: The account's user ID.
        gid: The ID of the account's group.
    """

    name: str
    uid: int
    gid: int


def find_account(state_dir: Path, names: tuple[str, ...] = _NAMES) -> Account | None:
    """Return the account for a state directory; None if the user is not root or no account exists.

    If the directory's owner is not root, the result is the owner's account, so that with `sudo` the
    data still belongs to the user who created the directory. Otherwise, the result is the account
    of the services (`trainvitals`). If that account does not exist, the result is the account
    without any rights (`nobody`).
    """
    if os.geteuid() != 0:
        return None
    owner = state_dir.stat().st_uid
    found = map(_look_up, (*((owner,) if owner else ()), *names))
    return next((each for each in found if each is not None), None)


def _look_up(who: int | str) -> Account | None:
    try:
        found = pwd.getpwuid(who) if isinstance(who, int) else pwd.getpwnam(who)
    except KeyError:
        return None
    return Account(found.pw_name, found.pw_uid, found.pw_gid)


def drop_root(
    state_dir: Path,
    programs: tuple[Program, ...],
    report: Callable[[str], None],
    *,
    find: Callable[[Path], Account | None] = find_account,
) -> tuple[Program, ...]:
    """Return the programs with the users as whom they run, and grant access to the required files.

    A program that the account cannot run, for example because its files are below `/root`, runs as
    root.

    Args:
        state_dir: The state directory, which contains the programs' configuration.
        programs: The programs that the stack will start.
        report: A function that is called with one line for each program that runs as root because
            the account cannot use the program's files.
        find: A function that returns the account, or None if every program is to run as the current
            user.

    Raises:
        StackError: The owner of a file cannot be changed.
    """
    account = find(state_dir)
    if account is None or len(programs) == 1:
        return programs
    blocked = _find_blocked(account, (str(state_dir.parent),))
    if blocked is None:
        with as_stack_errors(state_dir):
            _hand_over(state_dir, programs, account)
    return tuple(_choose_user(state_dir, each, account, blocked, report) for each in programs)


def _choose_user(
    state_dir: Path,
    program: Program,
    account: Account,
    blocked: str | None,
    report: Callable[[str], None],
) -> Program:
    if program.name in _AS_ROOT:
        return program
    blocked = blocked or _find_blocked(account, tuple(_list_paths(program)))
    if blocked:
        report(
            f"{program.name} runs as root, because the user {account.name} cannot use {blocked}: "
            "put it where every user may enter, such as below /opt or /var/lib"
        )
        return program
    home = {"HOME": str(state_dir / DATA[program.name])} if program.name in DATA else {}
    return replace(program, user=account.name, environment={**program.environment, **home})


def _list_paths(program: Program) -> Iterator[str]:
    """Yield the existing paths that a program's command and environment contain."""
    words = (word.rpartition("=")[2] for word in program.command)
    for word in (*words, *program.environment.values()):
        if word.startswith("/") and os.path.lexists(word):
            yield word
            # The supplied rules are a link in the directory that contains `prometheus.yml`.
            yield from map(str, Path(word).parent.glob("rules") if word.endswith(".yml") else ())


def _find_blocked(account: Account, paths: tuple[str, ...]) -> str | None:
    """Return the first path that an account cannot use; None if the account can use all paths."""
    result = subprocess.run(
        ("/bin/sh", "-c", _LOOK, "sh", *paths),
        user=account.uid,
        group=account.gid,
        extra_groups=os.getgrouplist(account.name, account.gid),
        cwd="/",
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_LOOK_SECONDS,
        check=False,
    )
    return result.stdout.strip() or (paths[0] if result.returncode else None)


def _hand_over(state_dir: Path, programs: tuple[Program, ...], account: Account) -> None:
    """Allow an account to write the programs' data and to read the programs' configuration."""
    _share(state_dir, account, _ENTERED)
    for name in ("config", *_SECRETS):
        if (state_dir / name).is_dir():
            _share(state_dir / name, account, _ENTERED)
    for path in _walk(state_dir / "config/prometheus"):
        _share(path, account, _LISTED if path.is_dir() else _READ)
    for name in _SECRETS:
        for path in _walk(state_dir / name):
            if path.is_dir():
                _share(path, account, _LISTED)
            else:
                os.chown(path, account.uid, account.gid, follow_symlinks=False)
    for name in (DATA[each.name] for each in programs if each.name in DATA):
        make_private(state_dir / name)
        _give(state_dir / name, account)


def _share(path: Path, account: Account, mode: int) -> None:
    """Grant the account's group the access in `mode` to a path; skip paths that root does not own."""
    if path.stat().st_uid == 0:
        os.chown(path, 0, account.gid)
        path.chmod(path.stat().st_mode & 0o777 & ~0o077 | mode)


def _walk(directory: Path) -> Iterator[Path]:
    """Yield a directory and all files and directories below it, except symbolic links."""
    found = (directory, *directory.rglob("*")) if directory.is_dir() else ()
    yield from (each for each in found if not each.is_symlink())


def _give(directory: Path, account: Account) -> None:
    """Make an account the owner of a directory and of all files below it that root owns.

    The account's programs may change the directory at the same time. Therefore, no symbolic link is
    followed, and a file with several hard links keeps its owner, because the file may also be in
    another directory.
    """
    os.chown(directory, account.uid, account.gid, follow_symlinks=False)
    for _, folders, files, descriptor in os.fwalk(directory, follow_symlinks=False):
        for name in (*folders, *files):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if status.st_uid == 0 and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
                os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
