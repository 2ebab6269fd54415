"""Deaths from public threads, and how many of them are judged right.

`tests/fixtures/world_deaths/seen/NAME.txtar` may be read while detectors are written, those in
`held_out/` may not: they show how the detectors do on what they were not written for. Each has the
form of the other deaths (`tests/support/deaths.py`); its `expected.yml` has

`reason`  what happened, by the thread's own conclusion; of an innocent `finished`, `running` or
          `unknown`
`also`    reasons that are right as well
`origin`  the thread
`note`    what happened, in a sentence

    $ python -m tests.support.world_deaths seen      # a line for each that is not right, and totals

A third of what was collected is held out, chosen by a hash of its name before it was judged. Who looks
at why one of them is not right moves all of them to those seen, and collects new ones.
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
        name: Its file, without the suffix.
        expected: The reasons that are right, the first one best.
        reason: The reason that it got; empty where its evidence could not be read.
        confidence: How sure the verdict is; empty where there is none.
    """

    name: str
    expected: tuple[str, ...]
    reason: str
    confidence: str

    @property
    def is_right(self) -> bool:
        """Whether the verdict is one of the right ones."""
        return self.reason in self.expected

    @property
    def is_wrong(self) -> bool:
        """Whether the verdict names another cause; one without a cause is not wrong."""
        return not self.is_right and self.reason not in INNOCENT | {""}

    @property
    def is_innocent(self) -> bool:
        """Whether nothing went wrong that the evidence shows."""
        return self.expected[0] in INNOCENT


def list_expected(folder: str) -> tuple[tuple[str, ...], ...]:
    """Return the reasons that are right for each death of `seen` or `held_out`."""
    return tuple(_read(path)[0] for path in _list_paths(folder))


@lru_cache
def judge_world(folder: str) -> tuple[Judged, ...]:
    """Return the verdicts of all deaths of `seen` or `held_out`."""
    return tuple(_judge(path.stem, *_read(path)) for path in _list_paths(folder))


@lru_cache
def judge_logs_alone(folder: str) -> tuple[Judged, ...]:
    """Return the verdicts of those that have a log, by nothing but the log."""
    archives = [(path.stem, *_read(path)) for path in _list_paths(folder)]
    return tuple(
        _judge(name, expected, {_LOG: files[_LOG]})
        for name, expected, files in archives
        if _LOG in files
    )


def _list_paths(folder: str) -> list[Path]:
    return sorted((WORLD / folder).glob("*.txtar"))


def _read(path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the reasons that are right, and the files of the evidence."""
    _, files = split_archive(path.read_text(encoding="utf-8"))
    document = yaml.safe_load(files.pop("expected.yml"))
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
