"""Gaudi cards through the command `hl-smi`, for machines without HLML's binding.

    hl-smi -Q index,uuid,... -f csv,noheader,nounits

prints a line for each card, its cells separated by a comma and a space, `N/A` for what is not
known. The units are those that the command documents: MiB, W, C, %, MHz. One run tells of all
cards, so each run serves one reading of every card, and there is never a second run beside it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

from trainvitals.sources.accelerators.hl_smi_table import (
    CORE_FIELDS,
    MORE_FIELDS,
    NOT_KNOWN,
    parse_row,
    split_cells,
)
from trainvitals.sources.accelerators.row import (
    EMPTY_ROW,
    DeviceError,
    DeviceRow,
    DriverAbsentError,
    DriverGoneError,
    IdentityFields,
    Row,
)

TIMEOUT_SECONDS = 10.0
_FRESH_SECONDS = 1.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

Query = Callable[[Sequence[str]], str]


class HlSmiFailedError(Exception):
    """The command ended with an error; the text is what it said."""


def find_hl_smi() -> str | None:
    """Give the path of `hl-smi`, as PATH says; None where there is none."""
    for folder in os.get_exec_path():
        command = f"{folder}/hl-smi"
        if os.access(command, os.X_OK):
            return command
    return None


def open_hl_smi(command: str) -> HlSmiSession:
    """Open the driver by the command.

    Raises:
        DriverAbsentError: There is no driver under the command.
        DriverGoneError: There is one and it refuses, or the command does not end.
    """

    def query(fields: Sequence[str]) -> str:
        return run_hl_smi(command, fields)

    try:
        return HlSmiSession(query, *choose_fields(query))
    except HlSmiFailedError as error:
        if "not loaded" in str(error).lower():
            raise DriverAbsentError(str(error)) from error
        raise DriverGoneError(f"hl-smi failed: {error}") from error
    except DeviceError as error:
        raise DriverGoneError(f"hl-smi did not answer within {TIMEOUT_SECONDS:.0f} s") from error


def run_hl_smi(
    command: str, fields: Sequence[str], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> str:
    """Run the command and give what it prints.

    Raises:
        DeviceError: It did not end in time and was killed.
        DriverGoneError: It cannot be run.
        HlSmiFailedError: It ended with an error.
    """
    import subprocess  # noqa: PLC0415 - for this vendor alone

    arguments = [command, "-Q", ",".join(fields), "-f", "csv,noheader,nounits"]
    prctl = ctypes.CDLL(None).prctl

    def die_with_parent() -> None:  # a reader that is killed must not leave a hung command behind
        prctl(_DIE_WITH_PARENT, signal.SIGKILL)

    try:
        with subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, bound beforehand
        ) as process:
            try:
                output, errors = process.communicate(timeout=timeout_seconds)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, signal.SIGKILL)
                raise DeviceError("hung") from error
    except OSError as error:
        raise DriverGoneError(f"cannot run {command}: {error.strerror}") from error
    if process.returncode != 0:
        raise HlSmiFailedError(_first_line(errors) or _first_line(output) or "it did not say why")
    return output.decode(errors="replace")


def choose_fields(query: Query) -> tuple[tuple[str, ...], str]:
    """Find out which fields the installed version knows: it fails on any that it does not.

    Returns:
        The fields, and what the command prints for them.

    Raises:
        DeviceError: It did not end in time.
        DriverGoneError: It cannot be run.
        HlSmiFailedError: It does not even know the core fields.
    """
    fields = CORE_FIELDS + tuple(field for group in MORE_FIELDS for field in group)
    text = _try(query, fields)
    if text is not None:
        return fields, text
    fields, text = CORE_FIELDS, query(CORE_FIELDS)
    for group in MORE_FIELDS:
        longer = _try(query, fields + group)
        if longer is not None:
            fields, text = fields + group, longer
    return fields, text


def _try(query: Query, fields: Sequence[str]) -> str | None:
    try:
        return query(fields)
    except HlSmiFailedError:
        return None


class HlSmiSession:
    """The driver as `hl-smi` shows it; see `Session`.

    Args:
        query: Runs the command for some fields and gives what it prints.
        fields: Which the installed version knows.
        text: What the command printed for them just now.
    """

    parallel = 1

    def __init__(self, query: Query, fields: tuple[str, ...], text: str) -> None:
        self._query = query
        self._fields = fields
        self._lock = threading.Lock()
        self._failure: DeviceError | DriverGoneError | None = None
        self._table = split_cells(text)
        self._ran_at = time.monotonic()
        self._shown = len(self._table)
        self.devices: list[HlSmiDevice] = []
        self.unreadable: list[tuple[IdentityFields, str]] = []
        for place, cells in enumerate(self._table):
            self._open_device(place, cells)
        self._served = {device.identity[2] for device in self.devices}

    def is_current(self) -> bool:
        """Tell whether the latest run showed the cards of the first.

        Raises:
            DriverGoneError: The command fails; where there is no card, only this finds it out.
        """
        if not self.devices:
            self._run()
            if self._failure is not None:
                raise DriverGoneError(str(self._failure)) from self._failure
        known = {NOT_KNOWN, *(device.identity[2] for device in self.devices)}
        known |= {identity[2] for identity, _ in self.unreadable}
        uuids = [cells[1] for cells in self._table if len(cells) == len(self._fields)]
        return len(self._table) == self._shown and known.issuperset(uuids)

    def watch(self, report: Callable[[str, int], None]) -> None:  # noqa: ARG002 - no Xids
        """Return at once: the command tells of no events."""
        return

    def stop_watching(self) -> None:
        """Nothing is watched."""

    def close(self) -> None:
        """Nothing is held open."""

    def read(self, uuid: str, bus_id: str) -> Row:
        """Give a card's row from a run of the command that has not served it yet.

        Raises:
            DeviceError: This card cannot be read, or none can because the command does not end.
            DriverGoneError: The command fails.
        """
        with self._lock:
            if uuid in self._served or time.monotonic() - self._ran_at > _FRESH_SECONDS:
                self._run()
            self._served.add(uuid)
            if self._failure is not None:
                raise self._failure
            table = self._table
        for cells in table:
            if uuid in cells:
                return self._parse(cells)
        shown = [cells for cells in table if bus_id in cells]
        is_garbled = any(NOT_KNOWN not in cells for cells in shown) and self.is_current()
        raise DeviceError("unsupported" if is_garbled else "lost")

    def _run(self) -> None:
        self._served.clear()
        self._failure = None
        try:
            self._table = split_cells(self._query(self._fields))
        except HlSmiFailedError as error:
            self._failure = DriverGoneError(f"hl-smi failed: {error}")
        except (DeviceError, DriverGoneError) as error:
            self._failure = error
        self._ran_at = time.monotonic()

    def _parse(self, cells: Sequence[str]) -> Row:
        try:
            row = parse_row(self._fields, cells)
        except ValueError as error:
            raise DeviceError("unsupported") from error
        if row == list(EMPTY_ROW):
            raise DeviceError("unsupported")
        return row

    def _open_device(self, place: int, cells: list[str]) -> None:
        named = dict(zip(self._fields, cells, strict=False))
        index = named["index"]
        number = int(index) if index.isascii() and index.isdigit() and len(index) < 4 else place  # noqa: PLR2004
        uuid = named.get("uuid", "")
        if len(cells) != len(self._fields) or uuid in ("", NOT_KNOWN):
            unknown = ("hpu", number, f"unknown-{number}", "", named.get("bus_id", ""), "", None)
            self.unreadable.append((unknown, "lost" if uuid == NOT_KNOWN else "unsupported"))
            return
        identity = (
            "hpu",
            number,
            uuid,
            named["name"],
            named["bus_id"],
            named["driver_version"],
            None,
        )
        self.devices.append(HlSmiDevice(self, identity))


class HlSmiDevice:
    """One card; see `Device`.

    Args:
        session: Which it belongs to.
        identity: Which card.
    """

    def __init__(self, session: HlSmiSession, identity: IdentityFields) -> None:
        self.identity = identity
        self._session = session

    def read(self, since: int | None) -> DeviceRow:  # noqa: ARG002 - there is no sample buffer
        """Give what the command says; see `Device`."""
        return self._session.read(self.identity[2], self.identity[4]), None, []


def _first_line(output: bytes) -> str:
    return output.decode(errors="replace").strip().partition("\n")[0][:200]
