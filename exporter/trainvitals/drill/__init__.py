"""A drill: proof that a fault on a machine becomes a message, from the exporter to a webhook."""

from trainvitals.drill.drill import DrillResult, drill, format_result
from trainvitals.drill.faults import FAULTS, Fault, find_fault
from trainvitals.drill.pipeline import Plan
from trainvitals.drill.plan import SPEED, make_plan

__all__ = [
    "FAULTS",
    "SPEED",
    "DrillResult",
    "Fault",
    "Plan",
    "drill",
    "find_fault",
    "format_result",
    "make_plan",
]
