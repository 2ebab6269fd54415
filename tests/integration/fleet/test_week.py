"""An ordinary week of eight machines, replayed through all alert rules.

`fleet/week.py` generates the week from fixed seeds: runs that start, evaluate, save, are restarted
and finish, idle nights, copies of datasets, and a planned reboot. The rule engine of promtool
evaluates the rules minute by minute. The full week takes minutes and is a long test; otherwise the
tests replay nine hours of one machine of each kind, with fewer cards.

A reboot takes longer than ExporterDown waits, so that the alert fires. An administrator who reboots
a machine sets a silence first, and so does this week.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from fleet.script import Stage
from fleet.week import HOUR, WEEK, Node, at, plan_week
from tests.integration.fleet.replay import Episode, list_names, replay

ROOT = Path(__file__).parents[3]
GROUPS = ("thresholds", "recording", "accelerator", "training", "host", "meta")
RULES = tuple(ROOT / f"prometheus/rules/{group}.yml" for group in GROUPS)
SEEDS = Path(__file__).with_name("seeds.yml")
IS_LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))

# Number of cards that are replayed; cards that do the same are left out to save time.
WEEK_CARDS = {
    "h100-1": 2,
    "h100-2": 1,
    "a100-1": 5,
    "l40s-1": 2,
    "rtx-1": 1,
    "gaudi-1": 1,
    "a100-2": 1,
    "h100-3": 1,
}
# One machine of each kind, with its number of cards, replayed from Monday 6:50 on.
SHORT_NODES = {"h100-1": 2, "rtx-1": 1, "gaudi-1": 1}
SHORT_BEGIN, SHORT_MINUTES = at(0, 6, 50), 9 * 60

# The administrator who rebooted a100-2 set this silence: its begin and end.
SILENCES = {"a100-2": (at(2, 11, 55), at(2, 12, 20))}


@dataclass(frozen=True, slots=True)
class Deserved:
    """An alert that rightly fires in an ordinary week.

    Attributes:
        alert: Name of the alert.
        instance: Machine on which the alert fires.
        count: How often the alert fires on the machine.
        because: Why the alert is right to fire.
    """

    alert: str
    instance: str
    count: int
    because: str


_RESTARTED = "a rank raised; until its launcher has started all again it cannot know"
_RESERVED = "the allocator holds 93 %, and which card belongs to which rank is not known"
_BESIDE_A_COPY = "a dataset is copied beside training for 40 minutes, and half the time is lost"
DESERVED_IN_WEEK = (
    Deserved("DataLoaderBottleneck", "a100-2", 1, _BESIDE_A_COPY),
    Deserved("GPULowUtilization", "a100-2", 1, _BESIDE_A_COPY),
    Deserved("HostIOBottleneck", "a100-2", 1, _BESIDE_A_COPY),
    Deserved("SlowBatchProcessing", "a100-2", 1, _BESIDE_A_COPY),
    Deserved("HostRebooted", "a100-2", 1, "it was rebooted for an update"),
    Deserved("ValidationNotImproving", "h100-3", 1, "no evaluation is better after the 14th"),
    Deserved("HighMemoryUsage", "gaudi-1", 2, _RESERVED),
    Deserved("TrainingRunFailed", "h100-1", 1, _RESTARTED),
    Deserved("TrainingRunTerminated", "l40s-1", 1, "its owner cancelled it by SIGTERM"),
)
DESERVED_IN_SHORT = (
    Deserved("HighMemoryUsage", "gaudi-1", 1, _RESERVED),
    Deserved("TrainingRunFailed", "h100-1", 1, _RESTARTED),
)

# Constant values of the metrics that Prometheus and Alertmanager export about themselves.
STACK = {
    "prometheus": {
        "up": 1,
        "prometheus_config_last_reload_successful": 1,
        "prometheus_notifications_alertmanagers_discovered": 1,
        "prometheus_notifications_dropped_total": 0,
        "prometheus_rule_evaluation_failures_total": 0,
    },
    "alertmanager": {
        "up": 1,
        "alertmanager_config_last_reload_successful": 1,
        "alertmanager_notifications_total": 12,
        "alertmanager_notifications_failed_total": 0,
    },
}

# Metrics in the rules' expressions that the week does not have, and the reasons.
ABSENT = {
    "accelerator_memory_limit_bytes": "no limit is set",
    "accelerator_temperature_limit_celsius": "no limit is set",
    "accelerator_xid_last_timestamp_seconds": "no card reported an error",
    "training_alert_active": "no callback raised an alert of its own",
    "training_oom_last_timestamp_seconds": "no run was out of memory",
    "node_filesystem_avail_bytes": "no node_exporter",
    "node_filesystem_readonly": "no node_exporter",
    "node_filesystem_size_bytes": "no node_exporter",
    "node_memory_MemAvailable_bytes": "no node_exporter",
    "node_memory_MemTotal_bytes": "no node_exporter",
    "node_vmstat_oom_kill": "no node_exporter",
    "prometheus_remote_storage_highest_timestamp_in_seconds": "nothing is sent on",
    "prometheus_remote_storage_queue_highest_sent_timestamp_seconds": "nothing is sent on",
    "prometheus_remote_storage_queue_highest_timestamp_seconds": "nothing is sent on",
}


@dataclass(frozen=True, slots=True)
class Week:
    """The alerts that fired in a week.

    Attributes:
        ours: Alerts of the project's rules.
        seeds: Alerts of the rules with which the project began.
        nodes: Number of machines.
        days: Length of the replayed time in days.
        deserved: Alerts that should have fired.
    """

    ours: Sequence[Episode]
    seeds: Sequence[Episode]
    nodes: int
    days: float
    deserved: Sequence[Deserved]


@pytest.fixture(scope="module")
def week(promtool, tmp_path_factory):
    """Replay the whole week in a long test, and otherwise nine hours of it."""
    directory = tmp_path_factory.mktemp("week")
    if IS_LONG:
        fleet, minutes = plan_week(), WEEK
        nodes = [fleet[name].shrink(cards) for name, cards in WEEK_CARDS.items()]
        halves = [nodes[:3], nodes[3:]]
    else:
        nodes, minutes = _take_short(), SHORT_MINUTES
        halves = [nodes]

    def play(number: int) -> list[Episode]:
        place = directory / str(number)
        rules = (*RULES, SEEDS)
        series = write(halves[number], minutes, rules)
        return replay(series, rules, minutes=minutes, promtool=promtool, directory=place)

    with ThreadPoolExecutor(len(halves)) as pool:
        episodes = sorted(
            episode for part in pool.map(play, range(len(halves))) for episode in part
        )
    ours = [episode for episode in episodes if ("rules", "seeds") not in episode.labels]
    seeds = [episode for episode in episodes if ("rules", "seeds") in episode.labels]
    deserved = DESERVED_IN_WEEK if IS_LONG else DESERVED_IN_SHORT
    return Week(ours, seeds, len(nodes), minutes / (24 * 60), deserved)


def write(nodes, minutes, rules):
    """Yield the series of the machines that the rules name, and those of Prometheus' own stack."""
    names = list_names(rules)
    for node in nodes:
        yield from node.write(minutes, names)
    for job in ("prometheus", "alertmanager"):
        for name, value in STACK[job].items():
            yield f'{name}{{job="{job}",instance="{job}"}}', f"{value}x{minutes}"


def _take_short() -> list[Node]:
    fleet = plan_week()
    return [fleet[name].shrink(cards).begin_at(SHORT_BEGIN) for name, cards in SHORT_NODES.items()]


def _is_silenced(episode: Episode) -> bool:
    start, end = SILENCES.get(episode.instance, (0, 0)) if IS_LONG else (0, 0)
    return start <= episode.start and episode.end <= end


def _count(episodes: Iterable[Episode], severity: str) -> int:
    return sum(episode.severity == severity for episode in episodes)


def _print(title: str, episodes: Sequence[Episode], week: Week) -> None:
    print(f"\n{title}: {week.nodes} machines, {week.days:.1f} days")
    times: Counter[tuple[str, str]] = Counter()
    for episode in episodes:
        times[episode.severity, episode.alert] += episode.end - episode.start
    counts = Counter((episode.severity, episode.alert) for episode in episodes)
    for (severity, alert), count in sorted(counts.items()):
        minutes = times[severity, alert]
        print(f"  {severity:8} {alert:32} {count:5} times, {minutes / 60:8.1f} hours in all")
    per_day = _count(episodes, "warning") / week.nodes / week.days
    print(f"  pages: {_count(episodes, 'critical')}, warnings per machine and day: {per_day:.2f}")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_ordinary_week_has_no_page(week):
    """No critical alert fires in an ordinary week, except during a reboot that was silenced."""
    _print("the rules", week.ours, week)
    pages = [episode for episode in week.ours if episode.severity == "critical"]
    assert [str(page) for page in pages if not _is_silenced(page)] == []
    silenced = [(page.alert, page.instance) for page in pages if _is_silenced(page)]
    assert silenced == ([("ExporterDown", "a100-2")] if IS_LONG else [])


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_warning_is_deserved(week):
    """The alerts that are not critical are exactly the listed ones, each with a reason."""
    others = [episode for episode in week.ours if episode.severity != "critical"]
    for episode in others:
        print(episode)
    fired = Counter((episode.alert, episode.instance) for episode in others)
    assert fired == {(entry.alert, entry.instance): entry.count for entry in week.deserved}
    assert all(entry.because for entry in week.deserved)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_first_rules_page_for_nothing_on_the_same_week(week):
    """The rules with which the project began send many pages in the week, all of one alert."""
    _print("the seeds' rules", week.seeds, week)
    pages = Counter(episode.alert for episode in week.seeds if episode.severity == "critical")
    assert pages.keys() == {"TrainingStalled"}
    assert pages["TrainingStalled"] >= (100 if IS_LONG else 8)


def test_a_hang_and_a_hot_card_are_found_in_the_same_week(promtool, tmp_path):
    """A rank that hangs and a card that overheats in the same morning page once each."""
    minutes = 5 * 60
    training, hot = _take_short()[:2]
    attempt = training.attempts[0]
    stages = (*attempt.stages[:3], Stage("hung", 60.0 * WEEK))
    hung = replace(attempt, stages=stages, outcome=None)
    began = 60 * hot.attempts[0].start

    def heat(now: float) -> float:
        return 17.0 * (began <= now < began + 60 * HOUR)

    nodes = (replace(training, attempts=(hung,)), replace(hot, hotter_by={0: heat}))
    series = write(nodes, minutes, RULES)
    episodes = replay(series, RULES, minutes=minutes, promtool=promtool, directory=tmp_path)
    for episode in episodes:
        print(episode)
    critical = [(page.alert, page.instance) for page in episodes if page.severity == "critical"]
    assert critical == [("GPUHighTemperature", "rtx-1"), ("TrainingStalled", "h100-1")]


def test_no_rule_is_blind_to_the_week():
    """Every metric in a rule's expression is in the week or is listed in `ABSENT` with a reason."""
    selectors = write(_take_short(), SHORT_MINUTES, RULES)
    served = {selector.partition("{")[0] for selector, _ in selectors}
    recorded = {
        rule["record"]
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    assert sorted(list_names(RULES) - served - recorded) == sorted(ABSENT)
