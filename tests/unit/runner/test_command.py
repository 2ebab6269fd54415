"""The command beside `trainvitals run`: its streams, its signals and its end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.runner.command import end_alike, run_command
from trainvitals.runner.coverage import Coverage

RUN = (sys.executable, "-m", "trainvitals", "run", "--quiet", "--")


def run(*command, **options):
    """Run a command below `trainvitals run`."""
    return subprocess.run((*RUN, *command), capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_that_of_the_command(code):
    """And its streams are its own."""
    done = run("sh", "-c", f"cat; echo two >&2; exit {code}", input="one")
    assert (done.returncode, done.stdout, done.stderr) == (code, "one", "two\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_ends_both(number):
    """As a shell or a supervisor sees it."""
    assert run("sh", "-c", f"kill -{int(number)} $$").returncode == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_this_process_alone_reaches_the_command(tmp_path, number):
    """It may save a checkpoint and end as it likes."""
    name = number.name.removeprefix("SIG")
    ready = tmp_path / "ready"
    script = f"trap 'echo got; exit 5' {name}; touch {ready}; while :; do sleep 0.05; done"
    # The tests may run below nohup, and no shell traps a signal that it inherits as ignored.
    heeding = f"import os, signal; signal.signal({int(number)}, signal.SIG_DFL); os.execv({RUN[0]!r}, {[*RUN, 'sh', '-c', script]!r})"
    process = subprocess.Popen(
        (sys.executable, "-c", heeding), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 30
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        said, _ = process.communicate(timeout=30)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, said) == (5, "got\n")


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    """As SIGHUP is below nohup, for the command as well."""
    script = "import os, signal; os.kill(os.getppid(), signal.SIGHUP); print(signal.getsignal(1))"
    ignoring = "import os, signal; signal.signal(1, signal.SIG_IGN); os.execv({!r}, {!r})"
    command = ignoring.format(RUN[0], [*RUN, sys.executable, "-c", script])
    done = subprocess.run(
        (sys.executable, "-c", command), capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{signal.Handlers.SIG_IGN!s}\n"


def test_the_command_is_not_deaf_to_an_interrupt():
    """An ignored signal would be inherited."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert run(sys.executable, "-c", code).stdout == "True\n"


def test_a_missing_program_is_refused_in_one_line():
    """With exit code 2."""
    done = run("/no/such/program")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "trainvitals: cannot start /no/such/program: No such file or directory\n"
    with pytest.raises(ConfigurationError):
        run_command(("/no/such/program",), os.environ)
    nothing = subprocess.run(RUN, capture_output=True, text=True, check=False)
    assert nothing.returncode == 2
    assert "trainvitals run -- python train.py" in nothing.stderr


def test_an_exit_code_stays_as_it_is():
    """Only a signal is repeated."""
    assert end_alike(7) == 7


def test_the_last_line_counts_processes(tmp_path):
    """None of them trains."""
    coverage = Coverage()
    code = run_command(("sh", "-c", "sleep 1 & sleep 1.2"), os.environ, look=coverage.look)
    assert code == 0
    assert coverage.describe(tmp_path) == "3 processes, none of which proved to train"
