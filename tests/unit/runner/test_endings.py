"""Tests for the notes that `trainvitals run` writes about ended ranks, and of their diagnosis."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from tests.support.run_files import decode
from tests.support.waiting import wait_until
from tests.unit.sources.runs.trainer import kernel_tells_exits
from trainvitals.cli import main
from trainvitals.runfile import STATE, State
from trainvitals.runner.supervision import describe_signal_end
from trainvitals.sources.runs.endings import read_ending
from trainvitals.sources.runs.launches import Launch

RUN = (sys.executable, "-m", "trainvitals", "run")
BODY = """
import os, signal, sys, threading, time, trainvitals
monitor = trainvitals.TrainingMonitor("r")
for _ in range(3): monitor.update_batch(4)
"""
ENDINGS = {
    "success": ("pass", 0, ("finished", 0, None, None)),
    "an exit code": ("sys.exit(3)", 3, ("exception", 3, None, None)),
    "an exit with a text": ("sys.exit('x')", 1, ("exception", 1, None, None)),
    "an exception": ("raise ValueError('mine')", 1, ("exception", 1, None, "ValueError")),
    "an exception of a thread": (
        "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()",
        0,
        ("finished", 0, None, None),
    ),
    "an immediate exit": ("os._exit(5)", 5, ("exception", 5, None, None)),
    "SIGTERM": ("os.kill(os.getpid(), 15)", -15, ("signal", None, 15, None)),
    "SIGKILL": ("os.kill(os.getpid(), 9)", -9, ("signal", None, 9, None)),
    "SIGSEGV": ("os.kill(os.getpid(), 11)", -11, ("signal", None, 11, None)),
}
RANKS = """
import multiprocessing, sys, trainvitals
def train(rank):
    monitor = trainvitals.TrainingMonitor("ranks", rank=rank, world_size=2)
    monitor.update_batch(4)
    if rank == 1:
        raise ValueError("the text of rank 1")
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    ranks = [context.Process(target=train, args=(rank,)) for rank in range(2)]
    for rank in ranks: rank.start()
    for rank in ranks: rank.join()
    sys.exit(any(rank.exitcode for rank in ranks))
"""


@pytest.fixture
def place(tmp_path):
    """Return a directory for programs and for the run directory."""
    return tmp_path


def write(place, text):
    """Write a program and return the command that runs it."""
    (place / "train.py").write_text(text)
    return sys.executable, "train.py"


def launch(place, *command, options=()):
    """Run a command below `trainvitals run` and return the completed process."""
    return subprocess.run(
        (*RUN, "--run-dir", "runs", *options, "--", *command),
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
    )


def read_endings(place):
    """Return how each rank ended, in the order of the names of the run files."""
    paths = sorted((place / "runs").glob("*.tv"))
    notes = [read_ending(path) for path in paths]
    assert all(notes)
    return [(note.reason, note.exit_code, note.signal, note.exception) for note in notes]


def diagnose(place, *name):
    """Return the output of `trainvitals diagnose --json`, run in this process."""
    output = io.StringIO()
    runs = f"--run-dir={place / 'runs'}"
    with contextlib.redirect_stdout(output):
        main(["diagnose", "--json", runs, "--engine=none", *name])
    return json.loads(output.getvalue())


@pytest.mark.parametrize("kind", ENDINGS)
def test_each_ending_is_noted(place, kind):
    """The end of a rank that is the command itself is recorded as the kernel reports it."""
    end, code, expected = ENDINGS[kind]
    done = launch(place, *write(place, f"{BODY}\n{end}\n"))
    assert done.returncode == code
    assert read_endings(place) == [expected]
    assert "1 process, which reported run r" in done.stderr


@pytest.mark.parametrize(("head", "name"), [(BODY, "r"), ("import os", "early")])
@pytest.mark.parametrize("below", [False, True], ids=["the command", "below a shell"])
def test_an_oom_kill_is_named_where_the_kernel_log_has_it(place, head, name, below):
    """A SIGKILL is diagnosed as an OOM kill if the kernel log contains one."""
    end = "time.sleep(1.5); print(os.getpid(), flush=True); os.kill(os.getpid(), 9)"
    text = f"{head}\nimport time; {end}\n"
    command = write(place, text)
    shell = ("sh", "-c", f"{' '.join(command)}; exit $?")
    done = launch(place, *(shell if below else command), options=("--name", name))
    kernel = OOM.format(time=time.strftime("%a %b %d %H:%M:%S %Y"), pid=int(done.stdout))
    assert done.returncode == (137 if below else -signal.SIGKILL)
    known = "signal 9 (SIGKILL) ended the command; its sender is unknown"
    assert (known in done.stderr) == (not below)
    assert diagnose(place, name)["reason"].startswith("kill-outside")
    (place / "kernel.txt").write_text(kernel)
    found = diagnose(place, name, f"--kernel-log={place / 'kernel.txt'}")
    assert found["reason"].startswith("oom"), found


def test_the_kernel_s_own_kill_is_said_at_the_end(tmp_path):
    """The summary names the OOM killer if the kernel log has it; else the sender is unknown."""
    now = time.time()
    kmsg = tmp_path / "kmsg"
    lines = OOM.format(time="", pid=71).replace("[] ", "").splitlines()
    micros = int(time.monotonic() * 1e6)
    kmsg.write_text("".join(f"4,{at},{micros},-;{line}\n" for at, line in enumerate(lines)))
    launch_ = Launch(None, (), now - 5, now, None, signal.SIGKILL)
    said = "; signal 9 (SIGKILL) ended the command"
    assert describe_signal_end(launch_, 71, kmsg) == f"{said}, sent by the kernel's OOM killer"
    for pid, path in ((72, kmsg), (71, tmp_path / "missing")):
        assert describe_signal_end(launch_, pid, path) == f"{said}; its sender is unknown"
    assert describe_signal_end(replace(launch_, signal=None), 71, kmsg) == ""
    assert describe_signal_end(replace(launch_, signal=15), 71, kmsg).endswith("ended the command")


def test_an_interrupt_is_the_exception_of_its_rank(place):
    """A rank that Ctrl-C ends has the signal SIGINT and a KeyboardInterrupt."""
    command = write(place, f"{BODY}\nos.kill(os.getpid(), signal.SIGINT); time.sleep(5)\n")
    assert launch(place, *command).returncode == -signal.SIGINT
    assert read_endings(place) == [("exception", None, 2, "KeyboardInterrupt")]


def test_a_rank_below_a_shell_is_killed(place):
    """The signal that kills a rank below a shell is recorded."""
    command = write(place, f"{BODY}\ntime.sleep(1.5)\nos.kill(os.getpid(), 9)\n")
    done = launch(place, "sh", "-c", f"{' '.join(command)}; exit 4")
    assert done.returncode == 4
    if kernel_tells_exits():  # older kernels report the exit only until the shell has waited
        assert read_endings(place) == [("signal", None, 9, None)]


def test_an_orphan_is_reaped(place):
    """The exit code of an orphaned rank, whose parent has ended, is recorded."""
    command = write(place, f"{BODY}\ntime.sleep(1)\nos._exit(6)\n")
    script = f"({' '.join(command)} &) ; sleep 4"
    assert launch(place, "sh", "-c", script).returncode == 0
    assert read_endings(place) == [("exception", 6, None, None)]


# In the format of `dmesg -T`.
OOM = (
    "[{time}] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
    "[{time}] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
    "global_oom,task_memcg=/user.slice,task=python3,pid={pid},uid=0\n"
    "[{time}] Out of memory: Killed process {pid} (python3) total-vm:9000000kB, anon-rss:8000000kB,"
    " file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:900kB oom_score_adj:0\n"
)
THREAD = """
def work():
    raise LookupError("no shard")
thread = threading.Thread(target=work); thread.start(); thread.join()
"""
PLACE = "`LookupError: no shard`, raised at "


@pytest.mark.parametrize(("head", "name"), [(BODY, "r"), ("import threading", "early")])
def test_the_exception_of_a_thread_is_mentioned(place, head, name):
    """The diagnosis of a successful process mentions the exception of a thread."""
    done = launch(place, *write(place, f"{head}\n{THREAD}\n"), options=("--name", name))
    assert done.returncode == 0
    assert done.stderr.count("LookupError: no shard") == 1
    found = diagnose(place, name)
    assert found["reason"] == "finished"
    assert [PLACE in sentence for sentence in found["speaks_against"]] == [True]


def test_the_exception_of_a_thread_is_known_while_its_process_hangs(place):
    """The exception of a thread is reported while its process still hangs."""
    body = f"{BODY}\n{THREAD}\nopen('ready', 'w').close()\nthreading.Event().wait()\n"
    launcher = subprocess.Popen(
        (*RUN, "--run-dir", "runs", "--name", "r", "--", *write(place, body)),
        cwd=place,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((place / "ready").exists)
        wait_until(lambda: PLACE in json.dumps(diagnose(place, "r")))
    finally:
        launcher.terminate()
        launcher.wait()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_exception_of_a_rank_of_multiprocessing_is_known(place, method):
    """An exception in a process of multiprocessing is recorded."""
    done = launch(place, *write(place, RANKS), method, options=("--name", "ranks"))
    assert done.returncode == 1
    assert "the text of rank 1" in done.stderr
    records = [decode(path.read_bytes()) for path in sorted((place / "runs").glob("*.tv"))]
    states = [(record.state[STATE["state"]], record.last_words) for record in records]
    assert states == [(State.FINISHED, ""), (State.FAILED, "ValueError")]
    found = diagnose(place, "ranks")
    assert "ValueError: the text of rank 1" in json.dumps(found)


def test_a_process_that_replaces_itself_has_several_lives(place):
    """A process that calls exec has several run files, the last with the exit code."""
    again = "if n: os.execv(sys.executable, [sys.executable, __file__, str(n - 1)])"
    text = f"{BODY}\nn = int(sys.argv[1])\n{again}\nsys.exit(3)\n"
    done = launch(place, *write(place, text), "2")
    assert done.returncode == 3
    assert "1 process, which reported run r" in done.stderr
    paths = sorted((place / "runs").glob("*.tv"))
    notes = [note for path in paths if (note := read_ending(path))]
    assert len(paths) == 3
    assert [note.exit_code for note in notes] == [3]


def test_a_command_that_fails_before_it_trains_is_diagnosed_by_its_name(place):
    """A named command that fails before training is diagnosed with its exit code and reason."""
    done = launch(place, *write(place, "import no_such_module\n"), options=("--name", "early"))
    assert done.returncode == 1
    found = diagnose(place, "early")
    assert (found["reason"], found["exit_code"]) == ("missing-module", 1)
    assert diagnose(place)["name"] == "early"  # the last death on this machine
    [note] = (place / "runs").glob("*.launch")
    assert note.stat().st_mode & 0o777 == 0o600


def test_the_log_is_evidence_of_the_death(place):
    """An error in the log of `--log` determines the diagnosis of a rank that a signal ended."""
    text = f"{BODY}\nprint('CUDA error: an illegal memory access was encountered', flush=True)\n"
    command = write(place, f"{text}\nos.abort()\n")
    assert launch(place, *command, options=("--log", "out.log")).returncode == -signal.SIGABRT
    found = diagnose(place, "r")
    assert found["reason"] == "cuda-illegal"
    assert "illegal memory access" in json.dumps(found)


def test_nothing_false_is_said_of_a_launcher_that_was_killed(place):
    """If `trainvitals run` is killed, its command continues and is diagnosed as running."""
    text = f"{BODY}\nopen('ready', 'w').close()\ntime.sleep(600)\n"
    launcher = subprocess.Popen(
        (*RUN, "--run-dir", "runs", "--name", "r", "--", *write(place, text)),
        cwd=place,
        stderr=subprocess.DEVNULL,
    )
    [rank] = wait_until(
        lambda: (place / "ready").exists() and psutil.Process(launcher.pid).children()
    )
    try:
        launcher.kill()
        launcher.wait()
        assert list((place / "runs").glob("*.end")) == []
        assert diagnose(place, "r")["reason"] == "running"
    finally:
        os.kill(rank.pid, signal.SIGKILL)


def test_a_full_run_directory_is_no_obstacle(place):
    """A full run directory does not affect the command."""
    inside = ("unshare", "--mount")
    if subprocess.run((*inside, "true"), capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a mount namespace")
    (place / "runs").mkdir()
    command = " ".join((*RUN, "--run-dir", "runs", "--name", "r", "--", *write(place, BODY)))
    script = (
        "mount -t tmpfs -o size=8k none runs; dd if=/dev/zero of=runs/full bs=8k count=1 2>/dev/null; "
        f"{command}; echo $?; ls runs"
    )
    done = subprocess.run(
        (*inside, "sh", "-c", script), capture_output=True, text=True, check=True, cwd=place
    )
    assert done.stdout == "0\nfull\n"
    assert "which did not prove to train" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_left_of_a_command_that_neither_trains_nor_has_a_name(place):
    """A command without a name that does not train leaves no run directory and no file."""
    assert launch(place, "true").returncode == 0
    assert list(place.iterdir()) == []
