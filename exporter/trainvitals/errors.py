"""The errors of trainvitals.

    TrainvitalsError
    ├── SourceError         a part of the machine could not be read
    ├── ConfigurationError  a flag or a file is invalid
    └── StackError          the monitoring stack could not be started, stopped or asked

Each message is one line: the place, the error, and the next step.
"""

from __future__ import annotations


class TrainvitalsError(Exception):
    """An error that trainvitals raises deliberately."""


class SourceError(TrainvitalsError):
    """A part of the machine exists but could not be read."""


class ConfigurationError(TrainvitalsError):
    """A flag or a configuration file is invalid."""


class StackError(TrainvitalsError):
    """The monitoring stack could not be started, stopped or asked."""
