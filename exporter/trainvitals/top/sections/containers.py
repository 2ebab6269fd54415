"""The containers: what they use, and how they last died."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from trainvitals.overview.judging import find_news, is_nearly_full, measure_memory
from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Container, Picture
from trainvitals.top.bars import draw_gauge
from trainvitals.top.table import Column, Table
from trainvitals.top.words import UNKNOWN, make_harmless, write_ago, write_use

_NEAR_LIMIT_RATIO, _WARNING_RATIO = LIMITS["container_memory_near_limit:ratio"], 0.85
_STATUS_STYLES = {
    "running": "green",
    "healthy": "green",
    "starting": "yellow",
    "unhealthy": "bold red",
    "created": "dim",
    "paused": "yellow",
    "restarting": "yellow",
    "exited": "dim",
    "dead": "bold red",
}


def list_containers(picture: Picture) -> Table[Container]:
    """Make the section."""
    now = picture.time
    has_deaths = any(one.last_death is not None for one in picture.containers or ())
    return Table(
        3,
        "container",
        (
            Column("CONTAINER", _draw_name, 16, 34, 99, key=lambda one: one.name),
            Column("STATUS", _draw_status, 10, 0, 9, lambda one: one.status),
            Column("MEMORY", _draw_memory, 20, 26, 8, lambda one: one.memory_used_bytes),
            Column("CPU", _draw_cpu, 8, 10, 5, lambda one: one.cpu_cores, "right"),
            Column("OOM", _draw_oom_kills, 4, 0, 7, lambda one: one.oom_kills, "right"),
            Column(
                "LAST DEATH",
                lambda one, _: _draw_death(one, now),
                26 if has_deaths else 10,
                34,
                6,
                _last_death,
            ),
            Column("DEATHS", lambda one, _: Text(str(one.deaths)), 7, 0, 3, _deaths, "right"),
            Column("RESTARTS", _draw_restarts, 9, 0, 2, lambda one: one.restarts, "right"),
            Column("PIDS", _draw_processes, 5, 6, 1, lambda one: one.processes, "right"),
            Column("ON", _draw_devices, 9, 30, 2),
            Column("IMAGE", lambda one, _: Text(make_harmless(one.image)), 20, 60, 1),
        ),
        picture.containers or (),
        notes=lambda one: _take_notes(one, now),
        has_trouble=lambda one: is_in_trouble(one, now),
        empty="no engine and no control group of a container is known here"
        if picture.containers is None
        else "none here",
    )


def is_in_trouble(one: Container, now: float) -> bool:
    """Tell whether a person should look at it."""
    return find_news(one, now) is not None or one.health == "unhealthy" or is_nearly_full(one)


def _last_death(one: Container) -> float | None:
    return None if one.last_death is None else -one.last_death.time


def _deaths(one: Container) -> float:
    return one.deaths


def _draw_name(one: Container, _: int) -> Text:
    return Text(make_harmless(one.name))


def _draw_status(one: Container, _: int) -> Text:
    word = one.status if one.health is None or one.status != "running" else one.health
    return Text(make_harmless(word or UNKNOWN), _STATUS_STYLES.get(word or "", ""))


def _draw_memory(one: Container, width: int) -> Text:
    words = write_use(one.memory_used_bytes, one.memory_limit_bytes or None)
    ratio = measure_memory(one)
    style = "green"
    if ratio is not None and ratio >= _WARNING_RATIO:
        style = "bold red" if ratio >= _NEAR_LIMIT_RATIO else "yellow"
    return draw_gauge(ratio, words, width, words_width=12, style=style)


def _draw_cpu(one: Container, _: int) -> Text:
    if one.cpu_cores is None:
        return Text(UNKNOWN)
    limit = f"/{one.cpu_limit_cores:g}" if one.cpu_limit_cores else ""
    return Text(f"{one.cpu_cores:.2f}{limit}")


def _draw_oom_kills(one: Container, _: int) -> Text:
    return Text(str(one.oom_kills), "bold red" if one.oom_kills else "dim")


def _draw_restarts(one: Container, _: int) -> Text:
    return Text(UNKNOWN if one.restarts is None else str(one.restarts))


def _draw_processes(one: Container, _: int) -> Text:
    return Text(UNKNOWN if one.processes is None else str(one.processes))


def _draw_devices(one: Container, _: int) -> Text:
    return Text(" ".join(map(make_harmless, one.devices)) or UNKNOWN)


def _draw_death(one: Container, now: float) -> Text:
    death = one.last_death
    if death is None:
        return Text(UNKNOWN, "dim")
    code = "" if death.exit_code is None else f" ({death.exit_code})"
    words = f"{make_harmless(death.reason)}{code} {write_ago(death.time, now)}"
    return Text(words, "bold red" if find_news(one, now) else "dim")


def _take_notes(one: Container, now: float) -> Iterator[Text]:
    news = find_news(one, now)
    if news is not None:
        reason, code = make_harmless(news.reason), news.exit_code
        ended = "ended" if code is None else f"exit code {code}"
        yield Text(
            f"{write_ago(news.time, now)}: {reason}, {ended}: {make_harmless(news.summary)}",
            "bold red",
        )
