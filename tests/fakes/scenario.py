"""The fake accelerators' shared memory, mirrored from `scenario.h` and `functions.h`.

The headers are the only description of the layout. The ctypes structures of this module are built
from the headers, so a new member of a header's structure needs no change in this module.

    SCENARIO    the structure of the whole file
    CONSTANTS   the numbers that scenario.h defines
    FUNCTIONS   the row of each driver function in the tables of calls and faults
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
from pathlib import Path

UNSUPPORTED = -(2**31)
UNSUPPORTED_LONG = -(2**63)

_HERE = Path(__file__).resolve().parent
_NUMBERS: dict[str, type] = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}
_MEMBER = re.compile(r"^    (?:struct )?(\w+) (\w+)((?:\[\w+\])*);$", re.MULTILINE)


def _constants(header: str) -> dict[str, int]:
    defines = re.findall(r"^#define (\w+) (\d\w*)$", header, re.MULTILINE)
    return {name: int(value, 0) for name, value in defines}


def _structures(header: str, constants: dict[str, int]) -> dict[str, type[ctypes.Structure]]:
    known: dict[str, type] = dict(_NUMBERS)
    structures: dict[str, type[ctypes.Structure]] = {}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", header, re.MULTILINE | re.DOTALL):
        members = []
        for kind, member, sizes in _MEMBER.findall(body):
            member_type = known[kind]
            for size in reversed(re.findall(r"\w+", sizes)):
                member_type = member_type * (constants.get(size) or int(size))
            members.append((member, member_type))
        if len(members) != body.count(";"):
            raise ValueError(f"scenario.h: struct {name} has a member that cannot be read")
        known[name] = structures[name] = type(name, (ctypes.Structure,), {"_fields_": members})
    return structures


_HEADER = (_HERE / "scenario.h").read_text()
CONSTANTS = _constants(_HEADER)
_STRUCTURES = _structures(_HEADER, CONSTANTS)
SCENARIO = _STRUCTURES["scenario"]
DEVICE = _STRUCTURES["device"]
FUNCTIONS = {
    name: row
    for row, name in enumerate(
        re.findall(r"^FUNCTION\((\w+)\)$", (_HERE / "functions.h").read_text(), re.MULTILINE)
    )
}


def create_scenario(path: Path) -> ctypes.Structure:
    """Replace the file by one with zeros, its size and its magic number, and map it."""
    size = ctypes.sizeof(SCENARIO)
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(bytes(size))
    fresh.replace(path)
    scenario = open_scenario(path)
    scenario.size = size
    scenario.magic = CONSTANTS["MAGIC"]
    return scenario


def open_scenario(path: Path) -> ctypes.Structure:
    """Map an existing file; the mapping lasts as long as the returned structure."""
    with path.open("r+b") as file:
        return SCENARIO.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(SCENARIO)))


_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1


def wake(scenario: ctypes.Structure) -> None:
    """Wake the calls that wait for events, so that they notice a change at once.

    On processors for which this module has no number of the futex call, they notice a change within
    a second.
    """
    scenario.wakes = (scenario.wakes + 1) % 2**32
    call = _FUTEX.get(platform.machine())
    if call is not None:
        word = ctypes.addressof(scenario) + SCENARIO.wakes.offset
        ctypes.CDLL(None).syscall(
            call, ctypes.c_void_p(word), _FUTEX_WAKE, 2**31 - 1, None, None, 0
        )
