"""Tests for `trainvitals diagnose` on an engine: its requests, its output and its exit codes."""

import json
import os
import stat
import time
from functools import partial

import pytest

from tests.support.container_stage import (
    ID,
    OTHER,
    put_container,
    put_events,
    write_inspection,
)
from tests.support.engine_stand_in import EngineStandIn
from tests.support.run_files import training
from tests.unit.test_masking import SECRETS
from trainvitals.cli import main
from trainvitals.sources.containers import survey
from trainvitals.sources.containers.evidence import Evidence, Sample
from trainvitals.sources.containers.evidence_folder import read_folder
from trainvitals.sources.containers.journal import Journal
from trainvitals.sources.containers.survey import survey_machine
from trainvitals.verdicts.causes.diagnosis import diagnose_last, list_deaths
from trainvitals.verdicts.causes.judge import judge
from trainvitals.views.death.report import format_deaths, format_report


@pytest.fixture
def engine(tmp_path):
    """Yield an engine without containers and events."""
    with EngineStandIn(tmp_path / "engine.sock") as engine:
        put_events(engine)
        yield engine


@pytest.fixture
def ago():
    """Return a function that returns the time some seconds before now."""
    now = time.time()
    return lambda seconds: round(now - seconds, 3)


@pytest.fixture
def diagnose(engine, tmp_path, capsys, monkeypatch):
    """Return a function that runs the command and returns its exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)  # pytest's paths may exceed 80 columns, and paths are not wrapped

    def run(*arguments, address=None):
        code = main(
            [
                "diagnose",
                f"--engine={address or engine.address}",
                "--journal=journal",
                "--run-dir=runs",
                *arguments,
            ]
        )
        return code, *capsys.readouterr()

    return run


def put_killed(engine, ago, **settings):
    """Make the engine report a container that was killed with SIGKILL 40 s ago."""
    put_container(engine, write_inspection(ago(100), ago(40), **settings), ("epoch 1", "epoch 2"))
    put_events(
        engine,
        (ago(101), "create", {}),
        (ago(100), "start", {}),
        (ago(40.05), "kill", {"signal": "9"}),
        (ago(40), "die", {"exitCode": "137"}),
    )


def test_the_report_begins_with_what_died_when_and_why(engine, diagnose, ago):
    """The report has the headline, the verdict and all sections in order, within 80 columns."""
    put_killed(engine, ago)
    code, out, err = diagnose("train")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].startswith("Container train died with exit code 137 at 20")
    assert "Verdict: kill-operator, confidence high." in lines[:5]
    heads = [line for line in lines if line[:1].isalpha()]
    wanted = [
        "Evidence",
        "What to do",
        "Timeline (from the engine)",
        "Configuration",
        "The log, 2 lines",
    ]
    assert [head for head in heads if head in wanted] == wanted
    assert lines[-2:] == ["  | epoch 1", "  | epoch 2"]
    # A path in a temporary folder may be longer than a line and is not wrapped.
    assert max(len(line) for line in lines if "/pytest-" not in line) <= 80


def test_only_questions_are_asked(engine, diagnose, ago):
    """Every request to the engine is a GET, whatever the arguments."""
    put_killed(engine, ago)
    for arguments in (["train"], ["--last"], ["--since=24h"], ["nobody"], [ID[:12], "--json"]):
        diagnose(*arguments)
    assert len(engine.requests) > 20
    assert engine.methods == {"GET"}


@pytest.mark.parametrize("words", ["train", ID, ID[:12], "trainer"])
def test_a_container_is_found_by_name_id_and_service(engine, diagnose, ago, words):
    """A container is found by its name, its ID, a prefix of its ID, or its Compose service."""
    inspection = write_inspection(ago(100), ago(40))
    inspection["Config"]["Labels"] = {"com.docker.compose.service": "trainer"}
    put_container(engine, inspection)
    put_events(
        engine,
        (ago(40), "die", {"exitCode": "137", "com.docker.compose.service": "trainer"}),
    )
    listing = json.loads(engine.answers["/containers/json"].body)
    listing[0]["Labels"] = inspection["Config"]["Labels"]
    engine.put("/containers/json", listing)
    _, out, _ = diagnose(words, "--json")
    assert json.loads(out)["id"] == ID


def test_the_document_is_stable(engine, diagnose, ago):
    """The JSON document has a fixed list of keys and includes the evidence."""
    put_killed(engine, ago)
    code, out, _ = diagnose("train", "--json")
    document = json.loads(out)
    assert code == 1
    assert list(document) == [
        "format", "subject", "name", "id", "is_running", "is_well", "ended", "exit_code",
        "runs_since", "reason", "confidence", "summary", "speaks_for", "speaks_against", "steps",
        "contributing", "gaps", "step", "next_step", "origin", "evidence", "present", "others",
    ]  # fmt: skip
    assert document["format"] == 1
    assert (document["reason"], document["confidence"]) == ("kill-operator", "high")
    assert document["is_well"] is False
    assert document["evidence"]["exit_code"] == 137
    assert document["present"]["memory_total_bytes"] > 0


def test_markdown_can_be_pasted(engine, diagnose, ago):
    """The Markdown report has headings, and a code fence that the log's own fences cannot close."""
    put_container(
        engine, write_inspection(ago(100), ago(40), exit_code=1), ("```", "# not a heading")
    )
    _, out, _ = diagnose("train", "--markdown")
    assert out.startswith("## Container train died with exit code 1 at 20")
    assert "### Timeline" in out
    assert "````text\n```\n# not a heading\n````" in out


def test_what_ended_well_exits_with_0(engine, diagnose, ago):
    """For a container that ended with code 0, the command exits with 0 and reports no gaps."""
    put_container(engine, write_inspection(ago(100), ago(40), exit_code=0))
    code, out, _ = diagnose("train")
    assert code == 0
    assert "Verdict: finished" in out
    assert "What could not be read" not in out


def test_what_runs_well_exits_with_0(engine, diagnose, ago):
    """For a healthy running container, the command exits with 0."""
    put_container(engine, write_inspection(ago(100), None, status="running", exit_code=0))
    code, out, _ = diagnose("train")
    assert code == 0
    assert out.startswith("Container train runs since 20")


def test_what_runs_and_ails_exits_with_1(engine, diagnose, ago):
    """For an unhealthy running container, the command exits with 1 and quotes the health check."""
    probe = {"End": "2026-11-21T22:00:00Z", "ExitCode": 1, "Output": "no route\n"}
    health = {"Status": "unhealthy", "FailingStreak": 3, "Log": [probe]}
    put_container(
        engine, write_inspection(ago(100), None, status="running", exit_code=0, health=health)
    )
    code, out, _ = diagnose("train")
    assert code == 1
    assert ", with a fault." in out
    assert "Verdict: unhealthy" in out
    assert "no route" in out


def write_record(tmp_path, **members):
    """Write a record of a death into the journal."""
    evidence = Evidence(**{"subject": "container", "name": "train", "id": ID, **members})
    Journal(tmp_path / "journal").write(evidence, judge(evidence))
    return evidence


def test_the_journal_goes_before_a_later_look(engine, diagnose, ago, tmp_path):
    """The journal's record of a death is used even if the container runs again by now."""
    sample = Sample(ago(3601), 2, memory_peak_bytes=60 << 20, memory_limit_bytes=64 << 20)
    write_record(
        tmp_path,
        started=ago(4000),
        ended=ago(3600),
        exit_code=1,
        is_exit_code_witnessed=True,
        log=("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x5 and 4x2)",),
        sample=sample,
    )
    put_container(
        engine, write_inspection(ago(3590), ago(3600), status="running", exit_code=0), ("again",)
    )
    code, out, _ = diagnose("train", "--json")
    document = json.loads(out)
    assert code == 1
    assert document["exit_code"] == 1
    assert document["evidence"]["log"] == [
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x5 and 4x2)"
    ]
    assert document["evidence"]["sample"]["memory_peak_bytes"] == 60 << 20
    assert document["origin"] == "the journal and the engine"
    assert document["runs_since"] is not None


def test_a_container_that_is_gone_is_explained_from_the_journal(diagnose, ago, tmp_path):
    """A container that was removed is diagnosed from its record in the journal."""
    write_record(tmp_path, ended=ago(60), exit_code=1, log=("ModuleNotFoundError: No module",))
    code, out, _ = diagnose("train")
    assert code == 1
    assert "ModuleNotFoundError: No module" in out


def test_without_an_engine_the_journal_is_enough(diagnose, ago, tmp_path):
    """Without an engine the journal suffices, and the report names the access level."""
    write_record(tmp_path, ended=ago(60), exit_code=3, log=("x",))
    code, out, _ = diagnose("train", address="none")
    assert code == 1
    assert "Access level 0 of 2 reads control groups and /proc only; level 1 adds" in " ".join(
        line.strip() for line in out.splitlines()
    )


def test_the_last_to_end_badly_is_told_and_the_others_listed(engine, ago, tmp_path):
    """The report covers the last failed container, and a later success is only listed."""
    put_container(engine, write_inspection(ago(100), ago(40), exit_code=3))
    put_container(engine, write_inspection(ago(50), ago(10), exit_code=0, id_=OTHER, name="eval"))
    told = diagnose_last(look_around(engine, tmp_path), since_seconds=3600)
    assert (told.evidence.name, told.evidence.exit_code) == ("train", 3)
    out = format_report(told, width=80)
    assert out.startswith("Container train died with exit code 3")
    (line,) = out.partition("\nOther deaths\n")[2].splitlines()
    assert line.split()[-4:] == ["eval", "0", "finished", "high"]


@pytest.fixture
def failed_run(tmp_path):
    """Write the run file of a run that has just failed."""
    with training(tmp_path / "runs", "raise"):
        pass


@pytest.mark.usefixtures("failed_run")
def test_a_run_that_died_last_is_told_before_a_container(engine, diagnose, ago):
    """The latest death, of a run, is reported before a container's, with and without an engine."""
    put_container(engine, write_inspection(ago(900), ago(800), exit_code=3))
    code, out, _ = diagnose()
    assert code == 1
    assert out.startswith("Run bert died")
    assert "train" in out.partition("\nOther deaths\n")[2]
    document = json.loads(diagnose("--since=1h", "--json")[1])
    deaths = {(death["subject"], death["name"]) for death in document["deaths"]}
    assert {("run", "bert"), ("container", "train")} <= deaths
    code, out, _ = diagnose(address="none")
    assert (code, out[:13]) == (1, "Run bert died")


@pytest.mark.usefixtures("failed_run")
def test_of_a_run_and_its_container_the_container_is_told(engine, diagnose, ago):
    """If a run and a container ended together, the report covers the container."""
    put_killed(engine, ago)
    assert diagnose()[1].startswith("Container train died")


def look_around(engine, tmp_path):
    """Survey an engine, with an own kernel log, which is empty by default."""
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    return survey_machine(
        engine=engine.address, journal=tmp_path / "journal", since_seconds=86400, kmsg=kmsg
    )


def test_all_that_ended_have_a_line_each(engine, ago, tmp_path):
    """The list has a line for each death within the period, the latest first."""
    put_killed(engine, ago)
    put_container(
        engine, write_inspection(ago(9000), ago(8000), exit_code=0, id_=OTHER, name="eval")
    )
    survey = look_around(engine, tmp_path)
    deaths = list_deaths(survey, since_seconds=86400)
    out = format_deaths(deaths, width=80, asked=survey.time, since_seconds=86400)
    head, *lines = out.splitlines()
    assert head.startswith("2 containers or runs ended in the last 1d")
    assert [line.split()[-4:] for line in lines] == [
        ["train", "137", "kill-operator", "high"],
        ["eval", "0", "finished", "high"],
    ]
    assert [death.name for death in list_deaths(survey, since_seconds=3600)] == ["train"]
    assert list_deaths(survey, since_seconds=10) == ()
    said = format_deaths((), width=80, asked=survey.time, since_seconds=10)
    assert said == "No container and no run ended in the last 10s."


def test_a_container_that_only_the_kernel_remembers_is_listed(engine, ago, tmp_path):
    """A removed container that only the kernel log mentions is listed by its ID."""
    group = f"/docker/{ID}"
    (tmp_path / "kmsg").write_text(
        "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"oom_memcg={group},task_memcg={group},task=python3,pid=4242,uid=0\n"
        "3,2,2,-;Memory cgroup out of memory: Killed process 4242 (python3) total-vm:5kB\n"
    )
    deaths = list_deaths(look_around(engine, tmp_path), since_seconds=10 * 365 * 86400)
    assert [(death.name, death.id) for death in deaths] == [(ID[:12], ID)]


def test_the_list_for_programs_has_each_death(engine, diagnose, ago):
    """The JSON list has each death, and the command exits with 1 if one is a failure."""
    put_killed(engine, ago)
    code, out, _ = diagnose("--since=2h", "--json")
    document = json.loads(out)
    assert (code, document["format"]) == (1, 1)
    (death,) = [death for death in document["deaths"] if death["name"] == "train"]
    assert (death["reason"], death["exit_code"]) == ("kill-operator", 137)


def test_a_name_that_nobody_knows_is_answered_with_the_nearest(engine, diagnose, ago):
    """An unknown name exits with 2 and one line that suggests the most similar name."""
    put_killed(engine, ago)
    code, out, err = diagnose("trian")
    assert (code, out) == (2, "")
    assert err.startswith("trainvitals: no container, run or file 'trian'; known: train")
    assert err.count("\n") == 1


def test_a_misspelt_file_is_answered_with_the_nearest_here(diagnose, tmp_path):
    """A misspelt file name suggests a similar file, and a folder suggests `--evidence`."""
    for name in ("train-rank0.log", "other.txt"):
        (tmp_path / name).touch()
    (tmp_path / "fold").mkdir()
    code, _, err = diagnose("train-rnak0.log")
    assert (code, err.count("; files here: train-rank0.log")) == (2, 1)
    code, _, err = diagnose("fold")
    assert (code, err) == (2, "trainvitals: fold is a folder; read it with --evidence fold\n")


KILLS = """\
4,1,{0}000000,-;Out of memory: Killed process 4242 (python3) total-vm:9kB, anon-rss:8kB
6,2,{0}100000,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice/user-1000.slice/session-3.scope,task=julia,pid={1},uid=1000
3,3,{0}200000,-;Out of memory: Killed process {1} (julia) total-vm:9kB, anon-rss:8kB
"""


@pytest.fixture
def killed_outside(tmp_path, monkeypatch):
    """Make the kernel log report two OOM kills outside containers, a minute ago.

    The PID of one killed process now belongs to a running process.
    """
    booted = time.clock_gettime(time.CLOCK_MONOTONIC)
    (tmp_path / "kmsg").write_text(KILLS.format(int(booted - 60), os.getpid()))
    survey = partial(survey_machine, kmsg=tmp_path / "kmsg")
    monkeypatch.setattr("trainvitals.commands.diagnose_machine.survey_machine", survey)


@pytest.mark.usefixtures("killed_outside")
def test_a_kill_outside_containers_is_listed(engine, diagnose, ago):
    """An OOM kill outside containers is listed in every general report, with process and PID."""
    code, out, _ = diagnose("--since", "24h")
    head, *rows = out.split("OOM kills outside containers in the last 1d")[1].splitlines()
    assert (code, head) == (1, "; details: trainvitals diagnose --pid N")
    shown = [row.split()[1:] for row in rows]
    assert shown == [["julia", "PID", str(os.getpid())], ["python3", "PID", "4242"]]
    _, out, _ = diagnose("--since", "24h", "--json")
    assert [(each["name"], each["pid"]) for each in json.loads(out)["oom_kills"]] == [
        ("julia", os.getpid()),
        ("python3", 4242),
    ]
    code, out, _ = diagnose()
    assert (code, out.split()[:3]) == (1, ["Process", "julia", f"({os.getpid()})"])
    put_killed(engine, ago)
    _, out, _ = diagnose()
    assert out.startswith("Container train died")
    assert f"PID {os.getpid()}" in out
    assert "OOM kills" not in diagnose("train")[1]


def test_an_id_that_fits_several_asks_for_more(engine, diagnose, ago):
    """An ID prefix that matches two containers is an error that names both."""
    twin = ID[:20] + "0" * 44
    put_container(engine, write_inspection(ago(100), ago(40)))
    put_container(engine, write_inspection(ago(100), ago(40), id_=twin, name="twin"))
    code, _, err = diagnose(ID[:12])
    assert (code, err) == (
        2,
        f"trainvitals: {ID[:12]!r} may be train, twin; write more of it\n",
    )


def test_no_engine_and_no_journal_says_what_to_do(diagnose, tmp_path):
    """Without engine and journal, the error names the engine's failure and the access level."""
    code, out, err = diagnose(address=f"unix://{tmp_path}/nothing.sock")
    if code == 2:  # otherwise the machine's kernel log mentions a container that was killed
        assert out == ""
        assert err.startswith(
            "trainvitals: no container or run is known to have ended; the engine: "
        )
        assert "(access level 0 of 2 reads " in err
    code, _, err = diagnose("nobody-has-this-name", address=f"unix://{tmp_path}/nothing.sock")
    assert code == 2
    assert "level 1 adds the engine" in err


@pytest.mark.parametrize("words", ["lots", "5", "0h", "-1h"])
def test_a_time_that_is_none_is_refused(diagnose, words):
    """An invalid duration in `--since` is an error with examples."""
    code, _, err = diagnose(f"--since={words}")
    assert code == 2
    assert err == f"trainvitals: --since {words}: write a duration such as 90m, 24h or 7d\n"


def test_what_is_saved_can_be_judged_by_somebody_else(engine, diagnose, ago, tmp_path):
    """A saved folder is private, yields the same verdict, and is not overwritten."""
    put_killed(engine, ago)
    folder = tmp_path / "saved"
    _, told, _ = diagnose("train", f"--save={folder}", "--json")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {(path.name, stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()} == {
        ("evidence.json", 0o600),
        ("report.md", 0o600),
    }
    code = main(["diagnose", f"--evidence={folder}", "--json"])
    assert code == 1
    assert read_folder(folder).exit_code == 137
    document = json.loads(told)
    assert judge(read_folder(folder)).finding.summary == document["summary"]
    code, _, err = diagnose("train", f"--save={folder}")
    assert code == 2
    assert "is there already; name another folder with --save" in err


def test_the_evidence_comes_back_as_it_was(engine, diagnose, ago, tmp_path, capsys):
    """A saved folder yields exactly the same evidence as the machine itself."""
    put_killed(engine, ago)
    _, told, _ = diagnose("train", f"--save={tmp_path / 'saved'}", "--json")
    main(["diagnose", f"--evidence={tmp_path / 'saved'}", "--json"])
    again = capsys.readouterr().out
    assert json.loads(again)["evidence"] == json.loads(told)["evidence"]


def test_a_hostile_log_is_harmless(engine, diagnose, ago):
    """The report contains no control characters from a container's log or command."""
    put_container(
        engine,
        write_inspection(ago(100), ago(40), exit_code=1, command=("sh", "\x1b[2J\x07")),
        ("\x1b]0;owned\x07\x1b[31mError\x1b[0m", "\x9b2J\u202e", "a\rb"),
    )
    for form in ([], ["--markdown"]):
        _, out, _ = diagnose("train", *form)
        assert not {letter for letter in out if not letter.isprintable()} - {"\n"}


def test_no_secret_is_told_in_any_form(engine, diagnose, ago, tmp_path):
    """Secrets in the environment, command, error, health check and log are masked in any output."""
    shapes = [(text, secret) for text, secret, _ in SECRETS][:40]
    assert len(shapes) >= 20
    texts = [text for text, _ in shapes]
    probe = {"End": "2026-11-21T22:00:00Z", "ExitCode": 1, "Output": "\n".join(texts)}
    health = {"Status": "unhealthy", "FailingStreak": 1, "Log": [probe]}
    inspection = write_inspection(
        ago(100),
        ago(40),
        error="; ".join(text for text in texts if "\n" not in text),
        command=("sh", "-c", "\n".join(texts)),
        environ=tuple(f"PLAIN{number}={text}" for number, text in enumerate(texts)),
        health=health,
    )
    put_container(engine, inspection, tuple(line for text in texts for line in text.split("\n")))
    forms = {}
    for form in ([], ["--json"], ["--markdown"], [f"--save={tmp_path / 'saved'}"]):
        _, forms[str(form)], err = diagnose("train", *form, "--lines=500")
        assert err == ""
    for path in (tmp_path / "saved").iterdir():
        forms[path.name] = path.read_text()
    assert len(forms) == 6
    leaked = {
        (name, secret) for name, told in forms.items() for _, secret in shapes if secret in told
    }
    assert leaked == set()
    assert all("***" in told for told in forms.values())


def test_an_engine_that_hangs_is_a_gap(engine, diagnose, ago, tmp_path, monkeypatch):
    """If the engine hangs, the report names the gap and uses the journal, within seconds.

    The patience of 5 seconds is shortened, so that the test does not wait for it.
    """
    assert survey._PATIENCE_SECONDS <= 5
    monkeypatch.setattr(survey, "_PATIENCE_SECONDS", 0.5)
    write_record(tmp_path, ended=ago(60), exit_code=3, log=("x",))
    began = time.monotonic()
    with engine.hanging():
        code, out, _ = diagnose("train")
    assert code == 1
    assert "- the engine: unix://" in " ".join(out.split())
    assert time.monotonic() - began < 4.5


def test_a_proxy_that_withholds_logs_and_info_is_a_gap(engine, diagnose, ago):
    """If a proxy refuses logs and info, the report names the gap and still has a verdict."""
    put_killed(engine, ago)
    engine.put("/info", {"message": "forbidden"}, status=403)
    for key in (ID, "train"):
        engine.put(f"/containers/{key}/logs", {"message": "forbidden"}, status=403)
    code, out, _ = diagnose("train")
    assert code == 1
    assert "Verdict: kill-operator" in out
    assert "- its log: " in out


def test_a_process_of_this_machine_is_told(diagnose):
    """A running process gets the verdict "running", and a PID without a process exits with 2."""
    code, out, _ = diagnose(f"--pid={os.getpid()}", "--json")
    document = json.loads(out)
    assert (code, document["reason"], document["is_running"]) == (0, "running", True)
    code, _, err = diagnose("--pid=4194305")
    assert code == 2
    assert err.startswith("trainvitals: no evidence of process 4194305: it does not exist, ")
