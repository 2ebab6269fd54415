"""The errors of trainvitals.

    TrainvitalsError
    ├── SourceError         a part of the machine could not be read
    ├── ConfigurationError  a flag or a file says something that cannot be done
    └── StackError          the monitoring stack could not be started, stopped or asked

Each message is one line: what, where, and what to do next.
"""

from __future__ import annotations


class TrainvitalsError(Exception):
    """Whatever trainvitals raises on purpose."""


class SourceError(TrainvitalsError):
    """A part of the machine is there but could not be read."""


class ConfigurationError(TrainvitalsError):
    """A flag or a configuration file says something that cannot be done."""


class StackError(TrainvitalsError):
    """The monitoring stack could not be started, stopped or asked."""
