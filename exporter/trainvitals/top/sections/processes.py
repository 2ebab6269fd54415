"""The processes that hold memory of accelerators, with their users and containers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from trainvitals.overview.picture import Holder, Picture
from trainvitals.top.sections.accelerators import name_device
from trainvitals.top.table import Column, Table
from trainvitals.top.words import UNKNOWN, make_harmless, write_size

Placed = tuple[str, Holder]


def list_processes(picture: Picture) -> Table[Placed]:
    """Make the section."""
    return Table(
        4,
        "process",
        (
            Column(
                "PROCESS",
                lambda one, _: _show(one[1].name),
                16,
                34,
                99,
                key=lambda one: one[1].name,
            ),
            Column(
                "PID",
                lambda one, _: Text(str(one[1].pid)),
                8,
                0,
                9,
                lambda one: one[1].pid,
                "right",
            ),
            Column(
                "USER", lambda one, _: _show(one[1].user), 9, 14, 7, key=lambda one: one[1].user
            ),
            Column("DEVICE", lambda one, _: Text(one[0]), 7, 0, 8, lambda one: one[0].rjust(9)),
            Column("MEMORY", _draw_memory, 8, 9, 9, lambda one: one[1].used_bytes, "right"),
            Column(
                "CONTAINER",
                lambda one, _: _show(one[1].container),
                14,
                40,
                6,
                lambda one: one[1].container,
            ),
            Column("RUN", lambda one, _: _show(one[1].run), 14, 40, 5, key=lambda one: one[1].run),
        ),
        list(_place(picture)),
        empty="none holds memory of an accelerator",
        most_wanted=0,
    )


def _place(picture: Picture) -> Iterator[Placed]:
    for device in picture.accelerators:
        for holder in device.holders:
            yield name_device(device), holder


def _show(name: str | None) -> Text:
    return Text(UNKNOWN, "dim") if name is None else Text(make_harmless(name))


def _draw_memory(one: Placed, _: int) -> Text:
    return Text(write_size(one[1].used_bytes))
