"""The machine at this moment, as `trainvitals.sources.host` reads it."""

from trainvitals.sources.host import find_biggest, read_host

__all__ = ["find_biggest", "read_host"]
