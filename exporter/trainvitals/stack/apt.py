"""Runs apt without root, with private lists and caches, for any repository.

apt verifies every download: the signature of the repository's index, with gpgv or sqv, and the
checksums of all files that the index lists. The index of another repository must be signed with
that repository's key, even if the system trusts more keys.

apt does not resume an interrupted download of a single package, so the large packages of another
repository are downloaded by `download_file`, with the size and the checksum from the index.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.sources import external_program
from trainvitals.sources.external_program import Version, parse_version
from trainvitals.stack.download import RemoteFile, download_file
from trainvitals.stack.packages import Package, Repository
from trainvitals.stack.writing import require_free_space
from trainvitals.units import format_duration

Report = Callable[[str], None]

NO_ROOM = "free some space, or set XDG_CACHE_HOME to another directory"

_TIMEOUT_SECONDS = 600.0
_UPDATE_SECONDS = 180.0
_KIBIBYTE = 1024
# The packages of assets that a program's web pages load. Other dependencies of a program's package
# are needed only if the package is installed.
_WEB_PACKAGES = re.compile(r"^(?:libjs|fonts)-[a-z0-9.+-]+$", re.MULTILINE)
_DEPENDS = (
    "--recurse",
    "--no-recommends",
    "--no-suggests",
    "--no-conflicts",
    "--no-breaks",
    "--no-replaces",
    "--no-enhances",
)
# apt's first error contains the reason; the last error only states that errors occurred.
_REASON = re.compile(r"^(?:E: |W: GPG error: ).*", re.MULTILINE)


class Apt:
    """Runs apt with private package lists, which requires no root permission.

    Args:
        cache: The directory for the package lists and caches.
        environ: The environment in which apt runs.
        repository: The only repository to use; None for the system's repositories.
        timeout_seconds: The maximum wait for a server, in seconds.
    """

    def __init__(
        self,
        cache: Path,
        environ: Mapping[str, str],
        *,
        repository: Repository | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        self._environ = environ
        self._repository = repository
        self._timeout_seconds = timeout_seconds
        self._folder = cache / "apt"
        if repository is not None:
            self._folder /= repository.fingerprint
        self.options = self._prepare()

    def _prepare(self) -> tuple[str, ...]:
        lists, archives = self._folder / "lists", self._folder / "cache"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        (archives / "archives/partial").mkdir(parents=True, exist_ok=True)
        seconds = f"{max(self._timeout_seconds, 1):.0f}"
        settings = {
            "Dir::State::Lists": str(lists),
            "Dir::Cache": str(archives),
            "Debug::NoLocking": "1",
            "Acquire::Languages": "none",
            "Acquire::Retries": "1",
            "Acquire::http::Timeout": seconds,
            "Acquire::https::Timeout": seconds,
            # When run as root, apt downloads as the user _apt, which cannot write to a private
            # directory.
            "APT::Sandbox::User": "root",
        }
        if self._repository is not None:
            settings |= self._choose(self._repository)
        return tuple(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))

    def _choose(self, repository: Repository) -> dict[str, str]:
        """Write a source list, and return the settings that limit apt to the given repository."""
        source = self._folder / "sources.list"
        source.write_text(
            f"deb [signed-by={repository.fingerprint}] {repository.url} {repository.suite} "
            f"{repository.component}\n",
            encoding="ascii",
        )
        return {
            "Dir::Etc::SourceList": str(source),
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::TrustedParts": str(repository.keys),
            # The system's own apt settings may be less strict.
            "Acquire::AllowInsecureRepositories": "false",
            "Acquire::AllowWeakRepositories": "false",
            "Acquire::AllowDowngradeToInsecureRepositories": "false",
            "APT::Get::AllowUnauthenticated": "false",
            # Without this setting, an unreachable repository is not an error.
            "APT::Update::Error-Mode": "any",
            "Acquire::Retries": "0",
        }

    def update(self) -> StackError | None:
        """Update the package lists; return any error, because another source may be available."""
        try:
            self._run("apt-get", "-qq", "update", timeout_seconds=_UPDATE_SECONDS)
        except StackError as error:
            return error
        return None

    def download(self, package: Package, directory: Path, *, report: Report) -> None:
        """Download a package and the web assets on which the package depends into a directory.

        Raises:
            StackError: The package cannot be downloaded or verified.
        """
        fetch = self._fetch_listed if self._repository is None else self._fetch_large
        try:
            fetch(package, directory, report)
        except StackError:
            # The lists are missing or outdated, so update the lists and retry.
            update_error = self.update()
            if update_error and self._repository is not None:
                raise StackError(f"cannot download {package.name}: {update_error}") from None
            try:
                fetch(package, directory, report)
            except StackError as error:
                raise StackError(
                    f"cannot download {package.name}: {update_error or error}"
                ) from error

    def _fetch_listed(self, package: Package, directory: Path, _: Report) -> None:
        _delete_others(directory, "")
        listed = self._run("apt-cache", "depends", *_DEPENDS, package.name)
        names = (package.name, *sorted(set(_WEB_PACKAGES.findall(listed))))
        self._run("apt-get", "-qq", "download", *names, directory=directory)

    def _fetch_large(self, package: Package, directory: Path, report: Report) -> None:
        version = self._choose_version(package)
        wanted = f"{package.name}={version}"
        uri = self._run("apt-get", "-qq", "download", "--print-uris", wanted)
        url, name, size, checksum = shlex.split(uri)
        algorithm, _, digits = checksum.partition(":")
        file = RemoteFile(url, int(size), algorithm.lower(), digits)
        _delete_others(directory, name)
        needed = file.size + self._measure_unpacked(wanted)
        require_free_space(directory, least_bytes=needed, remedy=NO_ROOM)
        download_file(file, directory / name, report=report, timeout_seconds=self._timeout_seconds)

    def _choose_version(self, package: Package) -> str:
        """Return the newest listed version of a package that the stack can use."""
        table = self._run("apt-cache", "madison", package.name)
        versions = [line.split("|")[1].strip() for line in table.splitlines() if "|" in line]
        fitting = [each for each in versions if _is_in_range(parse_version(each), package)]
        if not fitting:
            raise StackError(f"{package.name} is not listed in a version that the stack can use")
        return fitting[0]  # apt lists the newest version first

    def _measure_unpacked(self, wanted: str) -> int:
        """Return the size of the unpacked package in bytes; 0 if the size is unknown."""
        found = re.search(
            r"^Installed-Size: (\d+)$", self._run("apt-cache", "show", wanted), re.MULTILINE
        )
        return int(found[1]) * _KIBIBYTE if found else 0

    def _run(
        self,
        tool: str,
        *words: str,
        directory: Path | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> str:
        command = (tool, *self.options, *words)
        return run_tool(
            command, self._environ, directory=directory, timeout_seconds=timeout_seconds
        )


def _delete_others(directory: Path, name: str) -> None:
    """Delete the files of an earlier attempt, except files whose names begin with `name`."""
    for path in directory.iterdir():
        if not name or not path.name.startswith(name):
            path.unlink()


def _is_in_range(version: Version | None, package: Package) -> bool:
    first, end = package.downloaded or ((0, 0), None)
    return version is not None and first <= version and (end is None or version < end)


def require_tools(wanted: str, environ: Mapping[str, str]) -> None:
    """Check that the tools for downloading and unpacking packages are installed.

    Raises:
        StackError: A tool is not installed.
    """
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool, path=environ.get("PATH", os.defpath)) is None:
            raise StackError(
                f"{wanted} is not installed, and there is no {tool} to fetch it: install {wanted}"
            )


def run_tool(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    directory: Path | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> str:
    """Run a command and return its standard output.

    Raises:
        StackError: The command cannot be started, fails or times out; the message contains the
            reason.
    """
    shown = Path(command[0]).name
    try:
        result = external_program.run(
            command,
            timeout_seconds=timeout_seconds,
            environ={**environ, "LC_ALL": "C"},
            directory=directory,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(
            f"{shown} did not finish within {format_duration(timeout_seconds)}"
        ) from error
    except OSError as error:
        raise StackError(f"{shown} did not finish: {error}") from error
    if result.returncode:
        words = (result.stderr or result.stdout).strip()
        reason = _REASON.search(words)
        line = reason[0] if reason else (words.splitlines() or ["no message"])[-1]
        raise StackError(f"{shown} failed with exit code {result.returncode}: {line}")
    return result.stdout
