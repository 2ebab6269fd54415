"""Every way in which a container can end, as the exporter records and `diagnose` explains it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.integration.engine.conftest import Answer, Terminal, Watch
from tests.integration.engine.provocations import ELSEWHERE, NOT_HERE, PROVOCATIONS, Provocation
from tests.integration.engine.stage import MEMORY_ROOT, Stage, limited_group
from tests.support.engines import SecondEngine
from tests.support.exporter_process import Page

LONG = os.environ.get("TRAINVITALS_TEST_LONG") == "1"

_AT_A_TIME = 5
_FEW = 5
_SETTLE_SECONDS = 60.0
_MOST_EXPLAINED = 5  # of each repeated provocation
# The provocations that engines of different versions report differently.
_REPORTED_DIFFERENTLY = {
    *("oom", "oom-at-once", "oom-removed", "worker-left-alive", "stop-timeout", "stop-init"),
    *("no-command", "mount", "unhealthy-hangs", "crash-loop", "oom-then-restart", "parent"),
}
# Only version 1 of the kernel's memory controller has a file of this name.
_HAS_VERSION_1 = (MEMORY_ROOT / "memory.limit_in_bytes").exists()


@dataclass
class Trial:
    """A provocation and its result."""

    provocation: Provocation
    number: int
    stage: Stage
    complaint: str = ""
    wrong: list[str] = field(default_factory=list)


def test_every_row_is_provoked_or_says_why_not():
    """Every row from 1 to 44 is provoked or excluded for a reason, and 42 rows are provoked."""
    provoked = {provocation.number for provocation in PROVOCATIONS} | ELSEWHERE.keys()
    assert provoked | NOT_HERE.keys() == set(range(1, 45))
    assert not provoked & NOT_HERE.keys()
    assert len(provoked) == 42


def test_each_end_gets_its_reason(watch: Watch, make_stage: Callable[..., Stage]):
    """`/metrics` and `diagnose` both report the expected reason of each end."""
    _provoke_and_judge(PROVOCATIONS if LONG else _choose_few(), watch, make_stage)


@pytest.mark.long
def test_each_end_gets_its_reason_on_a_newer_engine(
    second_engine: Callable[..., SecondEngine],
    newer_programs: Path,
    python_image: str,
    watch_second: Callable[..., Watch],
):
    """With a newer engine, whose events differ, each end gets its expected reason as well."""
    with second_engine(programs=newer_programs) as newer:
        newer.load(python_image)
        _provoke_and_judge(
            PROVOCATIONS if LONG else _choose_few(_REPORTED_DIFFERENTLY),
            watch_second(newer.address),
            lambda title, parent="": Stage(
                title, newer.environment, python_image, parent, str(newer.socket)
            ),
        )


def test_diagnose_alone_gives_the_reason_of_what_just_ended(
    terminal: Terminal, make_stage: Callable[..., Stage]
):
    """`diagnose` gives the expected reason of a recent end without an exporter and its journal."""
    provocations = [
        each
        for each in PROVOCATIONS
        if "--rm" not in each.options
        and each.title != "rm-force"
        and (LONG or each.title in _REPORTED_DIFFERENTLY)
    ]

    def judge_at_once(trial: Trial) -> None:
        _provoke(trial)
        _judge_diagnoses([trial], terminal)

    with contextlib.ExitStack() as groups:
        trials = [_make_trial(each, 0, make_stage, groups) for each in provocations]
        # The engine keeps only 256 events, so each end is diagnosed at once.
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            list(pool.map(judge_at_once, trials))
    assert not _table(trials), _table(trials)


def _choose_few(titles: Collection[str] | None = None) -> list[Provocation]:
    """Return all provocations, or those with these titles, with few repetitions of each."""
    return [
        replace(each, times=min(each.times, _FEW))
        for each in PROVOCATIONS
        if titles is None or each.title in titles
    ]


def _provoke_and_judge(
    provocations: Sequence[Provocation], watch: Watch, make_stage: Callable[..., Stage]
) -> None:
    began = time.monotonic()
    watch.exporter.scrape_until(
        lambda page: page.value("trainvitals_containers_events_connected") == 1, "container"
    )
    with contextlib.ExitStack() as groups:
        trials = [
            _make_trial(provocation, n, make_stage, groups)
            for provocation, n in _rounds(provocations)
        ]
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            list(pool.map(_provoke, trials))
            page = _wait_for_deaths(watch, trials)
            for trial in trials:
                _judge_page(trial, page)
            explained = [trial for trial in trials if LONG or trial.number < _MOST_EXPLAINED]
            list(pool.map(_judge_diagnoses, _split(explained), [watch] * _AT_A_TIME))
    print(f"{len(trials)} containers in {time.monotonic() - began:.0f} s")
    assert not _table(trials), f"{_table(trials)}\n{watch.exporter.log}"


def _rounds(provocations: Sequence[Provocation]) -> list[tuple[Provocation, int]]:
    """Return each provocation once for each repetition, with the repetitions spread over the list.

    The kernel logs only ten OOM kills in five seconds in full.
    """
    places = [
        ((place if provocation.times == 1 else n * len(provocations) / provocation.times), place, n)
        for place, provocation in enumerate(provocations)
        if provocation.parent_limit is None or _HAS_VERSION_1
        for n in range(provocation.times)
    ]
    return [(provocations[place], n) for _, place, n in sorted(places)]


def _make_trial(
    provocation: Provocation,
    n: int,
    make_stage: Callable[..., Stage],
    groups: contextlib.ExitStack,
) -> Trial:
    parent = ""
    if provocation.parent_limit is not None:
        parent = groups.enter_context(limited_group(provocation.parent_limit))
    title = f"{provocation.number}-{provocation.title}" + (f"-{n}" if n else "")
    trial = Trial(provocation, n, make_stage(title, parent))
    if parent:  # only an empty group can be removed
        words = ("rm", "--force", *_list_names(trial))
        groups.callback(trial.stage.docker, *words, is_checked=False)
    return trial


def _provoke(trial: Trial) -> None:
    provocation, stage = trial.provocation, trial.stage
    try:
        trial.complaint = stage.run(provocation.options, provocation.command)
        provocation.act(stage)
        if not provocation.is_left_running:
            stage.wait_for_end()
    except AssertionError as error:
        trial.wrong.append(f"not provoked: {error} {trial.complaint}")


def _wait_for_deaths(watch: Watch, trials: list[Trial]) -> Page:
    """Scrape until all trials are settled or the time is over, and return the last page."""
    until = time.monotonic() + _SETTLE_SECONDS
    while True:
        page = watch.exporter.scrape("container")
        settled = (_is_settled(trial, page) for trial in trials)
        if all(settled) or time.monotonic() > until:
            return page
        time.sleep(0.25)


def _is_settled(trial: Trial, page: Page) -> bool:
    provocation = trial.provocation
    expected = 0 if provocation.exit_code is None else provocation.deaths
    return _count_deaths(trial, page) == expected and _shows(trial, page)


def _count_deaths(trial: Trial, page: Page) -> float:
    return sum(each.value for each in page.find("container_deaths_total", name=trial.stage.name))


def _shows(trial: Trial, page: Page) -> bool:
    if trial.provocation.shows is None:
        return True
    metric, labels = trial.provocation.shows
    return any(each.value >= 1 for each in page.find(metric, name=trial.stage.name, **labels))


def _judge_page(trial: Trial, page: Page) -> None:
    name, provocation = trial.stage.name, trial.provocation
    died = page.find("container_last_death_info", name=name)
    reasons = [sample.labels["reason"] for sample in died]
    if provocation.exit_code is None:
        if died:
            trial.wrong.append(f"/metrics: died of {reasons}")
    elif len(died) != 1 or reasons[0] not in provocation.reasons:
        trial.wrong.append(f"/metrics: {reasons}")
    elif _count_deaths(trial, page) != provocation.deaths:
        trial.wrong.append(f"/metrics: {_count_deaths(trial, page)} deaths")
    code = page.value("container_last_exit_code", name=name)
    if code != provocation.exit_code:
        trial.wrong.append(f"/metrics: exit code {code}")
    if not _shows(trial, page):
        trial.wrong.append(f"/metrics: no {provocation.shows}")
    sibling = f"{name}-sibling"
    if page.find("container_last_death_info", name=sibling):
        trial.wrong.append(f"/metrics: {sibling} died")


def _split(trials: list[Trial]) -> list[list[Trial]]:
    return [trials[start::_AT_A_TIME] for start in range(_AT_A_TIME)]


def _judge_diagnoses(trials: list[Trial], terminal: Terminal) -> None:
    answers = terminal.diagnose_each([name for trial in trials for name in _list_names(trial)])
    for trial in trials:
        for name in _list_names(trial):
            expected = trial.provocation.reasons if name == trial.stage.name else ("running",)
            _judge_answer(trial, answers[name], expected)


def _list_names(trial: Trial) -> list[str]:
    sibling = [f"{trial.stage.name}-sibling"] if trial.provocation.has_sibling else []
    return [trial.stage.name, *sibling]


def _judge_answer(trial: Trial, answer: Answer, expected: tuple[str, ...]) -> None:
    try:
        found = answer.told
    except AssertionError as error:
        trial.wrong.append(f"diagnose: {error}")
        return
    if found["reason"] not in expected:
        trial.wrong.append(f"diagnose: {found['name']}: {found['reason']}: {found['summary']}")
    if trial.provocation.says and trial.provocation.says not in str(found["evidence"].get("log")):
        trial.wrong.append(f"diagnose: does not quote {trial.provocation.says!r}")


def _table(trials: list[Trial]) -> str:
    rows = [
        f"{trial.provocation.number:>3} {trial.stage.name:50} "
        f"expected {'|'.join(trial.provocation.reasons) or 'nothing'}\n      {wrong}"
        for trial in trials
        for wrong in trial.wrong
    ]
    return "\n".join(rows)
