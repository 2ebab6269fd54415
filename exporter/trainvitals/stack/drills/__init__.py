"""Drills that test alerts end to end, from a simulated fault to a notification at a webhook."""

from trainvitals.stack.drills.drill import DrillResult, drill, fit_speed, format_result
from trainvitals.stack.drills.faults import FAULTS, Fault, find_fault
from trainvitals.stack.drills.pipeline import SPEED, Plan, make_plan

__all__ = [
    "FAULTS",
    "SPEED",
    "DrillResult",
    "Fault",
    "Plan",
    "drill",
    "find_fault",
    "fit_speed",
    "format_result",
    "make_plan",
]
