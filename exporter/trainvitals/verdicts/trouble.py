"""The troubles of a machine, in one form for every view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
SubjectKind = Literal[
    "accelerator", "run", "container", "filesystem", "host", "collector", "alert", "exporter"
]

OUT_OF_HOST_MEMORY = "OOM-killed"
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
PLURALS: Mapping[SubjectKind, str] = {
    "accelerator": "accelerators",
    "run": "runs",
    "container": "containers",
    "filesystem": "file systems",
    "host": "host",
    "collector": "collectors",
    "alert": "alerts",
    "exporter": "verdicts",
}

_DEVICE_FAULTS = ("AcceleratorLost", "AcceleratorXidCritical", "AcceleratorRecoveryActionNeeded")
_HOT = ("GPUHighTemperature", "HPUHighTemperature")
_LOW_USE = ("GPULowUtilization", "HPULowUtilization")
_HUNG = ("TrainingStalled", "TrainingStragglerRank", "DataLoaderBottleneck")
_ENDED = ("TrainingRunLost", "TrainingRunFailed", "TrainingRunTerminated", "TrainingOutOfMemory")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trouble: a condition that needs attention.

    Attributes:
        subject_kind: The kind of its subject; `alert` for troubles that only Prometheus reports.
        subject: Its subject: `gpu0`, the name of a run, container or collector, a mount point;
            empty for the machine.
        name: The trouble in two or three words, to follow the subject: `too hot`.
        severity: The severity of the alert of the same meaning.
        summary: The trouble in a sentence without the subject, with its figures.
        alert: The alert of the same meaning; empty if there is none.
    """

    subject_kind: SubjectKind
    subject: str
    name: str
    severity: Severity
    summary: str
    alert: str = ""

    @property
    def title(self) -> str:
        """The trouble in a few words: `gpu0 too hot`."""
        subject = "host" if self.subject_kind == "host" else self.subject
        return f"{subject} {self.name}".strip()

    @property
    def words(self) -> str:
        """The title with the summary, in one line."""
        return _join(self.title, self.summary)

    @property
    def remark(self) -> str:
        """The words without the subject, for where the subject is already named."""
        return _join(self.name, self.summary)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A missing source, so that nothing is known about its subject.

    Attributes:
        subject_kind: The kind of things that are unknown; `alert` for the alerts.
        why: The reason, and where it helps what to do, in one line.
    """

    subject_kind: SubjectKind
    why: str

    @property
    def title(self) -> str:
        """The unknown thing, in a few words: `alerts not known`."""
        return f"{PLURALS[self.subject_kind]} not known"

    @property
    def words(self) -> str:
        """The title with the reason, in one line."""
        return _join(self.title, self.why)


@dataclass(frozen=True, slots=True)
class _Inhibition:
    """A rule by which one trouble explains others, as in the rules and `alertmanager.yml`.

    Attributes:
        sources: The alerts that explain.
        targets: The alerts that are explained.
        is_wide: Whether they may concern different subjects.
        is_of_run: Whether they concern a run, and the others an accelerator that it may hold.
        name: The name of the trouble that explains others; empty for any name.
        target_name: The name of the explained trouble; empty for any name.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    is_wide: bool = False
    is_of_run: bool = False
    name: str = ""
    target_name: str = ""


_INHIBITIONS = (
    _Inhibition(
        _DEVICE_FAULTS,
        (
            *_HOT,
            *_LOW_USE,
            "AcceleratorTemperatureOverLimit",
            "AcceleratorTemperatureNearLimit",
            "AcceleratorThermalThrottling",
            "AcceleratorPowerBrake",
            "AcceleratorHeldIdle",
            "HighMemoryUsage",
            "AcceleratorMemoryOverLimit",
            "AcceleratorLinkDegraded",
            "AcceleratorRowRemapPending",
            "AcceleratorXidWarning",
            "AcceleratorXidApplication",
        ),
    ),
    _Inhibition(("AcceleratorXidCritical",), ("AcceleratorRecoveryActionNeeded",)),
    _Inhibition(("AcceleratorRowRemapFailed",), ("AcceleratorRowRemapPending",)),
    _Inhibition(
        (*_DEVICE_FAULTS, "AcceleratorMissing"), (*_LOW_USE, "AcceleratorHeldIdle"), is_wide=True
    ),
    _Inhibition((*_DEVICE_FAULTS, "AcceleratorMissing"), _HUNG, is_of_run=True),
    _Inhibition(
        _HOT,
        (
            "AcceleratorTemperatureOverLimit",
            "AcceleratorTemperatureNearLimit",
            "AcceleratorThermalThrottling",
            *_LOW_USE,
        ),
    ),
    _Inhibition(("AcceleratorTemperatureOverLimit",), ("AcceleratorTemperatureNearLimit",)),
    _Inhibition(("TrainingRunLost", "TrainingOutOfMemory"), ("TrainingStalled",)),
    _Inhibition(("TrainingStalled", *_ENDED), ("TrainingStragglerRank", "DataLoaderBottleneck")),
    _Inhibition(("TrainingStalled", *_ENDED), (*_LOW_USE, "AcceleratorHeldIdle"), is_wide=True),
    _Inhibition(("TrainingRunLost", "TrainingOutOfMemory"), ("TrainingRunFailed",)),
    _Inhibition(("TrainingRunLost", "TrainingRunFailed"), ("TrainingRunTerminated",)),
    _Inhibition(
        ("TrainingRunLost",),
        ("TrainingOutOfMemory",),
        name=OUT_OF_HOST_MEMORY,
        target_name=OUT_OF_HOST_MEMORY,
    ),
    _Inhibition(
        ("TrainingRunLost", "TrainingOutOfMemory"),
        ("HostOOMKill",),
        is_wide=True,
        name=OUT_OF_HOST_MEMORY,
    ),
    _Inhibition(("ContainerOOMKilled",), ("HostOOMKill",), is_wide=True),
    _Inhibition(("HostMemoryPressure", "HostOOMKill"), ("HostHighMemoryUsage",), is_wide=True),
    _Inhibition(("HostDiskFull",), ("HostDiskSpaceLow",)),
    _Inhibition(
        ("ContainerOOMKilled",), ("ContainerDied", "ContainerMemoryNearLimit", "ContainerUnhealthy")
    ),
)


def sort_troubles(troubles: Iterable[Trouble]) -> tuple[Trouble, ...]:
    """Return troubles with the worst first, each once."""
    return tuple(
        sorted(dict.fromkeys(troubles), key=lambda trouble: SEVERITIES.index(trouble.severity))
    )


def drop_explained(
    troubles: Iterable[Trouble], held: Mapping[str, frozenset[str]] | None = None
) -> tuple[Trouble, ...]:
    """Return troubles without those that another one explains, as Alertmanager sends them.

    Args:
        troubles: All troubles that were found.
        held: The accelerators that each run holds, by their subjects, and kinds of which it may hold
            a missing one; a run that is not listed may hold any.
    """
    kept = tuple(troubles)
    return tuple(trouble for trouble in kept if not _is_explained(trouble, kept, held or {}))


def _is_explained(
    trouble: Trouble, others: Iterable[Trouble], held: Mapping[str, frozenset[str]]
) -> bool:
    return any(
        other.alert in each.sources
        and _is_about(each, other.subject, trouble.subject, held)
        and each.name in ("", other.name)
        and each.target_name in ("", trouble.name)
        for each in _INHIBITIONS
        if trouble.alert in each.targets
        for other in others
        if other is not trouble
    )


def _is_about(
    inhibition: _Inhibition, source: str, target: str, held: Mapping[str, frozenset[str]]
) -> bool:
    if inhibition.is_of_run:
        return target not in held or source in held[target]
    return inhibition.is_wide or source == target


def _join(title: str, reason: str) -> str:
    return f"{title}: {reason}" if reason else title
