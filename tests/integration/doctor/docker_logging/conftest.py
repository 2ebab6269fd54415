"""Fixtures shared with the unit tests."""

from tests.unit.doctor.docker_logging.conftest import dockerd, run, run_as_nobody

__all__ = ["dockerd", "run", "run_as_nobody"]
