"""Tests for the output of a command below `trainvitals run`, with and without `--log`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal

RUN = (sys.executable, "-m", "trainvitals", "run", "--quiet")
LOG = ("--log", "run.log")
# Colours, a progress bar, tabs, a prompt, and the size of the terminal.
PROGRAM = """
import os, sys
print(*(os.isatty(number) for number in range(3)), os.get_terminal_size(), flush=True)
for number in range(30):
    print(f"\\r\\x1b[32m{number:3d}\\x1b[0m\\t|{'#' * number}", end="", file=sys.stderr, flush=True)
print(flush=True)
name = input("name? ")
print("hello", name)
sys.exit(3)
"""
WAITER = """
import os, signal, sys, time
signal.signal(signal.SIGWINCH, lambda *_: print("now", *os.get_terminal_size(), flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory with the programs."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "waiter.py").write_text(WAITER)
    return tmp_path


def converse(place, *prefix):
    """Run the program in a terminal, answer its prompt, and return its exit code and output."""
    with Terminal((*prefix, sys.executable, "program.py"), cwd=place, columns=100) as terminal:
        terminal.expect("name")
        terminal.type("ada\n")
        return terminal.wait(), terminal.output


def test_a_terminal_shows_the_same_bytes(place):
    """A terminal shows the same bytes with and without `trainvitals run`."""
    code, plain = converse(place)
    assert code == 3
    assert b"True True True os.terminal_size(columns=100, lines=24)" in plain
    assert converse(place, *RUN, "--") == (code, plain)
    assert converse(place, *RUN, *LOG, "--") == (code, plain)
    typed = b"name? hello ada\n"
    assert (place / "run.log").read_bytes().endswith(typed)
    assert (place / "run.log").read_bytes().count(b"\x1b[32m") == 30


@pytest.mark.parametrize("log", [(), LOG])
def test_the_width_follows_the_terminal(place, log):
    """The command receives changes of the size of the terminal."""
    with Terminal((*RUN, *log, "--", sys.executable, "waiter.py"), cwd=place) as terminal:
        terminal.expect("ready")
        terminal.resize(40, 133)
        terminal.expect("now 133 40")
        terminal.type("\x03")
        terminal.expect("KeyboardInterrupt")
        assert terminal.wait() != 0


@pytest.mark.parametrize("log", [(), LOG])
def test_the_debugger_takes_commands(place, log):
    """The debugger of Python reads commands from the terminal."""
    (place / "debugged.py").write_text("x = 7\nbreakpoint()\nprint('went on')\n")
    with Terminal((*RUN, *log, "--", sys.executable, "debugged.py"), cwd=place) as terminal:
        end = terminal.expect(r"\(Pdb\) ")
        terminal.type("p x + 1\n")
        end = terminal.expect(r"\n8\r\n", since=end)
        terminal.type("c\n")
        terminal.expect("went on", since=end)
        assert terminal.wait() == 0


@pytest.mark.parametrize("log", [(), LOG])
def test_a_job_is_stopped_and_brought_back(place, log):
    """Ctrl-Z stops the command, and `fg` continues it."""
    program = "import time\nfor n in range(10 ** 6): print('n', n, flush=True); time.sleep(0.05)\n"
    (place / "counter.py").write_text(program)
    shell = ("bash", "--norc", "--noprofile", "-i")
    with Terminal(shell, cwd=place) as terminal:
        command = " ".join((*RUN, *log, "--", sys.executable, "counter.py"))
        terminal.type(f"{command}\n")
        end = terminal.expect("n 3\r\n")
        terminal.type("\x1a")
        end = terminal.expect("Stopped", since=end)
        terminal.type("fg\n")
        end = terminal.expect(r"n \d+\r\nn \d+\r\n", since=end)
        terminal.type("\x03")
        end = terminal.expect(r"KeyboardInterrupt\r\n\r\n.*\$ ", since=end)
        terminal.type("echo code $?\n")
        terminal.expect("code 130", since=end)


def test_pipes_have_the_same_bytes_and_the_log_has_both_in_order(tmp_path):
    """Pipes receive the same bytes as without `trainvitals run`."""
    program = (
        "import os\n"
        "for n in range(3): os.write(1, b'\\x00\\xff%d\\n' % n); os.write(2, b'e%d\\r' % n)\n"
    )
    plain = subprocess.run((sys.executable, "-c", program), capture_output=True, check=True)
    for log in ((), LOG):
        done = subprocess.run(
            (*RUN, *log, "--", sys.executable, "-c", program),
            capture_output=True,
            check=True,
            cwd=tmp_path,
        )
        assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    merged = subprocess.run(
        (*RUN, *LOG, "--", sys.executable, "-c", program),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        cwd=tmp_path,
    )
    expected = b"".join(b"\x00\xff%d\ne%d\r" % (n, n) for n in range(3))
    assert merged.stdout == expected
    assert (tmp_path / "run.log").read_bytes().endswith(expected)  # appended to the first log


def test_the_whole_output_arrives_and_a_process_that_continues_holds_nothing_up(tmp_path):
    """The complete output is passed on, and a remaining daemon does not delay the end."""
    program = (
        "import subprocess, sys\n"
        "subprocess.Popen(['sleep', '600'])\n"
        "sys.stdout.write('x' * (1 << 20)); sys.stdout.flush()\n"
    )
    process = subprocess.Popen(
        (*RUN, *LOG, "--", sys.executable, "-c", program),
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        said = process.stdout.read(1 << 20)
        assert process.wait(30) == 0
    finally:
        os.killpg(process.pid, 9)
        process.stdout.close()
    assert said == b"x" * (1 << 20)
    assert (tmp_path / "run.log").read_bytes() == said


def test_a_reader_that_leaves_ends_the_command(tmp_path):
    """If the reader of a pipe exits, the next write ends the command, as without a log."""
    command = " ".join((*RUN, *LOG, "--", "yes"))
    done = subprocess.run(
        ("bash", "-c", f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["y", "141"]


def test_a_full_disk_costs_the_log_only(tmp_path):
    """If the log cannot be written, the command continues and one line says so."""
    done = subprocess.run(
        (*RUN, "--log", "/dev/full", "--", "sh", "-c", "echo one; sleep 0.2; echo two"),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == "one\ntwo\n"
    assert done.stderr == (
        "trainvitals: cannot write /dev/full: No space left on device; the command goes on\n"
    )


def test_a_log_that_cannot_be_made_is_refused(tmp_path):
    """A log that cannot be created is refused before the command starts."""
    done = subprocess.run(
        (*RUN, "--log", "no/such/dir", "--", "touch", "started"),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "--log no/such/dir: No such file or directory" in done.stderr
