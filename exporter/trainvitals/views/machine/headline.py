"""The summary of a picture, and the tone of each of its parts, for every view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainvitals.sources.alerts import Alert
from trainvitals.units import format_age, format_duration
from trainvitals.verdicts.trouble import Severity, SubjectKind
from trainvitals.views.machine.picture import Container, Picture, Run, Tone

TONES: Mapping[Severity, Tone] = {"critical": "bad", "warning": "warning", "info": "busy"}

# The alerts about a value that is shown, by which it is coloured.
HOT = (
    "GPUHighTemperature",
    "HPUHighTemperature",
    "AcceleratorTemperatureOverLimit",
    "AcceleratorTemperatureNearLimit",
)
DEVICE_MEMORY = ("HighMemoryUsage", "AcceleratorMemoryOverLimit")
HOST_MEMORY = ("HostHighMemoryUsage", "HostMemoryPressure")
CONTAINER_MEMORY = ("ContainerMemoryNearLimit",)
DEATHS = ("ContainerOOMKilled", "ContainerDied")

_STATUS_TONES: Mapping[str, Tone] = {
    "running": "good",
    "healthy": "good",
    "starting": "busy",
    "paused": "busy",
    "unhealthy": "warning",
    "restarting": "warning",
    "dead": "bad",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The summary of a picture.

    Attributes:
        words: The summary: whether something needs attention.
        tone: The tone of the most severe trouble.
        count: The number of troubles that need attention; those of severity `info` do not.
    """

    words: str
    tone: Tone
    count: int


def make_headline(picture: Picture) -> Headline:
    """Return the headline of a picture."""
    count = sum(trouble.severity != "info" for trouble in picture.troubles)
    if count:
        words = "1 thing needs attention" if count == 1 else f"{count} things need attention"
        return Headline(words, TONES[picture.troubles[0].severity], count)
    if picture.unknowns:
        words = "nothing found that needs attention, but not all is known"
        return Headline(words, "unknown", 0)
    return Headline("nothing needs attention", "good", 0)


def find_tone(
    picture: Picture, kind: SubjectKind, subject: str, *alerts: str, well: Tone = "good"
) -> Tone:
    """Return the tone of the worst trouble of a subject.

    Args:
        picture: The picture.
        kind: The subject's kind.
        subject: The name of the subject in a trouble.
        alerts: Only the troubles of these alerts; all troubles if empty.
        well: The tone of a subject without a trouble.
    """
    troubles = picture.find_troubles(kind, subject, *alerts)
    return TONES[troubles[0].severity] if troubles else well


def find_alert_tone(alert: Alert) -> Tone:
    """Return the tone of an alert that fires."""
    return next((TONES[each] for each in TONES if each == alert.severity), "unknown")


def describe_status(container: Container) -> tuple[str, Tone]:
    """Return the health of a running container, else its status; empty if neither is known."""
    is_checked = container.health is not None and container.status == "running"
    word = (container.health if is_checked else container.status) or ""
    return word, _STATUS_TONES.get(word, "unknown")


def list_run_remarks(picture: Picture, run: Run) -> Iterator[tuple[str, Tone]]:
    """Yield the troubles and the end of a run in words, each with its tone."""
    troubles = picture.find_troubles("run", run.name)
    for trouble in troubles:
        yield trouble.remark, TONES[trouble.severity]
    if run.stalled_seconds is not None and not troubles:
        # Its trouble is left out where a lost device explains it.
        where = f" in {run.phase}" if run.phase else ""
        yield f"no progress for {format_duration(run.stalled_seconds)}{where}", run.tone
    if run.ending and not any(run.ending in trouble.summary for trouble in troubles):
        yield f"{run.ending}, {format_age(run.ended, picture.time)}", run.tone
