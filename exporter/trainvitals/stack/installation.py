"""Installs a Debian package without running the package's service.

Only root can install packages. During the installation, the script `policy-rc.d` prevents the start
of the service. The service is then disabled. A `policy-rc.d` that another program wrote is never
changed: if such a script allows the service to start, nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.sources import external_program

POLICY = Path("/usr/sbin/policy-rc.d")
_FORBIDDEN = 101  # The exit code with which policy-rc.d forbids the start of a service.
_TIMEOUT_SECONDS = 600.0

# The script forbids a start only while the process that wrote the script is alive, so that a script
# that remains after a kill -9 has no effect.
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
    """Install a Debian package and disable the service that has the same name.

    Args:
        package: The name of the package.
        run: Runs a command line, or raises StackError.
        options: Options for apt-get.
        environ: The environment variables; only `PATH` is used.
        policy: The path of Debian's `policy-rc.d`.

    Raises:
        StackError: The package cannot be installed, or the start of the package's service could not
            be prevented.
    """
    with _starts_prevented(package, policy):
        run(("apt-get", "-qq", "-y", "--no-install-recommends", *options, "install", package))
        _disable(package, run, environ)


@contextmanager
def _starts_prevented(service: str, policy: Path) -> Iterator[None]:
    if policy.exists() and not _is_ours(policy):
        if _run_policy(policy, service) != _FORBIDDEN:
            raise StackError(f"{policy} would start its service")
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


def _run_policy(policy: Path, service: str) -> int:
    try:
        command = (str(policy), service, "start")
        return external_program.run(command, timeout_seconds=_TIMEOUT_SECONDS).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 0


def _disable(
    service: str, run: Callable[[tuple[str, ...]], object], environ: Mapping[str, str]
) -> None:
    path = environ.get("PATH", os.defpath)
    if shutil.which("systemctl", path=path):
        run(("systemctl", "disable", f"{service}.service"))
    elif shutil.which("update-rc.d", path=path):
        run(("update-rc.d", service, "disable"))
