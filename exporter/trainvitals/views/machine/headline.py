"""The summary of the machine state that every view shows, and the tones for shown values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainvitals.sources.alerts import Alert
from trainvitals.units import format_age, format_duration
from trainvitals.verdicts.trouble import Severity, SubjectKind
from trainvitals.views.machine.picture import Container, Picture, Run, Tone

TONES: Mapping[Severity, Tone] = {"critical": "bad", "warning": "warning", "info": "busy"}

# The alerts about each displayed value, which determine the value's colour.
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
    """The summary of the machine state.

    Attributes:
        words: The text of the summary, which says whether something needs attention.
        tone: The tone of the machine's most severe problem.
        count: The number of problems that need attention; problems of severity `info` are not
            counted.
    """

    words: str
    tone: Tone
    count: int


def make_headline(picture: Picture) -> Headline:
    """Return the headline that summarizes a machine state."""
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
    """Return the tone of a subject's most severe problem.

    Args:
        picture: The machine state that contains the problems.
        kind: The kind of the subject, such as `run`.
        subject: The name by which problems refer to the subject.
        alerts: The names of the alerts whose problems count; if no name is given, all problems
            count.
        well: The tone that is returned if the subject has no problems.
    """
    troubles = picture.find_troubles(kind, subject, *alerts)
    return TONES[troubles[0].severity] if troubles else well


def find_alert_tone(alert: Alert) -> Tone:
    """Return the tone for the severity of a firing alert."""
    return next((TONES[each] for each in TONES if each == alert.severity), "unknown")


def describe_status(container: Container) -> tuple[str, Tone]:
    """Return a container's health or status, with a tone; an empty string if both are unknown."""
    is_checked = container.health is not None and container.status == "running"
    word = (container.health if is_checked else container.status) or ""
    return word, _STATUS_TONES.get(word, "unknown")


def list_run_remarks(picture: Picture, run: Run) -> Iterator[tuple[str, Tone]]:
    """Yield a text and a tone for each problem of a run, and for the run's end."""
    troubles = picture.find_troubles("run", run.name)
    for trouble in troubles:
        yield trouble.remark, TONES[trouble.severity]
    if run.stalled_seconds is not None and not troubles:
        # The problem of a stalled run is missing if a lost device explains the stall.
        where = f" in {run.phase}" if run.phase else ""
        yield f"no progress for {format_duration(run.stalled_seconds)}{where}", run.tone
    if run.ending and not any(run.ending in trouble.summary for trouble in troubles):
        yield f"{run.ending}, {format_age(run.ended, picture.time)}", run.tone
