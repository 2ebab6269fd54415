"""Fixtures that the unit tests have too."""

from tests.unit.doctor.docker_logging.conftest import dockerd, run, run_as_nobody

__all__ = ["dockerd", "run", "run_as_nobody"]
