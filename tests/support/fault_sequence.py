"""A sequence of faults on one machine, each timed from the fault to its message at a webhook.

Run the module as root, at the root of a checkout, on a machine with Prometheus and Alertmanager:

    python -m tests.support.fault_sequence

The module runs `trainvitals up`, or `make monitor-up` with --make, on free ports and with its own
state directory. The exporter finds eight GPUs of the fake driver and training runs of real
processes. Each fault begins as soon as the message about the previous fault has arrived, so that
every alert but the first follows another notification about the same machine.

Two mounts are visible only to the stack: a disk that can be filled, and a `/proc/vmstat` that
counts simulated OOM kills.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fakes.machine import FakeMachine
from tests.support.processes import ENDS_WITH_PARENT
from tests.support.waiting import wait_until
from tests.support.webhooks import Message, WebhookReceiver
from trainvitals.sources.prometheus import Prometheus, PrometheusError
from trainvitals.stack.programs import find_free_ports
from trainvitals.stack.supervision import ask_states

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 90.0
_TRAINING = ROOT / "tests/fakes/faulty_training.py"
_PORTS = ("EXPORTER_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT")
_RUNS = ("killed", "stopped", "diverged")
_HOT, _LOST, _BROKEN = 3, 5, 2  # slots of GPUs
# The alert rule calls a disk full below 200 MB and ignores disks smaller than 5 GB.
_DISK_BYTES, _LEFT_BYTES = 6 << 30, 100_000_000
_PATIENCE_SECONDS = 300.0
_PAUSE_SECONDS = 0.2
_VMSTAT = Path("/proc/vmstat")
_KILLS = re.compile(rb"(?m)^oom_kill (\d+)$")


@dataclass(frozen=True)
class Fault:
    """A fault, its alert, and the expression that shows it.

    Attributes:
        name: A description of the fault.
        alert: The critical alert that reports the fault.
        shown: An expression that is true from the first scrape that shows the fault.
        begin: A function that causes the fault.
    """

    name: str
    alert: str
    shown: str
    begin: Callable[[], object]


@dataclass(frozen=True)
class Outcome:
    """The measured result of a fault; a time is None if the scrape or message never came.

    Attributes:
        fault: The name of the fault.
        alert: The name of the alert.
        shown_seconds: The time from the fault to the first scrape that showed it.
        message_seconds: The time from the fault to the message.
        message: The text of the message.
    """

    fault: str
    alert: str
    shown_seconds: float | None
    message_seconds: float | None
    message: str


class Stage:
    """A machine with a stack that monitors it, and the faults that the machine can have.

    Args:
        directory: An empty directory; a disk is mounted below it.
        has_make: Whether the stack is started by make, which installs it first.
    """

    def __init__(self, directory: Path, *, has_make: bool = False) -> None:
        self.directory = directory
        self._has_make = has_make
        self.state_dir = directory / "state"
        self.machine = FakeMachine(directory)
        self.receiver = WebhookReceiver()
        self._ports = dict(zip(_PORTS, find_free_ports(len(_PORTS)), strict=True))
        self.prometheus = Prometheus(f"http://127.0.0.1:{self._ports['PROMETHEUS_PORT']}")
        self._trainers: dict[str, subprocess.Popen[str]] = {}

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Start the machine, the runs and the stack, wait until all are healthy, and stop them."""
        with ExitStack() as undo:
            undo.enter_context(self.machine)
            undo.enter_context(self.receiver)
            self._mount()
            environ = self._environ()
            for run in _RUNS:
                self._trainers[run] = _start_training(run, environ)
                undo.callback(self._trainers[run].kill)
            undo.callback(self._command, "down", environ)
            self._command("up", environ)
            wait_until(self._is_well, _PATIENCE_SECONDS, pause=_PAUSE_SECONDS)
            yield

    def list_faults(self) -> tuple[Fault, ...]:
        """Return the faults in an order in which no fault inhibits the alert of another."""
        return (
            Fault(
                "a run is killed",
                "TrainingRunLost",
                'training_process_up{run="killed"} == 0',
                lambda: self._signal("killed", signal.SIGKILL),
            ),
            Fault(
                "a run is stopped",
                "TrainingStalled",
                'training_stalled{run="stopped"} == 1',
                lambda: self._signal("stopped", signal.SIGSTOP),
            ),
            Fault(
                "the loss of a run is NaN",
                "TrainingLossNotFinite",
                'training_loss{run="diverged"} * 0 != 0',
                self._spoil_loss,
            ),
            Fault(
                "a GPU is lost",
                "AcceleratorLost",
                f'accelerator_up{{device="{_LOST}"}} == 0',
                lambda: self.machine.lose(_LOST),
            ),
            Fault(
                "a GPU is too hot",
                "GPUHighTemperature",
                f'accelerator_temperature_headroom_celsius{{device="{_HOT}"}} < 2',
                self._heat,
            ),
            Fault(
                "Xid 79, and the GPU is lost",
                "AcceleratorXidCritical",
                'accelerator_xid_last_timestamp_seconds{xid="79"}',
                self._break_gpu,
            ),
            Fault(
                "the OOM killer ends a process",
                "HostOOMKill",
                "increase(host_oom_kills_total[5m]) > 0",
                self._count_oom_kill,
            ),
            Fault(
                "a disk is full",
                "HostDiskFull",
                f'host_filesystem_avail_bytes{{mountpoint="{self._disk}"}} < 200e6',
                self._fill_disk,
            ),
            Fault(
                "the exporter hangs",
                "ExporterDown",
                'up{job="trainvitals"} == 0',
                lambda: os.kill(self._find_exporter(), signal.SIGSTOP),
            ),
        )

    def kill_exporter(self) -> Outcome:
        """Kill the exporter and return how long the supervisor takes to restart it."""
        before, began = self._find_exporter(), time.monotonic()
        os.kill(before, signal.SIGKILL)
        wait_until(
            lambda: self._find_exporter() not in (before, 0) and self._is_scraped_after(began)
        )
        took = time.monotonic() - began
        words = f"none: it is started again, and scraped after {took:.0f} s"
        return Outcome("the exporter is killed", "", None, None, words)

    def play(self, fault: Fault) -> Outcome:
        """Cause a fault and wait for its message."""
        began, already = time.monotonic(), len(self.receiver.messages)
        fault.begin()
        shown: float | None = None
        message: Message | None = None
        while message is None and time.monotonic() < began + _PATIENCE_SECONDS:
            if shown is None and self._asks(fault.shown):
                shown = time.monotonic() - began
            message = next(
                (each for each in self.receiver.messages[already:] if _tells(each, fault)), None
            )
            time.sleep(_PAUSE_SECONDS)
        if message is None:
            return Outcome(fault.name, fault.alert, shown, None, "")
        text = next(each for each in message.alerts if _is_about(each, fault))
        words = text["annotations"]["description"]
        return Outcome(fault.name, fault.alert, shown, message.at - began, words)

    # -- faults ------------------------------------------------------------------------------

    def _signal(self, run: str, number: signal.Signals) -> None:
        self._trainers[run].send_signal(number)
        if number == signal.SIGKILL:
            self._trainers[run].wait()

    def _spoil_loss(self) -> None:
        stdin = self._trainers["diverged"].stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()

    def _heat(self) -> None:
        self.machine.gpu(_HOT).temperature = 95

    def _break_gpu(self) -> None:
        self.machine.deliver_xid(_BROKEN, 79)
        self.machine.lose(_BROKEN)

    def _count_oom_kill(self) -> None:
        text = _KILLS.sub(
            lambda found: b"oom_kill %d" % (int(found[1]) + 1), self._vmstat.read_bytes()
        )
        self._vmstat.write_bytes(text)

    def _fill_disk(self) -> None:
        space = os.statvfs(self._disk)
        with (self._disk / "checkpoint").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - _LEFT_BYTES)

    # -- inside ------------------------------------------------------------------------------

    @property
    def _disk(self) -> Path:
        return self.directory / "disk"

    @property
    def _vmstat(self) -> Path:
        return self.directory / "vmstat"

    def _mount(self) -> None:
        image = self.directory / "disk.img"
        with image.open("wb") as file:
            file.truncate(_DISK_BYTES)
        self._disk.mkdir()
        self._vmstat.write_bytes(_VMSTAT.read_bytes())
        _run("mkfs.ext4", "-q", "-m", "0", image)
        _run("mount", "-o", "loop", image, self._disk)
        _run("mount", "--bind", self._vmstat, _VMSTAT)

    def _environ(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.machine.environment(),
            **{name: str(port) for name, port in self._ports.items()},
            # The stack must not monitor other containers of this machine.
            "DOCKER_HOST": "none",
            "PYTHONPATH": str(ROOT / "exporter"),
            "STACK_WAY": "native",
            "TRAINVITALS_RUN_DIR": str(self.directory / "runs"),
            "WEBHOOK_URL": self.receiver.url("/alerts"),
        }

    def _command(self, name: str, environ: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "trainvitals", name, "--state-dir", str(self.state_dir)]
        if self._has_make:
            command = ["make", "-C", str(ROOT), f"monitor-{name}", f"STATE={self.state_dir}"]
        subprocess.run(command, env=environ, stdout=sys.stderr, check=True)

    def _asks(self, query: str) -> bool:
        try:
            return bool(self.prometheus.query(query))
        except PrometheusError:
            return False

    def _is_well(self) -> bool:
        expected = (
            f"count(training_process_up == 1) == {len(_RUNS)}",
            "count(training_loss) > 0",
            "count(accelerator_up == 1) == 8",
            f'host_filesystem_avail_bytes{{mountpoint="{self._disk}"}} > 1e9',
            "host_oom_kills_total",
        )
        return all(map(self._asks, expected))

    def _find_exporter(self) -> int:
        states = ask_states(self.state_dir) or ()
        return next((each.pid or 0 for each in states if each.name == "exporter"), 0)

    def _is_scraped_after(self, began: float) -> bool:
        return self._asks(
            f'up{{job="trainvitals"}} == 1 and timestamp(up) > {time.time() - time.monotonic() + began}'
        )


def play(stage: Stage, *, report: Callable[[str], None]) -> tuple[Outcome, ...]:
    """Cause all faults and return their outcomes.

    The mounts remain until the mount namespace of the process ends.
    """
    outcomes = []
    with stage.playing():
        for fault in stage.list_faults():
            if fault.alert == "ExporterDown":
                outcomes.append(stage.kill_exporter())
                report(_format_row(outcomes[-1]))
            outcomes.append(stage.play(fault))
            report(_format_row(outcomes[-1]))
    return tuple(outcomes)


def _tells(message: Message, fault: Fault) -> bool:
    return any(_is_about(each, fault) for each in message.alerts)


def _is_about(alert: Mapping[str, object], fault: Fault) -> bool:
    labels = alert["labels"]
    assert isinstance(labels, dict)
    return alert["status"] == "firing" and labels["alertname"] == fault.alert


def _start_training(run: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    command = (*ENDS_WITH_PARENT, sys.executable, str(_TRAINING), run)
    return subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, text=True)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def _format_row(outcome: Outcome) -> str:
    seconds = (outcome.shown_seconds, outcome.message_seconds)
    shown, came = ("" if each is None else f"{each:.0f}" for each in seconds)
    alert = f"`{outcome.alert}`" if outcome.alert else ""
    return f"| {outcome.fault} | {alert} | {shown} | {came} | {outcome.message} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sequence in its own mount namespace; return 1 if a message was late or missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fault_sequence")
    parser.add_argument("--json", action="store_true", help="write the outcomes as JSON")
    parser.add_argument("--make", action="store_true", help="start the stack by make monitor-up")
    parser.add_argument("--mounted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.mounted:
        command = ("unshare", "--mount", sys.executable, "-m", "tests.support.fault_sequence")
        given = sys.argv[1:] if arguments is None else arguments
        return subprocess.run((*command, "--mounted", *given), cwd=ROOT, check=False).returncode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = Path(tempfile.mkdtemp(prefix="fault-sequence-"))

    def report(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    report("| fault | alert | seconds to the scrape that shows it | to the message | message |")
    report("| --- | --- | --- | --- | --- |")
    try:
        outcomes = play(Stage(directory, has_make=options.make), report=report)
    finally:
        subprocess.run(("umount", directory / "disk"), check=False)
        shutil.rmtree(directory)
    if options.json:
        print(json.dumps([asdict(each) for each in outcomes], indent=1))
    slow = [
        each for each in outcomes if each.alert and (each.message_seconds or 1e9) > MOST_SECONDS
    ]
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
