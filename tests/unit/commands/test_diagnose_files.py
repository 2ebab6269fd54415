"""Tests for `trainvitals diagnose` on files and standard input."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from tests.unit.verdicts.causes.test_kernel_alone import ID, NEW_LIMIT, OLD_HOST
from tests.unit.verdicts.causes.test_pods import OOM as OOM_KILLED
from tests.unit.verdicts.causes.test_pods import write_pod
from trainvitals.cli import main
from trainvitals.sources.containers.evidence import Evidence, State
from trainvitals.sources.containers.evidence_kinds import is_kernel_log
from trainvitals.verdicts.causes.diagnosis import diagnose_evidence
from trainvitals.views.death.markdown import format_markdown

STEPS = "step 1 loss 2.3\nstep 2 loss 2.2\n"
NO_MEMORY = STEPS + (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 3, in <module>\n'
    "    loss.backward()\n"
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)


@pytest.fixture
def diagnose(tmp_path, capsys, monkeypatch):
    """Return a function that writes files, runs the command, and returns code, reason, document."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin="", **files):
        for name, text in files.items():
            Path(name.replace("_", ".")).write_text(text)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(["diagnose", "--json", "--engine=none", "--journal=j", *arguments])
        output, errors = capsys.readouterr()
        document = json.loads(output) if output else {}
        return code, document.get("reason"), document or errors

    return run


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        (NO_MEMORY, 1, "cuda-oom"),
        (STEPS + "Training completed in 2 h\n", 0, "finished"),
        (STEPS, 2, "unknown"),
        (OLD_HOST, 1, "oom-host"),
        (NEW_LIMIT.replace("100.1]", "100.100000]"), 1, "oom-cgroup"),
        (write_pod(OOM_KILLED), 1, "oom-cgroup"),
    ],
    ids=["log", "success", "progress", "syslog", "dmesg", "pod"],
)
def test_a_file_is_recognised_by_its_content(diagnose, text, code, reason):
    """A file and standard input are recognised by content, and the exit code shows the result."""
    assert diagnose("case.txt", case_txt=text)[:2] == (code, reason)
    assert diagnose("-", stdin=text)[:2] == (code, reason)


def test_a_kernel_log_may_be_alone_or_beside_a_log(diagnose):
    """A kernel log can be given alone or with a container's log; one of them can be standard input."""
    assert diagnose("--kernel-log", "k.txt", k_txt=OLD_HOST)[:2] == (1, "oom-host")
    both = diagnose("a.log", "--kernel-log", "-", stdin=NEW_LIMIT, a_log=STEPS)
    assert both[:2] == (1, "oom-cgroup")
    assert both[2]["origin"] == "a.log and standard input"
    assert diagnose("-", "--kernel-log", "-")[0] == 2


def test_a_container_without_its_engine_is_explained_by_the_kernel(diagnose):
    """Without an engine, the kernel log suffices to diagnose a container, also without its ID."""
    kernel = NEW_LIMIT.replace("/slurm/job_7", f"/docker/{ID}")
    for asked in ((ID[:12],), ()):
        code, reason, document = diagnose(*asked, "--kernel-log", "k.txt", k_txt=kernel)
        assert (code, reason, document["confidence"]) == (1, "oom-cgroup", "medium")
        assert not document["is_running"]
        assert not document["contributing"]


def test_an_exit_code_may_have_its_signal_in_another_way(diagnose, capsys):
    """An exit code of 256 + N or -N means signal N, and any other invalid code is refused."""
    found = diagnose("a.log", "--exit-code", "271", a_log=STEPS)
    assert (*found[:2], found[2]["exit_code"]) == (1, "term-outside", 271)
    assert "Exit code 271 is SIGTERM (256 + 15)." in found[2]["speaks_for"]
    assert diagnose("a.log", "--exit-code", "-9")[:2] == (1, "kill-outside")
    for wrong in ("256", "400", "-70", "nine"):
        with pytest.raises(SystemExit):
            diagnose("a.log", "--exit-code", wrong)
        assert len(capsys.readouterr().err.splitlines()[-1]) < 160


def test_what_the_user_knows_decides_between_running_and_dead(diagnose):
    """A process is reported as running only with --running, not by default."""
    found = diagnose("a.log", a_log=STEPS)
    assert not found[2]["is_running"]
    assert diagnose("a.log", "--running")[:2] == (0, "running")
    assert diagnose("a.log", "--ended")[:2] == (1, "unknown")
    assert diagnose("a.log", "--exit-code", "137")[:2] == (1, "kill-outside")
    assert diagnose("a.log", "--exit-code", "0")[:2] == (0, "finished")


def test_the_most_suspicious_lines_are_shown_instead_of_advice(diagnose):
    """For an unknown cause, the report has at most three suspicious log lines and their numbers."""
    log = "".join(f"worker {at} is unable to pull its lease\nstep {at}\n" for at in range(9))
    document = diagnose("a.log", "--ended", a_log=log + "all workers gone\n")[2]
    assert [each.split(" may")[0] for each in document["speaks_for"]] == [
        f"Log line {at} of 19" for at in (13, 15, 17)
    ]
    assert not [step for step in document["steps"] if "PYTHON" in step]


def test_the_files_of_a_folder_are_recognised_by_their_content(diagnose):
    """Files are recognised by content, whatever their names; binary files and links are ignored."""
    folder = Path("case")
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"CUDA out of memory\0")
    (folder / "notes.md").write_text(NO_MEMORY)
    (folder / "link.log").symlink_to("../elsewhere.log")
    Path("elsewhere.log").write_text(NO_MEMORY)
    code, _, errors = diagnose("--evidence", "case")
    assert (code, "it is to hold a log, a kernel log" in errors) == (2, True)
    (folder / "train-rank0.log").write_text(STEPS)
    (folder / "train-rank1.log").write_text(NO_MEMORY)
    assert diagnose("--evidence", "case")[:2] == (1, "cuda-oom")
    (folder / "dmesg.txt").write_text(OLD_HOST)
    (folder / "train-rank1.log").write_text(STEPS)
    assert diagnose("--evidence", "case")[:2] == (1, "oom-host")
    (folder / "kernel.txt").write_text("")
    assert diagnose("--evidence", "case")[1] != "oom-host"


def test_a_folder_with_a_description_of_a_pod(diagnose):
    """The description of a pod in a folder is recognised whatever the name of the file."""
    Path("case").mkdir()
    Path("case/describe.out").write_text(write_pod(OOM_KILLED))
    assert diagnose("--evidence", "case")[:2] == (1, "oom-cgroup")


INSPECTION = {
    "Id": "3f1b" * 16,
    "Name": "/fit",
    "State": {
        "Status": "exited",
        "OOMKilled": True,
        "ExitCode": 137,
        "StartedAt": "2025-05-03T09:00:01.1Z",
        "FinishedAt": "2025-05-03T10:00:01.1Z",
    },
    "Config": {"Image": "acme/fit:2", "Cmd": ["python", "train.py"]},
    "HostConfig": {"Memory": 8 << 30, "RestartPolicy": {"Name": "no"}},
}


@pytest.mark.parametrize("document", [INSPECTION, [INSPECTION]])
def test_an_inspection_of_the_engine_is_a_file_too(diagnose, document):
    """The output of `docker inspect` is recognised as a file, on standard input and in a folder."""
    text = json.dumps(document, indent=4)
    code, reason, found = diagnose("fit.json", fit_json=text)
    assert (code, reason, found["name"]) == (1, "oom-cgroup", "fit")
    assert diagnose("-", stdin=text)[:2] == (1, "oom-cgroup")
    Path("case").mkdir()
    Path("case/fit.json").write_text(text)
    Path("case/other.json").write_text(json.dumps({"log": NO_MEMORY}))
    assert diagnose("--evidence", "case")[:2] == (1, "oom-cgroup")


def test_a_list_that_is_no_inspection_is_a_log(diagnose):
    """The inspection of an image, or a log that begins with a bracket, is treated as a log."""
    image = json.dumps([{"Config": {}, "HostConfig": {}}])
    for text in (image, f'[1] "HostConfig" is wrong\n{NO_MEMORY}', '[{"HostConfig": 1}'):
        assert diagnose("a.json", a_json=text)[0] in {1, 2}


def test_what_cannot_be_read_is_named(diagnose):
    """A missing, empty or unreadable file exits with 2 and an error message."""
    Path("folder.d").mkdir()
    for arguments in (["./none.log"], ["./folder.d"], ["--ended"], ["empty.log"]):
        code, _, errors = diagnose(*arguments, empty_log="")
        assert (code, bool(errors)) == (2, True)


def test_the_journal_of_a_program_is_no_kernel_log():
    """A syslog of an ordinary program is not recognised as a kernel log."""
    line = "Nov 23 15:00:01 h1 python[7]: step 1 loss 2.3\n"
    assert not is_kernel_log(line * 9)
    assert is_kernel_log("Nov 23 15:00:01 h1 earlyoom[7]: low memory!\n" + OLD_HOST)


@pytest.mark.parametrize("flag", ["--kernel-log", ""])
def test_what_is_no_regular_file_is_refused(diagnose, tmp_path, flag):
    """Named pipes and devices are refused, because reading them might never end."""
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "link.txt").symlink_to("/dev/zero")
    for name in ("./pipe.txt", "./link.txt", "/dev/zero"):
        code, _, errors = diagnose(*filter(None, (flag, name)))
        assert (code, errors) == (
            2,
            f"trainvitals: cannot read {Path(name)}: it is no regular file; put the file itself there\n",
        )


def test_what_the_shell_opens_is_read(diagnose):
    """A pipe under /dev/fd is read, as in `trainvitals diagnose <(docker logs train)`."""
    reading, writing = os.pipe()
    os.write(writing, NO_MEMORY.encode())
    os.close(writing)
    assert diagnose(f"/dev/fd/{reading}")[1] == "cuda-oom"
    os.close(reading)


def test_the_report_for_an_issue_is_masked():
    """The Markdown report masks secrets in the evidence, whatever the origin of the evidence."""
    evidence = Evidence(
        "container",
        "train",
        exit_code=1,
        state=State("exited", 1, error="login failed: password=geheim1234"),
        log=("ValueError: token=geheim12345678",),
        kernel_lines=("mounting //nas with password=geheim1234",),
    )
    diagnosis = diagnose_evidence(evidence, asked=1e9, origin="train.log")
    text = format_markdown(diagnosis)
    assert "geheim1234" not in text
    assert "ValueError: token=***" in text
