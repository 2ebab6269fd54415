"""What is new in the engine's own log."""

import os
import stat
import time

import pytest

from trainvitals.record.enginelog import JournalTail, LogTail, find_engine_log


@pytest.fixture
def path(tmp_path):
    """A log with one line."""
    path = tmp_path / "var/log/docker.log"
    path.parent.mkdir(parents=True)
    path.write_text("old\n", encoding="utf-8")
    return path


def add(path, text):
    """Write on."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_only_what_comes_is_told(path):
    """Lines that were there before are not, and half a line is not before its end comes."""
    log = LogTail(path)
    assert log.read() == b""
    add(path, "one\ntwo\nthr")
    assert log.read() == b"one\ntwo"
    add(path, "ee\n")
    assert log.read() == b"three"
    assert log.read() == b""
    log.close()


def test_a_new_file_is_read_from_its_start(path):
    """After a rotation, and after a file was emptied, nothing is missed."""
    log = LogTail(path)
    path.rename(path.with_suffix(".1"))
    assert log.read() is None
    path.write_text("new\n", encoding="utf-8")
    assert log.read() == b"new"
    add(path, "more\n")
    assert log.read() == b"more"
    path.write_text("a\n", encoding="utf-8")
    assert log.read() == b"a"


def test_a_flood_is_cut(path):
    """At most a MiB is read at a time, the newest."""
    log = LogTail(path)
    add(path, 300_000 * "line\n" + "last\n")
    read = log.read()
    assert len(read) <= 1 << 20
    assert read.endswith(b"\nlast")


def test_the_log_file_is_found(path, tmp_path):
    """A log file goes before the journal, and below another root directory there is no journal."""
    assert isinstance(find_engine_log(tmp_path), LogTail)
    path.unlink()
    assert find_engine_log(tmp_path, find=lambda _: "/bin/true") is None


@pytest.fixture
def journalctl(tmp_path):
    """A program that takes the place of journalctl: it tells lines that are put into a file."""
    said = tmp_path / "said"
    said.write_text("", encoding="utf-8")
    program = tmp_path / "journalctl"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nexec tail -n 0 -f {said}\n',
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def wait_for_line(log):
    """Read until something comes."""
    until = time.monotonic() + 10
    while not (data := log.read()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return data


def test_the_journal_is_followed(journalctl, tmp_path):
    """The journal's lines about the engine come as they are written, and its program ends with us."""
    log = JournalTail(str(journalctl))
    arguments = tmp_path / "arguments"
    until = time.monotonic() + 10
    while not arguments.exists() or not _follows(log._process.pid):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert log.read() == b""
    add(tmp_path / "said", "one\n")
    assert wait_for_line(log) == b"one"
    assert "--follow --lines=0" in arguments.read_text(encoding="utf-8")
    pid = log._process.pid
    log.close()
    log.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _follows(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:  # noqa: PTH123 - the kernel's
        is_tail = file.read() == "tail\n"
    return is_tail and any(
        os.readlink(f"/proc/{pid}/fd/{name}").endswith("/said")  # noqa: PTH115
        for name in os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    )


def test_a_journal_that_ends_is_begun_again(tmp_path):
    """A program that ends at once is no error and costs no more than a start each time."""
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    log = JournalTail(str(program))
    until = time.monotonic() + 10
    while log.read() is not None:
        assert time.monotonic() < until
        time.sleep(0.02)
    log.close()


def test_a_journal_that_is_not_there_is_unreadable(tmp_path):
    """Then nothing is known of the engine's log."""
    log = JournalTail(str(tmp_path / "nothing"))
    assert log.read() is None
    log.close()
