"""What needs a person's attention, in a few words each, with links to where it stands on the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainvitals.overview.judging import find_news, is_nearly_full
from trainvitals.overview.picture import Accelerator, Alert, Picture, Tone
from trainvitals.web.live import quantities as write
from trainvitals.web.live.accelerators import (
    anchor_device,
    find_missing,
    label_device,
    tell_troubles,
)
from trainvitals.web.live.containers import anchor_container
from trainvitals.web.live.host import judge_filesystem
from trainvitals.web.live.markup import chip, name, section, text
from trainvitals.web.live.runs import anchor_run

MOST_MATTERS = 12
MOST_ALERTS = 32

_WORDS = {"silent": "tells nothing any more", "terminated": "was ended", "stalled": "stands still"}
_RANK: dict[Tone, int] = {"bad": 0, "warning": 1}
_SEVERITIES: dict[str, Tone] = {"critical": "bad", "warning": "warning", "info": "busy"}


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that needs attention.

    Attributes:
        words: What it is, plain text.
        target: The `id` of where it stands.
        tone: How bad it is.
    """

    words: str
    target: str
    tone: Tone


def find_matters(picture: Picture) -> list[Matter]:
    """Give what needs attention, the worst first."""
    found = [
        *_of_accelerators(picture),
        *_of_runs(picture),
        *_of_containers(picture),
        *_of_host(picture),
        *_of_collectors(picture),
    ]
    return sorted(found, key=lambda matter: _RANK.get(matter.tone, 2))


def write_headline(matters: list[Matter]) -> str:
    """Write the line that is read first; it is read out when it changes."""
    if not matters:
        return f'<p class="headline">{chip("nothing needs attention", "good")}</p>'
    items = "".join(
        f'<li class="{matter.tone}"><a href="#{matter.target}">{text(matter.words)}</a></li>'
        for matter in matters[:MOST_MATTERS]
    )
    count, left = len(matters), len(matters) - MOST_MATTERS
    rest = f"<li>and {left} more</li>" if left > 0 else ""
    words = "1 thing needs attention" if count == 1 else f"{count} things need attention"
    return f'<p class="headline">{chip(words, matters[0].tone)}</p><ul class="matters">{items}{rest}</ul>'


def write_alerts(picture: Picture) -> str:
    """Write the section; empty where no Prometheus is known."""
    if picture.alerts_trouble:
        words = f'<p class="empty">{text(picture.alerts_trouble)}</p>'
        return section("alerts", "Alerts", chip("not known", "warning"), (words,))
    if picture.alerts is None:
        return ""
    if not picture.alerts:
        return section("alerts", "Alerts", "none fires", ())
    shown = picture.alerts[:MOST_ALERTS]
    items = "".join(_write_alert(alert, picture.time) for alert in shown)
    left = len(picture.alerts) - len(shown)
    rest = f"<li>and {left} more</li>" if left > 0 else ""
    note = f"{len(picture.alerts)} firing"
    return section("alerts", "Alerts", note, (f'<ul class="alerts">{items}{rest}</ul>',))


def _write_alert(alert: Alert, now: float) -> str:
    since = "" if alert.since is None else f"<small>for {write.duration(now - alert.since)}</small>"
    subject = f"<span>{name(alert.subject)}</span>" if alert.subject else ""
    link = f'<a href="runbooks/{text(alert.name)}">{text(alert.name)}</a>'
    head = f"{chip(alert.severity, _SEVERITIES.get(alert.severity, 'unknown'))} {link}"
    return f"<li>{head} {subject} <p>{text(alert.summary)}</p>{since}</li>"


def _of_accelerators(picture: Picture) -> Iterator[Matter]:
    for words in find_missing(picture):
        yield Matter(words, "accelerators", "bad")
    for device in picture.accelerators:
        troubles = [*_of_state(device), *tell_troubles(device)]
        if troubles:
            words = ", ".join(words for words, _ in troubles)
            worst = min((tone for _, tone in troubles), key=lambda tone: _RANK.get(tone, 2))
            yield Matter(f"{label_device(device)}: {words}", anchor_device(device), worst)


def _of_state(device: Accelerator) -> Iterator[tuple[str, Tone]]:
    if device.state not in ("ok", "unsupported"):
        yield device.state.replace("_", " "), "bad"


def _of_runs(picture: Picture) -> Iterator[Matter]:
    for run in picture.runs:
        target = anchor_run(run)
        if run.tone in ("warning", "bad"):
            yield Matter(f"{run.name} {_WORDS.get(run.state, run.state)}", target, run.tone)
        if run.bound == "loss is NaN":
            yield Matter(f"{run.name}: {run.bound}", target, "bad")
        for laggard in run.laggards[:1]:
            yield Matter(f"{run.name}: rank {laggard.rank} is behind", target, "warning")


def _of_containers(picture: Picture) -> Iterator[Matter]:
    for container in picture.containers or ():
        target = anchor_container(container)
        death = find_news(container, picture.time)
        if death is not None:
            yield Matter(f"{container.name} died: {death.reason}", target, "bad")
        elif container.health == "unhealthy":
            yield Matter(f"{container.name} is unhealthy", target, "warning")
        if is_nearly_full(container):
            yield Matter(f"{container.name} is at its memory limit", target, "warning")


def _of_host(picture: Picture) -> Iterator[Matter]:
    for each in picture.host.filesystems:
        words, tone = judge_filesystem(each)
        if words:
            yield Matter(f"{each.mountpoint}: {words}", "host", tone)
    if picture.host.recent_oom_kills:
        yield Matter("the kernel killed for want of memory", "host", "bad")


def _of_collectors(picture: Picture) -> Iterator[Matter]:
    for each in picture.collectors:
        if not each.success:
            yield Matter(
                f"collector {each.name}: {each.reason or 'failed'}", "collectors", "warning"
            )
