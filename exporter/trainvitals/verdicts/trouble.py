"""The problems of a machine, in one form that every view uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
SubjectKind = Literal[
    "accelerator", "run", "container", "filesystem", "host", "collector", "alert", "exporter"
]

OUT_OF_HOST_MEMORY = "OOM-killed"
IS_HUNG = "is stalled"
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
_SLOW = ("TrainingStragglerRank", "DataLoaderBottleneck")
_ENDED = ("TrainingRunLost", "TrainingRunFailed", "TrainingRunTerminated", "TrainingOutOfMemory")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of a machine: a condition that needs attention.

    Attributes:
        subject_kind: The kind of the affected subject; `alert` for a problem that only Prometheus
            reports.
        subject: The affected subject, such as `gpu0`, the name of a run, container or collector, or
            a mount point; an empty string if the machine is affected.
        name: Two or three words that name the problem after the subject, such as `too hot`.
        severity: The severity of the problem, as in the equivalent alert.
        summary: A sentence that describes the problem with figures, without naming the subject.
        alert: The name of the equivalent alert; an empty string if there is no such alert.
    """

    subject_kind: SubjectKind
    subject: str
    name: str
    severity: Severity
    summary: str
    alert: str = ""

    @property
    def title(self) -> str:
        """A short text that names the subject and the problem, such as `gpu0 too hot`."""
        subject = "host" if self.subject_kind == "host" else self.subject
        return f"{subject} {self.name}".strip()

    @property
    def words(self) -> str:
        """The title and the summary of the problem on one line."""
        return _join(self.title, self.summary)

    @property
    def remark(self) -> str:
        """The name and the summary of the problem, for a text that already names the subject."""
        return _join(self.name, self.summary)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A missing source of information, without which a subject is unknown.

    Attributes:
        subject_kind: The kind of subject that is unknown; `alert` for the alerts.
        why: The reason why the subject is unknown and, if useful, a remedy, on one line.
    """

    subject_kind: SubjectKind
    why: str

    @property
    def title(self) -> str:
        """A short text that names the unknown subject, such as `alerts not known`."""
        return f"{PLURALS[self.subject_kind]} not known"

    @property
    def words(self) -> str:
        """The title and the reason why the subject is unknown, on one line."""
        return _join(self.title, self.why)


@dataclass(frozen=True, slots=True)
class _Inhibition:
    """A rule by which a problem explains others, as in the alert rules and `alertmanager.yml`.

    Attributes:
        sources: The alerts that explain other alerts.
        targets: The alerts that the source alerts explain.
        is_wide: Whether the source alert and the target alert may concern different subjects.
        is_of_run: Whether the target alert concerns a run, and the source alert concerns an
            accelerator that the run may hold.
        name: The name of the problem that explains other problems; an empty string for any name.
        target_name: The name of the explained problem; an empty string for any name.
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
    _Inhibition((*_DEVICE_FAULTS, "AcceleratorMissing"), _SLOW, is_of_run=True),
    # A lost accelerator makes a run hang, but does not stop a process.
    _Inhibition(
        (*_DEVICE_FAULTS, "AcceleratorMissing"),
        ("TrainingStalled",),
        is_of_run=True,
        target_name=IS_HUNG,
    ),
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
    _Inhibition(("TrainingStalled", *_ENDED), _SLOW),
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
    """Return the problems without duplicates, the most severe first."""
    return tuple(
        sorted(dict.fromkeys(troubles), key=lambda trouble: SEVERITIES.index(trouble.severity))
    )


def drop_explained(
    troubles: Iterable[Trouble], held: Mapping[str, frozenset[str]] | None = None
) -> tuple[Trouble, ...]:
    """Return the problems that no other problem explains, by the rules that Alertmanager uses.

    Args:
        troubles: All problems that were found.
        held: The accelerators that each run holds, and the kinds of missing accelerators that the
            run may hold. A run that is not listed may hold any accelerator.
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
