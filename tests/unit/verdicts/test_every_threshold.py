"""Every threshold that Python reads changes a verdict, and no code contains its number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from tests.support.rulebook import RULES
from tests.unit.verdicts.causes.evidences import DIED, death
from tests.unit.verdicts.machines import NOW, Container, Device, Disk, Machine, Rank
from trainvitals.metrics.runner import Snapshot
from trainvitals.report.advice import advise
from trainvitals.report.runs import _find_outcome
from trainvitals.runfile import Phase
from trainvitals.sources.accelerators.idleness import IdleWatch
from trainvitals.sources.accelerators.reading import ProcessMemory
from trainvitals.sources.files import Roots
from trainvitals.verdicts.causes.judge import judge
from trainvitals.verdicts.host import judge_clock
from trainvitals.verdicts.idle import judge_idle, read_limits
from trainvitals.verdicts.machine import Alerts
from trainvitals.verdicts.thresholds import read_thresholds
from trainvitals.views.machine.observer import Observer

PACKAGE = Path(__file__).resolve().parents[3] / "exporter/trainvitals"
SHIPPED = read_thresholds(RULES / "thresholds.yml")
JUDGING = ("verdicts", "doctor", "report", "views")
GPU = Device()


def use(**fields) -> Machine:
    """Return a machine with one GPU."""
    return Machine(devices=(Device(**fields),), disks=(Disk(),))


def train(rank: Rank | None = None, **fields) -> Machine:
    """Return a machine with one GPU and a run on it."""
    return Machine(devices=(GPU,), runs=((rank or Rank(devices=(0,), **fields),),), disks=(Disk(),))


def save(*disks: Disk, **fields) -> Machine:
    """Return a machine without accelerators."""
    return Machine(disks=disks or (Disk(),), **fields)


def contain(**fields) -> Machine:
    """Return a machine with one container."""
    return Machine(containers=(Container(**fields),), disks=(Disk(),))


def end(reason: str, **fields) -> Machine:
    """Return a machine with a run that has ended."""
    return train(reason=reason, **fields)


# A machine, and the value of the threshold that changes the verdict on it.
EDITS: dict[str, tuple[Machine, float]] = {
    "gpu_high_temperature:headroom_celsius": (use(), 30),
    "hpu_high_temperature:headroom_celsius": (use(kind="hpu"), 30),
    "accelerator_temperature_near_limit:headroom_celsius": (use(), 30),
    "accelerator_temperature_near_limit:assumed_slowdown_celsius": (use(), 60),
    "accelerator_thermal_throttling:ratio": (use(heat=0.05), 0.01),
    "accelerator_power_brake:ratio": (use(brake=0.01), 0.001),
    "hpu_low_utilization:utilization_percent": (use(kind="hpu", busy=0.45), 60),
    "hpu_low_utilization:memory_ratio": (use(kind="hpu", busy=0.1), 0.6),
    "gpu_low_utilization:utilization_percent": (use(), 95),
    "gpu_low_utilization:other_phases_ratio": (train(phase=Phase.VALIDATION), 2),
    "accelerator_held_idle:utilization_percent": (use(busy=0.005), 0.1),
    "accelerator_held_idle:memory_ratio": (use(busy=0.0), 0.6),
    "high_memory_usage:ratio": (use(), 0.4),
    "accelerator_xid_critical:window_seconds": (use(xid=(79, 100.0)), 50),
    "accelerator_xid_warning:window_seconds": (use(xid=(94, 100.0)), 50),
    "accelerator_xid_application:window_seconds": (use(xid=(31, 100.0)), 50),
    "accelerator_link_degraded:utilization_percent": (use(lanes=(8, 16)), 95),
    "training_run_lost:window_seconds": (end("signal", signal=11), 50),
    "training_run_lost:unknown_window_seconds": (end("unknown", age=10.0), 5),
    "training_run_lost:interrupt_exit_code": (end("signal", signal=11), 139),
    "training_run_failed:window_seconds": (end("exception", code=1), 50),
    "training_run_failed:interrupt_exit_code": (end("exception", code=1), 1),
    "training_run_terminated:window_seconds": (end("signal", signal=15), 50),
    "training_run_terminated:exit_code": (end("signal", signal=11), 139),
    "training_out_of_memory:window_seconds": (end("exception", code=1, device_oom=True), 50),
    "training_stalled:silent_window_seconds": (train(Rank(source="log")), 50),
    "data_loader_bottleneck:wait_ratio": (train(waits=0.25), 0.2),
    "host_high_memory_usage:used_ratio": (save(), 0.4),
    "host_memory_pressure:stalled_ratio": (save(stalled=(0.05, 0.0)), 0.01),
    "host_io_bottleneck:wait_ratio": (save(io_wait=0.25), 0.2),
    "host_io_bottleneck:stalled_ratio": (
        Machine(devices=(GPU,), disks=(Disk(),), stalled=(0.0, 0.25)),
        0.2,
    ),
    "host_disk_full:avail_bytes": (save(), 300e9),
    "host_disk_space_low:avail_ratio": (save(), 0.6),
    "host_disk_space_low:avail_bytes": (save(), 300e9),
    "host_disk_space_low:large_size_bytes": (save(Disk(size=20e9, avail=0.4)), 10e9),
    "host_disk_space_low:small_size_bytes": (save(Disk(size=20e9, avail=0.05)), 50e9),
    "host_inodes_low:free_ratio": (save(), 0.6),
    "host_shared_memory_low:avail_ratio": (save(Disk("/dev/shm")), 0.6),
    "host_clock_skew:offset_seconds": (save(clock=20.0), 10),
    "container_oom_killed:window_seconds": (contain(reason="oom-cgroup"), 50),
    "container_died:window_seconds": (contain(reason="exception"), 50),
    "container_memory_near_limit:ratio": (contain(), 0.4),
}


def find_verdict(machine: Machine, thresholds) -> object:
    """Return the troubles and run states of a machine that was observed for ten minutes."""
    file = SimpleNamespace(latest=lambda: (thresholds, ""))
    observer = Observer("1.2.3", name_host=lambda: "ada", thresholds=file)
    for ago in (600, 560, 300, 60, 0):
        seen = Snapshot((), machine.read(NOW - ago), machine.report())
        observer.note(seen, NOW - ago)
    picture = observer.picture(seen, NOW, alerts=())
    assert observer.judge(seen, NOW, Alerts(())).troubles == picture.troubles
    return (
        [(each.alert, each.name) for each in picture.troubles],
        [(run.state, run.bound, run.ending) for run in picture.runs],
        [each.alert for each in judge_clock(machine.clock, thresholds)],
    )


def find_restarts(thresholds) -> object:
    """Return the recommendations of a report on a run that was restarted three times."""
    attempt = SimpleNamespace(
        run="llama", instances=("ada",), outcome="failed", exit_code=1, is_resumed=True
    )
    report = SimpleNamespace(
        incidents=(),
        runs=SimpleNamespace(attempts=(attempt,) * 3, unresumed=(), best=()),
        hosts=SimpleNamespace(disks=()),
        accelerators=SimpleNamespace(known_seconds=0.0, uses=()),
        begin=0.0,
        end=1.0,
        coverage=SimpleNamespace(seconds=1.0),
    )
    return advise(report, thresholds)


def find_loop(thresholds, monkeypatch, tmp_path) -> object:
    """Return the reasons of the third death in a row."""
    path = tmp_path / "thresholds.yml"
    path.write_text(
        "groups:\n- name: mine\n  rules:\n"
        + "".join(
            f"  - {{record: 'threshold:{name}', expr: vector({number})}}\n"
            for name, number in thresholds.items()
        )
    )
    monkeypatch.setenv("TRAINVITALS_THRESHOLDS_FILE", str(path))
    verdict = judge(death(1, earlier_deaths=(DIED - 60, DIED - 30), restarts=2))
    return [each.reason for each in (verdict.finding, *verdict.contributing)]


def change(name: str, number: float):
    """Return the shipped thresholds with this one changed."""
    assert name in SHIPPED
    return MappingProxyType({**SHIPPED, name: number})


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_threshold_moves_the_verdict_on_a_machine(name):
    """An edited threshold changes the verdict on a machine."""
    machine, number = EDITS[name]
    assert find_verdict(machine, SHIPPED) != find_verdict(machine, change(name, number))


def test_an_edited_threshold_moves_reports_and_causes(monkeypatch, tmp_path):
    """Edited thresholds for restart loops change the report and the verdict on a death."""
    edited = change("training_restart_loop:restarts", 4)
    assert find_restarts(SHIPPED) != find_restarts(edited)
    found = [
        find_loop(thresholds, monkeypatch, tmp_path)
        for thresholds in (SHIPPED, change("container_restart_loop:restarts", 4))
    ]
    assert found[0] != found[1]


@pytest.mark.parametrize(("seconds", "is_idle"), [(60, False), (20, True)])
def test_an_edited_threshold_moves_the_reason_of_an_idle_device(seconds, is_idle, tmp_path):
    """An edited threshold changes how long a held device must be idle to get a reason."""
    now = [100.0]
    thresholds = change("accelerator_held_idle:reason_seconds", seconds)
    roots = Roots(procfs=tmp_path)
    watch = IdleWatch(
        judge_idle, lambda: read_limits(thresholds), roots=roots, clock=lambda: now[0]
    )
    reading = use(busy=0.0).read(NOW)["accelerator"]
    (device,) = reading.devices
    held = replace(reading, devices=(replace(device, processes=(ProcessMemory(7, 1),)),))
    watch.judge(held, None)
    now[0] += 30
    assert (watch.judge(held, None).devices[0].idle is not None) is is_idle


def test_every_threshold_that_is_read_is_edited():
    """Every threshold that the package's source names is tested in this module."""
    tested = {
        *EDITS,
        "training_restart_loop:restarts",
        "container_restart_loop:restarts",
        "accelerator_held_idle:reason_seconds",
    }
    assert set(find_names()) == tested


def find_names() -> Iterator[str]:
    """Yield the names of the thresholds in the package's source."""
    patterns = {pattern for _, tree in parse() for pattern in map(write_pattern, ast.walk(tree))}
    for name in SHIPPED:
        if any(pattern and re.fullmatch(pattern, name) for pattern in patterns):
            yield name


def write_pattern(node: ast.AST) -> str:
    """Return a pattern for the threshold names of a node, or an empty text for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in SHIPPED:
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [
            re.escape(part.value) if isinstance(part, ast.Constant) else VARYING[part.value.id]
            for part in node.values
            if isinstance(part, ast.Constant) or getattr(part.value, "id", "") in VARYING
        ]
        return "".join(parts) if len(parts) == len(node.values) else ""
    return ""


# The possible values of the variable parts of names.
VARYING = {
    "kind": "(gpu|hpu)",
    "alert": "(container_oom_killed|container_died|training_run_lost|training_run_failed)",
}


def parse(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the syntax trees of the package's modules, or of those in some folders."""
    for folder in folders or (".",):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield path.relative_to(PACKAGE), ast.parse(path.read_text(encoding="utf-8"))


# Numbers that equal a threshold by chance, by module, with their meaning.
ELSEWHERE: dict[tuple[str, float], str] = {
    ("verdicts/causes/advice.py", 1.5): "how much more memory is advised than was used",
    ("verdicts/causes/case.py", 120): "how far an event of the engine may be from a death",
    ("verdicts/causes/gpu.py", 120): "how far an Xid may be from a death",
    ("verdicts/causes/gpu_fabric.py", 120): "an Xid",
    ("verdicts/causes/gpu_fabric.py", 143): "an Xid",
    ("verdicts/causes/gpu_memory.py", 0.05): "the share of a card that others hold",
    ("verdicts/causes/container_faults.py", 600): "how far apart the deaths of a loop may be",
    ("verdicts/causes/requests.py", 130): "the exit code of a shell for SIGINT",
    ("verdicts/causes/requests.py", 143): "the exit code of a shell for SIGTERM",
    ("verdicts/causes/requests.py", 3600): "the longest grace period of an engine",
    ("verdicts/causes/signs.py", 120): "letters between two words",
    ("verdicts/causes/storage.py", 0.05): "the space that is left in a full disk",
    ("verdicts/causes/training.py", 0.05): "the share of values that are NaN",
    ("verdicts/causes/words.py", 900): "the characters of a line that are searched",
    ("doctor/credentials.py", 0.1): "seconds between two requests",
    ("doctor/credentials.py", 0.5): "seconds between two requests",
    ("doctor/credentials.py", 1.5): "seconds until a request is given up",
    ("doctor/facts.py", 0.1): "seconds that are left for a reading",
    ("doctor/facts.py", 0.3): "seconds that a check needs after a reading",
    ("doctor/facts.py", 0.5): "seconds until file systems are given up",
    ("doctor/gpus.py", 0.05): "up to where a card counts as idle, for its temperature",
    ("doctor/host.py", 0.9): "the share of swap in use, which has no alert",
    ("doctor/machine.py", 0.1): "seconds that a program has at least",
    ("doctor/network.py", 0.2): "seconds until a connection is given up",
    ("doctor/network.py", 0.5): "seconds until a page is given up",
    ("verdicts/idle.py", 0.1): "CPU cores",
    ("verdicts/idle.py", 0.3): "CPU cores",
    ("verdicts/idle.py", 0.5): "CPU cores",
    ("report/advice.py", 0.05): "the share of waste that is worth a recommendation",
    ("report/advice.py", 0.1): "the share of the period without data",
    ("report/archive.py", 3600): "the seconds of an hour",
    ("report/charts.py", 0.01): "a percent",
    ("report/charts.py", 1.5): "the width of a line",
    ("report/charts.py", 3600): "the seconds of an hour",
    ("report/gathering.py", 0.9): "the share of the period before that is known",
    ("report/wording.py", 120): "characters",
    ("views/death/run_details.py", 0.01): "the share of a phase that is shown",
    ("views/machine/accelerators.py", 300): "the range of a rate, 5m in the rules",
    ("views/machine/accelerators.py", 600): "the range of a mean, 10m in the rules",
    ("views/machine/host.py", 120): "the range of a rate, 2m in the rules",
    ("views/machine/host.py", 600): "the range of a rate, 10m in the rules",
    ("views/machine/runs.py", 600): "the range of a rate, 10m in the rules",
    ("views/plot/picture.py", 0.01): "a margin",
    ("views/plot/picture.py", 0.5): "a position",
    ("views/plot/picture.py", 1.5): "the length of a line",
    ("views/plot/timeline.py", 3600): "the seconds of an hour",
    ("views/terminal/gauges.py", 120): "columns",
    ("views/terminal/remote.py", 0.5): "seconds until an answer counts as quick",
    ("views/terminal/screen.py", 0.1): "seconds that an escape sequence takes",
}


def test_no_number_stands_beside_the_thresholds():
    """No number in the code equals a threshold, except small integers and the listed ones."""
    found = {
        (str(path), float(node.value))
        for path, tree in parse(*JUDGING)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and node.value in LIMITS
    }
    assert found - set(ELSEWHERE) == set()


# Numbers such as 130 and 1.5 are distinctive, but a 3 may mean anything.
LIMITS = {number for number in SHIPPED.values() if number % 1 or number >= 80}


@pytest.mark.parametrize(
    ("name", "code", "outcome"),
    [
        ("training_run_failed:interrupt_exit_code", 7, "interrupted"),
        ("training_run_terminated:exit_code", 139, "terminated"),
    ],
)
def test_an_edited_exit_code_moves_the_outcome_in_a_report(name, code, outcome):
    """An edited exit code changes the outcome of a run in a report."""
    reason = "exception" if "failed" in name else "signal"
    ends = [SimpleNamespace(time=NOW, rank="ada 0", reason=reason)]
    course = SimpleNamespace(codes={"ada 0": [(NOW, code)]})
    assert _find_outcome(ends, course, change(name, code)) == (outcome, code)
    assert _find_outcome(ends, course, SHIPPED)[0] in ("failed", "killed")
