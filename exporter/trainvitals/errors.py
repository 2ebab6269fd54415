"""The exceptions of trainvitals.

    TrainvitalsError
    ├── SourceError         a source of data exists but could not be read
    ├── ConfigurationError  a flag or a configuration file is invalid
    └── StackError          the monitoring stack could not be started, stopped or queried

Each error message is one line that contains the location, the error, and the next step.
"""

from __future__ import annotations


class TrainvitalsError(Exception):
    """The base class of all exceptions that trainvitals raises deliberately."""


class SourceError(TrainvitalsError):
    """A source of data exists on the machine but could not be read."""


class ConfigurationError(TrainvitalsError):
    """A flag or a configuration file is invalid."""


class StackError(TrainvitalsError):
    """The monitoring stack could not be started, stopped or queried."""
