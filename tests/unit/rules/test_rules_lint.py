"""Tests that metrics, thresholds, tests, runbooks and dashboards that the rules name exist."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from tests.support.rulebook import read_rulebook
from tests.support.rulelint import expressions, proofs, wording
from tests.support.rulelint.house import Awaited, House, read_awaited, read_commands, read_house
from tests.support.rulelint.metrics import TARGET_LABELS, Metric, read_metrics
from tests.support.rulelint.produced import find_labels_of_rule

CHECKS = (
    expressions.check_metrics,
    expressions.check_allowed_metrics,
    expressions.check_matchers,
    expressions.check_named_labels,
    expressions.check_types,
    expressions.check_ranges,
    expressions.check_matching,
    expressions.check_aggregations,
    expressions.check_labels_of_target,
    expressions.check_numbers,
    expressions.check_thresholds,
    wording.check_groups,
    wording.check_records,
    wording.check_names,
    wording.check_classes,
    wording.check_first_commands,
    wording.check_templates,
    wording.check_annotations,
    wording.check_links,
    proofs.check_test_files,
    proofs.check_test_heads,
    proofs.check_firing_tests,
    proofs.check_quiet_tests,
    proofs.check_runbooks,
    proofs.check_commands,
    proofs.check_metrics_in_runbooks,
    proofs.check_awaited,
    proofs.check_alertmanager,
)

THRESHOLDS = """\
groups:
  - name: thresholds
    rules:
      # Cards slow down at 90.
      - record: threshold:gpu_hot:celsius
        expr: vector(80)
"""
RECORDING = """\
groups:
  - name: recording
    rules:
      - record: run:steps:rate1m
        expr: sum without (rank) (rate(steps_total[1m]))
"""
HOST = """\
groups:
  - name: host
    rules:
      - alert: GPUHot
        expr: |
          temp_celsius{kind="gpu"} > scalar(threshold:gpu_hot:celsius)
          unless on (job, instance) run:steps:rate1m == 0
        for: 2m
        keep_firing_for: 5m
        labels: {severity: critical, component: host}
        annotations:
          summary: Too hot
          description: >-
            GPU {{ $labels.device }} on {{ $labels.instance }} has {{ $value }} °C.
            {{ with printf "temp_info{device=%q}" $labels.device | query }}It is a
            {{ . | first | label "model" }}.{{ end }}
            Ask trainvitals status first.
          runbook_url: http://localhost:9200/runbooks/GPUHot
          dashboard_url: http://localhost:3000/d/board?var-instance={{ $labels.instance | urlquery }}
"""
TESTS = """\
rule_files: [../../prometheus/rules/*.yml]
evaluation_interval: 1m
group_eval_order: [thresholds, recording, host]
tests:
  - name: one
    interval: 1m
    alert_rule_test:
      - {eval_time: 1m, alertname: GPUHot, exp_alerts: []}
      - eval_time: 2m
        alertname: GPUHot
        exp_alerts:
          - exp_labels: {severity: critical, component: host}
            exp_annotations: {summary: s, description: d, runbook_url: r, dashboard_url: d}
      - eval_time: 9m
        alertname: GPUHot
        exp_alerts:
          - exp_labels: {severity: critical, component: host}
            exp_annotations: {summary: s, description: d, runbook_url: r, dashboard_url: d}
      - {eval_time: 10m, alertname: GPUHot, exp_alerts: []}
"""
RUNBOOK = """\
# GPUHot

A card is hot.

## Meaning

`temp_celsius` is high.

## See it

```console
$ trainvitals status --json
```

## What to do

Run `make demo`.

## Silence it

`amtool silence add alertname=GPUHot`
"""
ALERTMANAGER = """\
  - source_matchers: [alertname=~"(GPU|XPU)Hot|GPUHot"]
    target_matchers: [alertname="TestMessage"]
"""
AWAITED = """\
metrics: [{name: temp_info, issue: 5, labels: [device, model]}]
dashboards: [{name: board, issue: 4}]
commands: [{name: make demo, issue: 6}]
"""
SOURCES = {
    "thresholds.yml": THRESHOLDS,
    "recording.yml": RECORDING,
    "host.yml": HOST,
    "tests": TESTS,
    "runbook": RUNBOOK,
    "alertmanager": ALERTMANAGER.replace("|XPU", ""),
    "awaited": AWAITED,
}


@pytest.fixture(scope="module")
def house():
    """Return the rules and all related files of the project."""
    return read_house()


@pytest.fixture
def build(tmp_path):
    """Return a function that returns a sample project of texts, some of them changed."""

    def make(**changed):
        texts = SOURCES | changed
        for name in ("thresholds.yml", "recording.yml", "host.yml"):
            (tmp_path / name).write_text(texts[name], encoding="utf-8")
        (tmp_path / "awaited").write_text(texts["awaited"], encoding="utf-8")
        return make_house(tmp_path, texts)

    return make


def make_house(directory: Path, texts: dict[str, str]) -> House:
    """Return a sample project with one alert and its related files."""
    return House(
        book=read_rulebook(directory),
        served={
            "temp_celsius": Metric(
                "gauge",
                TARGET_LABELS | {"device", "kind"},
                {"kind": frozenset({"gpu", "hpu"})},
            ),
            "steps_total": Metric("counter", TARGET_LABELS | {"run", "rank"}),
        },
        elsewhere={},
        awaited=read_awaited(directory / "awaited"),
        jobs=frozenset({"trainvitals"}),
        scrape_interval_seconds=5,
        tests={"GPUHot": yaml.load(texts["tests"], yaml.BaseLoader)},
        runbooks={"GPUHot": texts["runbook"]},
        dashboards=frozenset(),
        commands={"trainvitals status": frozenset({"--json"})},
        alertmanager=texts["alertmanager"],
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_rules_agree_with_what_is_around_them(check, house):
    """No check of the lint reports a fault in the project."""
    assert list(check(house)) == []


def test_everything_is_found_that_the_rules_are_compared_with(house):
    """All files that the checks read are found, so that no check passes for lack of data."""
    assert len(house.served) > 150
    assert len(house.runbooks) == len(house.tests) == len(house.book.alerts) > 60
    assert 'alertname="Watchdog"' in house.alertmanager
    assert {"trainvitals status", "make monitor-up"} <= house.commands.keys()
    assert {"trainvitals", "prometheus", "alertmanager"} == house.jobs


def test_every_check_is_made():
    """The list of checks contains every function `check_…` of the modules."""
    modules = (expressions, wording, proofs)
    written = {n for module in modules for n in vars(module) if n.startswith("check_")}
    assert {check.__name__ for check in CHECKS} == written


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_small_house_in_order_passes(check, build):
    """No check reports a fault in the unchanged sample project."""
    assert list(check(build())) == []


@pytest.mark.parametrize(
    ("check", "file", "old", "new", "complaint"),
    [
        ("metrics", "host.yml", "temp_celsius{", "temperature{", "temperature is not served"),
        ("metrics", "host.yml", '"temp_info{', '"temp_inf{', "temp_inf is not served"),
        (
            "metrics",
            "host.yml",
            "run:steps:rate1m",
            "run:steps:rate2m",
            "run:steps:rate2m is not served",
        ),
        ("matchers", "host.yml", 'kind="gpu"', 'sort="gpu"', "has no label sort"),
        ("matchers", "host.yml", 'kind="gpu"', 'kind="cpu"', "kind of temp_celsius is never cpu"),
        ("matchers", "host.yml", 'kind="gpu"', 'kind=~"gpu|tpu"', "is never tpu"),
        ("matchers", "host.yml", 'kind="gpu"', 'job="node"', "job of temp_celsius is never node"),
        ("matchers", "host.yml", "{device=", "{card=", "temp_info has no label card"),
        ("named_labels", "host.yml", "(job, instance)", "(job, host)", "no label host on temp"),
        ("named_labels", "host.yml", "(job, instance)", "(job, rank)", "rank on run:steps:rate1m"),
        ("named_labels", "recording.yml", "without (rank)", "without (rnk)", "no label rnk on"),
        ("types", "recording.yml", "rate(steps_total", "delta(steps_total", "a counter"),
        ("types", "recording.yml", "steps_total", "temp_celsius", "rate of temp_celsius, a gauge"),
        ("ranges", "recording.yml", "[1m]", "[19s]", "19s is less than 20 s"),
        ("matching", "host.yml", "unless on (job, instance)", "unless", "neither on nor ignoring"),
        ("aggregations", "recording.yml", "without (rank)", "by (job)", "not without, but sum by"),
        ("aggregations", "recording.yml", "without (rank)", "", "not without, but sum"),
        ("labels_of_target", "recording.yml", "without (rank)", "by (job, instance)", "loses"),
        (
            "labels_of_target",
            "recording.yml",
            "(rate",
            "(steps_total * on (run) rate",
            "loses labels",
        ),
        ("numbers", "host.yml", "rate1m == 0", "rate1m == 0.1", "0.1 is neither a threshold"),
        ("numbers", "host.yml", "scalar(threshold:gpu_hot:celsius)", "80", "80 is neither"),
        ("thresholds", "host.yml", "gpu_hot:celsius", "gpu_hot:kelvin", "is used and not recorded"),
        ("thresholds", "host.yml", "gpu_hot:celsius", "gpu_hot:kelvin", "is used by no rule"),
        ("thresholds", "thresholds.yml", "# Cards slow down at 90.", "", "has no reason above it"),
        ("thresholds", "thresholds.yml", "# Cards slow down at 90.", "# -------- gpu", "no reason"),
        ("thresholds", "thresholds.yml", "vector(80)", "vector(8 * 10)", "is not a number"),
        ("thresholds", "thresholds.yml", "gpu_hot", "gpu_warm", "is not threshold:<alert>:"),
        ("groups", "host.yml", "name: host", "name: disk", "group disk in host.yml"),
        ("groups", "host.yml", "name: host", "name: disk", "an alert in group disk"),
        ("groups", "host.yml", "alert: GPUHot", "record: run:a:b", "recorded in group host"),
        ("records", "recording.yml", "run:steps:rate1m", "steps:rate1m", "level:metric:operation"),
        ("names", "host.yml", "alert: GPUHot", "alert: gpu_hot", "not written LikeThis"),
        ("classes", "host.yml", "severity: critical", "severity: page", "severity page"),
        ("classes", "host.yml", "component: host", "component: gpu", "component gpu in group"),
        (
            "first_commands",
            "host.yml",
            "Ask trainvitals status first.",
            "Look at it.",
            "offers no command",
        ),
        ("templates", "host.yml", "$labels.device }}", "$labels.card }}", "description names card"),
        ("templates", "host.yml", 'label "model"', 'label "brand"', "description names brand"),
        (
            "templates",
            "host.yml",
            "severity: critical",
            's: "{{ $value }}"',
            "the value in label s",
        ),
        ("annotations", "host.yml", "summary: Too hot", "team: a", "no summary"),
        ("annotations", "host.yml", "summary: Too hot", "team: a", "annotation team"),
        ("annotations", "host.yml", "Too hot", '"{{ $value }} hot"', "a summary that varies"),
        ("annotations", "host.yml", "first.", "first", "the description is no sentence"),
        ("links", "host.yml", "runbooks/GPUHot", "runbooks/Hot", "runbook_url is not"),
        ("links", "host.yml", "instance | urlquery", "instance", "dashboard_url http"),
        ("links", "host.yml", "/d/board", "/d/bored", "no dashboard bored"),
        ("test_files", "host.yml", "alert: GPUHot", "alert: GPUWarm", "no tests/rules/GPUWarm.yml"),
        ("test_files", "host.yml", "alert: GPUHot", "alert: GPUWarm", "GPUHot.yml tests no alert"),
        ("test_heads", "tests", "../../prometheus", "..", "do not read"),
        (
            "test_heads",
            "tests",
            "[thresholds, recording, host]",
            "[host]",
            "group_eval_order does not begin with",
        ),
        ("test_heads", "tests", "name: one", "labels: []", "has no name of its own"),
        ("test_heads", "tests", "    interval: 1m", "", "has no interval"),
        ("firing_tests", "tests", "alertname: GPUHot", "alertname: Other", "no test sees it fire"),
        ("firing_tests", "tests", "component: host", "device: 0", "a test lacks labels"),
        ("firing_tests", "tests", "runbook_url: r, dashboard_url: d", "", "lacks annotations"),
        ("quiet_tests", "tests", "eval_time: 2m", "eval_time: 5m", "just before `for` is over"),
        ("quiet_tests", "tests", "eval_time: 10m", "eval_time: 13m", "until `keep_firing_for` is"),
        ("quiet_tests", "tests", "eval_time: 10m", "eval_time: 30s", "no test sees it end"),
        ("runbooks", "host.yml", "alert: GPUHot", "alert: GPUWarm", "no docs/runbooks/GPUWarm.md"),
        ("runbooks", "host.yml", "alert: GPUHot", "alert: GPUWarm", "is about no alert"),
        ("runbooks", "runbook", "# GPUHot", "# GPU", "another title"),
        ("runbooks", "runbook", "## See it", "## Look", "the parts of its page"),
        ("runbooks", "runbook", "alertname=GPUHot", "alertname=Hot", "how to silence it"),
        (
            "commands",
            "runbook",
            "trainvitals status",
            "trainvitals state",
            "no `trainvitals state`",
        ),
        ("commands", "runbook", "--json", "--yaml", "`trainvitals status` has no --yaml"),
        ("commands", "runbook", "make demo", "make coffee", "there is no `make coffee`"),
        ("commands", "host.yml", "trainvitals status", "trainvitals ask", "no `trainvitals ask`"),
        ("metrics_in_runbooks", "runbook", "temp_celsius", "gpu_heat", "names gpu_heat"),
        ("awaited", "awaited", "temp_info", "temp_celsius", "temp_celsius is served"),
        ("awaited", "awaited", "temp_info", "temp_more", "temp_more is awaited by nothing"),
        (
            "awaited",
            "awaited",
            "name: board",
            "name: boards",
            "dashboard boards is awaited by nothing",
        ),
        ("awaited", "awaited", "make demo", "trainvitals status", "`trainvitals status` is there"),
        ("awaited", "awaited", "make demo", "make tea", "`make tea` is awaited by nothing"),
        ("alertmanager", "alertmanager", "(GPU)", "(GPU|XPU)", "there is no alert XPUHot"),
        ("alertmanager", "alertmanager", "|GPUHot", "|GPUCold", "there is no alert GPUCold"),
    ],
)
def test_the_lint_notices(check, file, old, new, complaint, build):
    """Each change of the sample project is reported by its check."""
    (function,) = (one for one in CHECKS if one.__name__ == f"check_{check}")
    assert old in SOURCES[file]
    complaints = list(function(build(**{file: SOURCES[file].replace(old, new)})))
    assert any(complaint in said for said in complaints), complaints


def test_what_is_allowed_and_not_named_is_noticed(build):
    """A metric that is allowed but that no rule names is reported."""
    house = dataclasses.replace(build(), elsewhere={"up": Metric("gauge")})
    assert list(expressions.check_allowed_metrics(house)) == ["up is allowed and no rule names it"]


def test_a_dashboard_that_came_is_no_longer_awaited(build):
    """An awaited dashboard whose file exists is reported."""
    house = dataclasses.replace(build(), dashboards=frozenset({"board"}))
    assert list(proofs.check_awaited(house)) == ["dashboard board is there and no longer awaited"]


def test_scrapes_that_are_rare_need_longer_ranges(build):
    """The range of a rate must cover at least four scrape intervals."""
    house = dataclasses.replace(build(), scrape_interval_seconds=30)
    assert list(expressions.check_ranges(house)) == ["run:steps:rate1m: 1m is less than 120 s"]


@pytest.mark.parametrize(
    ("expr", "labels"),
    [
        ("steps_total", "job instance cluster team run rank"),
        ("steps_total > 1 or temp_celsius", "job instance cluster team run rank device kind"),
        ("sum by (run) (steps_total)", "run"),
        ("sum without (rank, team) (steps_total)", "job instance cluster run"),
        ("sum(steps_total)", ""),
        ("topk(3, temp_celsius)", "job instance cluster team device kind"),
        ("vector(1) + time()", ""),
        ("1 - temp_celsius", "job instance cluster team device kind"),
        ('absent(up{job="a", instance=~"b"})', "job"),
        ('label_replace(sum(up), "x", "y", "", "")', "x"),
        ("steps_total / on (job, run) steps_total", "job run"),
        ("steps_total / ignoring (rank) steps_total", "job instance cluster team run"),
        ("up * on (job) group_left (kind) temp_celsius", "job instance cluster team kind"),
        ("up * on (job) group_right () steps_total", "job instance cluster team run rank"),
        ("max_over_time((steps_total > 1)[5m:1m])", "job instance cluster team run rank"),
        ("run:steps:rate1m", "job instance cluster team run"),
    ],
)
def test_labels_that_an_expression_can_have(expr, labels, build):
    """The labels of an expression's result are derived from the metrics through all operators."""
    house = build(**{"host.yml": HOST.replace("expr: |", f"expr: '{expr}'\n        x: |")})
    (rule,) = house.book.alerts
    found = find_labels_of_rule(dataclasses.replace(rule, labels={}), house)
    assert found == frozenset(labels.split())


def test_golden_pages_give_types_labels_and_values():
    """Types, labels and label values are read from golden metrics pages."""
    page = (
        "# TYPE training_phase gauge\n"
        'training_phase{phase="train",run="a"} 1\n'
        "# TYPE training_wait_total counter\n"
        'training_wait_total{phase="idle"} 1\n'
        "# TYPE host_wait histogram\n"
        'host_wait_bucket{le="+Inf"} 1\nhost_wait_sum 1\nhost_wait_count 1\n'
    )
    metrics = read_metrics([page])
    assert metrics["training_wait_total"].type == "counter"
    assert metrics["host_wait_sum"].type == "counter"
    phase = metrics["training_phase"]
    assert (phase.type, phase.labels - TARGET_LABELS) == ("gauge", {"phase", "run"})
    assert phase.values == {"phase": {"train", "idle"}}


def test_commands_are_those_of_parser_and_makefile():
    """The known commands are those of the parser, with flags, and the targets of the Makefile."""
    commands = read_commands("demo: x\n\techo\n.PHONY: y\nBIN := z\n")
    assert "--json" in commands["trainvitals status"]
    assert commands["make demo"] == frozenset()
    assert "make BIN" not in commands


def test_no_list_of_what_is_awaited_means_that_nothing_is(tmp_path):
    """If the file of awaited items does not exist, nothing is awaited."""
    assert read_awaited(tmp_path / "awaited.yml") == Awaited()


@pytest.mark.parametrize(
    ("alert", "snake"),
    [
        ("HPUHighTemperature", "hpu_high_temperature"),
        ("HostIOBottleneck", "host_io_bottleneck"),
        ("ContainerOOMKilled", "container_oom_killed"),
        ("Watchdog", "watchdog"),
    ],
)
def test_thresholds_are_named_after_alerts(alert, snake):
    """The name of an alert is converted to snake case; an abbreviation stays one word."""
    assert expressions.write_snake(alert) == snake
