"""Tests for selecting the host's lines that may concern the program that wrote a log."""

import datetime as dt

import pytest

from trainvitals.sources.containers.evidence_files import read_files
from trainvitals.sources.containers.log_owner import find_times, find_zone, read_owner
from trainvitals.sources.host.kernel_lines import DatedLine, XidError
from trainvitals.sources.host.oom_lines import OomKill

ID = "9c1e" * 16
SCOPE = f"/system.slice/docker-{ID}.scope"
NOON = dt.datetime(2025, 3, 4, 12, tzinfo=dt.timezone.utc).timestamp()
HOUR, DAY = 3600.0, 86_400.0


def write_log(*more, zone="Z"):
    """Return a log from 12:00 to 12:10 whose program writes timestamps, its PID and its GPU."""
    return (
        f"2025-03-04T12:00:00{zone} fit: pid 21934 on cuda:0, gpu pci 0000:3B:00",
        *more,
        f"2025-03-04T12:10:00{zone} fit: step 90 loss 1.2",
    )


def kill(task="python3", *, time=NOON + 600, pid=31001, group=SCOPE):
    """Return an OOM kill of a process in a container."""
    return OomKill(time, "CONSTRAINT_MEMCG", group, group, task, pid)


def xid(code=31, text=", name=python3, Ch 2", *, time=NOON + 300, bus="0000:3b:00", pid=21934):
    """Return a GPU error."""
    return XidError(time, bus, code, f"pid={pid}{text}", pid)


@pytest.mark.parametrize(
    ("other", "is_own"),
    [
        (kill(), True),
        (kill(time=NOON + 610), True),
        (kill(time=NOON + 600 - 5 * HOUR), True),  # a container in UTC, a host elsewhere
        (kill("pt_data_worker"), True),
        (kill(pid=21934, task="sh"), True),
        (kill("java"), False),
        (kill("R"), False),
        (kill("node"), False),
        (kill("server"), False),
        (kill("mysqld"), False),
        (kill(time=NOON - 3 * DAY), False),
        (kill(time=NOON - 2.2 * HOUR), False),
        (kill(time=NOON + 9.3 * HOUR), False),
    ],
)
def test_a_kill_is_of_the_log_by_name_and_time_or_pid(other, is_own):
    """A kill may concern a log if the PID matches, or if both the name and the time match."""
    assert read_owner(write_log()).may_own_kill(other) is is_own


@pytest.mark.parametrize(
    ("line", "task"),
    [
        (f"host {ID[:12]}: ready", "solver"),
        ("at org.acme.Main.run(Main.java:7)", "java"),
        ("INFO SparkContext: Running", "java"),
        ("$ Rscript fit.R", "R"),
        ("$ julia train.jl", "julia"),
        ("npm run train", "node"),
    ],
)
def test_a_log_that_names_the_container_or_the_language_is_tied_to_the_kill(line, task):
    """A kill may concern a log that names the container or the killed interpreter's language."""
    assert read_owner(write_log(line)).may_own_kill(kill(task))


@pytest.mark.parametrize(
    ("line", "task"),
    [
        ("the node was drained, the server answers", "node"),
        ("waiting for the server", "server"),
        ("dmesg: oom-kill:constraint=CONSTRAINT_MEMCG,task=solver,pid=31001,uid=7", "solver"),
        ("[812290.300990] oom_reaper: reaped process 31001 (solver), now anon-rss:0kB", "solver"),
        ("[ 1093.104210] solver[31001]: segfault at 0 ip 00007f3a sp 00007ffc error 4", "solver"),
        ("Jul 04 01:30:11 gpu07 kernel: traps: solver[31001] trap int3 ip:55d0", "solver"),
    ],
)
def test_a_word_or_a_printed_line_of_the_kernel_ties_no_kill_to_a_log(line, task):
    """Ordinary words and kernel lines printed by a monitor do not relate a kill to the log."""
    assert not read_owner(write_log(line)).may_own_kill(kill(task))


@pytest.mark.parametrize(
    ("other", "is_own"),
    [
        (xid(), True),
        (xid(79, ", name=<unknown>, GPU has fallen off the bus."), True),
        (xid(pid=21990), True),  # a child process
        (xid(119, ", name=NvmlTask, Timeout", pid=88_000), True),  # an error of the GPU itself
        (xid(bus="0000:af:00", pid=88_000), False),
        (xid(pid=88_000), False),
        (xid(text=", name=blender, Ch 2", pid=21990), False),
        (xid(time=NOON - 4 * DAY, pid=21990), False),
    ],
)
def test_an_xid_is_of_the_log_by_gpu_process_and_time(other, is_own):
    """A GPU error is selected by the GPU and PID that the log names, and by time."""
    assert bool(read_owner(write_log()).select_xids((other,))) is is_own


def test_an_xid_without_a_process_is_of_the_one_that_the_others_name():
    """A GPU error without a process belongs to the process that the GPU's other errors name."""
    log = ("2025-03-04 12:00:00 start, pid=21934", "2025-03-04 12:10:00 step 9")
    remap = XidError(NOON + 301, "0000:af:00", 63, "pid='<unknown>', name=<unknown>, Row Remapper")
    assert not read_owner(log).select_xids((xid(bus="0000:af:00", pid=88_000), remap))
    assert read_owner(log).select_xids((remap,))


def test_a_log_of_several_ranks_names_the_gpu_of_one():
    """If a log has several ranks, errors of GPUs that the log does not name are selected too."""
    assert read_owner(write_log("[rank1]: ready")).select_xids((xid(bus="0000:af:00", pid=21940),))


OOMD = "systemd-oomd[71]: Considered 12 cgroups for killing, top candidates were:"
APP = "/user.slice/user-7.slice/user@7.service/app.slice/app-gnome-{}-99.scope"


@pytest.mark.parametrize(
    ("lines", "is_own"),
    [
        ((OOMD, f"systemd-oomd[71]: Killed {APP.format('signal')} due to memory used"), False),
        ((OOMD, f"systemd-oomd[71]: Killed {APP.format('terminal')} due to memory used"), True),
        ((OOMD, "systemd-oomd[71]: Killed /user.slice/user-7.slice/session-3.scope due to"), True),
        (("mariadb.service: systemd-oomd killed 3 process(es) in this unit.",), False),
        (('earlyoom[9]: sending SIGTERM to process 77 uid 7 "slack": badness 300',), False),
        (('earlyoom[9]: sending SIGTERM to process 77 uid 7 "python3": badness 900',), True),
        (("traps: Xorg[812] trap int3 ip:7f sp:7f error:0",), False),
        (("python3[812]: segfault at 0 ip 7f sp 7f error 4",), True),
        (("reboot: Restarting system",), True),
    ],
)
def test_a_guards_victim_and_a_crash_name_whom_they_are_about(lines, is_own):
    """A crash or an OOM daemon's kill is selected only if its victim may be the log's program."""
    dated = tuple(DatedLine(NOON + 60, line) for line in lines)
    assert read_owner(write_log()).select(dated) == (dated if is_own else ())


def test_the_times_of_a_log_are_those_of_its_collector_or_its_own():
    """A log's times come from its collector or its lines; a log without times fits any time."""
    assert find_times((DatedLine(5.0, "a"), DatedLine(9.0, "2025-03-04 12:00:00 b"))) == (5.0, 9.0)
    assert find_times(("[2025-03-04 12:00:00,123] [INFO] a", "2025-03-04 12:99:00 b"))
    assert find_times(("step 1", "I0304 12:00:00 step 2")) is None
    assert find_times(write_log(zone="+0100")) == (NOON - HOUR, NOON - HOUR + 600)
    assert read_owner(("step 1",)).may_own_kill(kill(time=1.0))


def read(tmp_path, log, kernel):
    """Write a log and a kernel log to files, and return the evidence of both."""
    paths = tmp_path / "fit.log", tmp_path / "kernel.log"
    for path, lines in zip(paths, (log, kernel), strict=True):
        path.write_text("\n".join(lines) + "\n")
    return read_files(*paths)


DOWN = "Mar  2 01:00:00 node7 systemd-logind[5]: System is powering down."
BOOT = "Mar  2 07:00:00 node7 kernel: Linux version 6.1.0-20-amd64 (debian@lists)"


def test_a_shutdown_days_before_the_log_is_not_of_it(tmp_path):
    """A shutdown two days before the log is not selected; missing years are the log's year."""
    assert not read(tmp_path, write_log(), (DOWN, BOOT)).kernel_lines
    near = DOWN.replace("Mar  2 01:00:00", "Mar  4 12:10:20")
    assert read(tmp_path, write_log(), (near,)).kernel_lines


def test_of_a_log_without_times_the_last_boot_is_its_machine(tmp_path):
    """If times cannot be compared, only kernel lines after the last boot are selected."""
    log = ("step 1 loss 2.0", "step 2 loss 1.9")
    assert not read(tmp_path, log, (DOWN, BOOT)).kernel_lines
    assert read(tmp_path, log, (BOOT, DOWN)).kernel_lines
    since_boot = (
        "[   90.000001] reboot: Restarting system",
        "[    0.000000] Linux version 6.1.0-20",
    )
    assert not read(tmp_path, write_log(), since_boot).kernel_lines


def test_a_kill_of_another_is_told_and_not_taken(tmp_path):
    """A kill of another program is included as a kernel line, but not as an OOM kill."""
    line = (
        "[ 4711.000001] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"oom_memcg={SCOPE},task_memcg={SCOPE},task=java,pid=31001,uid=0"
    )
    evidence = read(tmp_path, write_log(), (line, line.replace("oom-kill:", "then: ")))
    assert evidence.oom_kills == ()
    assert not evidence.id
    assert evidence.kernel_lines[-1].startswith(
        f"OOM killer: java (pid 31001) in container {ID[:12]}"
    )


def test_a_log_that_goes_on_long_after_an_event_is_not_of_it():
    """An event is not selected if the log goes on longer than ranks wait for a killed rank."""
    log = [f"2025-03-04 {hour:02d}:07:00 step {hour} loss 1.2" for hour in range(9, 15)]
    owner = read_owner(log)
    _first, last = owner.times
    assert not owner.may_own_kill(kill(time=last - 4000))
    assert owner.may_own_kill(kill(time=last - 600))
    assert owner.may_own_kill(kill(time=last - 3600))  # the log may use another zone
    lost = ", GPU has fallen off the bus."
    assert owner.select_xids([xid(79, lost, time=last - 4000)]) == ()
    assert len(owner.select_xids([xid(79, lost, time=last - 600)])) == 1


def test_a_log_that_keeps_its_pace_after_a_kill_is_not_of_the_killed_program():
    """A kill is not selected if the log goes on at its usual pace; waiting ranks write nothing."""
    stamps = [
        f"2025-03-04 12:{minute:02d}:{second:02d} step"
        for minute in range(30)
        for second in (7, 37)
    ]
    assert not read_owner(stamps).may_own_kill(kill(time=read_owner(stamps).times[1] - 600))
    silent = [*stamps[:38], *stamps[-4:]]
    assert read_owner(silent).may_own_kill(kill(time=read_owner(silent).times[1] - 600))


def test_a_kill_without_a_time_is_the_one_that_the_log_reports_and_goes_on_after():
    """Without times, a log that goes on long after its report of a kill does not own the kill.

    The report may be of a sandbox or of an earlier attempt in the same file.
    """
    steps = [f"step {at} loss 1.2" for at in range(90)]
    log = [*steps, "[sandbox] case 9: exit 137, Killed", *steps]
    assert not read_owner(log, is_dated=False).may_own_kill(kill())
    assert read_owner(log[:91], is_dated=False).may_own_kill(kill())
    assert read_owner(["pid 31001", *log], is_dated=False).may_own_kill(kill())


@pytest.mark.parametrize(
    ("pid", "is_own"), [(21990, True), (21934 + 60_000, True), (3_310_411, False), (4_000, False)]
)
def test_a_kill_has_a_pid_that_a_child_of_the_log_may_have(pid, is_own):
    """A child's PID is larger than the PID of the log's program, but not by millions."""
    assert read_owner(write_log()).may_own_kill(kill(pid=pid)) is is_own


def test_a_time_within_a_line_counts_where_no_line_begins_with_one():
    """If no line begins with a timestamp, timestamps with a time zone inside lines are used."""
    log = ("[entry] host 9c1f2a  2025-03-04T12:00:00Z", "[entry] 137 at 2025-03-04T12:10:00+00:00")
    assert find_times(log) == (NOON, NOON + 600)
    assert find_times(("build 137 of 2025-03-04T12:00:00",)) is None
    assert not read_owner(log).may_own_kill(kill(time=NOON - 7.4 * HOUR))


def test_the_end_of_a_log_may_have_no_time():
    """If the last lines have no timestamps, the log may end up to a day after its last time."""
    log = (*write_log(), *[f"step {at} loss 1.2" for at in range(90)])
    assert read_owner(log).may_be_at(NOON + 5 * HOUR)
    assert not read_owner(write_log()).may_be_at(NOON + 5 * HOUR)
    assert not read_owner(log).may_be_at(NOON + 2 * DAY)


def test_a_log_that_is_written_often_ended_soon_after_its_last_line():
    """An event half an hour after the last line of a frequently written log is not selected."""
    often = [f"2025-03-04T12:0{at // 6}:{at % 6}0Z step {at}" for at in range(60)]
    assert read_owner(often).may_be_at(NOON + 800)
    assert not read_owner(often).may_be_at(NOON + 2400)
    assert read_owner(write_log()).may_be_at(NOON + 2400)


def test_a_line_of_ray_or_of_a_rank_begins_with_its_process():
    """A timestamp is found after the prefix that Ray or a rank writes before each line."""
    log = (
        "(Actor pid=50310) [2025-03-04T12:00:00Z] [INFO] init",
        "[rank3]: 2025-03-04T12:10:00Z x",
    )
    assert find_times(log) == (NOON, NOON + 600)


def test_times_without_a_zone_are_those_of_the_kernel_log():
    """Timestamps without a time zone are read in the time zone that the kernel log names."""
    kernel = "2025-03-04T13:10:00+0100 gs4 kernel: usb 1-7: USB disconnect\n"
    assert find_zone(kernel) == "+0100"
    assert find_zone("[ 12.1] usb 1-7: USB disconnect") == ""
    log = ("2025-03-04 13:00:00 step 1", "2025-03-04 13:10:00 step 2")
    assert find_times(log, zone=find_zone(kernel)) == (NOON, NOON + 600)


@pytest.mark.parametrize(
    ("unit", "is_own"),
    [
        ("app-org.gnome.Terminal.slice/vte-spawn-8a4f2c5e.scope", True),
        ("app-org.gnome.Terminal.slice/app-firefox-7712.scope", False),
    ],
)
def test_what_a_terminal_started_may_be_the_job(unit, is_own):
    """A kill in the scope of a terminal may concern the log, unlike that of a desktop program."""
    line = f"lab3 systemd-oomd[811]: Killed /user.slice/app.slice/{unit} due to memory pressure"
    selected = read_owner(write_log()).select([DatedLine(NOON + 600, line)])
    assert bool(selected) is is_own


def test_a_worker_that_the_log_reports_as_killed_may_have_another_pid_in_its_container():
    """A killed worker in a container may have a smaller PID in the log than on the host."""
    log = (
        "fit: pid 6122",
        "RuntimeError: DataLoader worker (pid 6122) is killed by signal: Killed.",
    )
    owner = read_owner(log, is_dated=False)
    assert owner.may_own_kill(kill(pid=1_906_122))
    assert not owner.may_own_kill(kill(pid=1_906_122, group="/user.slice"))
    assert not read_owner(log[:1], is_dated=False).may_own_kill(kill(pid=1_906_122))
