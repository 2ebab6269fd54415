"""What a fault is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainvitals.drill.series import Series, constant


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong on a simulated machine.

    Attributes:
        alert: The alert that must tell of it.
        story: What happens, for a person who watches.
        healthy: The machine's series before and after.
        faulty: Its series while the fault lasts.
        history_seconds: How long the machine must have been well before, at usual speed.
        is_silent: The exporter does not answer while the fault lasts.
        is_failing: A collector of the exporter fails while the fault lasts.
    """

    alert: str
    story: str
    healthy: tuple[Series, ...]
    faulty: tuple[Series, ...]
    history_seconds: float = 0.0
    is_silent: bool = False
    is_failing: bool = False


def turn(
    alert: str,
    story: str,
    name: str,
    well: float,
    ill: float,
    /,
    *context: Series,
    **labels: str,
) -> Fault:
    """Give the fault that one series takes another value.

    Args:
        alert: The alert that must tell of it.
        story: What happens, for a person who watches.
        name: The metric.
        well: Its value before and after.
        ill: Its value while the fault lasts.
        *context: What else the machine tells all the time.
        **labels: The labels of the series.
    """
    return Fault(
        alert,
        story,
        (constant(name, well, **labels), *context),
        (constant(name, ill, **labels), *context),
    )


def after(history_seconds: float, fault: Fault) -> Fault:
    """Give a fault of a machine that must have been well for so long, at usual speed."""
    return replace(fault, history_seconds=history_seconds)
