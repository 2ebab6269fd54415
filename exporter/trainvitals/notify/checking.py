"""What Alertmanager's own programs say about themselves and about a configuration."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from trainvitals.errors import ConfigurationError
from trainvitals.notify.channels import Version

# How the name of a file ends that is not whole or not approved yet; it begins with a dot.
PARTIAL = ".partial"
_PATIENCE_SECONDS = 30.0
_URL = re.compile(r"(https?://)[^\s\"]*")


def read_version(program: Path) -> Version | None:
    """Ask alertmanager or amtool for its version.

    Returns:
        Major and minor; None where it does not say.
    """
    try:
        said = _run(str(program), "--version")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(said.stdout + said.stderr)


def parse_version(text: str) -> Version | None:
    """Find a version in a text, as `v0.25.0`; None where there is none."""
    found = re.search(r"(?<![\d.])(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def check_configuration(path: Path, *, amtool: Path) -> None:
    """Have a configuration and its templates checked.

    Raises:
        ConfigurationError: It is bad, or amtool cannot be run.
    """
    try:
        said = _run(str(amtool), "check-config", str(path))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"cannot run {amtool}: {error}; install it again") from error
    if said.returncode:
        words = said.stdout + said.stderr
        found = re.search(r"FAILED: (.*)", words)
        reason = found[1].strip() if found else " ".join(words.split())
        # A new file has this name until it is approved.
        shown = path.with_name(path.name.removeprefix(".").removesuffix(PARTIAL))
        # An address may be the secret itself.
        reason = _URL.sub(r"\1…", reason)
        raise ConfigurationError(f"{shown}: amtool refuses it: {reason}")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
