"""Programs that do not import the client, run under `trainvitals run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.run_files import decode
from trainvitals.runfile import STATE, STEP

HEAD = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
def load(count=64, batch=8, **options):
    return DataLoader(TensorDataset(torch.randn(count, 8)), batch_size=batch, **options)
def lose(batch):
    return model(batch[0]).square().mean()
"""
# Importing PyTorch takes longer than any of the programs, so one process imports it for all.
_MANY = """
import json, os, sys, traceback
if __name__ == "__main__":
    import torch._dynamo  # the first step of an optimizer imports it
    codes = {}
    for number, (name, body) in enumerate(json.load(open(sys.argv[1])).items()):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.environ["TRAINVITALS_RUN"] = f"program-{number}"
            sys.argv[1] = os.path.join(os.getcwd(), "saved." + str(os.getpid()))
            os.dup2(os.open(sys.argv[1] + ".out", os.O_CREAT | os.O_WRONLY, 0o600), 1)
            exec(compile(body, name, "exec"), globals())
            sys.exit()
        _, status = os.waitpid(pid, 0)
        path = "saved." + str(pid) + ".out"
        codes[name] = [os.waitstatus_to_exitcode(status), open(path).read()]
    print(json.dumps(codes))
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended.

    Attributes:
        code: The exit code, negative for a signal.
        output: The text on standard output.
        records: The contents of the run files.
    """

    code: int
    output: str
    records: list[Any]

    def step(self, name: str) -> float:
        """Return a word of the step record of the only run file."""
        (record,) = self.records
        value: float = record.step[STEP[name]]
        return value

    def state(self, name: str) -> float:
        """Return a word of the state record of the only run file."""
        (record,) = self.records
        value: float = record.state[STATE[name]]
        return value


def run(
    directory: Path,
    *command: Any,
    environ: Mapping[str, str] | None = None,
    runs: Path | None = None,
    **options: Any,
) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Run a command under `trainvitals run`; return the process and the records of its runs."""
    if runs is None:  # /dev/shm, where every step is published, also the last before a kill
        with TemporaryDirectory(dir="/dev/shm") as name:
            return run(directory, *command, environ=environ, runs=Path(name), **options)
    done = subprocess.run(
        (sys.executable, "-m", "trainvitals", "run", "--run-dir", runs, *command),
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    return done, [decode(path.read_bytes()) for path in sorted(runs.glob("*.tv"))]


def run_all(
    directory: Path,
    programs: Mapping[str, str],
    *,
    head: str = HEAD,
    environ: Mapping[str, str] | None = None,
) -> tuple[dict[str, Ended], str]:
    """Run programs in forked children of one process; return each result and standard error."""
    script, bodies = directory / "many.py", directory / "programs.json"
    script.write_text(head + _MANY, encoding="utf-8")
    bodies.write_text(json.dumps(programs), encoding="utf-8")
    done, records = run(directory, "--", sys.executable, script, bodies, environ=environ)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    return {
        name: Ended(
            *codes[name], [each for each in records if each.identity.run == f"program-{number}"]
        )
        for number, name in enumerate(programs)
    }, done.stderr
