"""All checks, in the order in which they are listed.

To add one, write its function and its `Check` in the file of its subject; `make docs` lists it in
docs/doctor.md.
"""

from __future__ import annotations

from trainvitals.doctor import (
    containers,
    credentials,
    cuda,
    disks,
    driver,
    gaudi,
    gpus,
    holders,
    host,
    limits,
    network,
    ports,
    requirements,
    states,
)
from trainvitals.doctor.finding import Check

CHECKS: tuple[Check, ...] = (
    *driver.CHECKS,
    *states.CHECKS,
    *holders.CHECKS,
    *gpus.CHECKS,
    *cuda.CHECKS,
    *gaudi.CHECKS,
    *requirements.CHECKS,
    *containers.CHECKS,
    *limits.CHECKS,
    *disks.CHECKS,
    *host.CHECKS,
    *network.CHECKS,
    *ports.CHECKS,
    *credentials.CHECKS,
)
