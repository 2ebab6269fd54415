"""Tests for reading a folder of evidence that was collected by hand."""

import json
import os
import re
import time

import pytest

from tests.support.container_stage import ID, OTHER, write_inspection
from tests.support.engine_stand_in import write_event
from trainvitals.errors import ConfigurationError
from trainvitals.sources.containers.evidence import Disk, Evidence, Host, Sample, Settings
from trainvitals.sources.containers.evidence_document import to_json
from trainvitals.sources.containers.evidence_folder import parse_log, read_folder
from trainvitals.verdicts.causes.diagnosis import diagnose_evidence
from trainvitals.views.death.document import format_document
from trainvitals.views.death.markdown import format_markdown

# 2026-11-21 22:00:00 UTC
TEN = 1_795_298_400.0
LIMIT = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={id},mems_allowed=0,"
    "oom_memcg=/docker/{id},task_memcg=/docker/{id},task=python3,pid=4242,uid=0"
)


def nano(seconds):
    """Return a time in nanoseconds, as engine events contain it."""
    return round((TEN + seconds) * 1e9)


def write_events(path, *lines):
    """Write the file `events.jsonl`."""
    (path / "events.jsonl").write_bytes(b"".join(lines))


def test_a_folder_of_every_file_becomes_one_body_of_evidence(tmp_path):
    """All files are combined into one `Evidence`, and the container's end comes from the events."""
    (tmp_path / "inspect.json").write_text(json.dumps([write_inspection(TEN, TEN + 8)]))
    write_events(
        tmp_path,
        write_event("create", ID, time_nano=nano(-1), name="train"),
        write_event("die", OTHER, time_nano=nano(2), exitCode="3"),
        write_event("start", ID, time_nano=nano(0), name="train"),
        write_event("oom", ID, time_nano=nano(7.9), name="train"),
        write_event("die", ID, time_nano=nano(8), name="train", exitCode="137"),
    )
    (tmp_path / "log.txt").write_text("epoch 1\nepoch 2\n")
    (tmp_path / "kernel.txt").write_text(f"[ 100.500000] {LIMIT.format(id=ID)}\n")
    (tmp_path / "host.json").write_text(
        '{"time": 1795298409.0, "memory_total_bytes": 1000, "disks": [], "biggest": [["a", 5]]}'
    )
    (tmp_path / "engine.log").write_text(
        f'time="2026-11-21T22:00:07.5Z" level=error msg="stream copy error" container={ID}\n'
        'time="2026-11-21T22:00:07.5Z" level=info msg="ignoring event"\n'
        'time="2026-11-21T20:00:00Z" level=error msg="long ago"\n'
    )
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup/memory.max").write_text("67108864\n")
    (tmp_path / "cgroup/memory.current").write_text("1048576\n")
    evidence = read_folder(tmp_path)
    assert (evidence.name, evidence.id, evidence.image) == ("train", ID, "acme/train:1")
    assert (evidence.started, evidence.ended, evidence.exit_code) == (TEN, TEN + 8, 137)
    assert evidence.is_exit_code_witnessed
    assert [event.action for event in evidence.events] == ["create", "start", "oom", "die"]
    assert evidence.settings.memory_limit_bytes == 64 << 20
    assert evidence.log == ("epoch 1", "epoch 2")
    assert [kill.pid for kill in evidence.oom_kills] == [4242]
    assert evidence.cgroup == f"/docker/{ID}"
    assert evidence.host.biggest == (("a", 5),)
    assert evidence.engine_errors == (f'error: msg="stream copy error" container={ID}',)
    assert evidence.sample.memory_limit_bytes == 64 << 20
    assert evidence.sample.memory_usage_bytes == 1 << 20


def test_seconds_since_boot_are_dated_by_the_event_of_the_kill(tmp_path):
    """If the boot time is unknown, the last kill gets the time of the last `oom` event."""
    write_events(
        tmp_path,
        write_event("start", ID, time_nano=nano(0)),
        write_event("oom", ID, time_nano=nano(5)),
        write_event("kill", ID, time_nano=nano(8), signal="9"),
        write_event("die", ID, time_nano=nano(8.1), exitCode="137"),
    )
    (tmp_path / "kernel.txt").write_text(f"[ 100.500000] {LIMIT.format(id=ID)}\n")
    (kill,) = read_folder(tmp_path).oom_kills
    assert round(kill.time - TEN, 3) == 5.0


def test_the_boot_time_of_the_host_dates_the_kernel_log(tmp_path):
    """The member `boot_time` of `host.json` dates the lines of the kernel log."""
    write_events(
        tmp_path,
        write_event("start", ID, time_nano=nano(0)),
        write_event("die", ID, time_nano=nano(8), exitCode="137"),
    )
    (tmp_path / "host.json").write_text(f'{{"time": {TEN}, "boot_time": {TEN - 100}}}')
    (tmp_path / "kernel.txt").write_text(f"[ 107.500000] {LIMIT.format(id=ID)}\n")
    (kill,) = read_folder(tmp_path).oom_kills
    assert round(kill.time - TEN, 3) == 7.5


def test_a_kill_before_this_start_is_not_of_this_death(tmp_path):
    """A kill before the container's last start is not evidence for its last exit."""
    write_events(
        tmp_path,
        write_event("start", ID, time_nano=nano(100)),
        write_event("die", ID, time_nano=nano(108), exitCode="1"),
    )
    (tmp_path / "host.json").write_text(f'{{"time": {TEN}, "boot_time": {TEN}}}')
    (tmp_path / "kernel.txt").write_text(f"[ 50.500000] {LIMIT.format(id=ID)}\n")
    assert read_folder(tmp_path).oom_kills == ()


def test_times_before_the_lines_tell_the_last_start_from_those_before(tmp_path):
    """From a log with `--timestamps`, only the lines since the last start are kept."""
    (tmp_path / "inspect.json").write_text(json.dumps(write_inspection(TEN, TEN + 8)))
    (tmp_path / "log.txt").write_text(
        "2026-11-21T21:50:00.000000000Z of an earlier start\n"
        "2026-11-21T22:00:01.000000000Z epoch 1\n"
        "2026-11-21T22:00:02.123456789Z \n"
    )
    assert read_folder(tmp_path).log == ("epoch 1", "")


def test_times_that_the_program_writes_itself_stay():
    """Only timestamps with nine decimal places, as `docker logs` writes them, are removed."""
    text = "2026-11-21T22:00:01Z epoch 1\n2026-11-21T22:00:02Z epoch 2\n"
    assert [(line.time, line.text) for line in parse_log(text)] == [
        (None, "2026-11-21T22:00:01Z epoch 1"),
        (None, "2026-11-21T22:00:02Z epoch 2"),
    ]


def test_what_is_not_there_is_not_known(tmp_path):
    """From a log alone, all other values are unknown, and the folder's name is used."""
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "log.txt").write_text("")
    assert read_folder(folder) == Evidence("process", "bert", log=())


def test_a_record_goes_before_the_other_files(tmp_path):
    """The values of a journal record take precedence, and an inspection adds missing values."""
    record = Evidence("container", "train", id=ID, ended=TEN + 8, exit_code=137, log=("seen",))
    document = {"format": 1, "evidence": to_json(record), "verdict": {"reason": "unknown"}}
    (tmp_path / "evidence.json").write_text(json.dumps(document))
    (tmp_path / "log.txt").write_text("of later\n")
    (tmp_path / "inspect.json").write_text(
        json.dumps([write_inspection(TEN + 60, None, status="running", exit_code=0)])
    )
    evidence = read_folder(tmp_path)
    assert (evidence.exit_code, evidence.ended, evidence.log) == (137, TEN + 8, ("seen",))
    assert evidence.settings.shm_size_bytes == 64 << 20


def test_evidence_by_itself_is_read_too(tmp_path):
    """The file `evidence.json` may contain evidence without a verdict."""
    record = Evidence("run", "bert", exception="ValueError")
    (tmp_path / "evidence.json").write_text(json.dumps(to_json(record)))
    assert read_folder(tmp_path) == record


def test_secrets_in_a_folder_are_masked(tmp_path):
    """Secrets in an inspection, in a log and in the engine's log are masked."""
    (tmp_path / "inspect.json").write_text(
        json.dumps(
            write_inspection(
                TEN,
                TEN + 8,
                error="exec: --password=geheim1234: not found",
                command=("python3", "train.py", "--api-key", "geheim1234"),
                environ=("TOKEN=geheim1234",),
            )
        )
    )
    (tmp_path / "log.txt").write_text("connecting to redis://u:geheim1234@cache/\n")
    (tmp_path / "engine.log").write_text(
        'time="2026-11-21T22:00:07.5Z" level=error msg="pull: Authorization: Bearer geheim1234"\n'
    )
    assert "geheim1234" not in repr(read_folder(tmp_path))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("inspect.json", "[]", "it lists no container"),
        ("inspect.json", "{", "cannot understand"),
        ("inspect.json", "[5]", "it lists no container"),
        ("evidence.json", "[]", "it is no object"),
        ("evidence.json", '{"subject": "container"}', "evidence.name"),
        ("sample.json", '{"time": "noon"}', "sample.json"),
        ("host.json", "7", "host.json"),
    ],
)
def test_a_file_that_makes_no_sense_is_named(tmp_path, name, text, words):
    """The error message names the invalid file and the reason on one line."""
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        read_folder(tmp_path)
    assert str(raised.value).startswith(f"cannot understand {tmp_path / name}: ")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_lines_that_are_no_events_are_passed_over(tmp_path):
    """A truncated line in `events.jsonl` does not prevent the other events from being read."""
    write_events(
        tmp_path,
        write_event("start", ID, time_nano=nano(0)),
        b'{"Type": "container", "Act\n\xff\n',
        write_event("die", ID, time_nano=nano(1), exitCode="1"),
    )
    assert read_folder(tmp_path).exit_code == 1


def test_a_folder_without_evidence_says_what_belongs_there(tmp_path):
    """An empty folder and a missing folder are refused, and the messages say what to do."""
    with pytest.raises(ConfigurationError, match=r"no evidence in .*inspect\.json"):
        read_folder(tmp_path)
    with pytest.raises(ConfigurationError, match="is not a folder of evidence; name one with"):
        read_folder(tmp_path / "nowhere")


FILES = (
    "evidence.json",
    "inspect.json",
    "events.jsonl",
    "log.txt",
    "kernel.txt",
    "sample.json",
    "host.json",
    "pod.txt",
    "engine.log",
)
LONGEST_SECONDS = 10.0  # of processor time, on a slow machine


@pytest.mark.parametrize("name", FILES)
def test_nothing_but_the_folder_is_read(tmp_path, name):
    """Symbolic links and pipes in the folder are refused, so that no other file is read."""
    outside = tmp_path / "outside"
    outside.write_text("Name: outside\nNamespace: secret\nContainers:\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).symlink_to(outside)
    with pytest.raises(ConfigurationError, match="symbolic link, no regular file; put the file"):
        read_folder(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match="symbolic link"):
        read_folder(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ConfigurationError, match=f"{name}: it is no regular file; put the file"):
        read_folder(folder)


@pytest.mark.parametrize(
    ("name", "line"),
    [*((name, "") for name in FILES), ("events.jsonl", "{}\n"), ("kernel.txt", "x\n")],
)
def test_a_huge_file_costs_no_more_than_its_end(tmp_path, name, line):
    """A file of more than a terabyte is refused, or only its end is read."""
    path = tmp_path / name
    with path.open("wb") as file:
        file.seek(1 << 40)
        file.write(line.encode() * (1 << 22))
        file.truncate(max(file.tell(), (1 << 40) + (1 << 23)))
    began = time.process_time()
    try:
        read_folder(tmp_path)
    except ConfigurationError as error:
        assert str(path) in str(error)  # noqa: PT017 - the JSON files are refused, the logs read
    assert time.process_time() - began < LONGEST_SECONDS


def test_the_end_of_a_large_log_is_what_counts(tmp_path):
    """Of a log of 40 MiB, the last lines are read, not the first."""
    with (tmp_path / "log.txt").open("w") as log:
        for _ in range(40):
            log.write("x" * (1 << 20) + "\n")
        log.write("ValueError: the end\n")
    assert read_folder(tmp_path).log[-1] == "ValueError: the end"


@pytest.mark.parametrize("where", ["cgroup", "cgroup/memory.max"])
def test_the_group_is_that_of_the_folder(tmp_path, where):
    """A symbolic link to another control group or to one of its files is not followed."""
    other = tmp_path / "other"
    other.mkdir()
    for name in ("memory.max", "memory.current"):
        (other / name).write_text("4242\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "log.txt").write_text("epoch 1\n")
    if where != "cgroup":
        (folder / "cgroup").mkdir()
        (folder / "cgroup/memory.current").write_text("17\n")
        os.mkfifo(folder / "cgroup/memory.events")
    (folder / where).symlink_to(other / where.removeprefix("cgroup").lstrip("/"))
    sample = read_folder(folder).sample
    if where == "cgroup":
        assert sample is None
    else:
        assert (sample.memory_usage_bytes, sample.memory_limit_bytes) == (17, None)


def test_a_record_that_somebody_wrote_is_masked_too(tmp_path):
    """Secrets in the texts, the command and the log of a supplied record are masked."""
    record = to_json(
        Evidence(
            "container",
            "train",
            exception="ValueError: password=geheim1234",
            settings=Settings(command=("train.py", "--api-key", "geheim1234")),
            log=("-----BEGIN PRIVATE KEY-----", "geheim1234", "-----END PRIVATE KEY-----"),
        )
    )
    (tmp_path / "evidence.json").write_text(json.dumps(record))
    (tmp_path / "host.json").write_text(
        '{"time": 1.0, "disks": [], "biggest": [["token=geheim1234", 5]]}'
    )
    evidence = read_folder(tmp_path)
    assert "geheim1234" not in repr(evidence)
    assert evidence.settings.command == ("train.py", "--api-key", "***")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1e308", "9" * 400, "-0.0", "9" * 19])
def test_no_number_in_a_folder_costs_the_report(tmp_path, number):
    """For an extreme number, either an error names the value's place or the report is written."""
    record = to_json(
        Evidence(
            "container",
            "train",
            started=1e9,
            ended=2e9,
            exit_code=1,
            sample=Sample(1e9, 2, memory_usage_bytes=1, memory_pressure_ratio=0.5),
            host=Host(1e9, memory_total_bytes=1, disks=(Disk("/", 1, 1),), biggest=(("a", 1),)),
        )
    )
    text = json.dumps(record)
    for found in re.finditer(r"(?<=: )[0-9][0-9.]*", text):
        (tmp_path / "evidence.json").write_text(
            text[: found.start()] + number + text[found.end() :]
        )
        try:
            evidence = read_folder(tmp_path)
        except ConfigurationError as error:
            assert "evidence" in str(error)  # noqa: PT017 - a report is also allowed
            continue
        diagnosis = diagnose_evidence(evidence, asked=2e9, origin="folder")
        format_markdown(diagnosis)
        format_document(diagnosis)
    (tmp_path / "evidence.json").unlink()
    pod = f"""Name: train-0
Namespace: default
Containers:
  main:
    State:          Terminated
      Exit Code:    {number}
    Restart Count:  {number}
    Limits:
      memory:  {number}Gi
"""
    (tmp_path / "pod.txt").write_text(pod)
    format_document(diagnose_evidence(read_folder(tmp_path), asked=2e9, origin="folder"))
