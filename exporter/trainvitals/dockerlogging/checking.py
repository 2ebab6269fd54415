"""Having dockerd itself check a file before it is put in its place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LEAST_VERSION = 23
_PATIENCE_SECONDS = 20.0
_OWN = "by rules of our own alone"
# Where it is when the caller's PATH has no administrator's programs.
_PLACES = ("usr/local/sbin", "usr/sbin", "usr/local/bin", "usr/bin")


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found.

    Attributes:
        by: Who checked, for a person.
        complaint: Why dockerd does not start with the file; None where it does or was not asked.
    """

    by: str
    complaint: str | None = None


def check_file(
    data: bytes, *, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> Check:
    """Ask dockerd, where it is installed and new enough, whether it starts with this file.

    Args:
        data: What the file would say.
        environ: Where `PATH` is read.
        root: Where the folders of programs are that a PATH may lack.
    """
    places = [environ.get("PATH", ""), *(str(root / place) for place in _PLACES)]
    program = shutil.which("dockerd", path=":".join(places))
    if program is None:
        return Check(f"{_OWN}: there is no dockerd here to ask")
    told = _run(program, "--version")
    version = re.search(r"version v?(\d+)\.(\d+)(?:\.(\d+))?", told[1])
    name = f"dockerd {version[0].removeprefix('version ')}" if version else "dockerd"
    if version and int(version[1]) < _LEAST_VERSION:
        return Check(f"{_OWN}: {name} cannot check a file, {_LEAST_VERSION}.0 and newer can")
    with tempfile.NamedTemporaryFile(prefix="trainvitals-", suffix=".json") as file:
        file.write(data)
        file.flush()
        code, words = _run(program, "--validate", "--config-file", file.name)
        if code is None or (code and "unknown flag" in words):
            return Check(f"{_OWN}: {name} did not check it")
        if code == 0:
            return Check(f"by {name} and by rules of our own")
        last = (words.strip().splitlines() or ["no reason given"])[-1]
        return Check(f"by {name}", last.replace(f" with file {Path(file.name)}", ""))


def _run(*command: str) -> tuple[int | None, str]:
    try:
        said = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    return said.returncode, said.stdout + said.stderr
