"""Mutation testing of the alerts: rules are deliberately broken, one place at a time.

`python -m tests.support.rule_mutants [ALERT…]` breaks the named alerts, or all alerts if none is
named. It runs the tests of each alert with promtool and prints the mutants that no test detected.

A mutant of an alert must be detected by the alert's own tests, and a mutant of a recording rule by
the tests of any alert that needs the rule. Mutants with no observable effect are listed with the
reason in `tests/rules/equivalent.yml` and are not counted. A listed mutant that a test detects is
an error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.rule_breaking import Mutant, choose_share, list_mutants
from tests.support.rule_trial import Trial
from tests.support.rulebook import TESTS, Rulebook, read_rulebook

EQUIVALENT = TESTS / "equivalent.yml"
GOAL_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        killed: The mutants that a test detected.
        survived: The mutants that no test detected, without the equivalent mutants.
        equivalent: The undetected mutants that are listed as equivalent.
        refuted: The mutants that are listed as equivalent but were detected.
        invalid: The mutants that Prometheus cannot parse, which are not counted.
    """

    killed: tuple[Mutant, ...]
    survived: tuple[Mutant, ...]
    equivalent: tuple[Mutant, ...]
    refuted: tuple[Mutant, ...]
    invalid: tuple[Mutant, ...]

    @property
    def score(self) -> float:
        """Return the ratio of detected mutants, or 1 if no mutant was counted."""
        counted = len(self.killed) + len(self.survived)
        return len(self.killed) / counted if counted else 1.0


def read_equivalent(path: Path = EQUIVALENT) -> dict[str, str]:
    """Read the list of mutants that have no observable effect, each with the reason."""
    if not path.exists():
        return {}
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    return {entry["mutant"]: entry["reason"] for entry in entries}


def conclude(verdicts: Mapping[Mutant, str], equivalent: Iterable[str]) -> Outcome:
    """Sort the mutants by their result."""
    listed = set(equivalent)
    sorted_: dict[str, list[Mutant]] = {field.name: [] for field in dataclasses.fields(Outcome)}
    for mutant, words in verdicts.items():
        is_listed = mutant.name in listed
        if "could not parse" in words or "parse error" in words:
            sorted_["invalid"].append(mutant)
        elif words:
            sorted_["refuted" if is_listed else "killed"].append(mutant)
        else:
            sorted_["equivalent" if is_listed else "survived"].append(mutant)
    return Outcome(**{name: tuple(mutants) for name, mutants in sorted_.items()})


def run_mutants(
    alerts: Sequence[str],
    *,
    promtool: str,
    directory: Path,
    choose: Callable[[Iterable[Mutant]], tuple[Mutant, ...]] = tuple,
    book: Rulebook | None = None,
    tests: Path = TESTS,
    equivalent: Iterable[str] | None = None,
) -> Outcome:
    """Break the rules and return which mutants the tests detected.

    Args:
        alerts: The alerts to break; if empty, all alerts.
        promtool: The path of promtool.
        directory: An empty working directory.
        choose: A function that selects some of the mutants.
        book: The rules; None for the rules of the project.
        tests: The folder of the test files.
        equivalent: The names of the equivalent mutants; None for the list of the project.

    Raises:
        ValueError: An alert does not exist, or one of its tests that detects a mutant fails with
            the unchanged rules too.
    """
    book = book or read_rulebook()
    trial = Trial(book, promtool=promtool, directory=directory, tests=tests)
    known = [rule.name for rule in book.alerts]
    if unknown := [name for name in alerts if name not in known]:
        raise ValueError(f"no alert {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = alerts or known
    mutants = choose(list_mutants(book, wanted))
    verdicts = trial.judge(mutants, wanted)
    return conclude(verdicts, read_equivalent() if equivalent is None else equivalent)


def describe(outcome: Outcome, *, whole: bool = False) -> str:
    """Describe a run: the survivors, with their broken rules if `whole` is set, and the score."""
    lines = []
    for mutant in outcome.survived:
        lines.append(f"SURVIVED {mutant.name}")
        lines += [f"         {' '.join(mutant.change.split())}"] if whole else []
    lines += [f"REFUTED  {m.name}: listed as equivalent, but noticed" for m in outcome.refuted]
    lines += [f"INVALID  {m.name}" for m in outcome.invalid]
    counted = len(outcome.killed) + len(outcome.survived)
    lines.append(
        f"{len(outcome.killed)} of {counted} mutants killed ({outcome.score:.1%}), "
        f"{len(outcome.survived)} survived, {len(outcome.equivalent)} equivalent"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.rule_mutants", description=__doc__
    )
    parser.add_argument("alerts", nargs="*", metavar="ALERT", help="the alerts to break; none: all")
    parser.add_argument("--tenth", action="store_true", help="only the fixed tenth of `make test`")
    parser.add_argument("--whole", action="store_true", help="show each survivor's whole rule")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there as well")
    options = parser.parse_args(arguments)
    promtool = shutil.which("promtool")
    if promtool is None:
        print("no promtool in PATH: install Debian's prometheus", file=sys.stderr)
        return 2
    memory = Path("/dev/shm")
    try:
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
            outcome = run_mutants(
                options.alerts,
                promtool=promtool,
                directory=Path(directory),
                choose=choose_share if options.tenth else tuple,
            )
    except (ValueError, yaml.YAMLError) as error:
        print(error, file=sys.stderr)
        return 2
    print(describe(outcome, whole=options.whole))
    if options.json:
        document = json.dumps(_describe_for_programs(outcome), ensure_ascii=False)
        options.json.write_text(document, encoding="utf-8")
    return int(outcome.score < GOAL_RATIO or bool(outcome.refuted))


def _describe_for_programs(outcome: Outcome) -> dict[str, object]:
    document: dict[str, object] = {"score": outcome.score}
    for field in dataclasses.fields(outcome):
        document[field.name] = [mutant.name for mutant in getattr(outcome, field.name)]
    return document


if __name__ == "__main__":
    sys.exit(main())
