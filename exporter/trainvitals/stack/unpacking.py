"""Downloads and unpacks packages without root, and tests their programs.

Grafana's programs are linked with musl, and Grafana's package depends on the package `musl`. If the
system lacks musl's dynamic linker, musl is unpacked beside the programs, and a script starts each
program with that linker.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack.apt import Apt, require_tools, run_tool
from trainvitals.stack.packages import Package

Report = Callable[[str], None]

# Files that no program reads, and that make up two thirds of the unpacked size.
_UNREAD = ("usr/share/doc", "usr/share/javascript/moment-timezone/data")

_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_HEADER_BYTES = 64
_INTERPRETER = 3  # PT_INTERP of elf(5)

_SCRIPT = """\
#!/bin/sh
# Written by `trainvitals up`, as this machine has no {name}.
here=$(dirname "$(readlink -f "$0")")
exec "$here"/{linker} "$here"/{program} "$@"
"""


def fetch_package(
    package: Package,
    cache: Path,
    environ: Mapping[str, str],
    *,
    report: Report,
    timeout_seconds: float,
) -> None:
    """Download and unpack a package, and test its programs.

    A downloaded file is kept until it is unpacked, so that another attempt can reuse the file.

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
    """Provide a program with its dynamic linker from a package if this machine lacks the linker."""
    linker = _find_missing_linker(program) if program.exists() else None
    if linker is None:
        return
    with tempfile.TemporaryDirectory(dir=unpacked.parent) as directory:
        system.download(package, Path(directory), report=lambda _: None)
        _unpack(Path(directory), unpacked, environ)
    _start_with_linker(program, linker, root=unpacked)


def _find_missing_linker(program: Path) -> Path | None:
    """Return the path of a program's dynamic linker if the linker is missing; otherwise None."""
    linker = _read_linker(program)
    return linker if linker is not None and not linker.exists() else None


def _read_linker(program: Path) -> Path | None:
    """Return the dynamic linker that a 64-bit ELF file names; None if the file names no linker."""
    with program.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(_ELF_64_LITTLE_ENDIAN):
            return None
        (table,) = struct.unpack_from("<Q", header, 0x20)
        width, count = struct.unpack_from("<HH", header, 0x36)
        for number in range(count):
            file.seek(table + number * width)
            entry = file.read(0x28)
            kind, _, offset, _, _, size = struct.unpack("<IIQQQQ", entry)
            if kind == _INTERPRETER:
                file.seek(offset)
                return Path(os.fsdecode(file.read(size).rstrip(b"\0")))
    return None


def _start_with_linker(program: Path, linker: Path, *, root: Path) -> None:
    """Replace a program with a script that starts the program with a given dynamic linker.

    Args:
        program: The path of the program, below `root`; the program is moved to `PROGRAM.elf`.
        linker: The linker's path in the file system of its package.
        root: The directory in which the linker's package was unpacked.

    Raises:
        StackError: The package does not contain the linker.
    """
    name = linker.relative_to("/")
    places = (root / name, root / "usr" / name)
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise StackError(f"{program.name} needs {linker}, which its package does not have")
    moved = program.with_name(f"{program.name}.elf")
    program.rename(moved)
    script = _SCRIPT.format(
        name=linker,
        linker=shlex.quote(os.path.relpath(found, program.parent)),
        program=shlex.quote(moved.name),
    )
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)


def _try_program(program: Path, environ: Mapping[str, str]) -> None:
    try:
        run_tool((str(program), "--version"), environ)
    except StackError as error:
        raise StackError(
            f"the downloaded {program.name} does not run on this machine: {error}; install another"
        ) from error
