"""The terminal section for containers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from trainvitals.foreign_text import clean_text
from trainvitals.units import UNKNOWN, format_age, format_bytes_of
from trainvitals.views.machine.headline import CONTAINER_MEMORY, DEATHS, TONES, describe_status
from trainvitals.views.machine.picture import Container, Picture
from trainvitals.views.terminal.gauges import Gauge
from trainvitals.views.terminal.headline import STYLES, find_style
from trainvitals.views.terminal.table import Column, Rows


def list_containers(picture: Picture) -> Rows[Container]:
    """Return the section that lists the containers."""
    has_deaths = any(one.last_death is not None for one in picture.containers or ())
    return Rows(
        3,
        (
            Column("CONTAINER", _draw_name, 16, 34, 99, lambda one: one.name),
            Column("STATUS", _draw_status, 10, 0, 9, lambda one: one.status),
            Column(
                "MEMORY",
                lambda one: _draw_memory(one, picture),
                19,
                26,
                8,
                lambda one: one.memory_used_bytes,
            ),
            Column("CPU", _draw_cpu, 8, 10, 5, lambda one: one.cpu_cores, "right"),
            Column("OOM", _draw_oom_kills, 4, 0, 7, lambda one: one.oom_kills, "right"),
            Column(
                "LAST DEATH",
                lambda one: _draw_death(one, picture),
                27 if has_deaths else 10,
                34,
                6,
                _last_death,
            ),
            Column("DEATHS", lambda one: Text(str(one.deaths)), 7, 0, 3, _deaths, "right"),
            Column("RESTARTS", _draw_restarts, 9, 0, 2, lambda one: one.restarts, "right"),
            Column("PIDS", _draw_processes, 5, 6, 1, lambda one: one.processes, "right"),
            Column("ON", _draw_devices, 9, 30, 2),
            Column("IMAGE", lambda one: Text(clean_text(one.image)), 20, 60, 1),
        ),
        picture.containers or (),
        notes=lambda one: _list_notes(one, picture),
        has_trouble=lambda one: bool(picture.find_troubles("container", one.name)),
        empty="no container engine and no control group of a container here"
        if picture.containers is None
        else "none here",
    )


def _last_death(one: Container) -> float | None:
    return None if one.last_death is None else -one.last_death.time


def _deaths(one: Container) -> float:
    return one.deaths


def _draw_name(one: Container) -> Text:
    return Text(clean_text(one.name))


def _draw_status(one: Container) -> Text:
    word, tone = describe_status(one)
    return Text(clean_text(word) or UNKNOWN, STYLES[tone])


def _draw_memory(one: Container, picture: Picture) -> RenderableType:
    used, limit = one.memory_used_bytes, one.memory_limit_bytes or None
    ratio = None if used is None or limit is None else used / limit
    style = find_style(picture, "container", one.name, *CONTAINER_MEMORY)
    return Gauge(ratio, format_bytes_of(used, limit), 15, style)


def _draw_cpu(one: Container) -> Text:
    if one.cpu_cores is None:
        return Text(UNKNOWN)
    limit = f"/{one.cpu_limit_cores:g}" if one.cpu_limit_cores else ""
    return Text(f"{one.cpu_cores:.2f}{limit}")


def _draw_oom_kills(one: Container) -> Text:
    return Text(str(one.oom_kills), "bold red" if one.oom_kills else "dim")


def _draw_restarts(one: Container) -> Text:
    return Text(UNKNOWN if one.restarts is None else str(one.restarts))


def _draw_processes(one: Container) -> Text:
    return Text(UNKNOWN if one.processes is None else str(one.processes))


def _draw_devices(one: Container) -> Text:
    return Text(" ".join(map(clean_text, one.devices)) or UNKNOWN)


def _draw_death(one: Container, picture: Picture) -> Text:
    death = one.last_death
    if death is None:
        return Text(UNKNOWN, "dim")
    code = "" if death.exit_code is None else f" ({death.exit_code})"
    words = f"{clean_text(death.reason)}{code} {format_age(death.time, picture.time)}"
    return Text(words, find_style(picture, "container", one.name, *DEATHS, well="unknown"))


def _list_notes(one: Container, picture: Picture) -> Iterator[Text]:
    for trouble in picture.find_troubles("container", one.name):
        yield Text(clean_text(trouble.remark), STYLES[TONES[trouble.severity]])
