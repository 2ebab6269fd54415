"""How the collectors fare: who could not read, and why."""

from __future__ import annotations

from rich.text import Text

from trainvitals.overview.picture import Collector, Picture
from trainvitals.top.table import Column, Table
from trainvitals.top.words import UNKNOWN, count_things, make_harmless, write_ago


def list_collectors(picture: Picture, *, lists_all: bool) -> Table[Collector]:
    """Make the section.

    Args:
        picture: The picture.
        lists_all: The ones that fare well, too; otherwise they are only counted.
    """
    now = picture.time
    failing = [one for one in picture.collectors if not one.success]
    well = len(picture.collectors) - len(failing)
    return Table(
        6,
        "collector",
        (
            Column("COLLECTOR", _draw_name, 16, 20, 99, key=lambda one: one.name),
            Column("READS", _draw_success, 5, 0, 8, lambda one: "no" if not one.success else "yes"),
            Column("TOOK", _draw_duration, 8, 0, 5, lambda one: one.duration_seconds, "right"),
            Column(
                "LAST READ",
                lambda one, _: Text(write_ago(one.last_success, now)),
                11,
                worth=6,
                key=lambda one: None if one.last_success is None else -one.last_success,
            ),
            Column("WHY NOT", lambda one, _: Text(make_harmless(one.reason)), 20, 200, worth=7),
        ),
        picture.collectors if lists_all else failing,
        has_trouble=lambda one: not one.success,
        empty=f"{count_things(well, 'collector')} read what they should" if well else "none",
        most_wanted=0,
    )


def _draw_name(one: Collector, _: int) -> Text:
    return Text(make_harmless(one.name), "" if one.success else "bold red")


def _draw_success(one: Collector, _: int) -> Text:
    return Text("yes", "green") if one.success else Text("no", "bold red")


def _draw_duration(one: Collector, _: int) -> Text:
    if one.duration_seconds is None:
        return Text(UNKNOWN)
    return Text(f"{1000 * one.duration_seconds:.1f}ms")
