"""The simulated machine's faults, by the alert that each fault must trigger."""

import difflib

from trainvitals.errors import ConfigurationError
from trainvitals.stack.drills.fault import Fault
from trainvitals.stack.drills.faults import accelerator, host, training

FAULTS = (
    *accelerator.FAULTS,
    *training.FAULTS,
    *host.HOST_FAULTS,
    *host.CONTAINER_FAULTS,
    *host.MONITORING_FAULTS,
)

UNDRILLED = {
    "Watchdog": "it always fires",
    "TargetVanished": "it needs another configuration of Prometheus",
    "ExporterDataStale": "the simulated machine has no clock while its collector fails",
    "ExporterCardinalityHigh": "a page of that size cannot be served twice a second",
    "ExporterScrapeSlow": "a scrape of the drill times out before it counts as slow",
    "ThresholdsMissing": "it needs another set of rules",
}
"""The alerts that the simulated machine cannot trigger, each with the reason."""

__all__ = ["FAULTS", "UNDRILLED", "Fault", "find_fault"]


def find_fault(alert: str) -> Fault:
    """Return the simulated fault that triggers an alert.

    Raises:
        ConfigurationError: The alert does not exist, or there is no drill for the alert.
    """
    for fault in FAULTS:
        if fault.alert == alert:
            return fault
    if alert in UNDRILLED:
        raise ConfigurationError(f"{alert} cannot be drilled: {UNDRILLED[alert]}")
    near = difflib.get_close_matches(alert, [fault.alert for fault in FAULTS], n=1)
    hint = f"did you mean {near[0]}?" if near else "see `trainvitals drill --list`"
    raise ConfigurationError(f"there is no alert {alert}; {hint}")
