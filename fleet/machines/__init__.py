"""The machines of the demo; to add one, write its file here and add it to `MACHINES`."""

from fleet.machine import Machine, Story
from fleet.machines import atlas, hera, lyra, orion, vega

# The first is the one that the stack itself runs on.
MACHINES = (vega, atlas, orion, hera, lyra)


def build_machines(begin: float) -> tuple[Machine, ...]:
    """Return all machines of a story that begins at a moment, a whole number of 15 s since 1970."""
    story = Story(begin)
    return tuple(module.build(story) for module in MACHINES)


__all__ = ["MACHINES", "build_machines"]
