"""Tests for the parser of saved kernel logs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.containers.evidence import OomKill, XidError
from trainvitals.sources.host.kernel_text import parse_kernel_text

SAVED = Path(__file__).parents[3] / "fixtures" / "kernel_log"
BOOTED = 1_795_294_800.0  # 2026-11-21 21:00:00 UTC
NOW = BOOTED + 3600.0
ID = "85a2c6d12832fa0a6315014f8178b1c270398baf41131ca9b004e4eca7211327"
# Files with times in microseconds, and files with times in whole seconds.
EXACT = (
    "kmsg.txt",
    "dmesg.txt",
    "dmesg-raw.txt",
    "dmesg-decoded.txt",
    "dmesg-iso.txt",
    "dmesg-colour.txt",
    "kern-rfc3339.log",
    "journal-unix.txt",
    "journal-monotonic.txt",
)
COARSE = ("dmesg-T.txt", "kern.log", "journal-short.txt", "journal-iso.txt", "journal-full.txt")


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The time zone of this process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def shift(name: str, zone: str) -> float:
    """Return the error, in seconds, of the times in a file that contains no time zone."""
    tells_zone = name in EXACT or name in {"journal-iso.txt", "journal-full.txt"}
    return 0.0 if tells_zone or zone == "UTC" else -19_800.0


@pytest.mark.parametrize("name", [*EXACT, *COARSE])
def test_every_shape_says_the_same(name: str, zone: str):
    """Every log format yields the same OOM kill, GPU error and file system error."""
    text = (SAVED / name).read_text(encoding="utf-8")
    news = parse_kernel_text(text, now=NOW, boot_time=BOOTED)
    later = shift(name, zone)
    killed, shut = (2495.792811, 2512.5) if name in EXACT else (2495.0, 2512.0)
    (kill,) = news.oom_kills
    assert kill == OomKill(
        time=kill.time,
        constraint="CONSTRAINT_MEMCG",
        oom_memcg=f"/docker/{ID}",
        task_memcg=f"/docker/{ID}",
        task="dd",
        pid=3181,
        anon_rss_bytes=16_384_000,
        shmem_rss_bytes=49_152,
    )
    assert kill.time == pytest.approx(BOOTED + killed + later, abs=1e-5)
    text = "pid=4021, name=python3, GPU has fallen off the bus."
    assert news.xids == (XidError(BOOTED + 2500.0 + later, "0000:3b:00", 79, text, 4021),)
    (line,) = news.lines
    assert line.text == "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"
    assert line.time == pytest.approx(BOOTED + shut + later, abs=1e-5)
    assert news.lost == 0


def test_lines_without_a_time_are_of_now():
    """Events in lines without a time are dated at the current time."""
    news = parse_kernel_text((SAVED / "plain.txt").read_text(), now=NOW, boot_time=BOOTED)
    assert [kill.time for kill in news.oom_kills] == [NOW]
    assert [xid.time for xid in news.xids] == [NOW]


@pytest.mark.parametrize("name", ["dmesg.txt", "kmsg.txt", "journal-monotonic.txt"])
def test_without_a_boot_time_the_last_line_is_of_now(name: str):
    """Without a boot time, the last line is dated now and the other lines relative to it."""
    news = parse_kernel_text((SAVED / name).read_text(), now=NOW)
    assert news.lines[0].time == pytest.approx(NOW, abs=1e-5)
    assert news.xids[0].time == pytest.approx(NOW - 12.5, abs=1e-5)


def test_a_name_cannot_end_a_line():
    """A Unicode line separator in the name of a process does not end the log line."""
    text = (SAVED / "dmesg.txt").read_text().replace("task=dd", "task=\u2028x\u0085y")
    (kill,) = parse_kernel_text(text.replace("\n", "\r\n"), now=NOW, boot_time=BOOTED).oom_kills
    assert (kill.task, kill.pid) == (" x y", 3181)


def test_an_old_kernel_says_it_in_other_words():
    """OOM kills in the log of Linux 4.15 are parsed, both in a container and on the host."""
    news = parse_kernel_text((SAVED / "linux-4.15.txt").read_text(), now=NOW, boot_time=0.0)
    assert news.oom_kills == (
        OomKill(
            time=7711.40227,
            constraint="CONSTRAINT_MEMCG",
            oom_memcg=f"/docker/{ID}",
            task_memcg=f"/docker/{ID}/worker",
            task="python",
            pid=12101,
            anon_rss_bytes=532_262_912,
            shmem_rss_bytes=0,
            limit_bytes=536_870_912,
        ),
        OomKill(
            time=7799.100009,
            constraint="CONSTRAINT_NONE",
            oom_memcg=None,
            task_memcg="",
            task="java",
            pid=977,
            anon_rss_bytes=7_700_262_912,
            shmem_rss_bytes=0,
        ),
    )


def test_a_whole_group_is_killed():
    """Each process of a killed group counts once, and a later kill is not assigned to the group."""
    news = parse_kernel_text((SAVED / "oom-group.txt").read_text(), now=NOW, boot_time=0.0)
    group = f"/limited/{ID}"
    assert [(kill.pid, kill.oom_memcg, kill.task_memcg) for kill in news.oom_kills] == [
        (23241, "/limited", group),
        (23242, "/limited", group),
        (23243, "/limited", group),
        (24000, None, ""),
    ]


def test_a_date_without_a_year_is_the_last_one(monkeypatch: pytest.MonkeyPatch):
    """A date without a year is the latest such date in the past, in January that of last year."""
    line = "Dec 31 23:59:59 box kernel: NVRM: Xid (PCI:0000:3b:00): 31, x\n"
    (xid,) = parse_kernel_text(line, now=1_767_312_000.0).xids  # 2026-01-02
    assert 1_767_139_199 - 50_400 <= xid.time <= 1_767_225_599 + 50_400  # 2025-12-31, any zone


@pytest.mark.parametrize(
    "line",
    [
        "Feb 31 10:00:00 box kernel: NVRM: Xid (PCI:0000:3b:00): 31, x",
        "2026-13-41T10:00:00+0000 box kernel: NVRM: Xid (PCI:0000:3b:00): 31, x",
        "[Sat Nov 99 21:41:35 0000] NVRM: Xid (PCI:0000:3b:00): 31, x",
        "Nov 21 21:41:35 box sshd[77]: NVRM: Xid (PCI:0000:3b:00): 31, x",
    ],
)
def test_what_is_no_line_of_the_kernel_says_nothing(line: str):
    """A line with an invalid date and a line of another program are ignored."""
    assert parse_kernel_text(line, now=NOW).xids == ()


def test_a_named_zone_is_ours():
    """A named time zone is taken for the local time zone, as the names of zones are ambiguous."""
    line = "Sat 2026-11-21 21:41:35 CET box kernel: NVRM: Xid (PCI:0000:3b:00): 31, x"
    (xid,) = parse_kernel_text(line, now=NOW).xids
    assert abs(xid.time - 1_795_297_295.0) <= 50_400


def test_zones_are_reckoned_with():
    """The UTC offset of a time is applied, with or without minutes or a colon."""
    line = "2026-11-21T21:30:00{} box kernel: NVRM: Xid (PCI:0000:3b:00): 31, x"
    times = {
        zone: parse_kernel_text(line.format(zone), now=NOW).xids[0].time - BOOTED
        for zone in ("Z", "+0530", "-05:00", "+01")
    }
    assert times == {"Z": 1800.0, "+0530": -18_000.0, "-05:00": 19_800.0, "+01": -1800.0}


@given(st.text(max_size=400), st.floats(-1e9, 4e9), st.none() | st.floats(-1e9, 4e9))
def test_any_text_is_read(text: str, now: float, boot_time: float | None):
    """Arbitrary text is parsed without an error."""
    parse_kernel_text(text, now=now, boot_time=boot_time)


PIECES = st.sampled_from(
    [
        "Nov 21 21:41:35 ",
        "Feb 30 99:99:99 ",
        "2026-11-21T21:41:35.5+0000 ",
        "9999-12-31 23:59:60 UTC ",
        "0001-01-01T00:00:00 ",
        "[ 2495.792811] ",
        "[Sat Nov 21 21:56:18 9999] ",
        "6,1,2495792811,-;",
        "6,1,999999999999999999,-;",
        "1795297295.5 ",
        "<3>",
        "\x1b[31m",
        "kern  :err   : ",
        "box kernel: ",
        "NVRM: Xid (PCI:0000:3b:00): 31",
        "\n",
        "\u2028",
        " ",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_order_of_times_is_read(text: str):
    """Pieces of real lines in any order are parsed without an error."""
    parse_kernel_text(text, now=NOW)
