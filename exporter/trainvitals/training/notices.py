"""Messages that the training process itself sends about a run, without Alertmanager.

Rank 0 sends the messages about the run, and the first rank of each machine sends the messages about
that machine. When an alert changes, the training thread only queues a message, which
`trainvitals.alerting.notifier` then sends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from trainvitals.errors import ConfigurationError
from trainvitals.training.guard import Errors, guard
from trainvitals.training.launch import Launch
from trainvitals.training.process import name_host
from trainvitals.units import format_value

if TYPE_CHECKING:  # the module is loaded only if messages are sent
    from trainvitals.alerting.channels import DirectChannel
    from trainvitals.alerting.message import Severity
    from trainvitals.alerting.notifier import Notifier

SWITCH = "TRAINVITALS_NOTIFY"
_TITLES = {
    "gpu_underutilized": "GPU underutilized",
    "memory_pressure": "memory nearly full",
    "io_bottleneck": "waiting for data",
    "gpu_temperature": "GPU hot",
    "adaptive_step_time": "steps slower than usual",
    "adaptive_throughput": "throughput lower than usual",
    "adaptive_utilization": "GPU used less than usual",
}
_OF_THE_RUN = frozenset({"adaptive_step_time", "adaptive_throughput", "adaptive_utilization"})
_log = logging.getLogger("trainvitals")


class Notices:
    """The sender of messages about a run.

    Args:
        notifier: The notifier that sends the messages.
        launch: The run name and rank of this process.
        host: The name of the machine, which the messages contain.
        clock: A clock that returns Unix time in seconds.

    Attributes:
        errors: The counter of the sender's internal errors.
    """

    def __init__(
        self,
        notifier: Notifier,
        launch: Launch,
        *,
        host: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._notifier = notifier
        self._launch = launch
        self._host = host
        self._clock = clock
        self.errors = Errors("sending messages about the run", self.close)

    @guard
    def send_alert(self, name: str, text: str, *, is_over: bool = False) -> None:
        """Send a message that an alert of `runfile.ALERTS` has been raised or cleared."""
        if self._launch.rank == 0 or name not in _OF_THE_RUN:
            self._send(_TITLES.get(name, name), text, "warning", f"{self._host}:{name}", is_over)

    @guard
    def send_nonfinite(self) -> None:
        """Send a message that the loss is NaN or infinite."""
        self._send_of_run("loss is NaN or infinite", "", "critical", "nonfinite_loss")

    @guard
    def send_spike(self, loss: float) -> None:
        """Send a message that the loss remains far above the usual level."""
        text = f"Loss {format_value(loss)}, far above the last hundred steps"
        self._send_of_run("loss spike", text, "warning", "loss_spike")

    @guard
    def send_failure(self, exception: BaseException | None) -> None:
        """Send a message that the run failed, with the exception's class but not its message."""
        if isinstance(exception, KeyboardInterrupt):  # the user interrupted the run
            return
        rank = f" on rank {self._launch.rank}" if self._launch.world_size > 1 else ""
        text = f"{type(exception).__name__}{rank}" if exception is not None else ""
        self._send("run failed", text, "critical", f"{self._host}:failed", is_over=False)

    def close(self) -> None:
        """Stop accepting messages; queued messages are still sent in the background."""
        self._notifier.close()

    def _send_of_run(self, what: str, text: str, severity: Severity, key: str) -> None:
        if self._launch.rank == 0:
            self._send(what, text, severity, key, is_over=False)

    def _send(self, what: str, text: str, severity: Severity, key: str, is_over: bool) -> None:  # noqa: FBT001 - handed through
        from trainvitals.alerting.message import Message  # noqa: PLC0415 - loaded with the notifier

        launch = self._launch
        fields = [("run", launch.run), ("host", self._host)]
        if launch.world_size > 1:
            fields.append(("rank", str(launch.rank)))
        self._notifier.send(
            Message(
                title=f"{launch.run}: {what}",
                text=text,
                severity=severity,
                key=key,
                fields=tuple(fields),
                is_over=is_over,
                time=self._clock(),
            )
        )


class _Log:
    """A log for the notifier's threads, protected against errors in the program's log handlers."""

    def __init__(self) -> None:
        self.errors = Errors("the log of messages to people", _do_nothing)

    @guard
    def report(self, text: str) -> None:
        _log.warning("%s", text)


def open_notices(
    notify: bool | Sequence[DirectChannel] | None,  # noqa: FBT001 - as published
    environ: Mapping[str, str],
    launch: Launch,
    *,
    clock: Callable[[], float] = time.time,
) -> Notices | None:
    """Return the sender of messages about a run, if messages are requested.

    Args:
        notify: The channels to which messages are sent; True for the channels configured in the
            environment, False to send no messages. None means True if TRAINVITALS_NOTIFY is 1, and
            otherwise False.
        environ: The environment variables, which may configure channels.
        launch: The run and rank of this process.
        clock: A clock that returns Unix time in seconds.

    Returns:
        The sender of messages; None if no messages are requested, if another rank sends the
        messages, or if messages cannot be sent. In the last case, the reason is logged.
    """
    is_unasked = notify is None and not environ.get(SWITCH)
    if is_unasked or notify is False or (launch.rank != 0 and launch.local_rank != 0):
        return None
    from trainvitals.alerting.notifier import Notifier  # noqa: PLC0415 - only where it is used

    try:
        channels = _find_channels(notify, environ)
        if not channels:
            return None
        notifier = Notifier(channels, report=_Log().report)
    except (ConfigurationError, RuntimeError) as error:  # RuntimeError: no thread can start
        _log.warning("no messages are sent about run %s: %s", launch.run, error)
        return None
    return Notices(notifier, launch, host=name_host(), clock=clock)


def _find_channels(
    notify: bool | Sequence[DirectChannel] | None,  # noqa: FBT001
    environ: Mapping[str, str],
) -> Sequence[DirectChannel]:
    from trainvitals.alerting.channels import (  # noqa: PLC0415
        DIRECT_CHANNELS,
        advise_variables,
        read_direct_channels,
    )
    from trainvitals.alerting.variables import parse_switch, read_variable  # noqa: PLC0415

    if notify is None and not read_variable(environ, SWITCH, parse_switch):
        return ()
    if notify is not None and notify is not True:
        return tuple(notify or ())
    channels = read_direct_channels(environ)
    if not channels:
        raise ConfigurationError(f"{advise_variables(DIRECT_CHANNELS)} in its environment")
    return channels


def _do_nothing() -> None:
    """Do nothing, because this log cannot be disabled."""
