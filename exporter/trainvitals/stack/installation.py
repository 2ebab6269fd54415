"""Debian's Alertmanager as an installed package, without the service that comes with it.

Only root can install. While the package is installed, `policy-rc.d` keeps it from starting its
service; what then would start it at the next boot is turned off. A `policy-rc.d` that somebody
else left is never touched: where it would let the service start, nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainvitals.errors import StackError

POLICY = Path("/usr/sbin/policy-rc.d")
_FORBIDDEN = 101  # what a policy answers to keep a service from being started
_PATIENCE_SECONDS = 600.0

# It forbids only while the process that wrote it lives: a kill -9 leaves no changed policy behind.
_TEXT = """\
#!/bin/sh
# Written by `trainvitals up` for the time in which it installs a package.
[ -d /proc/{pid} ] && exit 101
exit 0
"""


def install_package(
    package: str,
    run: Callable[[tuple[str, ...]], object],
    *,
    options: tuple[str, ...] = (),
    environ: Mapping[str, str] = os.environ,
    policy: Path = POLICY,
) -> None:
    """Install a package whose service has the package's name, and leave the service off.

    Args:
        package: The package.
        run: Runs a command to its end, or raises StackError.
        options: Of apt-get.
        environ: Where `PATH` is read.
        policy: Debian's `policy-rc.d`.

    Raises:
        StackError: It cannot be installed, or its service could not be kept from starting.
    """
    with _forbidden(package, policy):
        run(("apt-get", "-qq", "-y", "--no-install-recommends", *options, "install", package))
        _turn_off(package, run, environ)


@contextmanager
def _forbidden(service: str, policy: Path) -> Iterator[None]:
    if policy.exists() and not _is_ours(policy):
        if _asked(policy, service) != _FORBIDDEN:
            raise StackError(f"{policy} would let its service start")
        yield
        return
    try:
        policy.write_text(_TEXT.format(pid=os.getpid()), encoding="ascii")
        policy.chmod(0o755)
    except OSError as error:
        raise StackError(f"cannot write {policy}: {error.strerror}") from error
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def _is_ours(policy: Path) -> bool:
    try:
        return "`trainvitals up`" in policy.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _asked(policy: Path, service: str) -> int:
    try:
        return subprocess.run(
            (str(policy), service, "start"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 0


def _turn_off(
    service: str, run: Callable[[tuple[str, ...]], object], environ: Mapping[str, str]
) -> None:
    path = environ.get("PATH", os.defpath)
    if shutil.which("systemctl", path=path):
        run(("systemctl", "disable", f"{service}.service"))
    elif shutil.which("update-rc.d", path=path):
        run(("update-rc.d", service, "disable"))
