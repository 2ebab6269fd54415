"""Tests for reading an engine's log around a given time, and of following its new lines."""

import os
import stat

import pytest

from tests.support.waiting import wait_until
from trainvitals.sources.host.engine_log import (
    JournalTail,
    LogTail,
    find_engine_log,
    parse_engine_log,
    read_engine_log,
)
from trainvitals.sources.host.kernel_lines import DatedLine

# 2026-11-21 22:00:07.500 UTC
WHEN = 1_795_298_407.5
RECORDED = """\
time="2026-11-21T22:00:06.100000000Z" level=info msg="ignoring event" container=4f1e0c5ad1f0
time="2026-11-21T22:00:07.500000000Z" level=warning msg="cleaning up after shim disconnected" id=4f
time="2026-11-21T22:00:07.500000000Z" level=info msg="Container failed to exit within 2s of signal 15 - using the force" container=4f
Nov 21 22:00:08 gpu dockerd[77]: time="2026-11-21T23:00:07.5+01:00" level=error msg="password=geheim1234"
2026-11-21T22:00:07.5+0000 gpu dockerd[77]: fatal error: all goroutines are asleep
2026-11-21T22:00:08.5+0000 gpu dockerd[77]: goroutine 1 [chan receive]:
"""


def test_only_what_tells_of_trouble_is_kept():
    """Warnings, errors and forced stops are kept, and routine messages are not.

    Secrets are masked.
    """
    assert parse_engine_log(RECORDED) == (
        DatedLine(
            WHEN,
            'info: msg="Container failed to exit within 2s of signal 15 - using the force" container=4f',
        ),
        DatedLine(WHEN, 'error: msg="password=***"'),
        DatedLine(
            WHEN,
            "2026-11-21T22:00:07.5+0000 gpu dockerd[77]: fatal error: all goroutines are asleep",
        ),
    )


def test_the_log_file_is_read_where_there_is_one(tmp_path):
    """The file `/var/log/docker.log` takes precedence over the journal."""
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / "var/log/docker.log").write_text(RECORDED)
    lines, gap = read_engine_log(WHEN, rootfs=tmp_path)
    assert (len(lines), gap) == (3, None)


def test_neither_journal_nor_file_is_a_gap(tmp_path):
    """If neither a journal nor a log file exists, the gap names both."""
    lines, gap = read_engine_log(WHEN, rootfs=tmp_path)
    assert lines == ()
    assert (gap.what, gap.why) == (
        "the engine's log",
        "there is no journal here, and no /var/log/docker.log",
    )


def write_program(path, text):
    """Write an executable shell script, and return a function that returns its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return lambda _: str(path)


@pytest.mark.skipif(os.path.exists("/var/log/docker.log"), reason="has a log file of its own")  # noqa: PTH110 - a decorator
def test_the_journal_is_asked_around_the_time(tmp_path):
    """The journal is queried for the engine's units, from a minute before to a minute after.

    If `journalctl` fails, its error message is the reason of the gap.
    """
    find = write_program(
        tmp_path / "a", f"echo \"$@\" >{tmp_path}/asked; cat <<'END'\n{RECORDED}END"
    )
    lines, gap = read_engine_log(WHEN, find=find)
    assert (len(lines), gap) == (3, None)
    asked = (tmp_path / "asked").read_text()
    assert "--unit=docker" in asked
    assert "--since=@1795298348 --until=@1795298468" in asked
    find = write_program(tmp_path / "b", "echo 'No journal files were found.' >&2; exit 1")
    lines, gap = read_engine_log(WHEN, find=find)
    assert (lines, gap.why) == ((), "No journal files were found.")
    assert "group systemd-journal" in gap.remedy


@pytest.fixture
def path(tmp_path):
    """The path of a log with one line."""
    path = tmp_path / "var/log/docker.log"
    path.parent.mkdir(parents=True)
    path.write_text("old\n", encoding="utf-8")
    return path


def add(path, text):
    """Append text to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_only_what_comes_is_told(path):
    """Only new lines are returned, and an unfinished line only after its end has been written."""
    log = LogTail(path)
    assert log.read() == b""
    add(path, "one\ntwo\nthr")
    assert log.read() == b"one\ntwo"
    add(path, "ee\n")
    assert log.read() == b"three"
    assert log.read() == b""
    log.close()


def test_a_new_file_is_read_from_its_start(path):
    """After a rotation or a truncation, the log is read from its start."""
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
    """At most the newest MiB of new text is returned by one read."""
    log = LogTail(path)
    add(path, 300_000 * "line\n" + "last\n")
    read = log.read()
    assert len(read) <= 1 << 20
    assert read.endswith(b"\nlast")


def test_the_log_file_is_found(path, tmp_path):
    """The log file takes precedence; below another root directory, no journal is used."""
    assert isinstance(find_engine_log(tmp_path), LogTail)
    path.unlink()
    assert find_engine_log(tmp_path, find=lambda _: "/bin/true") is None


@pytest.fixture
def journalctl(tmp_path):
    """A script in place of `journalctl` that prints the lines that are added to a file."""
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
    """Wait until the log returns new lines, and return them."""
    return wait_until(log.read)


def test_the_journal_is_followed(journalctl, tmp_path):
    """New journal lines are returned as they are written, and closing ends `journalctl`."""
    log = JournalTail(str(journalctl))
    arguments = tmp_path / "arguments"
    wait_until(lambda: arguments.exists() and _follows(log._process.pid))
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
    """A `journalctl` that exits immediately raises no error; the log is unreadable then."""
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    log = JournalTail(str(program))
    wait_until(lambda: log.read() is None)
    log.close()


def test_a_journal_that_is_not_there_is_unreadable(tmp_path):
    """If `journalctl` does not exist, the engine's log is unreadable, and no error is raised."""
    log = JournalTail(str(tmp_path / "nothing"))
    assert log.read() is None
    log.close()
