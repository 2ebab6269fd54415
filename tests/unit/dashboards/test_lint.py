"""Tests that each check of the lint reports its fault after one change to correct dashboards."""

import copy
import dataclasses

import pytest

from tests.unit.dashboards import lint
from tests.unit.dashboards.breaking import (
    CARDS,
    COLOURED,
    CUSTOM,
    DEFAULTS,
    HOST,
    RUN,
    STATED,
    STEPS,
    annotation,
    ask_variable,
    describe,
    expr,
    override,
    put,
    put_into_board,
    variable,
)
from tests.unit.dashboards.findings import Exclusion, read_exclusions
from tests.unit.dashboards.samples import change

BROKEN = [
    ("target-promql", expr("Headroom", "min by", "minimum by"), "Headroom, query A: with one value"),
    ("target-promql", put("Fullest", "targets", 0, "expr", " "), "Fullest, query A: has no PromQL"),
    ("target-promql", expr("Fullest", "max(", "rate("), "expected type matrix"),
    ("template-label-promql", ask_variable("label_values(run)"), "variable > run: label_values(run)"),
    ("template-label-promql", ask_variable("metrics(.*)"), "neither label_values(METRIC, LABEL)"),
    ("equality", expr("Headroom", "instance=~", "instance="), "instance equals $instance"),
    ("result", put("Headroom", "targets", 0, "expr", 'accelerator_up{job=~"$job"}[5m]'), "no vector"),
    ("functions", expr("Fullest", "max(", "limitk(1, "), "Fullest, query A: asks for limitk"),
    ("L7", expr("Headroom", "accelerator_temp", "gpu_temp"), "gpu_temperature_headroom_celsius is not served"),
    ("labels", expr("Headroom", "min by (instance,", "min by (host,"), "Headroom, query A: no label host"),
    ("labels", expr("Headroom", "{job", '{kind="tpu",job'), "kind of accelerator_temperature"),
    ("labels", ask_variable("label_values(accelerator_up, run)"), "variable > run: no label run"),
    ("types", expr("Throttled", "throttle_seconds_total", "power_watts"), "rate of accelerator_power"),
    ("joins", expr("Throttled", "on (job, instance, kind", "on (kind"), "lacks job and instance"),
    ("joins", expr("Memory", "> 0", "> 0 and sum by (device) (accelerator_up{})"), "neither on nor"),
    ("target-job", expr("Headroom", 'job=~"$job",', ""), "Headroom, query A: accelerator_temperature_"),
    ("target-instance", expr("Headroom", "$instance", ".+"), 'lacks instance=~"$instance"'),
    ("target-rate-interval", expr("Throttled", "$__rate_interval", "5m"), "rate over a fixed range"),
    (
        "target-rate-interval",
        expr("Headroom", "min by", "max_over_time(accelerator_up{}[$__rate_interval]) or min by"),
        "$__rate_interval is for rates, not for max_over_time",
    ),
    (
        "target-counter-agg",
        expr("Headroom", "temperature_headroom_celsius", "energy_joules_total"),
        "accelerator_energy_joules_total as it is",
    ),
    (
        "bars",
        put("Errors", "targets", 0, "expr", "sum(increase(accelerator_link_errors_total{}[$__rate_interval]))"),
        "Errors, query A: draws bars of increase",
    ),
    (
        "target-counter-agg",
        expr("Errors", "offset $__interval", ""),
        "Errors, query A: accelerator_link_errors_total as it is",
    ),
    ("L9", expr("Memory", " > 0)", ")"), "Memory, query A: divides by (accelerator_memory_total_bytes"),
    ("scaling", expr("Headroom", "min by", "3600 * min by"), "Headroom, query A: scales by 3600"),
    ("kinds", put("Headroom", "type", "graph"), "Headroom: is a graph"),
    ("repeat", put("Headroom", "repeat", "instance"), "Headroom: repeats"),
    ("panel-datasource", put("Headroom", "datasource", "uid", "prometheus"), "Headroom: asks"),
    ("panel-datasource", put("Headroom", "targets", 0, "datasource", {}), "Headroom, query A: asks"),
    ("panel-no-targets", put("Headroom", "targets", []), "Headroom: asks nothing"),
    ("panel-no-targets", put("Runs", "targets", 1, "refId", "A"), "Runs: two queries have one letter"),
    ("forms", put("Runs", "targets", 0, "instant", None), "Runs, query A: a table's query"),
    ("forms", put("Headroom", "targets", 0, "instant", 1), "Headroom, query A: a graph's query"),
    ("forms", put("Spread", "targets", 0, "format", "time_series"), "Spread, query A: a heatmap's"),
    ("panel-units", put("Headroom", "fieldConfig", "defaults", "unit", "seconds"), "Headroom: unit sec"),
    ("panel-units", put("Headroom", "fieldConfig", "defaults", "unit", ""), "Headroom: has no unit"),
    ("panel-units", override("Runs", {"id": "unit", "value": "rpm2"}), "Runs: unit rpm2 is none"),
    ("L2", put("Headroom", "fieldConfig", "defaults", "unit", "watt"), "A: shows celsius as watt"),
    ("L2", put("Memory", "fieldConfig", "defaults", "unit", "bytes"), "A: shows a number as bytes"),
    ("L3", put("Headroom", *STEPS, 0, "value", 1), "Headroom: the first step has a value"),
    ("L3", put("Headroom", *STEPS, [{"value": v, "color": "red"} for v in (None, 5, 2)]), "[5, 2]"),
    ("colours", put("Headroom", *STEPS, 1, "color", "pink"), "Headroom: pink is no colour"),
    ("noValue", put("Errors", "fieldConfig", "defaults", "noValue", "-"), "Errors: noValue is '-'"),
    ("percentunit", put("Throttled", "fieldConfig", "defaults", "max", 100), "Throttled: a ratio is"),
    ("states", put("States", "fieldConfig", "defaults", "mappings", []), "States: its states have no"),
    ("states", expr("Headroom", "temperature_headroom_celsius", "up"), "Headroom, query A: draws a graph"),
    ("timelines", put("States", "fieldConfig", "defaults", "color", "mode", "thresholds"), "by thresholds"),
    ("reach", put("Runs", "fieldConfig", "overrides", []), "writes 'No run in this range' where Host has"),
    ("reach", put("States", "fieldConfig", "overrides", []), "writes 'No card here' where any has"),
    ("label-units", put("Runs", "fieldConfig", "defaults", "unit", "short"), "reads column Run as a number"),
    ("unknown", override("Runs", COLOURED, at=-1), "nothing is coloured by the first step of Exit code"),
    ("unknown", put("Fullest", "fieldConfig", "defaults", "mappings", []), "coloured by the first step"),
    (
        "unknown",
        put("Fullest", "fieldConfig", "defaults", "mappings", 0, "options", "result", "color", "green"),
        "Fullest: nothing is green",
    ),
    ("fills", put("Headroom", *CUSTOM, "fillOpacity", 8), "Headroom: fills the areas under 8 lines"),
    ("soft-ends", put("Errors", *CUSTOM, "axisSoftMax", 5), "Errors: flattens short below its soft end at 5"),
    (
        "soft-ends",
        put("Errors", "fieldConfig", "overrides", [{
            "matcher": {"id": "byName", "options": "errors"},
            "properties": [{"id": "unit", "value": "sci"}],
        }]),
        "Errors: flattens sci below its soft end at 1",
    ),
    ("hard-ends", put("Throttled", "fieldConfig", "defaults", "unit", "s"), "Throttled: cuts s at the top"),
    (
        "hard-ends",
        expr("Throttled", "max by (", "accelerator_up / accelerator_power_watts + max by ("),
        "Throttled, query A: may exceed 1, a multiple of accelerator_power_watts",
    ),
    ("soft-axes", put("Errors", *CUSTOM, "axisSoftMax", None), "Errors: its axis ends at 100"),
    ("figures", put("Fullest", "options", "colorMode", "background"), "colours its background"),
    ("figures", put("Fullest", "options", "graphMode", "area"), "with area behind the text"),
    ("figures", put("Fullest", "options", "textMode", "auto"), "Fullest: shows auto: a name or none"),
    (
        "figures",
        lambda boards: [
            put("Fullest", "options", "textMode", "value_and_name")(boards),
            put("Fullest", "targets", 0, "legendFormat", "{{when}}")(boards),
        ],
        "Fullest: shows {{when}} above its value",
    ),
    ("calm", put("Fullest", *STEPS, 0, "color", "green"), "Fullest: is green where nothing is wrong"),
    (
        "calm",
        override("Runs", COLOURED, {"id": "thresholds", "value": {"steps": [{"color": "green"}]}}, at=-1),
        "Runs: is green where nothing is wrong of Exit code",
    ),
    (
        "order",
        put("Firing alerts", "options", "sortBy", 0, "desc", 1),
        "Firing alerts: is sorted by word or chance: none, info, warning, critical",
    ),
    (
        "order",
        lambda boards: [
            put("Runs", "options", "sortBy", [{"displayName": "Exit code", "desc": False}])(boards),
            override("Runs", {"id": "mappings", "value": STATED}, at=-1)(boards),
        ],
        "Runs: is sorted by word or chance: fine, killed",
    ),
    (
        "whole-texts",
        put("Runs", "transformations", 1, "options", "renameByName", "uuid", "UUID"),
        "Runs: cuts UUID in the middle",
    ),
    ("whole-texts", put("Firing alerts", "fieldConfig", "overrides", []), "to the whole of Device"),
    ("digits", put("Headroom", "fieldConfig", "defaults", "unit", "sci"), "writes sci with all digits"),
    ("legend-table", put("Headroom", "options", "legend", "displayMode", "list"), "its legend is no"),
    ("legend-table", put("Headroom", "options", "legend", "calcs", ["mean"]), "lacks lastNotNull"),
    ("legend-table", put("Headroom", "options", "legend", "showLegend", None), "Headroom: has no legend"),
    (
        "legend-table",
        put("Headroom", "options", "legend", "placement", "bottom"),
        "Headroom: its legend has no room for 8 series",
    ),
    ("L4", put("Headroom", "targets", 0, "legendFormat", "{{card}}"), "A: the legend names card"),
    ("L4", put("Headroom", "targets", 0, "legendFormat", "{{device}}"), "does not tell series of other"),
    ("L4", put("Headroom", "targets", 0, "legendFormat", "__auto"), "A: its series have no names"),
    ("columns", expr("Runs", "(instance, run)", "(instance, run, rank)"), "Runs, query A: label rank"),
    ("columns", expr("Runs", "(instance, run)", "(run)"), "Runs, query A: has no instance"),
    (
        "columns",
        put("Runs", "transformations", 1, "options", "renameByName", "model", "Model"),
        "Runs: column Model: no query gives model",
    ),
    (
        "columns",
        put("Runs", "fieldConfig", "overrides", 1, "matcher", "options", "Machine"),
        "Runs: an override is for Machine",
    ),
    ("tooltip", put("Headroom", "options", "tooltip", "mode", "single"), "Headroom: its tooltip"),
    ("panel-title-description", put("Headroom", "title", ""), "has no title"),
    ("panel-title-description", describe("Headroom", "What this shows.", ""), "does not say what it"),
    ("panel-title-description", describe("Headroom", "Normal: ", "Fine: "), "no sentence under Normal"),
    ("panel-title-description", describe("Headroom", "`accelerator_", "`gpu_"), "names gpu_temperature_headroom"),
    (
        "L6",
        override("Runs", {"id": "links", "value": [{"url": "/d/trainvitals-mine?"}]}),
        "Runs: links to /d/trainvitals-mine, where no board is",
    ),
    (
        "L6",
        override("Runs", {"id": "links", "value": [{"url": "/d/trainvitals-host?var-card=1"}]}),
        "Runs: trainvitals-host has no variable card",
    ),
    (
        "L6",
        override("Runs", {"id": "links", "value": [{"url": "/d/trainvitals-host"}]}),
        "Runs: the link to trainvitals-host loses ${__url_time_range}",
    ),
    (
        "L6",
        override(
            "Runs", {"id": "links", "value": [{"url": "/d/trainvitals-host?var-run=${__data.fields.Card}"}]}
        ),
        "Runs: a link takes Card, which is no column",
    ),
    (
        "L6",
        put("Headroom", "links", [{"url": "/d/trainvitals-host?var-run=${__field.labels.run}"}]),
        "Headroom: a link takes the label run, which no series has",
    ),
    (
        "L6",
        override("Firing alerts", {"id": "links", "value": [{"url": "/alerting/list"}]}, at=2),
        "Firing alerts: links to /alerting/list, where no rule is",
    ),
    ("rows-lead-on", put("Firing alerts", "fieldConfig", "overrides", []), "column Alert does not lead"),
    ("rows-lead-on", put("Runs", "fieldConfig", "overrides", []), "Runs: column Host does not lead"),
    ("family", put_into_board("uid", "trainvitals-all"), "uid 'trainvitals-all' and title"),
    ("unique", put_into_board("uid", HOST), "Vitals / Fleet: another board has the uid"),
    ("unique", put_into_board("title", "Vitals / Host"), "another board has the title Vitals / Host"),
    ("leftovers", put_into_board("id", 12), "Vitals / Fleet: has id"),
    ("leftovers", put_into_board("__inputs", []), "Vitals / Fleet: has __inputs"),
    ("least-version", put_into_board("preload", 0), "Vitals / Fleet: has preload, which Grafana"),
    ("least-version", put("Errors", "options", "tooltip", "hideZeros", 0), "Errors: has hideZeros"),
    ("uneditable-dashboard", put_into_board("editable", "yes"), "editable is yes, not False"),
    ("uneditable-dashboard", put_into_board("schemaVersion", 41), "schemaVersion is 41, not 42"),
    ("uneditable-dashboard", put_into_board("graphTooltip", 0), "graphTooltip is 0, not 1"),
    ("uneditable-dashboard", put_into_board("description", "All."), "is not the question"),
    ("times", put_into_board("refresh", "1s"), "refresh is 1s, not 1m"),
    ("times", put_into_board("time", "from", "now-7d"), "not now-1h"),
    ("menu", put_into_board("links", []), "Fleet: has 0 links to Vitals / Training run at the top"),
    ("menu", put_into_board("links", 0, "includeVars", 1), "Training run carries all that is chosen"),
    ("menu", put_into_board("links", 0, "type", "dashboards"), "carries all that is chosen"),
    (
        "menu",
        put_into_board("links", 0, "url", f"/d/{RUN}?${{datasource:queryparam}}&${{__url_time_range}}"),
        "Fleet: its link to Vitals / Training run loses $instance",
    ),
    (
        "L6",
        put_into_board("links", 2, "url", f"/d/{HOST}?${{instance:queryparam}}"),
        "Fleet: carries $instance, which may be several or all, to trainvitals-host, which takes one",
    ),
    ("alert-regions", annotation(1, useValueForTime=True), "no annotation shows firing alerts"),
    ("alert-regions", annotation(1, titleFormat="{{run}}"), "annotation > Alerts: does not say"),
    ("curves", annotation(1, enable=True), "annotation > Alerts: is drawn before somebody asks"),
    ("curves", annotation(3, enable=True, expr="changes(up{}[1h]) > 99"), "Starts: is drawn before"),
    ("moments", annotation(3, iconColor="red"), "annotation > Starts: is not blue and off"),
    ("moments", annotation(5, enable=True), "annotation > Checkpoints: is not #808080 and off"),
    ("moments", annotation(4, useValueForTime=False), "annotation > Deaths: is drawn when it was"),
    ("moments", lambda boards: boards[1]["annotations"]["list"].pop(), "no annotation shows training_"),
    ("oom-kills", annotation(2, expr="up{}"), "Vitals / Fleet: no annotation shows OOM kills"),
    ("oom-kills", annotation(2, iconColor="blue"), "annotation > OOM kills: is not red"),
    ("annotation-texts", annotation(3, textFormat="{{card}}"), "annotation > Starts: says card"),
    ("template-datasource", variable(0, name="ds"), "its first variable is not the data source"),
    ("template-job", variable(1, name="jobs"), "Vitals / Fleet: has no variable job"),
    ("template-job", variable(1, multi=False), "variable > job: is not called Job or takes one"),
    ("template-instance", variable(2, label="Instance"), "variable > instance: is called Instance"),
    ("template-on-time-change-reload", variable(2, refresh=1), "variable > instance: refresh is 1"),
    ("refId", variable(2, query={"query": "up"}), "variable > instance: its query has no refId"),
    ("choices", variable(2, allValue=".*"), "variable > instance: several and All"),
    ("choices", variable(2, sort=1), "variable > instance: its values are sorted by 1"),
    ("choices", variable(2, definition="label_values(up, job)"), "definition and query are two"),
    ("one-subject", put_into_board("templating", "list", 3, "includeAll", 1, at=1), "begins with all"),
    ("L5", variable(3, name="card"), "variable > card: nothing asks for it"),
    ("L5", expr("Headroom", "$job", "$card"), "Cards > Headroom: $card is not defined"),
    ("L5", ask_variable('label_values(up{run=~"$run"}, run)'), "$run is not defined before it"),
    ("L1", put("Headroom", "id", 1), "Headroom: number 1 is not its own"),
    ("names", put("Memory", "title", "Headroom"), "Cards > Headroom: is there twice"),
    ("grid", put("Memory", "gridPos", "x", 4), "Memory: lies upon Headroom"),
    ("grid", put("Memory", "gridPos", "w", 20), "Memory: does not fit into 24 columns"),
    ("grid", put("Throttled", "gridPos", "w", 6), "Throttled: leaves 2 columns beside it empty"),
    ("first-screen", put("Fullest", "type", "gauge"), "Fullest: the first line is for stats"),
    ("first-screen", put("Firing alerts", "gridPos", "y", 30), "no table of firing alerts in the first"),
    ("screen", put("Memory", "gridPos", "h", 9), "Memory: is open and ends below the first screen"),
    ("screen", put("Memory", "type", "table"), "Vitals / Fleet: opens with 2 panels: table"),
    (
        "empty-screen",
        put("Memory", "fieldConfig", "defaults", "noValue", "No card here"),
        "Vitals / Fleet: has no line on how to have what is missing",
    ),
    ("empty-words", put("Fullest", *DEFAULTS, "noValue", "No card here"), "Fullest: says 'No card here'"),
    (
        "figure-texts",
        lambda boards: [
            put("Fullest", *DEFAULTS, "noValue", "The host does not answer")(boards),
            put("Fullest", "gridPos", "w", 3)(boards),
        ],
        "Fullest: writes 'The host does not answer' in letters of 11 pixels",
    ),
    (
        "figure-texts",
        lambda boards: [
            put("Dead", *DEFAULTS, "mappings", STATED)(boards),
            put("Dead", "gridPos", "w", 1)(boards),
        ],
        "Dead: writes 'killed' in letters of",
    ),
    (
        "heads",
        override("Runs", {"id": "custom.width", "value": 60}, at=-1),
        "Runs: cuts the head Exit code: 60 of 75 pixels",
    ),
    ("bands", put("States", "gridPos", "h", 5), "States: has up to 8 bands where 5 can be read"),
    ("bands", expr("States", "topk(8, ", "topk(13, "), "States: has up to 13 bands where 8 can be read"),
    ("bands", expr("States", "topk(8, ", "clamp_min("), "States: may have any number of bands"),
    (
        "nothing",
        put("States", *DEFAULTS, "mappings", 0, {
            "type": "special",
            "options": {"match": "null", "result": {"color": "#808080", "text": "no data"}},
        }),
        "States: has 'no data' in its legend",
    ),
    ("label-units", override("Runs", {"id": "unit", "value": "string"}, at=-1), "writes column Exit code with all"),
    ("calm", put("States", *DEFAULTS, "mappings", 0, "options", "0", "color", "green"), "States: is green where"),
    (
        "order",
        put("Firing alerts", "options", "sortBy", 0, "displayName", "Importance"),
        "Firing alerts: is sorted by Importance, which is no column",
    ),
    (
        "order",
        put("Firing alerts", "options", "sortBy", 0, "displayName", "Host"),
        "Firing alerts: is sorted by the words of Host",
    ),
    ("tables", put("Firing alerts", "gridPos", "h", 7), "Firing alerts: shows 4.4 rows, not 5"),
    (
        "tables",
        put("Runs", "transformations", 1, "options", "renameByName", "rank", "Rank"),
        "Runs: shows 5.5 rows, not 8",
    ),
    ("titles", put("Headroom", "gridPos", "w", 3), "Headroom: has a title that is cut in 3 columns"),
    ("tables", put("Firing alerts", "gridPos", "h", 6), "Firing alerts: shows 3.4 rows"),
    ("tables", put("Firing alerts", "gridPos", "w", 12), "Firing alerts: has columns of"),
    (
        "cost",
        lambda boards: boards[0]["templating"]["list"].extend(
            {"name": f"v{at}", "type": "query"} for at in range(40)
        ),
        "queries when it opens, over 40",
    ),
    ("L8-home", describe("Headroom", "CardHot", "CardCold", CARDS), "alert > CardHot: has no panel"),
    ("L8-metric", describe("Headroom", "CardHot", "CardCold"), "names CardCold, which is no alert"),
    ("L8-metric", describe("Headroom", "CardHot", "RunDied"), "names RunDied and asks nothing that"),
    ("L8-limit", put("Headroom", *STEPS, 1, "value", 5, uid=CARDS), "draws no limit of CardHot"),
    ("L8-limit", put("Headroom", *STEPS, 1, "value", 5), "Headroom: has a step at 5, where no alert"),
    ("L8-colour", put("Headroom", *STEPS, 0, "color", "blue"), "the limit of CardHot is not red"),
    ("L8-address", put_into_board("templating", "list", 3, "name", "runs", at=2), "leads to this board"),
    ("L8-address", put_into_board("uid", "trainvitals-all"), "alert > Watchdog: leads to this board"),
]  # fmt: skip


@pytest.mark.parametrize("check", lint.CHECKS, ids=lambda check: check.id)
def test_small_boards_that_are_in_order_pass(sample, check):
    """No check reports a fault in the unchanged sample dashboards."""
    assert list(map(str, lint.find(check, sample))) == []


@pytest.mark.parametrize(("id_", "break_it", "says"), BROKEN, ids=[row[0] for row in BROKEN])
def test_the_lint_notices(sample, id_, break_it, says):
    """Each change is reported by its check with the place, the fault and the fix."""
    (check,) = (one for one in lint.CHECKS if one.id == id_)
    found = list(map(str, lint.find(check, change(sample, break_it))))
    assert any(says in one for one in found), found
    assert all(one.endswith(f"[{id_}: {check.act}]") for one in found)


SETTINGS = [
    ("L10-keys", "datasources", ("datasources", 0, "jsonData", "timeIntervall"), "15s", "timeIntervall"),
    ("L10-keys", "datasources", ("datasources", 0, "isdefault"), True, "isdefault is no key"),
    ("L10-keys", "dashboards", ("providers", 0, "options", "folder"), "x", "folder is no key"),
    ("L10-keys", "dashboards", ("apiVersion",), 2, "apiVersion is 2, not 1"),
    ("L10-sources", "datasources", ("datasources", 0, "jsonData", "timeInterval"), "15s", "every 5s"),
    ("L10-sources", "datasources", ("datasources", 1, "uid"), "am", "no data source alertmanager"),
    ("L10-sources", "datasources", ("datasources", 0, "isDefault"), False, "the default is not"),
    ("L10-sources", "datasources", ("datasources", 0, "editable"), True, "can be edited"),
    ("L10-providers", "dashboards", ("providers", 0, "folderUid"), "", "its folder has no uid"),
    ("L10-providers", "dashboards", ("providers", 0, "allowUiUpdates"), True, "can be changed"),
    ("L10-providers", "dashboards", ("providers", 0, "type"), "http", "does not read files"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("id_", "file", "path", "value", "says"), SETTINGS, ids=[row[0] for row in SETTINGS]
)
def test_the_lint_notices_settings(sample, id_, file, path, value, says):
    """Each change to a provisioning file of Grafana is reported with the name of the file."""
    settings = copy_settings(sample)
    (name,) = (name for name in settings if name.startswith(file))
    part = settings[name]
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    (check,) = (one for one in lint.CHECKS if one.id == id_)
    found = list(map(str, lint.find(check, dataclasses.replace(sample, settings=settings))))
    assert any(f"grafana/provisioning/{file}" in one and says in one for one in found), found


FOLDERS = [
    ("L10-folders", "plugins/none.yml", None, "grafana/provisioning/plugins: is missing"),
    ("L10-folders", "alerting/none.yml", None, "grafana/provisioning/alerting: is missing"),
    ("L10-folders", "notifiers/none.yml", "notifiers/README.md", "README.md: has a suffix that"),
]


@pytest.mark.parametrize(("id_", "name", "renamed", "says"), FOLDERS)
def test_the_lint_notices_folders(sample, id_, name, renamed, says):
    """A provisioning folder that is missing, or has no file that Grafana reads, is reported."""
    settings = copy_settings(sample)
    document = settings.pop(name)
    settings |= {renamed: document} if renamed else {}
    (check,) = (one for one in lint.CHECKS if one.id == id_)
    found = list(map(str, lint.find(check, dataclasses.replace(sample, settings=settings))))
    assert any(says in one for one in found), found


def copy_settings(view):
    """Return a copy of Grafana's provisioning files that a test can change."""
    return copy.deepcopy(dict(view.settings))


def test_every_check_is_seen_to_fail():
    """Each check has at least one failing case in the lists of this module."""
    assert {check.id for check in lint.CHECKS} == {row[0] for row in (*BROKEN, *SETTINGS, *FOLDERS)}


def test_a_change_that_is_meant_is_excluded(sample):
    """An exclusion suppresses the finding of its own panel and is reported if it has no effect."""
    broken = change(sample, put("Headroom", "repeat", "instance"))
    (check,) = (one for one in lint.CHECKS if one.id == "repeat")
    meant = Exclusion("Vitals / Fleet", "repeat", "It is a test.", "Cards > Headroom")
    other = dataclasses.replace(meant, panel="Cards > Memory")
    assert lint.find(check, broken, [meant]) == []
    assert len(lint.find(check, broken, [other])) == 1
    assert lint.find_unused(broken, [meant, other]) == [other]


def test_an_exclusion_without_a_reason_is_refused(tmp_path):
    """Reading an exclusion without a reason raises an error that names the missing key."""
    path = tmp_path / "exclusions.yml"
    path.write_text("exclusions:\n  - {board: Vitals / Fleet, rule: repeat}\n", encoding="utf-8")
    with pytest.raises(TypeError, match="reason"):
        read_exclusions(path)
