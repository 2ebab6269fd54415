"""Provides an unpacked program with a dynamic linker that the system lacks.

Grafana's programs are linked with musl, a package on which Grafana's package depends. Without root,
musl is unpacked beside the programs, and a script starts each program with musl's linker.
"""

from __future__ import annotations

import os
import shlex
import struct
from pathlib import Path

from trainvitals.errors import StackError

_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_HEADER_BYTES = 64
_INTERPRETER = 3  # PT_INTERP of elf(5)

_SCRIPT = """\
#!/bin/sh
# Written by `trainvitals up`, as this machine has no {name}.
here=$(dirname "$(readlink -f "$0")")
exec "$here"/{linker} "$here"/{program} "$@"
"""


def find_missing_linker(program: Path) -> Path | None:
    """Return the path of a program's dynamic linker if the linker is missing; otherwise None."""
    linker = _read_linker(program)
    return linker if linker is not None and not linker.exists() else None


def _read_linker(program: Path) -> Path | None:
    """Return the dynamic linker named in a 64-bit ELF file; None if the file names no linker."""
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


def start_with_linker(program: Path, linker: Path, *, root: Path) -> None:
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
