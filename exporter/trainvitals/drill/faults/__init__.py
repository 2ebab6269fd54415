"""What can go wrong on a simulated machine, by the alert that must tell of it."""

import difflib

from trainvitals.drill.faults import accelerator, container, host, meta, training
from trainvitals.drill.faults.fault import Fault
from trainvitals.errors import ConfigurationError

FAULTS = (
    *accelerator.FAULTS,
    *training.FAULTS,
    *host.FAULTS,
    *container.FAULTS,
    *meta.FAULTS,
)

UNDRILLED = {
    "Watchdog": "it fires always",
    "ExporterJobDown": "it takes several machines",
    "TargetVanished": "it takes another configuration of Prometheus",
    "ExporterDataStale": "the simulated machine has no clock while its collector fails",
    "ExporterCardinalityHigh": "so long a page cannot be served twice a second",
    "ExporterScrapeSlow": "a scrape of the drill is given up before it counts as slow",
    "ThresholdsMissing": "it takes another set of rules",
}
"""The alerts that no simulated machine can bring about, and why."""

__all__ = ["FAULTS", "UNDRILLED", "Fault", "find_fault"]


def find_fault(alert: str) -> Fault:
    """Give the fault that an alert tells of.

    Raises:
        ConfigurationError: There is no such alert, or it cannot be drilled.
    """
    for fault in FAULTS:
        if fault.alert == alert:
            return fault
    if alert in UNDRILLED:
        raise ConfigurationError(f"no drill for {alert}: {UNDRILLED[alert]}")
    near = difflib.get_close_matches(alert, [fault.alert for fault in FAULTS], n=1)
    hint = f"did you mean {near[0]}?" if near else "see `trainvitals drill --list`"
    raise ConfigurationError(f"no drill for {alert}: {hint}")
