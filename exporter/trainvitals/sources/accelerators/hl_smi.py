"""Gaudi cards, read with the command `hl-smi`, for machines without the HLML binding.

The following command prints one line for each card:

    hl-smi -Q index,uuid,... -f csv,noheader,nounits

A comma and a space separate the cells of a line, and an unknown value is `N/A`. The documented
units of the values are MiB, W, C, % and MHz. Each run of the command provides one reading of every
card. Only one run is in progress at a time.
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
    Card,
    Table,
    parse_row,
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
_LONGEST_EXAMPLE = 80

Query = Callable[[Sequence[str]], str]


class HlSmiFailedError(Exception):
    """The command `hl-smi` failed; the message is the first line of the command's output."""


def find_hl_smi() -> str | None:
    """Return the path of the first `hl-smi` in PATH; None if the command is not in PATH."""
    for folder in os.get_exec_path():
        command = f"{folder}/hl-smi"
        if os.access(command, os.X_OK):
            return command
    return None


def open_hl_smi(command: str) -> HlSmiSession:
    """Open the Gaudi driver with the command `hl-smi`.

    Raises:
        DriverAbsentError: The command is installed but the driver is not loaded.
        DriverGoneError: The command fails for another reason, or does not exit in time.
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
    """Run the command `hl-smi` and return its output.

    Raises:
        DeviceError: The command did not exit in time and was killed.
        DriverGoneError: The command cannot be started.
        HlSmiFailedError: The command's exit status is not 0.
    """
    import subprocess  # noqa: PLC0415 - for this vendor alone

    arguments = [command, "-Q", ",".join(fields), "-f", "csv,noheader,nounits"]
    prctl = ctypes.CDLL(None).prctl

    def die_with_parent() -> None:  # a killed reader must not leave a hung command behind
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
    """Determine the fields that the installed version of `hl-smi` supports.

    If a version does not support a requested field, the command fails or omits the field's cells.

    Returns:
        The supported fields, and the output of `hl-smi` for these fields.

    Raises:
        DeviceError: The command did not exit in time.
        DriverGoneError: The command cannot be started.
        HlSmiFailedError: The command does not support the core fields.
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
        text = query(fields)
    except HlSmiFailedError:
        return None
    return text if Table(fields, text).fits else None


class HlSmiSession:
    """A Gaudi driver that is read with `hl-smi`; see `Session`.

    Args:
        query: A function that runs `hl-smi` with a list of fields and returns the output.
        fields: The fields that the installed version of `hl-smi` supports.
        text: The output of `hl-smi` for these fields.
    """

    parallel = 1

    def __init__(self, query: Query, fields: tuple[str, ...], text: str) -> None:
        self._query = query
        self._fields = fields
        self._lock = threading.Lock()
        self._failure: DeviceError | DriverGoneError | None = None
        self._table = Table(fields, text)
        self._garbled: dict[str, list[str]] = {}
        self._ran_at = time.monotonic()
        self._shown = len(self._table.cards)
        self.devices: list[HlSmiDevice] = []
        self.unreadable: list[tuple[IdentityFields, str]] = []
        for card in self._table.cards:
            self._open_device(card)
        self._served = {device.identity[2] for device in self.devices}

    @property
    def troubles(self) -> list[str]:
        """A description of the latest output that could not be parsed; empty if there is none."""
        found = [f"{uuid}: {words}" for uuid, said in self._garbled.items() for words in said]
        found += [f"no such unit: {column}" for column in self._table.strange_columns]
        lines = self._find_strange_lines()
        if lines:
            found.append(f"{len(lines)} x no card: {lines[0][:_LONGEST_EXAMPLE]!r}")
        return [f"hl-smi printed what is not understood ({'; '.join(found)})"] if found else []

    def is_current(self) -> bool:
        """Return whether the latest run of `hl-smi` listed the same cards as the first run.

        If no card is open, the method runs `hl-smi` again, because only a failure of the command
        then shows that the driver is gone.

        Raises:
            DriverGoneError: No card is open, and `hl-smi` fails.
        """
        if not self.devices:
            self._run()
            if self._failure is not None:
                raise DriverGoneError(str(self._failure)) from self._failure
        known = {device.identity[2] for device in self.devices}
        cards = self._table.cards
        if len(cards) < self._shown and self._find_strange_lines():
            return True  # the other cards may be in the lines that could not be parsed
        return len(cards) == self._shown and known.issuperset(filter(None, (c.uuid for c in cards)))

    def watch(self, report: Callable[[str, int], None]) -> None:  # noqa: ARG002 - no Xids
        """Return immediately, because `hl-smi` reports no events."""
        return

    def stop_watching(self) -> None:
        """Do nothing, because `watch` does not wait for events."""

    def close(self) -> None:
        """Do nothing, because the driver is open only while `hl-smi` runs."""

    def read(self, uuid: str, bus_id: str) -> Row:
        """Return a card's row from the output of `hl-smi`.

        The command is run again if the latest output is more than 1 s old, or if the latest output
        has already been used for this card.

        Raises:
            DeviceError: This card cannot be read, or `hl-smi` hangs.
            DriverGoneError: The command `hl-smi` fails.
        """
        with self._lock:
            if uuid in self._served or time.monotonic() - self._ran_at > _FRESH_SECONDS:
                self._run()
            self._served.add(uuid)
            if self._failure is not None:
                raise self._failure
            table = self._table
        shown = [card for card in table.cards if uuid in card.cells or bus_id in card.cells]
        for card in shown:
            if card.uuid == uuid:
                return self._parse(card)
        if shown:
            is_garbled = any(NOT_KNOWN not in card.cells for card in shown) and self.is_current()
        else:
            is_garbled = bool(self._find_strange_lines())
        raise DeviceError("unsupported" if is_garbled else "lost")

    def _find_strange_lines(self) -> list[str]:
        """Return the unrecognized lines that may describe a card.

        If the output contains cards, lines without a comma are not returned.
        """
        table = self._table
        return [line for line in table.strange_lines if "," in line or not table.cards]

    def _run(self) -> None:
        self._served.clear()
        self._garbled = {}
        self._failure = None
        try:
            self._table = Table(self._fields, self._query(self._fields))
        except HlSmiFailedError as error:
            self._failure = DriverGoneError(f"hl-smi failed: {error}")
        except (DeviceError, DriverGoneError) as error:
            self._failure = error
        self._ran_at = time.monotonic()

    def _parse(self, card: Card) -> Row:
        row, troubles = parse_row(card.named)
        if troubles and card.uuid is not None:
            self._garbled[card.uuid] = troubles
        if row == list(EMPTY_ROW):
            raise DeviceError("unsupported")
        return row

    def _open_device(self, card: Card) -> None:
        named, index = card.named, card.index
        if card.uuid is None:
            unknown = ("hpu", index, f"unknown-{index}", "", named.get("bus_id", ""), "", None)
            is_lost = named.get("uuid") == NOT_KNOWN
            self.unreadable.append((unknown, "lost" if is_lost else "unsupported"))
            return
        identity = (
            "hpu",
            index,
            card.uuid,
            named.get("name", ""),
            named.get("bus_id", ""),
            named.get("driver_version", ""),
            None,
        )
        self.devices.append(HlSmiDevice(self, identity))


class HlSmiDevice:
    """A Gaudi card that is read with `hl-smi`; see `Device`.

    Args:
        session: The session that the card belongs to.
        identity: The identity of the card.
    """

    def __init__(self, session: HlSmiSession, identity: IdentityFields) -> None:
        self.identity = identity
        self._session = session

    def read(self, since: int | None) -> DeviceRow:  # noqa: ARG002 - there is no sample buffer
        """Return the card's values, parsed from the command's output; see `Device`."""
        return self._session.read(self.identity[2], self.identity[4]), None, []


def _first_line(output: bytes) -> str:
    return output.decode(errors="replace").strip().partition("\n")[0][:200]
