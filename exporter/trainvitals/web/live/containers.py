"""The containers on the live page."""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.overview.judging import find_news, is_nearly_full
from trainvitals.overview.picture import Container, Picture, Tone
from trainvitals.sources.containers.reading import Death
from trainvitals.web.live import quantities as write
from trainvitals.web.live.drawing import bar
from trainvitals.web.live.markup import DOT, anchor, chip, figure, more, name, section, text

MOST_CONTAINERS = 48

_STATUS_TONES: dict[str, Tone] = {
    "running": "good",
    "paused": "busy",
    "restarting": "warning",
    "created": "unknown",
    "exited": "unknown",
}
_HEAD = """<li class="row head" aria-hidden="true"><span>container</span><span>memory</span>\
<span>CPU</span><span>restarts</span><span>last death</span></li>"""


def write_containers(picture: Picture) -> str:
    """Write the section; empty where there is no container to be had."""
    containers = picture.containers
    if not containers:
        return ""
    shown = containers[:MOST_CONTAINERS]
    rows = "".join(_write_container(container, picture.time) for container in shown)
    running = sum(each.status in (None, "running") for each in containers)
    return section(
        "containers",
        "Containers",
        f"{running} of {len(containers)} running"
        if running < len(containers)
        else f"{running} running",
        (
            f'<ol class="rows containers">{_HEAD}{rows}</ol>',
            more(len(containers) - len(shown), "containers"),
        ),
    )


def anchor_container(container: Container) -> str:
    """Give the `id` of a container's row."""
    return anchor("container", container.name)


def _write_container(container: Container, now: float) -> str:
    image = f'<p class="about">{name(container.image)}</p>' if container.image else ""
    chips = " ".join(_write_state(container))
    return (
        f'<li class="row" id="{anchor_container(container)}"><div class="who">'
        f"<h3>{name(container.name)}</h3>{image}"
        f'<p class="state">{chips}</p></div>'
        f"<dl>{''.join(_write_cells(container, now))}</dl></li>"
    )


def _write_state(container: Container) -> Iterator[str]:
    if container.status is not None:
        yield chip(container.status, _STATUS_TONES.get(container.status, "unknown"))
    if container.health == "unhealthy":
        yield chip("unhealthy", "bad")
    elif container.health == "starting":
        yield chip("health: starting", "busy")
    if container.devices:
        yield f'<small class="devices">{text(", ".join(container.devices))}</small>'


def _write_cells(container: Container, now: float) -> Iterator[str]:
    yield figure("memory", _write_memory(container), kind=_hide(container.memory_used_bytes))
    cores = write.UNKNOWN
    if container.cpu_cores is not None:
        limit = f" of {container.cpu_limit_cores:g}" if container.cpu_limit_cores else ""
        cores = f"{container.cpu_cores:.1f}<small>{limit} cores</small>"
    yield figure("CPU", cores, kind=_hide(container.cpu_cores))
    restarts = write.UNKNOWN if container.restarts is None else write.whole(container.restarts)
    yield figure("restarts", restarts, kind=_hide(container.restarts))
    kind = f"death {_hide(container.last_death)}".rstrip()
    yield figure("last death", _write_death(container, container.last_death, now), kind=kind)


def _hide(value: object) -> str:
    """Give the class of what is left out where there are no columns to fill."""
    return "" if value else "blank"


def _write_memory(container: Container) -> str:
    used, limit = container.memory_used_bytes, container.memory_limit_bytes
    value = f'<span class="value">{write.bytes_of(used, limit)}</span>'
    if used is None or not limit:
        return value
    tone: Tone = "warning" if is_nearly_full(container) else "busy"
    return value + bar(used / limit, f"{container.name} memory", tone=tone)


def _write_death(container: Container, death: Death | None, now: float) -> str:
    if death is None:
        return write.UNKNOWN
    tone: Tone = "bad" if find_news(container, now) is not None else "unknown"
    known = [write.ago(death.time, now), f"{death.confidence} confidence"]
    if death.signal:
        known.append(death.signal)
    elif death.exit_code is not None:
        known.append(f"exit code {death.exit_code}")
    if container.oom_kills:
        known.append(f"{write.whole(container.oom_kills)} OOM kills")
    details = text(DOT.join(known))
    return f"{chip(death.reason, tone)} <small>{details}</small><p>{text(death.summary)}</p>"
