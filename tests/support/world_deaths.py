"""Process deaths from public threads, and a count of the correct verdicts.

Developers of detectors may read the deaths in `tests/fixtures/world_deaths/seen/NAME.txtar`, but
not those in `held_out/`, which show how the detectors perform on unknown cases. Each file has the
format of `tests/support/deaths.py`, and its `expected.yml` has these keys:

`reason`  the cause, by the thread's own conclusion; `finished`, `running` or `unknown` if the
          evidence shows no fault
`also`    other reasons that are correct
`origin`  the thread
`note`    a one-sentence description of the death

    $ python -m tests.support.world_deaths seen      # a line for each incorrect verdict, and totals

A third of the deaths is held out, chosen by a hash of the name before the first verdict. Whoever
examines why a held-out verdict is incorrect must move all held-out deaths to `seen` and collect new
ones.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from tests.support.deaths import split_archive
from trainvitals.errors import TrainvitalsError
from trainvitals.sources.containers.evidence_folder import read_folder
from trainvitals.verdicts.causes.judge import judge

WORLD = Path(__file__).parents[1] / "fixtures/world_deaths"
INNOCENT = frozenset({"finished", "running", "unknown"})
_LOG = "log.txt"


@dataclass(frozen=True, slots=True)
class Judged:
    """One death with its verdict.

    Attributes:
        name: The name of the file, without the suffix.
        expected: The correct reasons, the best first.
        reason: The reason of the verdict; empty if the evidence could not be read.
        confidence: The confidence of the verdict; empty if the evidence could not be read.
    """

    name: str
    expected: tuple[str, ...]
    reason: str
    confidence: str

    @property
    def is_right(self) -> bool:
        """Whether the verdict names a correct reason."""
        return self.reason in self.expected

    @property
    def is_wrong(self) -> bool:
        """Whether the verdict names an incorrect cause; a verdict without a cause is not wrong."""
        return not self.is_right and self.reason not in INNOCENT | {""}

    @property
    def is_innocent(self) -> bool:
        """Whether the evidence shows no fault, according to `expected.yml`."""
        return self.expected[0] in INNOCENT


def list_expected(folder: str) -> tuple[tuple[str, ...], ...]:
    """Return the correct reasons for each death in `seen` or `held_out`."""
    return tuple(_read(path)[0] for path in _list_paths(folder))


@lru_cache
def judge_world(folder: str) -> tuple[Judged, ...]:
    """Return the verdicts for all deaths in `seen` or `held_out`."""
    return tuple(_judge(path.stem, *_read(path)) for path in _list_paths(folder))


@lru_cache
def judge_logs_alone(folder: str) -> tuple[Judged, ...]:
    """Return the verdicts for the deaths that have a log, based only on the log."""
    archives = [(path.stem, *_read(path)) for path in _list_paths(folder)]
    return tuple(
        _judge(name, expected, {_LOG: files[_LOG]})
        for name, expected, files in archives
        if _LOG in files
    )


def _list_paths(folder: str) -> list[Path]:
    return sorted((WORLD / folder).glob("*.txtar"))


def _read(path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the correct reasons and the files of the evidence."""
    _, files = split_archive(path.read_text(encoding="utf-8"))
    document = yaml.load(files.pop("expected.yml"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return (document["reason"], *(document.get("also") or ())), files


def _judge(name: str, expected: tuple[str, ...], files: dict[str, str]) -> Judged:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, name)
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        try:
            verdict = judge(read_folder(folder))
        except TrainvitalsError:
            return Judged(name, expected, "", "")
    return Judged(name, expected, verdict.reason, verdict.confidence)


def _main(folder: str) -> None:
    found = judge_world(folder)
    if folder == "seen":
        for each in found:
            if not each.is_right:
                wanted = ", ".join(each.expected)
                print(f"{each.name}: {each.reason or 'unreadable'} {each.confidence}, not {wanted}")
    _tell(found)
    alone = judge_logs_alone(folder)
    with_log = {each.name for each in alone}
    print("of those with a log:", end=" ")
    _tell([each for each in found if each.name in with_log])
    print("by the log alone:", end=" ")
    _tell(alone)


def _tell(found: Sequence[Judged]) -> None:
    guilty = [each for each in found if not each.is_innocent]
    innocent = [each for each in found if each.is_innocent]
    print(
        f"{sum(each.is_right for each in guilty)} of {len(guilty)} right, "
        f"{sum(each.is_wrong for each in guilty)} wrong, "
        f"{sum(each.is_wrong and each.confidence == 'high' for each in guilty)} of them with high; "
        f"{sum(each.is_wrong for each in innocent)} of {len(innocent)} innocents accused"
    )


if __name__ == "__main__":
    _main(*sys.argv[1:])
