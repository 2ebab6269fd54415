"""The history of simulated machines and rules, written as text for promtool."""

import re
from itertools import chain

import pytest

from fleet.history import Past, Scribe, list_moments, split_moments
from fleet.machines import build_machines
from fleet.rules import AlertPast, PastOfRules, Tools, read_rules, serve_blocks, sort_records
from tests.integration.fleet.pages import BEGIN
from tests.support.rulebook import ROOT
from trainvitals.errors import StackError
from trainvitals.sources.prometheus import Prometheus

SAMPLE = re.compile(r'[a-z_0-9]+\{(?:[a-z_]+="[^"]*",?)+\} [0-9.e+-]+ [0-9]{10}')


def test_moments_are_the_same_whoever_asks():
    """The moments between two times are whole half minutes, with both ends included."""
    assert list(list_moments(1000.5, 1100)) == [1020, 1050, 1080]
    assert list(list_moments(1020, 1080)) == [1020, 1050, 1080]
    assert list(list_moments(1081, 1090)) == []


def test_moments_are_split_where_blocks_begin():
    """Moments are split at every even hour, at which a block of Prometheus begins."""
    parts = list(split_moments([7140, 7170, 7200, 7230, 14_400]))
    assert parts == [[7140, 7170], [7200, 7230], [14_400]]


@pytest.mark.parametrize("machine", build_machines(BEGIN), ids=lambda machine: machine.name)
def test_a_scrape_of_the_past_is_what_prometheus_would_keep(machine):
    """Each sample has the target's labels and the timestamp, and each series occurs once."""
    lines = Scribe(machine).write(int(BEGIN)).splitlines()
    assert [line for line in lines if not SAMPLE.fullmatch(line)] == []
    assert all(line.endswith(f" {BEGIN:.0f}") for line in lines)
    assert all(f'instance="{machine.name}",job="trainvitals"' in line for line in lines)
    names = [line.rpartition("} ")[0] for line in lines]
    assert len(names) == len(set(names))
    assert f'up{{instance="{machine.name}",job="trainvitals"}} 1 {BEGIN:.0f}' in lines


def test_an_alert_waits_fires_and_stays():
    """An alert obeys `for` and `keep_firing_for`, even if its history is written in parts."""
    rule = {
        "alert": "Hot",
        "for": "1m",
        "keep_firing_for": "30s",
        "labels": {"severity": "critical"},
    }
    past = AlertPast(rule)
    lines = []
    for moments, held in (
        (range(0, 120, 30), (30, 60, 90)),
        (range(120, 300, 30), (120, 210, 240)),
    ):
        told = {(("device", "3"),): [(moment, "1") for moment in held]}
        lines += "".join(past.write(told, moments)).splitlines()
    about = 'alertname="Hot",device="3",severity="critical"'
    states = [
        (found[1], int(found[2]))
        for line in lines
        if (found := re.fullmatch(rf'ALERTS{{alertstate="(\w+)",{about}}} 1 (\d+)', line))
    ]
    assert states == [
        *(("pending", 30), ("pending", 60), ("firing", 90), ("firing", 120), ("firing", 150)),
        *(("pending", 210), ("pending", 240)),
    ]
    since = [line.split()[1:] for line in lines if line.startswith(f"ALERTS_FOR_STATE{{{about}}}")]
    assert since == [
        *(["30", str(moment)] for moment in (30, 60, 90, 120, 150)),
        *(["210", "210"], ["210", "240"]),
    ]


def test_records_come_after_what_they_need():
    """A recording rule is in a later layer than the recording rules that its expression needs."""
    records = [rule for rule in read_rules(ROOT / "prometheus/rules") if "record" in rule]
    layers = [[rule["record"] for rule in layer] for layer in sort_records(records)]
    assert sorted(chain.from_iterable(layers)) == sorted(rule["record"] for rule in records)
    place = {name: number for number, layer in enumerate(layers) for name in layer}
    assert place["threshold:high_memory_usage:ratio"] == 0
    assert place["accelerator:temperature_headroom:celsius"] == 1
    assert place["run:training_step_seconds:mean10m"] == 0
    assert place["run:training_step_seconds:median6h"] == 1
    assert place["accelerator:training_utilization_percent:avg10m"] == 1


def test_records_that_need_each_other_are_refused():
    """Recording rules that depend on each other raise a `StackError` that names them."""
    records = [{"record": "a:b:c", "expr": "d:e:f"}, {"record": "d:e:f", "expr": "a:b:c + 1"}]
    with pytest.raises(StackError, match="a:b:c, d:e:f"):
        list(sort_records(records))


def test_prometheus_has_the_past(workshop, prometheus, promtool):
    """Prometheus serves 40 minutes of history of machines, recording rules and alerts."""
    blocks = workshop / "server/data"
    blocks.mkdir(parents=True)
    moments = list_moments(BEGIN - 2400, BEGIN)
    machines = build_machines(BEGIN)
    past = Past(machines, promtool=promtool, directory=workshop, blocks=blocks)
    rules = PastOfRules(
        ROOT / "prometheus/rules",
        tools=Tools(prometheus, promtool),
        directory=workshop,
        blocks=blocks,
    )
    for part in (moments[:-3], moments[-3:]):
        past.write(part)
        rules.write(part)
    assert sorted(path.name for path in workshop.iterdir()) == ["past.log", "past.yml", "server"]
    with serve_blocks(prometheus, blocks, workshop) as port:
        assert ask(port, "sum(up)") == [({}, 5)]
        assert ask(port, 'count_over_time(up{instance="orion"}[30m])')[0][1] >= 60
        firing = ask(port, 'count by (alertname) (ALERTS{alertstate="firing"})')
        names = {labels["alertname"] for labels, _ in firing}
        assert names >= {"Watchdog", "AcceleratorLost", "GPUHighTemperature", "ContainerOOMKilled"}
        assert len(names) > 20
        ((_, since),) = ask(port, 'ALERTS_FOR_STATE{alertname="GPUHighTemperature"}')
        assert BEGIN - 1800 < since < BEGIN - 900


def ask(port, query):
    """Return the labels and values of an instant query at `BEGIN`."""
    found = Prometheus(f"http://127.0.0.1:{port}").query(query, BEGIN)
    return [(each.labels, each.last) for each in found]
