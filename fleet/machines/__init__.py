"""The machines of the demo; to add one, write its file here and add it to `MACHINES`."""

from fleet.machine import Machine, Story
from fleet.machines import atlas, hera, lyra, orion, vega

# The stack itself runs on the first machine.
MACHINES = (vega, atlas, orion, hera, lyra)


def build_machines(begin: float) -> tuple[Machine, ...]:
    """Return all machines for a demo that goes live at a time, a multiple of 15 s in Unix time."""
    story = Story(begin)
    return tuple(module.build(story) for module in MACHINES)


__all__ = ["MACHINES", "build_machines"]
