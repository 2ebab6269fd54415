"""Tests for the streams, the signals and the exit code of a command below `trainvitals run`."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from tests.support.terminal import Terminal
from tests.support.waiting import wait_until
from trainvitals.errors import ConfigurationError
from trainvitals.runner.command import end_alike, run_command

RUN = (sys.executable, "-m", "trainvitals", "run", "--quiet", "--")


def run(*command, **options):
    """Run a command below `trainvitals run` and return the completed process."""
    return subprocess.run((*RUN, *command), capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_that_of_the_command(code):
    """The exit code and the streams are those of the command."""
    done = run("sh", "-c", f"cat; echo two >&2; exit {code}", input="one")
    assert (done.returncode, done.stdout, done.stderr) == (code, "one", "two\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_ends_both(number):
    """If a signal ends the command, the same signal ends `trainvitals run`."""
    assert run("sh", "-c", f"kill -{int(number)} $$").returncode == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_this_process_alone_reaches_the_command(tmp_path, number):
    """A signal to `trainvitals run` is passed on to the command, which may handle it."""
    name = number.name.removeprefix("SIG")
    ready = tmp_path / "ready"
    script = f"trap 'echo got; exit 5' {name}; touch {ready}; while :; do sleep 0.05; done"
    # The tests may run below nohup, and a shell cannot trap a signal that it inherits as ignored.
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


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_stays_ignored(number):
    """A signal that is ignored at the start, as SIGHUP below nohup, is ignored by the command."""
    script = f"import os, signal; os.kill(os.getppid(), {int(number)}); print(signal.getsignal({int(number)}))"
    ignoring = "import os, signal; signal.signal({}, signal.SIG_IGN); os.execv({!r}, {!r})"
    command = ignoring.format(int(number), RUN[0], [*RUN, sys.executable, "-c", script])
    done = subprocess.run(
        (sys.executable, "-c", command), capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{signal.Handlers.SIG_IGN!s}\n"


def test_the_command_is_not_deaf_to_an_interrupt():
    """The command does not inherit an ignored SIGINT from `trainvitals run`."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert run(sys.executable, "-c", code).stdout == "True\n"


def test_a_missing_program_is_refused_in_one_line():
    """A missing program or an empty command is refused with exit code 2."""
    done = run("/no/such/program")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "trainvitals: cannot start /no/such/program: No such file or directory\n"
    with pytest.raises(ConfigurationError):
        run_command(("/no/such/program",), os.environ)
    nothing = subprocess.run(RUN, capture_output=True, text=True, check=False)
    assert nothing.returncode == 2
    assert "trainvitals run -- python train.py" in nothing.stderr


def test_an_exit_code_stays_as_it_is():
    """`end_alike` returns an exit code unchanged."""
    assert end_alike(7) == 7


def test_the_last_line_counts_processes():
    """The summary counts the processes, including orphans, and says that none of them trained."""
    done = subprocess.run(
        (*RUN[:-2], "--", "sh", "-c", "(sleep 3 &); sleep 3; exit 0"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "trainvitals: 3 processes, none of which proved to train\n"


def test_a_signal_during_the_start_is_not_lost():
    """A signal that arrives before the command is started ends the command."""
    code = (
        "import os, signal\n"
        "from trainvitals.runner import command\n"
        "spawn = os.posix_spawnp\n"
        "def slow(*args, **options):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return spawn(*args, **options)\n"
        "os.posix_spawnp = slow\n"
        "print(command.run_command(('sleep', '600'), os.environ))\n"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert done.stdout == "-15\n"


def test_an_interrupt_to_this_process_alone_reaches_the_command(tmp_path):
    """The command receives an interrupt once, from the terminal or sent to `trainvitals run`."""
    (tmp_path / "counter.py").write_text(
        "import signal, time\n"
        "got = []\n"
        "signal.signal(signal.SIGINT, lambda *_: got.append(1))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(1)\n"
        "print('got', len(got), flush=True)\n"
    )
    for is_typed in (True, False):
        with Terminal((*RUN, sys.executable, "counter.py"), cwd=tmp_path) as terminal:
            terminal.expect("ready")
            if is_typed:
                terminal.type("\x03")
            else:
                os.kill(find_launcher(terminal.process.pid), signal.SIGINT)
            terminal.expect("got 1")
            assert terminal.wait() == 0


def find_launcher(pid):
    """Return the PID of `trainvitals run`, which is the given process or a descendant."""
    first = psutil.Process(pid)
    processes = [first, *first.children(recursive=True)]
    return next(
        each.pid
        for each in processes
        if each.name().startswith("python") and "trainvitals" in each.cmdline()
    )


def test_open_descriptors_are_inherited():
    """The command inherits open file descriptors, as needed for `make -j` and `<(command)`."""
    inner, outer = os.pipe()
    done = run("bash", "-c", f"echo mine >&{outer}", pass_fds=(outer,))
    os.close(outer)
    with os.fdopen(inner) as pipe:
        assert (done.returncode, pipe.read()) == (0, "mine\n")


def test_an_empty_input_is_empty():
    """With `< /dev/null`, the command reads an empty standard input."""
    done = run(
        sys.executable, "-c", "import sys; print(sys.stdin.read() == '')", stdin=subprocess.DEVNULL
    )
    assert done.stdout == "True\n"


def test_nohup_is_as_without_it(tmp_path):
    """Below nohup in a terminal, the output is in a file and SIGHUP is ignored."""
    code = "import signal; print(signal.getsignal(signal.SIGHUP))"
    with Terminal(("nohup", *RUN, sys.executable, "-c", code), cwd=tmp_path) as terminal:
        assert terminal.wait() == 0
    said = (tmp_path / "nohup.out").read_text()
    assert said == f"{signal.Handlers.SIG_IGN!s}\n"


@pytest.mark.parametrize(("number", "code"), [(9, 137), (11, 139), (15, 143)])
def test_a_shell_sees_the_signal(number, code):
    """A shell reports a signal as exit code 128 plus the number of the signal."""
    command = f"{' '.join(RUN)} sh -c 'kill -{number} $$'; echo $?"
    done = subprocess.run(("bash", "-c", command), capture_output=True, text=True, check=True)
    assert done.stdout == f"{code}\n"


def test_the_first_process_of_a_container_forwards_and_ends(tmp_path):
    """As PID 1, `trainvitals run` forwards signals and returns the exit code."""
    inside = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run((*inside, "true"), capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a PID namespace")
    killed = subprocess.run((*inside, *RUN, "sh", "-c", "kill -9 $$"), check=False)
    assert killed.returncode == 137
    ready = tmp_path / "ready"
    script = f"trap 'exit 5' TERM; touch {ready}; while :; do sleep 0.05; done"
    process = subprocess.Popen((*inside, *RUN, "sh", "-c", script))
    wait_until(ready.exists)
    os.kill(find_launcher(process.pid), signal.SIGTERM)
    assert process.wait(60) == 5


def test_what_continues_is_left_alone():
    """`trainvitals run` ends with the command, and a daemon of the command continues to run."""
    done = run("sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!")
    daemon = int(done.stdout)
    try:
        assert psutil.Process(daemon).status() in {"sleeping", "running", "idle"}
    finally:
        os.kill(daemon, signal.SIGKILL)
