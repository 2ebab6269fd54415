"""The command `trainvitals postmortem`: what is told of a run after its end, and whether it is right."""

import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import contextmanager
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.cli import main
from trainvitals.errors import ConfigurationError
from trainvitals.postmortem import choose_run, format_json, format_screen, read_findings
from trainvitals.postmortem.advice import advise
from trainvitals.postmortem.cases import REASONS, find_first
from trainvitals.postmortem.quantities import (
    write_bytes,
    write_clock,
    write_duration,
    write_iso,
    write_number,
    write_rate,
    write_time,
)
from trainvitals.runfile import (
    EMPTY_STATE,
    EMPTY_STEP,
    STATE,
    STEP,
    Identity,
    Phase,
    State,
    encode_header,
    encode_last_words,
    encode_name,
)
from trainvitals.sources.training.endings import Ending, write_ending
from trainvitals.sources.training.liveness import Host
from trainvitals.sources.training.source import TrainingOptions, TrainingSource

ROOT = Path(__file__).parents[1]
BOOT = b"the same boot id"
ZONE = timezone(timedelta(hours=1), "CET")
# 2023-11-15 12:00:00 UTC, at which CLOCK_MONOTONIC showed 1000 s.
NOON = 1_700_049_600.0
NOON_MONO = 1000.0

TRAINER = """
import sys, time
from trainvitals import TrainingMonitor

how, run, directory, rank, world_size, attempt, global_step = sys.argv[1:]
with TrainingMonitor(
    run, run_dir=directory, rank=int(rank), world_size=int(world_size), attempt=int(attempt),
    global_step=int(global_step), total_steps=100,
) as monitor:
    monitor.start_epoch(0)
    for number in range(20):
        monitor.update_batch(8, loss=2.0 / (number + 1))
        if number == 14:
            monitor.checkpoint_saved()
        time.sleep(0.002)
    if how == "raise":
        raise LookupError("a message that may hold a secret")
    if how != "finish":
        monitor.mark("backward")
        print("ready", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def run_dir():
    """Give a run directory in memory, where the last step is published at once."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@contextmanager
def training(directory, how="hang", run="bert", *, rank=0, world_size=1, attempt=0, step=0):
    """Train in a process of its own, until it ended or hangs in the backward pass."""
    arguments = (how, run, directory, rank, world_size, attempt, step)
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "exporter")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        process.stdout.readline() if how == "hang" else process.wait(30)
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_zombie(process):
    """Wait until a child is dead, and leave it uncollected."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def ask(capsys, directory, *arguments):
    """Run the command here; give its exit code and its output."""
    code = main(["postmortem", "--run-dir", str(directory), *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return code, out


def ask_json(capsys, directory, *arguments):
    """Run the command here; give its exit code and its document."""
    code, out = ask(capsys, directory, "--json", *arguments)
    return code, json.loads(out, parse_constant=pytest.fail)


def normalise(text):
    """Replace what differs from one real run to the next: times, durations, processes."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+", "DATE", text)
    text = re.sub(r"\d\d:\d\d:\d\d", "HH:MM:SS", text)
    text = re.sub(r"\b(\d+\.\d|\d+)m?s\b", "TIME", text)
    text = re.sub(r"(?<=pid )\d+|(?<=process )\d+", "PID", text)
    return re.sub(r"(?<=\S) +", " ", text)


EXPECTED_SCREEN = """\
PLACEHOLDER
"""


class RunFile:
    """A run file with made-up contents, all of whose times are around noon.

    Args:
        directory: The run directory.
        name: The file's name.
        words: Words of both records by name; `live` and `live_phase` besides.
    """

    def __init__(self, directory, name="run.tv", *, identity=None, last_words="", names=(), **words):
        identity = identity or describe()
        live, live_phase = words.pop("live", 0.0), words.pop("live_phase", Phase.FORWARD)
        data = bytearray(16384)
        data[:4096] = encode_header(identity)
        ending = encode_last_words(last_words) if last_words else b""
        data[3840 : 3840 + len(ending)] = ending
        for number, each in enumerate(names):
            data[4096 + 64 * number : 4160 + 64 * number] = encode_name(*each)
        words = {"state": 0.0, "names": float(len(names)), **words}
        _pack(data, 8192 + 1024, STEP, EMPTY_STEP, words)
        _pack(data, 10240 + 3072, STATE, EMPTY_STATE, words)
        if live:
            struct.pack_into("<dd", data, 16368, NOON_MONO + live, live_phase)
        self.data = data
        self.path = directory / name
        directory.mkdir(exist_ok=True)
        self.path.write_bytes(data)

    def note(self, reason, *, after=0.0, signal_=None, evidence="It was seen.", machine=None):
        """Add the exporter's note on the end."""
        ending = Ending(reason, None, signal_, None, NOON + after, evidence, machine or {"load": 1.0})
        write_ending(self.path, ending)
        return self


def describe(run="bert", rank=0, **members):
    """Give an identity; its file was made at noon."""
    static = {"framework": "torch", "framework_version": "2.13.0", "hostname": "box"}
    return Identity(
        run,
        rank=rank,
        pid=4711,
        start_ticks=5,
        boot_id=BOOT,
        pid_namespace=7,
        created_time=NOON + members.pop("created", 0.0),
        created_mono_ns=int(NOON_MONO * 1e9),
        static={**static, "script": "train.py"},
        **members,
    )


def _pack(data, at, index, empty, words):
    """Write record number 1, which is in slot B."""
    row = list(empty)
    for name, value in words.items():
        if name in index:
            row[index[name]] = value
    after = words.get("written", 0.0)
    row[3] = NOON + after
    body = struct.pack("<3Q", 1, len(row), int((NOON_MONO + after) * 1e9))
    body += struct.pack(f"<{len(row) - 3}d", *row[3:])
    data[at : at + len(body) + 8] = body + struct.pack("<Q", zlib.crc32(body))


def find(directory, *, after=3600.0):
    """Read a directory of made-up run files, an hour after noon, on a machine with no processes."""
    host = Host(BOOT, 7, procfs=directory / "no-proc", cgroupfs=directory / "no-cgroups")
    return read_findings(
        directory,
        host=host,
        clock=lambda: NOON + after,
        monotonic_ns=lambda: int((NOON_MONO + after) * 1e9),
    )


def show(directory, name=None, **options):
    """Give the screen for made-up run files."""
    findings = find(directory)
    return format_screen(findings, choose_run(findings, name), width=80, zone=ZONE, **options)


# Real processes.


def test_a_run_that_finished_is_fine(run_dir, capsys):
    """Its exit code is 0, and it says at which step it was."""
    with training(run_dir, "finish"):
        code, out = ask(capsys, run_dir)
    assert code == 0
    assert normalise(out).startswith("Run bert finished at DATE, TIME ago\n")
    assert "The run said that it finished." in out
    assert re.search(r"step +20 of 100 \(20 %\), epoch 0\n", out)
    assert "What to do next" not in out


def test_the_class_of_an_exception_is_told_and_its_message_is_not(run_dir, capsys):
    """The message may hold what nobody else shall read."""
    with training(run_dir, "raise"):
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 1
    assert normalise(out).startswith("Run bert failed with LookupError at DATE, TIME ago\n")
    assert "secret" not in out
    assert document["reason"] == "exception"
    assert document["ranks"][0]["exception"] == "LookupError"
    assert document["ranks"][0]["events"][-1]["event"] == "fail"


def test_a_run_that_was_killed_while_the_exporter_watched(run_dir, capsys):
    """What the exporter noted is told: the signal, and what the machine looked like."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15):
        pytest.skip("needs Linux 6.15, which tells how a process ended after it was collected")
    source = TrainingSource(TrainingOptions(run_dir))
    with training(run_dir) as process:
        source.read(time.monotonic() + 5)
        process.kill()
        process.wait()
        source.read(time.monotonic() + 5)
        source.close()
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 1
    (rank,) = document["ranks"]
    assert (rank["reason"], rank["signal"], rank["exit_code"]) == ("signal", 9, None)
    assert rank["is_end_seen"]
    assert (rank["phase"], rank["step"], rank["last_checkpoint_step"]) == ("backward", 20, 15)
    assert rank["machine"]["memory_total_bytes"] > rank["machine"]["memory_available_bytes"] > 0
    assert normalise(out).startswith("Run bert was killed by signal 9 (SIGKILL) at DATE, TIME ago\n")
    assert "to resume from it loses 5 steps" in re.sub(r"\s+", " ", out)
    assert f"dmesg -T | grep -i 'killed process {process.pid}'" in out
    assert "of memory available" in out


def test_the_whole_screen_of_a_run_that_nobody_saw_die(run_dir, capsys):
    """Without the exporter nothing tells what killed it, and it says so."""
    with training(run_dir) as process:
        process.kill()
        process.wait()
        code, out = ask(capsys, run_dir)
    assert code == 1
    evidence = "The process is gone; neither the run nor the kernel says how it ended."
    told = normalise(out)
    assert told.startswith("Run bert died, and nobody saw how; last heard of at DATE")
    assert "\n  RANK ENDED BY AT STEP LOSS PHASE FOR\n     0 unknown HH:MM:SS? 20 0.1 backward ?\n" in told
    assert evidence.split("; ")[1][:30] in told
    assert "machine not known: no exporter saw the end\n" in told
    assert "checkpoint at HH:MM:SS, step 15, TIME before it was last heard of;" in told
    assert "Keep `trainvitals serve` running" in told


def test_a_process_that_nobody_collected_still_tells_its_signal(run_dir, capsys):
    """A dead child of a launcher that hangs says how it ended, without any exporter."""
    with training(run_dir) as process:
        process.send_signal(signal.SIGSEGV)
        wait_for_zombie(process)
        code, out = ask(capsys, run_dir)
    assert code == 1
    assert "was killed by signal 11 (SIGSEGV)" in out.partition("\n\n")[0].replace("\n", " ")
    assert "python -X faulthandler" in out


def test_a_run_that_goes_on_is_fine(run_dir, capsys):
    """A living run is no problem, and its phase is the one it is in now."""
    with training(run_dir):
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 0
    assert out.startswith("Run bert is running, 1 rank here\n")
    assert re.search(r"^ +0  \(running\) +- +20 +0\.1  backward ", out, re.MULTILINE)
    assert (document["reason"], document["ended"], document["ranks_alive"]) == ("running", None, 1)
    assert document["ranks"][0]["phase"] == "backward"


def test_a_stopped_process_is_named(run_dir, capsys):
    """SIGSTOP is no death: the run is live, and the screen says how to let it go on."""
    with training(run_dir) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 0
    assert out.startswith("Run bert is running, 1 rank here; 1 stopped\n")
    assert f"`kill -CONT {process.pid}`" in out
    assert document["ranks"][0]["stall"] == "stopped"


def test_a_restart_tells_what_was_lost(run_dir, capsys):
    """The second attempt began at step 15, so five of the first one's 20 steps were in vain."""
    with training(run_dir, world_size=2) as first:
        first.kill()
        wait_for_zombie(first)
        with training(run_dir, world_size=2, attempt=1, step=15):
            code, out = ask(capsys, run_dir)
            _, document = ask_json(capsys, run_dir)
    assert code == 0
    assert out.startswith("Run bert is running, 1 rank here; attempt 0 ended badly before\n")
    assert re.search(r"^> +0 +0  SIGKILL .*\n +0 +1  \(running\) ", out, re.MULTILINE)
    assert "Rank 0 of attempt 0\n" in out
    assert re.search(r"restarts +1; 5 steps were done in vain", out)
    assert (document["restarts"], document["lost_steps"]) == (1, 5.0)
    assert document["telling"] == {"rank": 0, "attempt": 0}
    assert [rank["attempt"] for rank in document["ranks"]] == [0, 1]


def test_a_dead_rank_among_living_ones_is_the_problem(run_dir, capsys):
    """The run has ended badly for the one, whatever the others still do."""
    with training(run_dir, rank=0, world_size=2), training(run_dir, rank=1, world_size=2) as dead:
        dead.kill()
        wait_for_zombie(dead)
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 1
    head = normalise(out.replace("\n", " "))
    assert head.startswith(
        "Run bert: rank 1 was killed by signal 9 (SIGKILL); last heard of at DATE; 1 rank still here, TIME ago"
    )
    assert re.search(r"^ +0  \(running\) .*\n> +1  SIGKILL ", out, re.MULTILINE)
    assert (document["reason"], document["ranks_alive"], document["world_size"]) == ("signal", 1, 2)


def test_a_terminal_of_ascii_alone_gets_question_marks(run_dir):
    """A run's name in other letters does not end the command with a traceback."""
    with training(run_dir, "finish", "größe"):
        answer = subprocess.run(
            [sys.executable, "-m", "trainvitals", "postmortem", "--run-dir", run_dir],
            env={**os.environ, "PYTHONPATH": str(ROOT / "exporter"), "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert answer.stdout.startswith(b"Run gr??e finished at ")


# What is told of made-up run files.


def test_the_screen_of_two_ranks(tmp_path):
    """Every part of it, to the letter."""
    RunFile(
        tmp_path,
        "zero.tv",
        identity=describe(rank=0, world_size=8, attempt=1),
        last_words="torch.distributed.DistBackendError",
        written=131.0,
        state=float(State.FAILED),
        state_time=NOON + 131,
        steps=640.0,
        global_step=1640.0,
        loss=2.25,
        live=130.0,
        live_phase=Phase.BACKWARD,
    )
    RunFile(
        tmp_path,
        "one.tv",
        identity=describe(rank=1, world_size=8, attempt=1),
        names=[("val_iou", "validation")],
        written=10.0,
        steps=640.0,
        global_step=1640.0,
        total_steps=5000.0,
        epoch=3.0,
        total_epochs=10.0,
        loss=math.nan,
        loss_ema=2.5,
        learning_rate=0.0001,
        validation_loss=2.75,
        best_evaluation=2.5,
        evaluations_since_improvement=2.0,
        metric_0=0.5,
        nonfinite_losses=3.0,
        last_nonfinite_time=NOON + 9,
        data_errors=1.0,
        step_seconds=0.25,
        slowest_step_seconds=0.5,
        total_data_wait=30.0,
        total_backward=70.0,
        last_progress_time=NOON + 10,
        memory_allocated_bytes=10.0 * 2**30,
        memory_peak_bytes=71.5 * 2**30,
        memory_ooms=1.0,
        checkpoints=2.0,
        last_checkpoint_time=NOON - 110,
        event_time_0=NOON - 110,
        event_code_0=4.0,
        event_value_0=1600.0,
        event_time_1=NOON + 9,
        event_code_1=5.0,
        event_value_1=0.0,
        event_time_2=NOON + 9.5,
        event_code_2=9.0,
        event_value_2=1.0,
        live=10.0,
        live_phase=Phase.DATA_WAIT,
    ).note(
        "signal",
        after=130.0,
        signal_=9,
        evidence="The kernel says that signal 9 (SIGKILL) killed its process.",
        machine={
            "memory_available_bytes": 0.5 * 2**30,
            "memory_total_bytes": 64.0 * 2**30,
            "gpu1_utilization_ratio": 0.04,
            "gpu1_memory_used_bytes": 72.0 * 2**30,
            "gpu1_temperature_celsius": 41.0,
            "gpu1_power_watts": 96.0,
        },
    )
    (tmp_path / "junk.tv").write_bytes(b"junk")
    print(show(tmp_path))
    assert show(tmp_path) == EXPECTED_SCREEN.format(directory=tmp_path)
