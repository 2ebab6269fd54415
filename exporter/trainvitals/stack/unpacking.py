"""Downloads and unpacks packages without root, and tests their programs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack.apt import Apt, require_tools, run_tool
from trainvitals.stack.linker import find_missing_linker, start_with_linker
from trainvitals.stack.packages import Package

Report = Callable[[str], None]

# Files that make up two thirds of the unpacked size and that no program reads.
_UNREAD = ("usr/share/doc", "usr/share/javascript/moment-timezone/data")


def fetch_package(
    package: Package,
    cache: Path,
    environ: Mapping[str, str],
    *,
    report: Report,
    timeout_seconds: float,
) -> None:
    """Download and unpack a package, and test its programs.

    Downloads are kept until they are unpacked, so that another attempt can reuse them.

    Args:
        package: The package, which is unpacked to a directory with its name.
        cache: An existing directory that the caller has locked.
        environ: The environment in which the tools run.
        report: Called before a download, and during the download of a large package.
        timeout_seconds: The maximum wait for a package server, in seconds.

    Raises:
        StackError: The package cannot be downloaded, verified or unpacked, or a program in the
            package does not run.
    """
    require_tools(package.name, environ)
    what = f"Debian's package {package.name}"
    if package.repository:
        what = f"{package.name} from {package.repository.url}"
    report(f"downloading {what} to {cache}")
    downloads, unpacked = cache / f"{package.name}.debs", cache / f"{package.name}.partial"
    for leftover in (unpacked, cache / package.name):
        shutil.rmtree(leftover, ignore_errors=True)
    downloads.mkdir(exist_ok=True)
    apt = Apt(cache, environ, repository=package.repository, timeout_seconds=timeout_seconds)
    apt.download(package, downloads, report=report)
    _unpack(downloads, unpacked, environ)
    programs = [unpacked / package.folder / name for name in package.programs]
    if package.linker:
        system = Apt(cache, environ, timeout_seconds=timeout_seconds)
        for program in programs:
            _provide_linker(program, Package(package.linker, ()), unpacked, system, environ)
    for unread in _UNREAD:
        shutil.rmtree(unpacked / unread, ignore_errors=True)
    for program in programs:
        _try_program(program, environ)
    unpacked.rename(cache / package.name)
    shutil.rmtree(downloads)


def _unpack(downloads: Path, unpacked: Path, environ: Mapping[str, str]) -> None:
    for deb in sorted(downloads.glob("*.deb")):
        run_tool(("dpkg-deb", "-x", str(deb), str(unpacked)), environ)


def _provide_linker(
    program: Path, package: Package, unpacked: Path, system: Apt, environ: Mapping[str, str]
) -> None:
    """Unpack the package of a dynamic linker for a program whose linker this machine lacks."""
    linker = find_missing_linker(program) if program.exists() else None
    if linker is None:
        return
    with tempfile.TemporaryDirectory(dir=unpacked.parent) as directory:
        system.download(package, Path(directory), report=lambda _: None)
        _unpack(Path(directory), unpacked, environ)
    start_with_linker(program, linker, root=unpacked)


def _try_program(program: Path, environ: Mapping[str, str]) -> None:
    try:
        run_tool((str(program), "--version"), environ)
    except StackError as error:
        raise StackError(
            f"the downloaded {program.name} does not run on this machine: {error}; install another"
        ) from error
