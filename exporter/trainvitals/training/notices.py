"""Telling people what the run raises, where nobody runs an Alertmanager.

Rank 0 tells of the run, and the first rank of each machine of that machine. The training thread
hands a message over when an alert changes, and waits for nothing; see `courier`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from trainvitals.errors import ConfigurationError
from trainvitals.training.identity import name_host
from trainvitals.training.launch import Launch
from trainvitals.training.outer import Errors, guard

if TYPE_CHECKING:  # who tells nobody pays for none of it
    from trainvitals.courier import Courier, Destination, Severity

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
    """Makes messages of what happens in a run.

    Args:
        courier: Takes them.
        launch: Which run and rank this is.
        host: The machine's name.
        clock: Tells Unix seconds.

    Attributes:
        errors: What went wrong in telling.
    """

    def __init__(
        self,
        courier: Courier,
        launch: Launch,
        *,
        host: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._courier = courier
        self._launch = launch
        self._host = host
        self._clock = clock
        self.errors = Errors("telling people of the run", self.close)

    @guard
    def tell_alert(self, name: str, text: str, *, is_over: bool = False) -> None:
        """Tell that an alert of `runfile.ALERTS` was raised, or is over."""
        if self._launch.rank == 0 or name not in _OF_THE_RUN:
            self._send(_TITLES.get(name, name), text, "warning", f"{self._host}:{name}", is_over)

    @guard
    def tell_nonfinite(self) -> None:
        """Tell that the loss is NaN or infinite."""
        self._send_of_run("loss is NaN or infinite", "", "critical", "nonfinite_loss")

    @guard
    def tell_spike(self, loss: float) -> None:
        """Tell that the loss stays far above its usual."""
        text = f"Loss {loss:.4g}, far above the last hundred steps"
        self._send_of_run("loss spike", text, "warning", "loss_spike")

    @guard
    def tell_failure(self, exception: BaseException | None) -> None:
        """Tell that the run ends by an error, whose class is told, not its message."""
        if isinstance(exception, KeyboardInterrupt):  # whoever pressed it knows
            return
        rank = f" on rank {self._launch.rank}" if self._launch.world_size > 1 else ""
        text = f"{type(exception).__name__}{rank}" if exception is not None else ""
        self._send("run failed", text, "critical", f"{self._host}:failed", is_over=False)

    def close(self) -> None:
        """Tell nothing more; what is not sent yet goes out in the background."""
        self._courier.close()

    def _send_of_run(self, what: str, text: str, severity: Severity, key: str) -> None:
        if self._launch.rank == 0:
            self._send(what, text, severity, key, is_over=False)

    def _send(self, what: str, text: str, severity: Severity, key: str, is_over: bool) -> None:  # noqa: FBT001 - handed through
        from trainvitals.courier import Message  # noqa: PLC0415 - loaded since the courier was

        launch = self._launch
        fields = [("run", launch.run), ("host", self._host)]
        if launch.world_size > 1:
            fields.append(("rank", str(launch.rank)))
        self._courier.send(
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
    """Logs from the courier's threads, which an error of the program's own log must not end."""

    def __init__(self) -> None:
        self.errors = Errors("the log of messages to people", _do_nothing)

    @guard
    def report(self, text: str) -> None:
        _log.warning("%s", text)


def open_notices(
    notify: bool | Sequence[Destination] | None,  # noqa: FBT001 - as the user gives it
    environ: Mapping[str, str],
    launch: Launch,
    *,
    clock: Callable[[], float] = time.time,
) -> Notices | None:
    """Begin to tell people, where somebody asked for it.

    Args:
        notify: Whom to tell; True for whom the environment names, None for the same where
            TRAINVITALS_NOTIFY asks for it.
        environ: The environment.
        launch: Which run and rank this is.
        clock: Tells Unix seconds.

    Returns:
        None where nobody is to be told, this rank is not the one that tells, or it cannot be done,
        which is logged.
    """
    is_unasked = notify is None and not environ.get(SWITCH)
    if is_unasked or notify is False or (launch.rank != 0 and launch.local_rank != 0):
        return None
    from trainvitals.courier import Courier  # noqa: PLC0415 - who tells nobody does not load it

    try:
        destinations = _find_destinations(notify, environ)
        if not destinations:
            return None
        courier = Courier(destinations, report=_Log().report)
    except (ConfigurationError, RuntimeError) as error:  # RuntimeError: no thread can be had
        _log.warning("nobody is told of run %s: %s", launch.run, error)
        return None
    return Notices(courier, launch, host=name_host(), clock=clock)


def _find_destinations(
    notify: bool | Sequence[Destination] | None,  # noqa: FBT001
    environ: Mapping[str, str],
) -> Sequence[Destination]:
    from trainvitals.courier.destinations import LEADS, read_destinations  # noqa: PLC0415
    from trainvitals.courier.variables import Variables  # noqa: PLC0415

    if notify is None and not Variables(environ).take_switch(SWITCH, default=False):
        return ()
    if notify is not None and notify is not True:
        return tuple(notify or ())
    destinations = read_destinations(environ)
    if not destinations:
        raise ConfigurationError(f"set one of {', '.join(LEADS)} in its environment")
    return destinations


def _do_nothing() -> None:
    """There is nothing to switch off."""
