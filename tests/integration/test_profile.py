"""`trainvitals profile` requests a trace of a live PyTorch run, and the run continues."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.privileges import as_nobody
from tests.support.run_files import decode
from tests.support.waiting import wait_until
from trainvitals import runfile
from trainvitals.cli import main
from trainvitals.runfile import STEP, traces
from trainvitals.runfile.traces import TraceStage

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests/fakes/traced_training.py"
COMMAND = (sys.executable, "-m", "trainvitals", "profile")


class Trainer:
    """A training process, with its run directory and the folder of its traces.

    Args:
        folder: The directory for all files.
        mode: The behaviour of the process; see `fakes/traced_training.py`.
    """

    def __init__(self, folder: Path, mode: str, **environ: str) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.traces = folder / "traces"
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "exporter"),
            "TRAINVITALS_RUN_DIR": str(self.runs),
            "TRAINVITALS_PROFILE_DIR": str(self.traces),
            **environ,
        }
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, mode, folder],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            cwd=folder,
        )
        if mode == "stall":
            wait_until((folder / "stalled").exists)
        else:
            self.wait_for_steps(5)

    @property
    def path(self) -> Path:
        """The path of the run file."""
        (path,) = self.runs.glob("*.tv")
        return path

    def count_steps(self) -> float:
        """Return the number of steps that the run has taken."""
        paths = list(self.runs.glob("*.tv"))
        return decode(paths[0].read_bytes()).step[STEP["steps"]] if paths else 0.0

    def wait_for_steps(self, number: float) -> None:
        """Wait until the run has taken this number of further steps."""
        wanted = max(0.0, self.count_steps()) + number

        def has_taken_them() -> bool:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            return self.count_steps() >= wanted

        wait_until(has_taken_them, 60)

    def answer(self) -> traces.TraceAnswer:
        """Return the run's answer to the last trace request."""
        return traces.decode_trace_answer(self.path.read_bytes())

    def wait_for_stage(self, *stages: TraceStage) -> None:
        """Wait until the trace is in one of the stages."""
        wait_until(lambda: self.answer().stage in stages)

    def ask(self, *arguments: str, expect: int = 0, **options: object) -> tuple[str, str]:
        """Run `trainvitals profile`; return its standard output and standard error."""
        answer = subprocess.run(
            [*COMMAND, *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            **options,
        )
        assert answer.returncode == expect, answer.stdout + answer.stderr
        assert "Traceback" not in answer.stderr
        return answer.stdout, answer.stderr

    def begin_to_ask(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `trainvitals profile` without waiting for its end."""
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> tuple[int, int]:
        """Let the run end; return its number of steps and the errors of its monitor."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        steps, errors = (self.folder / "finished").read_text(encoding="utf-8").split()
        return int(steps), int(errors)

    def close(self) -> None:
        """Kill the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stderr):
            assert pipe
            pipe.close()


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a training process."""
    pytest.importorskip("torch")
    trainers = []

    def start(mode="plain", **environ):
        trainer = Trainer(tmp_path, mode, **environ)
        trainers.append(trainer)
        return trainer

    yield start
    for trainer in trainers:
        trainer.close()


def read_trace(folder):
    """Return the events of a trace after checks of its format."""
    document = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    assert {"schemaVersion", "traceEvents"} <= set(document)
    for event in document["traceEvents"]:
        assert "ph" in event
        assert "name" in event
    return document["traceEvents"]


def test_a_trace_of_the_next_steps(start):
    """A trace has the requested steps and details in private files, and the run continues."""
    trainer = start()
    said, _ = trainer.ask("trac", "--steps", "4", "--record-shapes", "--with-stack")
    (folder,) = trainer.traces.iterdir()
    assert said.splitlines()[0] == "4 steps of run traced, rank 0"
    assert f"{folder}/trace.json.gz" in said
    events = read_trace(folder)
    marks = {event["name"] for event in events if event["name"].startswith("ProfilerStep#")}
    assert marks == {f"ProfilerStep#{number}" for number in range(4)}
    multiplications = [event for event in events if event["name"] == "aten::addmm"]
    assert len(multiplications) == 8
    assert multiplications[0]["args"]["Input Dims"][1:3] == [[4, 16], [16, 16]]
    assert any(event["name"] == "[memory]" for event in events)
    assert any("traced_training.py" in event["name"] for event in events)
    summary = (folder / "summary.txt").read_text(encoding="utf-8")
    assert summary.startswith("Run traced, rank 0: 4 steps\n")
    assert "By CPU time of its own" in summary
    assert "By CPU memory of its own" in summary
    assert "aten::addmm" in summary
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())}
    assert modes == {folder.name: "0o700", "trace.json.gz": "0o600", "summary.txt": "0o600"}
    trainer.wait_for_steps(20)
    assert trainer.finish()[1] == 0


def test_json_and_a_second_trace(start):
    """`--json` prints the paths of the files, and a second trace has its own folder."""
    trainer = start()
    documents = [json.loads(trainer.ask("traced", "--json", "--no-memory")[0]) for _ in range(2)]
    assert [document["steps"] for document in documents] == [5, 5]
    assert len({document["trace"] for document in documents}) == 2
    for document in documents:
        assert read_trace(Path(document["trace"]).parent)
        assert document["error"] is None
    assert trainer.finish()[1] == 0


def test_asking_twice(start):
    """A second request is refused while the first one waits, and Ctrl-C withdraws the first."""
    trainer = start("stall")
    first = trainer.begin_to_ask("traced", "--timeout", "60")
    wait_until(lambda: traces.decode_trace_request(trainer.path.read_bytes()) is not None)
    _, said = trainer.ask("traced", expect=2)
    assert "another request is active for run traced, rank 0" in said
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    # The interrupted command has withdrawn its request.
    assert traces.decode_trace_request(trainer.path.read_bytes()) is None


def test_asking_while_a_trace_is_taken(start):
    """A request during a trace is refused, and the first trace and the run are not disturbed."""
    trainer = start()
    first = trainer.begin_to_ask("traced", "--steps", "100")
    trainer.wait_for_stage(TraceStage.TRACING, TraceStage.WRITING)
    _, said = trainer.ask("traced", expect=2)
    assert "ask again when that is over" in said
    assert first.wait(60) == 0
    first.communicate()
    assert trainer.finish()[1] == 0


def test_a_run_that_takes_no_step(start):
    """The command fails after its timeout and withdraws the request if the run takes no step."""
    trainer = start("stall")
    _, said = trainer.ask("traced", "--timeout", "1.5", expect=2)
    assert "run traced has not seen the request yet after 1.5s" in said
    assert "--timeout" in said
    assert traces.decode_trace_request(trainer.path.read_bytes()) is None


def test_a_run_that_is_over(start):
    """A finished run, an unknown run and invalid arguments are refused with the reason."""
    trainer = start()
    trainer.finish()
    assert (
        "run traced is over; see `trainvitals postmortem traced`"
        in trainer.ask("traced", expect=2)[1]
    )
    assert "no run 'other' in" in trainer.ask("other", expect=2)[1]
    assert "write a number from 1 to 100" in trainer.ask("traced", "--steps", "101", expect=2)[1]
    assert "write a number of seconds" in trainer.ask("traced", "--timeout", "nan", expect=2)[1]


def test_a_run_that_dies_meanwhile(start):
    """The command fails at once if the run dies while it waits."""
    trainer = start("stall")
    asking = trainer.begin_to_ask("traced")
    wait_until(lambda: traces.decode_trace_request(trainer.path.read_bytes()) is not None)
    trainer.process.kill()
    trainer.process.wait()
    _, said = asking.communicate(timeout=30)
    assert asking.returncode == 2
    assert "run traced ended before the trace was written" in said


def test_a_run_that_ends_in_a_trace(start):
    """The steps that were traced before the run ended are written."""
    trainer = start("ending")
    said, _ = trainer.ask("traced", "--steps", "50")
    assert said.splitlines()[0] == "2 steps of run traced, rank 0 (the run ended)"
    (folder,) = trainer.traces.iterdir()
    assert read_trace(folder)
    assert trainer.finish()[1] == 0


def test_a_full_disk(start):
    """On a full disk no partial trace is left, the reason is reported, and the run continues."""
    trainer = start("full")
    said, _ = trainer.ask("traced", "--steps", "50", "--record-shapes", expect=1)
    assert "took no trace: " in said
    assert "make room" in said
    assert list(trainer.traces.iterdir()) == []
    trainer.wait_for_steps(20)
    assert trainer.finish()[1] == 0


def test_a_folder_that_cannot_be_written(start):
    """The error for a folder that cannot be written names the folder and its variable."""
    trainer = start(TRAINVITALS_PROFILE_DIR="/proc/traces")
    said, _ = trainer.ask("traced", expect=1)
    assert "cannot write to /proc/traces: " in said
    assert "TRAINVITALS_PROFILE_DIR" in said
    assert trainer.finish()[1] == 0


def test_without_a_folder_it_is_where_the_run_was_started(start):
    """Without a configured folder, traces are written below the run's working directory."""
    trainer = start(TRAINVITALS_PROFILE_DIR="")
    document = json.loads(trainer.ask("traced", "--steps", "1", "--json")[0])
    assert Path(document["trace"]).parents[1] == trainer.folder / "trainvitals-profiles"


def test_a_run_without_pytorch(start):
    """The request to a run without PyTorch is refused with the reason."""
    trainer = start("numpy")
    said, progress = trainer.ask("traced", expect=1)
    assert "has not seen" not in progress
    assert "PyTorch is not loaded in this process" in said


def test_a_profiler_of_the_programs_own_is_left_alone(start):
    """No trace is taken while the program has a torch.profiler of its own."""
    trainer = start("owned")
    said, _ = trainer.ask("traced", expect=1)
    assert "the program has a torch.profiler of its own" in said
    assert trainer.finish()[1] == 0


def test_a_profiler_that_the_program_begins_goes_first(start):
    """A trace ends when the program begins a torch.profiler of its own, which is not disturbed."""
    trainer = start("own")
    said, _ = trainer.ask("traced", "--steps", "50")
    assert said.splitlines()[0] == (
        "2 steps of run traced, rank 0 (the program began a torch.profiler of its own)"
    )
    document = json.loads((trainer.folder / "own.json").read_text(encoding="utf-8"))
    assert any(event["name"] == "aten::addmm" for event in document["traceEvents"])
    trainer.ask("traced", "--steps", "2")
    assert trainer.finish()[1] == 0


def test_validation_ends_a_trace(start):
    """A trace ends when validation begins, because validation may last for hours."""
    trainer = start("validate")
    said, _ = trainer.ask("traced", "--steps", "50")
    assert said.splitlines()[0] == "3 steps of run traced, rank 0 (validation began)"
    assert trainer.finish()[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_run_of_another_user(start, capsys):
    """The run of another user is refused, because its run file cannot be written."""
    trainer = start()
    for path in (trainer.folder, *trainer.folder.parents[:3]):
        path.chmod(0o755)
    # All modules are loaded before the change of user, after which files cannot be read.
    assert main(["profile", "nobody", "--run-dir", str(trainer.runs)]) == 2
    "".encode("ascii")
    with as_nobody():
        assert main(["profile", "traced", "--run-dir", str(trainer.runs)]) == 2
    said = capsys.readouterr().err
    assert "run traced is another user's: ask as that user, or as root" in said


def test_an_older_client(start):
    """The command does not wait for a run whose trainvitals is too old for trace requests."""
    trainer = start("stall")
    with trainer.path.open("r+b", buffering=0) as file:
        file.seek(runfile.TRACE_AT)
        file.write(bytes(runfile.TRACE_BYTES))
    assert "its trainvitals is older than this one" in trainer.ask("traced", expect=2)[1]
