"""Tests for `trainvitals postmortem`, which reports how a run ended and why."""

import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import time
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.run_files import (
    BOOT,
    NOON,
    NOON_MONO,
    RunFile,
    describe,
    find,
    run_dir,
    training,
    wait_for_zombie,
)
from trainvitals.cli import main
from trainvitals.errors import ConfigurationError
from trainvitals.runfile import (
    STATE,
    STEP,
    Phase,
    State,
)
from trainvitals.sources.runs.endings import Ending, write_ending
from trainvitals.sources.runs.history import choose_run, read_run_history
from trainvitals.sources.runs.liveness import Host
from trainvitals.sources.runs.past_runs import REASONS, find_first
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource
from trainvitals.verdicts.causes.diagnosis import Postmortem
from trainvitals.views.death.run_document import format_json
from trainvitals.views.death.run_screen import format_screen

__all__ = ["run_dir"]

ROOT = Path(__file__).parents[3]
ZONE = timezone(timedelta(hours=1), "CET")
NO_FLOATS = ("sequence", "used", "mono_ns", "names")


def ask(capsys, directory, *arguments):
    """Run the command in this process; return its exit code and its output."""
    code = main(["postmortem", "--run-dir", str(directory), *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return code, out


def ask_json(capsys, directory, *arguments):
    """Run the command in this process; return its exit code and its JSON document."""
    code, out = ask(capsys, directory, "--json", *arguments)
    return code, json.loads(out, parse_constant=pytest.fail)


def normalise(text):
    """Replace the parts that differ between real runs: times, durations and process IDs."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+", "DATE", text)
    text = re.sub(r"\d\d:\d\d:\d\d", "HH:MM:SS", text)
    text = re.sub(r"\b(\d+\.\d|\d+)m?s\b", "TIME", text)
    text = re.sub(r"(?<=pid )\d+|(?<=process )\d+", "PID", text)
    return re.sub(r"(?<=\S) +", " ", text)


EXPECTED_SCREEN = """\
Run bert: rank 1 was killed by signal 9 (SIGKILL) at 2023-11-15 13:02:10 CET,
57m 50s ago
SIGKILL ended the run; its sender is unknown, and there is no evidence of an OOM
kill.
Verdict: kill-outside, confidence medium.

Evidence
  - Signal 9 (SIGKILL) ended it.
  - The kernel says that signal 9 (SIGKILL) killed its process.
  - The run file shows no progress for 2m before the end.
  - By its run file it was waiting for data: check the storage and the loader's
    workers.
  - The host had only 512 MiB of memory available, so an OOM kill is likely.

Evidence against it
  - The kernel log could not be read, so an OOM kill cannot be ruled out.

What to do
  1. Check the scheduler:
       sacct -j JOB --format=State,ExitCode,MaxRSS
       kubectl describe pod
  2. Check for user-space OOM killers:
       journalctl -u earlyoom -u systemd-oomd --since -1h
  3. Check for an OOM kill:
       sudo dmesg -T | grep -i 'killed process 4711'
  4. Check the other machines too: 6 ranks left no run file on this one.

What could not be read
  - its output: what it wrote went to a terminal or file that is not known here.
    Run it in a container or by `trainvitals run --log FILE`, or look at the end
    of the file that its launcher wrote.

Contributing causes
  - nan-loss (low): Training had diverged: losses were NaN or infinite. Resume
    from a checkpoint before the first NaN.

  RANK  TRY  ENDED BY                AT  STEP  LOSS  PHASE      FOR
     0    1  DistBackendError  13:02:11  1640  2.25  backward    1s
>    1    1  SIGKILL           13:02:10  1640   NaN  data_wait   2m

Rank 1 of attempt 1, the first to fail
  evidence    The kernel says that signal 9 (SIGKILL) killed its process.
  step        1640 of 5000 (33%), epoch 3 of 10, last progress 2m before the end
  loss        NaN, mean 2.5, validation 2.75, learning rate 0.0001, best
              evaluation 2.5, 2 evaluations ago
  values      val_iou 0.5
  trouble     3 losses NaN or infinite, 1 exception in the data loader, the last
              NaN or infinity at 13:00:09
  speed       250ms a step (slowest lately 500ms)
  time        backward 70%, data_wait 30%
  memory      accelerator: allocated 10.0 GiB, peak 71.5 GiB, out of memory once
  machine     512 MiB of 64.0 GiB of memory available; gpu1 4% busy, 72.0 GiB
              used, 41 °C, 96 W
  checkpoint  at 12:58:10, step 1600, 4m before the end; resuming from it loses
              40 steps
  process     train.py, torch 2.13.0, pid 4711, on box, one of 8 ranks, started
              13:00:00

Last events
  12:58:10  checkpoint at step 1600
  13:00:09  NaN or infinite value
  13:00:09  alert memory_pressure"""


def show(directory, name=None, **options):
    """Return the screen text for made-up run files."""
    history = find(directory)
    postmortem = Postmortem(history, choose_run(history, name))
    return format_screen(postmortem, width=80, zone=ZONE, **options)


# Tests with real processes.


def test_a_run_that_finished_is_fine(run_dir, capsys):
    """For a finished run, the command exits with 0 and names the last step."""
    with training(run_dir, "finish"):
        code, out = ask(capsys, run_dir)
    assert code == 0
    assert normalise(out).startswith("Run bert finished at DATE, TIME ago\n")
    assert "The run said that it finished." in out
    assert re.search(r"step +20 of 100 \(20%\), epoch 0\n", out)
    assert "What to do next" not in out


def test_the_class_of_an_exception_is_told_and_its_message_is_not(run_dir, capsys):
    """The report has an exception's class but not its message, which may contain a secret."""
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
    """The report includes the exporter's note: the signal and the state of the machine."""
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
    assert (rank["reason"], rank["ending"], rank["signal"]) == ("kill-outside", "signal", 9)
    assert rank["is_end_seen"]
    assert (rank["phase"], rank["step"], rank["last_checkpoint_step"]) == ("backward", 20, 15)
    assert rank["machine"]["memory_total_bytes"] > rank["machine"]["memory_available_bytes"] > 0
    assert normalise(out).startswith(
        "Run bert was killed by signal 9 (SIGKILL) at DATE, TIME ago\n"
    )
    assert "resuming from it loses 5 steps" in re.sub(r"\s+", " ", out)
    assert "sacct -j JOB --format=State,ExitCode,MaxRSS" in out
    assert "of memory available" in out


def test_the_whole_screen_of_a_run_that_nobody_saw_die(run_dir, capsys):
    """If no exporter observed the end of a killed run, the reason is reported as unknown."""
    with training(run_dir) as process:
        process.kill()
        process.wait()
        code, out = ask(capsys, run_dir)
    assert code == 1
    told = normalise(out)
    assert told.startswith("Run bert died for an unknown reason; last record at DATE")
    assert (
        "\n  RANK ENDED BY AT STEP LOSS PHASE FOR\n     0 unknown HH:MM:SS? 20 0.1 backward -\n"
        in told
    )
    assert "evidence Its process is gone; neither the run nor the kernel says how it\n" in told
    assert "machine unknown: no exporter observed the end\n" in told
    assert "checkpoint at HH:MM:SS, step 15, TIME before its last record;" in told
    assert "Keep `trainvitals serve` running" in told


def test_a_process_that_nobody_collected_still_tells_its_signal(run_dir, capsys):
    """For a zombie process, the signal is reported even without the exporter."""
    with training(run_dir) as process:
        process.send_signal(signal.SIGSEGV)
        wait_for_zombie(process)
        code, out = ask(capsys, run_dir)
    assert code == 1
    assert "was killed by signal 11 (SIGSEGV)" in out.partition("\n\n")[0].replace("\n", " ")
    assert "python -X faulthandler" in out


def test_a_run_that_goes_on_is_fine(run_dir, capsys):
    """For a running run, the command exits with 0 and reports the current phase."""
    with training(run_dir):
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 0
    assert out.startswith("Run bert is running, 1 rank here\n")
    assert re.search(r"^ +0  \(running\) +- +20 +0\.1  backward ", out, re.MULTILINE)
    assert (document["reason"], document["ended"], document["ranks_alive"]) == ("running", None, 1)
    assert document["ranks"][0]["phase"] == "backward"


def test_a_stopped_process_is_named(run_dir, capsys):
    """A run stopped by SIGSTOP counts as running, and the report shows how to continue it."""
    with training(run_dir) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 0
    assert out.startswith("Run bert is running, 1 rank here; 1 stopped\n")
    assert f"kill -CONT {process.pid}\n" in out
    assert document["ranks"][0]["stall"] == "stopped"


def test_a_restart_tells_what_was_lost(run_dir, capsys):
    """If a second attempt resumes at step 15 of 20, the report counts five lost steps."""
    with training(run_dir, world_size=2) as first:
        first.kill()
        wait_for_zombie(first)
        with training(run_dir, world_size=2, attempt=1, step=15):
            code, out = ask(capsys, run_dir)
            _, document = ask_json(capsys, run_dir)
    assert code == 0
    assert out.startswith("Run bert is running, 1 rank here; attempt 0 failed before\n")
    assert re.search(r"^> +0 +0  SIGKILL .*\n +0 +1  \(running\) ", out, re.MULTILINE)
    assert "Rank 0 of attempt 0\n" in out
    assert re.search(r"restarts +1; 5 steps were lost", out)
    assert (document["restarts"], document["lost_steps"]) == (1, 5.0)
    assert document["telling"] == {"rank": 0, "attempt": 0}
    assert [rank["attempt"] for rank in document["ranks"]] == [0, 1]


def test_a_dead_rank_among_living_ones_is_the_problem(run_dir, capsys):
    """If one rank was killed, the run has failed even if another rank is still running."""
    with training(run_dir, rank=0, world_size=2), training(run_dir, rank=1, world_size=2) as dead:
        dead.kill()
        wait_for_zombie(dead)
        code, out = ask(capsys, run_dir)
        _, document = ask_json(capsys, run_dir)
    assert code == 1
    head = normalise(out.replace("\n", " "))
    assert head.startswith(
        "Run bert: rank 1 was killed by signal 9 (SIGKILL); last record at DATE; 1 rank still running here, TIME ago"
    )
    assert re.search(r"^ +0  \(running\) .*\n> +1  SIGKILL ", out, re.MULTILINE)
    assert (document["reason"], document["ranks_alive"], document["world_size"]) == (
        "kill-outside",
        1,
        2,
    )


def test_a_terminal_of_ascii_alone_gets_question_marks(run_dir):
    """If the output encoding is ASCII, other letters of a run's name become question marks."""
    with training(run_dir, "finish", "größe"):
        answer = subprocess.run(
            [sys.executable, "-m", "trainvitals", "postmortem", "--run-dir", run_dir],
            env={**os.environ, "PYTHONPATH": str(ROOT / "exporter"), "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert answer.stdout.startswith(b"Run gr??e finished at ")


# Tests with made-up run files.


def test_the_screen_of_two_ranks(tmp_path):
    """The screen for two ranks with all kinds of data equals the expected text exactly."""
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
    assert show(tmp_path) == EXPECTED_SCREEN


def test_the_document_of_a_run(tmp_path):
    """The JSON document has the documented members, NaN as text, and times in UTC."""
    RunFile(
        tmp_path, loss=math.nan, gradient_norm=math.inf, global_step=7.0, steps=7.0,
        last_checkpoint_time=NOON + 0.25, written=1.0, live=1.0, names=[("iou", "validation")],
        metric_0=-math.inf, event_time_0=NOON + 0.5, event_code_0=6.0, event_value_0=math.nan,
    ).note("oom", after=2.5, signal_=9, machine={"memory_total_bytes": 1024.0})  # fmt: skip
    history = find(tmp_path)
    document = json.loads(
        format_json(Postmortem(history, history.runs[0])), parse_constant=pytest.fail
    )
    assert list(document) == [
        "format", "run", "ending", "outcome", "ended", "reason", "confidence", "summary",
        "speaks_for", "speaks_against", "steps", "contributing", "gaps",
        "world_size", "ranks_alive", "restarts",
        "lost_steps", "lost_seconds", "telling", "meaning", "next", "ranks", "other_runs",
        "left_aside", "omitted", "disbelieved",
    ]  # fmt: skip
    assert document["format"] == 1
    assert (document["reason"], document["ending"]) == ("oom-cgroup", "oom")
    assert document["ended"] == "2023-11-15T12:00:02.500Z"
    assert document["outcome"] == (
        "bert: was killed because memory ran out at 2023-11-15 12:00:02 UTC"
    )
    assert document["summary"] == "The kernel killed the run because it reached its memory limit."
    assert document["meaning"] == [document["summary"], *document["speaks_for"]]
    assert document["next"] == document["steps"]
    (rank,) = document["ranks"]
    record = rank.pop("record")
    assert rank == {
        "rank": 0,
        "local_rank": None,
        "attempt": 0,
        "reason": "oom-cgroup",
        "ending": "oom",
        "exit_code": None,
        "signal": 9,
        "exception": None,
        "evidence": "It was seen.",
        "started": "2023-11-15T12:00:00.000Z",
        "ended": "2023-11-15T12:00:02.500Z",
        "is_end_seen": True,
        "host_pid": 4711,
        "stall": None,
        "phase": "forward",
        "phase_seconds": pytest.approx(1.5, abs=1e-4),
        "progress_age_seconds": pytest.approx(1.5, abs=1e-4),
        "step": 7,
        "loss": "NaN",
        "last_checkpoint": "2023-11-15T12:00:00.250Z",
        "last_checkpoint_step": None,
        "events": [{"time": "2023-11-15T12:00:00.500Z", "event": "loss_spike", "value": "NaN"}],
        "machine": {"memory_total_bytes": 1024.0},
        "description": {
            "framework": "torch",
            "framework_version": "2.13.0",
            "hostname": "box",
            "script": "train.py",
        },
        "metrics": [{"name": "iou", "split": "validation", "value": "-Infinity"}],
    }
    assert record == {
        "wall_time": NOON + 1,
        "global_step": 7.0,
        "steps": 7.0,
        "loss": "NaN",
        "gradient_norm": "Infinity",
        "state": 0.0,
        "last_checkpoint_time": NOON + 0.25,
    }


def test_the_run_that_ended_last_is_told_of(tmp_path):
    """Without a name, the run that ended last is reported and the other runs are listed."""
    for run, after in (("first", 10.0), ("last", 30.0), ("middle", 20.0)):
        RunFile(tmp_path, f"{run}.tv", identity=describe(run)).note("finished", after=after)
    screen = show(tmp_path)
    assert screen.startswith("Run last finished at 2023-11-15 13:00:30 CET, 59m 30s ago\n")
    assert screen.endswith(
        "\n\nOther runs here\n"
        "  middle: finished at 2023-11-15 13:00:20 CET\n"
        "  first: finished at 2023-11-15 13:00:10 CET"
    )
    assert "first" not in show(tmp_path, "middle", names_others=False)


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
MALLORY = 54321


@root_only
@pytest.mark.parametrize("comes_first", [True, False])
def test_no_other_user_says_how_a_run_ended(tmp_path, comes_first):
    """A run with the same name by another user is a separate run, whatever its attempt number."""

    def forge():
        forged = RunFile(
            tmp_path,
            "x.tv",
            identity=describe(attempt=1000, created=-900.0 if comes_first else 900.0),
            state=State.FINISHED,
            state_time=NOON + 1000.0,
        )
        os.chown(forged.path, MALLORY, -1)

    if comes_first:
        forge()
    RunFile(tmp_path, "run.tv", state=State.FAILED, state_time=NOON + 90.0, last_words="KeyError")
    if not comes_first:
        forge()
    history = find(tmp_path)
    assert {run.name for run in history.runs} == {"bert", f"bert (uid {MALLORY})"}
    run = choose_run(history, "bert")
    assert (run.reason, len(run.starts), run.starts[0].attempt) == ("exception", 1, 0)


@pytest.mark.parametrize("told", [NOON + 3640.0, 3_900_000_000.0, 1e300])
def test_an_end_that_is_yet_to_come_is_not_believed(tmp_path, told):
    """A run file with an end time in the future does not become the run that ended last."""
    forged = RunFile(
        tmp_path, "x.tv", identity=describe("forged"), state=State.FINISHED, state_time=told
    )
    os.utime(forged.path, (NOON + 5, NOON + 5))
    RunFile(tmp_path, identity=describe("mine"), state=State.FAILED, state_time=NOON + 90.0)
    history = find(tmp_path)
    assert [run.name for run in history.runs] == ["mine", "forged"]
    assert all(run.ended_time <= history.time for run in history.runs)


@root_only
def test_only_runs_of_the_users_that_count_are_read(tmp_path, monkeypatch, capsys):
    """Every command ignores run files of users whom TRAINVITALS_RUN_DIR_USERS does not list."""
    os.chown(RunFile(tmp_path, identity=describe("theirs")).path, MALLORY, -1)
    RunFile(tmp_path, "mine.tv", identity=describe("mine"))
    monkeypatch.setenv("TRAINVITALS_RUN_DIR_USERS", "root")
    where = f"--run-dir={tmp_path}"
    main(["postmortem", where, "theirs"])
    assert "there is mine" in capsys.readouterr().err
    main(["diagnose", where, "--engine=none", "theirs"])
    assert "no container, run or file 'theirs'" in capsys.readouterr().err
    main(["profile", where, "theirs"])
    assert "theirs" not in capsys.readouterr().err.replace("'theirs'", "")
    main(["top", where, "--json"])
    assert "theirs" not in capsys.readouterr().out


def test_a_run_is_chosen_by_the_beginning_of_its_name(tmp_path):
    """A run is found by a unique prefix; an exact name has priority, and ambiguity is an error."""
    for run in ("bert", "bert-large", "resnet"):
        RunFile(tmp_path, f"{run}.tv", identity=describe(run)).note("finished")
    history = find(tmp_path)
    assert choose_run(history, "res").name == "resnet"
    assert choose_run(history, "bert").name == "bert"
    assert choose_run(history, "bert-").name == "bert-large"
    with pytest.raises(ConfigurationError, match=r"^'be' may be bert, bert-large; write more$"):
        choose_run(history, "be")
    with pytest.raises(ConfigurationError, match=r"^no run 'gpt' in .*; there is bert, "):
        choose_run(history, "gpt")


@pytest.mark.parametrize("directory", ["", "missing"])
def test_no_run_at_all_is_an_error_of_one_line(tmp_path, capsys, directory):
    """An empty or a missing directory is an error of one line with exit code 2."""
    assert main(["postmortem", "--run-dir", str(tmp_path / directory)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"trainvitals: no training run has left a file in .*; give the --run-dir .*\n", err
    )


def test_a_directory_that_is_none_is_an_error_of_one_line(tmp_path, capsys):
    """A symbolic link as the run directory is refused, because any user may have created it."""
    (tmp_path / "link").symlink_to(tmp_path)
    assert main(["postmortem", "--run-dir", str(tmp_path / "link")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_files_that_are_no_run_files_are_left_aside(tmp_path):
    """Invalid files, links and FIFOs are ignored and counted."""
    RunFile(tmp_path).note("finished")
    (tmp_path / "random.tv").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "empty.tv").touch()
    (tmp_path / "link.tv").symlink_to("run.tv")
    os.mkfifo(tmp_path / "fifo.tv")
    assert find(tmp_path).incompatible == 4
    told = show(tmp_path).replace("\n", " ")
    assert f"Ignored: 4 files in {tmp_path}, unreadable" in told


def test_with_nothing_but_foreign_files_it_says_that_they_are_there(tmp_path, capsys):
    """If the directory has only invalid files, the error states their number."""
    (tmp_path / "random.tv").write_bytes(b"junk")
    assert main(["postmortem", "--run-dir", str(tmp_path)]) == 2
    assert "(1 other files were left aside)" in capsys.readouterr().err


def test_a_note_that_makes_no_sense_is_not_believed(tmp_path):
    """An invalid note about the end of a run is ignored, and the screen says so."""
    run_file = RunFile(tmp_path)
    run_file.path.with_name("run.tv.end").write_text('{"format": 1, "reason": "murder"}')
    assert find(tmp_path).runs[0].reason == "unknown"
    assert "Ignored: 1 note of another user on how a rank ended" in show(tmp_path)


def test_hostile_texts_cannot_steer_the_terminal(tmp_path):
    """Control characters, line feeds and lone surrogates in a run's texts are replaced."""
    name = "a\x1b[2Jb\nc\u202ed\ud800e"
    identity = describe(name, created=0.0)
    identity.static.update(hostname="\x1b]0;owned\x07", script="\x9b31m")
    RunFile(
        tmp_path,
        identity=identity,
        last_words="\x1b[31mBad",
        state=2.0,
        state_time=NOON,
        names=[("\x1b", "")],
    )
    history = find(tmp_path)
    screen = format_screen(Postmortem(history, history.runs[0]), width=80)
    assert screen.startswith("Run a_[2Jb_c_d_e failed with ?[31mBad at ")
    assert all(letter.isprintable() or letter == "\n" for letter in screen)
    assert "\\u001b" not in format_json(Postmortem(history, history.runs[0]))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.dictionaries(
        st.sampled_from([name for name in (*STEP, *STATE) if name not in NO_FLOATS]), st.floats()
    ),
    mono_ns=st.integers(0, 2**64 - 1),
    live=st.floats(),
    attempt=st.integers(-(2**31), 2**31 - 1),
    created=st.floats(),
)
def test_any_numbers_make_a_screen_and_a_document(tmp_path, words, mono_ns, live, attempt, created):
    """Any numbers in a valid run file yield a screen of 80 columns and valid JSON."""
    identity = describe(attempt=attempt, world_size=attempt, created=created)
    run_file = RunFile(tmp_path, identity=identity, mono_ns=mono_ns, **words)
    struct.pack_into("<d", run_file.data, 16256, live)
    run_file.path.write_bytes(run_file.data)
    history = find(tmp_path)
    (run,) = history.runs
    assert run.reason in REASONS
    json.loads(format_json(Postmortem(history, run)), parse_constant=pytest.fail)
    for line in format_screen(Postmortem(history, run), width=80, zone=ZONE).splitlines():
        assert len(line) <= 80


def test_a_hundred_ranks_fit_a_screen(tmp_path):
    """The table of 100 ranks shows the failed rank among twelve rows and counts the others."""
    for rank in range(100):
        run_file = RunFile(tmp_path, f"{rank}.tv", identity=describe(rank=rank, world_size=100))
        run_file.note("signal" if rank == 77 else "finished", signal_=11 if rank == 77 else None)
    screen = show(tmp_path)
    table = next(part for part in screen.split("\n\n") if "RANK" in part).splitlines()
    assert len(table) == 14
    assert table[-2].split()[:3] == [">", "77", "SIGSEGV"]
    assert table[-1] == "  and 88 more: 88 finished"
    assert len(screen.splitlines()) <= 45


def test_a_run_that_was_started_again_by_hand_counts_up(tmp_path):
    """Several run files of attempt 0 are numbered as attempts by their time of creation."""
    for number in range(3):
        identity = describe(created=100.0 * number)
        RunFile(tmp_path, f"{number}.tv", identity=identity).note("unknown", after=100.0 * number)
    (run,) = find(tmp_path).runs
    assert [start.attempt for start in run.starts] == [0, 1, 2]
    assert [start.attempt for start in run.current] == [2]


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ({0: ("exception", None, 0), 1: ("signal", 9, 12)}, 1),
        ({0: ("exception", None, 0), 1: ("signal", 9, 31)}, 0),
        ({0: ("exception", None, 1), 1: ("signal", 15, 0)}, 0),
        ({0: ("unknown", None, 0), 1: ("exception", None, 2)}, 1),
        ({0: ("signal", 6, 3), 1: ("oom", 9, 5)}, 1),
        ({0: ("finished", None, 0), 1: ("signal", 15, 9)}, 1),
        ({0: ("exception", None, 2), 1: ("exception", None, 1)}, 1),
    ],
)
def test_the_first_to_end_badly_is_the_one_that_began_it(tmp_path, ends, first):
    """Of ends close together, a kernel's signal counts first and a launcher's SIGTERM last."""
    for rank, (reason, number, after) in ends.items():
        run_file = RunFile(tmp_path, f"{rank}.tv", identity=describe(rank=rank))
        run_file.note(reason, signal_=number, after=after)
    (run,) = find(tmp_path).runs
    assert run.telling.rank == first
    assert find_first(run.starts) is run.telling


def test_a_run_that_stands_still_says_where_to_look(tmp_path):
    """A live run without progress is reported with its limit and a py-spy command."""
    process = tmp_path / "proc/4711"
    process.mkdir(parents=True)
    columns = ["S", *["0"] * 18, "5", *["0"] * 30]
    (process / "stat").write_text(f"4711 (python) {' '.join(columns)}")
    identity = describe()
    RunFile(tmp_path / "runs", identity=identity, steps=100.0, slowest_step_seconds=1.0, live=1.0)
    history = read_run_history(
        tmp_path / "runs",
        host=Host(BOOT, 7, procfs=tmp_path / "proc", cgroupfs=tmp_path),
        clock=lambda: NOON + 301,
        monotonic_ns=lambda: int((NOON_MONO + 301) * 1e9),
    )
    screen = format_screen(Postmortem(history, history.runs[0]), width=80, zone=ZONE)
    assert screen.startswith("Run bert is running, 1 rank here; 1 without progress\n")
    assert "(no progress)" in screen
    assert "The run has made no progress for 5m." in screen
    assert "learned from the run's own steps, is 1m." in screen
    assert "py-spy dump --pid 4711" in screen


def test_an_exit_code_is_told(tmp_path):
    """A run that ended with a nonzero exit code is reported as failed with this code."""
    run_file = RunFile(tmp_path)
    write_ending(run_file.path, Ending("exception", 3, None, None, NOON, "It was seen."))
    screen = show(tmp_path)
    assert screen.startswith("Run bert failed with exit code 3; last record at 2023-11-15")
    assert re.search(r"^ +0  exit code 3 ", screen, re.MULTILINE)


# Comparison of the verdicts of `postmortem` and `diagnose`.

DEATHS = {
    "oom": {"note": {"reason": "oom", "signal_": 9}},
    "killed": {"note": {"reason": "signal", "signal_": 9}, "live_phase": Phase.CHECKPOINT},
    "segfault": {"note": {"reason": "signal", "signal_": 11}, "loss": math.nan, "steps": 10.0},
    "asked": {"note": {"reason": "signal", "signal_": 15}},
    "hung up": {"note": {"reason": "signal", "signal_": 1}},
    "unseen": {"note": {"reason": "unknown"}},
    "finished": {"note": {"reason": "finished"}},
    "out of memory": {"last_words": "torch.OutOfMemoryError", "state": 2.0, "state_time": NOON},
    "collective": {"last_words": "torch.distributed.DistBackendError", "state": 2.0},
}


@pytest.mark.parametrize(
    ("death", "reason"),
    [
        ("oom", "oom-cgroup"),
        ("killed", "kill-outside"),
        ("segfault", "segfault"),
        ("asked", "term-outside"),
        ("hung up", "hangup"),
        ("unseen", "unknown"),
        ("finished", "finished"),
        ("out of memory", "cuda-oom"),
        ("collective", "exception"),
    ],
)
def test_both_commands_give_one_verdict(tmp_path, capsys, monkeypatch, death, reason):
    """The commands `postmortem` and `diagnose` report the same verdict for the same death."""
    words = dict(DEATHS[death])
    note = words.pop("note", None)
    run_file = RunFile(tmp_path, live=1.0, **words)
    if note is not None:
        run_file.note(**note, after=60.0)
    monkeypatch.setenv("TRAINVITALS_JOURNAL_DIR", str(tmp_path / "journal"))
    monkeypatch.setenv("COLUMNS", "100")
    code, document = ask_json(capsys, tmp_path, "bert")
    text = ask(capsys, tmp_path, "bert")[1]
    diagnose = ["diagnose", "bert", "--engine=none", f"--run-dir={tmp_path}"]
    assert main([*diagnose, "--json"]) == code
    other = json.loads(capsys.readouterr().out)
    main(diagnose)
    other_text = capsys.readouterr().out
    same = ("reason", "confidence", "summary", "speaks_for", "speaks_against", "steps", "gaps")
    assert document["reason"] == document["ranks"][0]["reason"] == reason
    assert {key: document[key] for key in same} == {key: other[key] for key in same}
    assert document["contributing"] == other["contributing"]
    # Only the common parts are compared, without headings and sections about the run or machine.
    verdict = {
        part
        for part in text.split("\n\n")
        if part.startswith(("Evidence", "What ", "Contributing"))
    }
    assert verdict
    assert verdict <= set(other_text.split("\n\n"))
