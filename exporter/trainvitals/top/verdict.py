"""One line that says whether a person must do something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from trainvitals.overview.judging import find_news, is_nearly_full
from trainvitals.overview.picture import Accelerator, Picture
from trainvitals.top.sections import accelerators, host
from trainvitals.top.words import count_things, make_harmless, write_ago

_BAD, _WARNING = "bold red", "yellow"
Finding = tuple[str, str]


def draw_verdict(picture: Picture, width: int, *, most_lines: int | None = None) -> list[Text]:
    """Draw what is wrong, the worst first, or that nothing is.

    Args:
        picture: The picture.
        width: How many columns there are.
        most_lines: How many lines; what does not fit is counted. None for as many as it takes.
    """
    findings = sorted(_find(picture), key=lambda finding: finding[1] != _BAD)
    if picture.alerts:
        findings.insert(0, _say_alerts(picture))
    if not findings:
        well = "nothing is wrong that can be seen here"
        return [Text.assemble((well, "green"), ", ", _say_alerts(picture))]
    lines = [Text(*findings.pop(0))]
    for at, (words, style) in enumerate(findings):
        left = len(findings) - at - 1
        is_last = len(lines) == most_lines
        room = width - len(f", +{left} more") if is_last and left else width
        if lines[-1].cell_len + 2 + len(words) <= room:
            lines[-1] = Text.assemble(lines[-1], ", ", (words, style))
        elif is_last:
            lines[-1] = Text.assemble(lines[-1], (f", +{left + 1} more", _BAD))
            break
        else:
            lines.append(Text(words, style))
    return lines


def _find(picture: Picture) -> Iterator[Finding]:
    yield from _find_accelerators(picture)
    yield from _find_runs(picture)
    yield from _find_containers(picture)
    yield from _find_host(picture)
    if picture.alerts_trouble:
        yield _say_alerts(picture)
    failing = [one for one in picture.collectors if not one.success]
    if failing:
        yield f"{count_things(len(failing), 'collector')} cannot read", _WARNING


def _find_accelerators(picture: Picture) -> Iterator[Finding]:
    devices = picture.accelerators
    for kind, count in picture.accelerators_expected:
        there = sum(one.kind == kind for one in devices)
        if there < count:
            yield f"{count - there} of {count} {make_harmless(kind)} missing", _BAD
    gone = [one for one in devices if accelerators.is_gone(one)]
    for state in dict.fromkeys(one.state for one in gone):
        yield f"{_name(one for one in gone if one.state == state)} {state.replace('_', ' ')}", _BAD
    hot = [one for one in devices if accelerators.rate_temperature(one) == _BAD]
    if hot:
        yield f"{_name(hot)} too hot", _BAD
    broken = [one for one in devices if one.xids and one not in gone]
    if broken:
        yield f"{_name(broken)} with Xids", _BAD
    slow = [one for one in devices if accelerators.find_throttles(one)]
    if slow:
        yield f"{_name(slow)} slowed down", _WARNING
    over = [one for one in devices if accelerators.is_over_limit(one)]
    if over:
        yield f"{_name(over)} above its memory limit", _WARNING


def _find_runs(picture: Picture) -> Iterator[Finding]:
    for tone, style in (("bad", _BAD), ("warning", _WARNING)):
        runs = [run for run in picture.runs if run.tone == tone]
        for state in dict.fromkeys(run.state for run in runs):
            count = sum(run.state == state for run in runs)
            yield f"{count_things(count, 'run')} {make_harmless(state)}", style
    if any(run.laggards for run in picture.runs):
        yield "ranks are behind", _WARNING


def _find_containers(picture: Picture) -> Iterator[Finding]:
    listed = picture.containers or ()
    dead = [death for one in listed if (death := find_news(one, picture.time))]
    if dead:
        ago = write_ago(max(death.time for death in dead), picture.time)
        words = f"{count_things(len(dead), 'container')} died"
        yield f"{words}{', the last' if len(dead) > 1 else ''} {ago}", _BAD
    ill = sum(one.health == "unhealthy" for one in listed)
    if ill:
        yield f"{count_things(ill, 'container')} unhealthy", _WARNING
    full = sum(map(is_nearly_full, listed))
    if full:
        yield f"{count_things(full, 'container')} at the memory limit", _WARNING


def _find_host(picture: Picture) -> Iterator[Finding]:
    if picture.host.recent_oom_kills:
        yield f"{count_things(picture.host.recent_oom_kills, 'kill')} for memory", _BAD
    full = [one for one in picture.host.filesystems if host.is_disk_full(one)]
    if full:
        yield f"{count_things(len(full), 'disk')} full or silent", _BAD
    if host.is_memory_full(picture.host):
        yield "hardly any memory left", _WARNING


def _name(devices: Iterable[Accelerator]) -> str:
    names = [accelerators.name_device(one) for one in devices]
    return make_harmless(names[0]) if len(names) == 1 else f"{len(names)} accelerators"


def _say_alerts(picture: Picture) -> Finding:
    if picture.alerts is None:
        words = "alerts unknown" if picture.alerts_trouble else "no Prometheus asked for alerts"
        return words, _WARNING if picture.alerts_trouble else "dim"
    if not picture.alerts:
        return "no alert fires", "green"
    is_bad = any(alert.severity == "critical" for alert in picture.alerts)
    return count_things(len(picture.alerts), "alert"), _BAD if is_bad else _WARNING
