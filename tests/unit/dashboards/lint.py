"""The lint of the dashboards: all checks, each with the advice on how to fix a fault.

Some checks are those of Grafana's dashboard-linter, with the same names. Others compare the
dashboards with their data and with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.rulelint.house import read_house
from tests.unit.dashboards import (
    arrangement,
    axes,
    boardwide,
    drawing,
    figures,
    homes,
    provisioning,
    queries,
    rendering,
    screens,
    series,
    variables,
    wording,
)
from tests.unit.dashboards.boards import read_boards
from tests.unit.dashboards.catalogue import add_alerts
from tests.unit.dashboards.findings import Check, Exclusion, Finding, View, read_exclusions
from tests.unit.dashboards.units import read_units

EXCLUSIONS = Path(__file__).with_name("exclusions.yml")

# Checks of queries.
OF_QUERIES = (
    Check("target-promql", queries.check_parses, "mend the PromQL"),
    Check("template-label-promql", queries.check_variables_parse, "name a metric and its label"),
    Check("equality", queries.check_equality, "write =~ or !~"),
    Check("result", queries.check_results, "put a function around the range"),
    Check("functions", queries.check_functions, "use what Prometheus 2.42 and 3.x have"),
    Check("L7", queries.check_metrics, "take a name from docs/metrics.md or recording.yml"),
    Check("labels", queries.check_labels, "take a label or value from docs/metrics.md"),
    Check("types", queries.check_types, "rate for counters, deriv for gauges"),
    Check("joins", queries.check_joins, "write on (job, instance, …)"),
    Check("target-job", queries.check_job, "begin the selector with @host, @run, @device …"),
    Check("target-instance", queries.check_instance, "begin the selector with @host, @run …"),
    Check("target-rate-interval", figures.check_rate_interval, "write [$__rate_interval]"),
    Check("target-counter-agg", figures.check_counters, "put rate or increase around it"),
    Check("bars", figures.check_bars, "draw queries.find_rise"),
    Check("L9", figures.check_divisions, "divide by (… > 0)"),
    Check("scaling", figures.check_scaling, "choose a unit; Grafana scales"),
)

# Checks of panels.
OF_PANELS = (
    Check("kinds", drawing.check_kinds, "use a function of grafana/build/panels.py"),
    Check("repeat", drawing.check_repeats, "aggregate, or topk(10, …)"),
    Check("panel-datasource", drawing.check_sources, "ask ${datasource}"),
    Check("panel-no-targets", drawing.check_targets, "give it a query"),
    Check("forms", series.check_forms, "now(…) for tables, over_time(…) for graphs"),
    Check("panel-units", drawing.check_units, "take a unit of grafana/build/palette.py"),
    Check("L2", drawing.check_dimensions, "choose the unit of what the query computes"),
    Check("L3", drawing.check_thresholds, "begin with (None, colour), then rise"),
    Check("colours", drawing.check_colours, "take a colour of grafana/build/palette.py"),
    Check("noValue", drawing.check_empties, "say why there may be nothing"),
    Check("percentunit", axes.check_ratios, "least=0, most=1"),
    Check("states", drawing.check_states, "make it a state_timeline with states"),
    Check("timelines", rendering.check_timelines, "use panels.state_timeline"),
    Check("nothing", rendering.check_nothing, "leave it out"),
    Check("reach", rendering.check_reach, "begin the overrides as panels.py does"),
    Check("label-units", rendering.check_label_units, "unit TEXT; only values have others"),
    Check("unknown", rendering.check_unknown, "use panels.stat or panels.table"),
    Check("fills", rendering.check_fills, "let panels.timeseries choose"),
    Check("soft-axes", axes.check_soft_axes, "let panels.timeseries choose"),
    Check("soft-ends", axes.check_soft_ends, "name the unit in panels._SOFT_MOST"),
    Check("hard-ends", axes.check_hard_ends, "is_open=True"),
    Check("figures", rendering.check_figures, "use panels.stat"),
    Check("calm", rendering.check_calm, "use panels.stat or tables.table"),
    Check("order", rendering.check_order, "number states by how bad they are"),
    Check("whole-texts", rendering.check_texts, "hide UUIDs of devices that have an index"),
    Check("digits", rendering.check_digits, "give it decimals"),
    Check("legend-table", series.check_legends, "use panels.timeseries with its calcs"),
    Check("L4", series.check_series_names, "name the labels that by (…) keeps"),
    Check("columns", series.check_columns, "group each column by the table's keys"),
    Check("tooltip", series.check_tooltips, "use panels.timeseries"),
    Check("panel-title-description", wording.check_descriptions, "write its About"),
    Check("L6", wording.check_links, "write_address or link_to with a board of parts.py"),
    Check("rows-lead-on", wording.check_rows_lead_on, "give its Key a link"),
)

# Checks of whole dashboards.
OF_BOARDS = (
    Check("family", boardwide.check_family, "uids and titles are fixed: links refer to them"),
    Check("unique", boardwide.check_unique, "choose another"),
    Check("leftovers", boardwide.check_leftovers, "boards are written by grafana/build alone"),
    Check("least-version", boardwide.check_version, "leave it out, or raise the least version"),
    Check("uneditable-dashboard", boardwide.check_settings, "see layout.describe_board"),
    Check("times", arrangement.check_times, "see Board.since and Board.refresh"),
    Check("menu", wording.check_family, "see layout.describe_board"),
    Check("alert-regions", boardwide.check_alert_regions, "add parts.mark_alerts"),
    Check("curves", boardwide.check_curves, "leave is_enabled out"),
    Check("moments", boardwide.check_moments, "add parts.RUN_STARTS, RUN_DEATHS, CHECKPOINTS"),
    Check("oom-kills", boardwide.check_oom_kills, "add parts.OOM_KILLS"),
    Check("annotation-texts", wording.check_annotation_texts, "name labels of the query"),
    Check("template-datasource", variables.check_source, "see layout.describe_board"),
    Check("template-job", variables.check_job, "add parts.JOB"),
    Check("template-instance", variables.check_instance, "add parts.HOSTS or parts.ONE_HOST"),
    Check("template-on-time-change-reload", variables.check_refresh, "refresh 2"),
    Check("refId", rendering.check_variable_targets, "see layout.Variable"),
    Check("choices", variables.check_choices, "see layout.Variable"),
    Check("one-subject", variables.check_defaults, "leave is_multiple out"),
    Check("L5", variables.check_use, "define it, or take it out"),
    Check("L1", arrangement.check_numbers, "numbers are layout's business"),
    Check("names", arrangement.check_names, "choose another title"),
    Check("grid", arrangement.check_grid, "widths of a line add up to 24"),
    Check("first-screen", arrangement.check_first_screen, "stats, list_alerts, the worst"),
    Check("screen", screens.check_screens, "close a row, or take panels out of the first"),
    Check("empty-screen", screens.check_empty_screens, "name a command or page in an `empty`"),
    Check("empty-words", screens.check_empty_words, "one or two words, as none or unknown"),
    Check("figure-texts", screens.check_figure_texts, "shorten it, or widen the panel"),
    Check("heads", screens.check_heads, "widen the column, or leave its width out"),
    Check("bands", screens.check_bands, "topk(sizes.count_bands(height), …)"),
    Check("titles", screens.check_titles, "shorten it, or widen the panel"),
    Check("tables", screens.check_tables, "make it higher or wider, or name fewer columns"),
    Check("cost", arrangement.check_cost, "close a row, or ask less"),
)

# Checks of the links from alerts, and of Grafana's provisioning files.
OF_OTHERS = (
    Check("L8-address", homes.check_addresses, "mend dashboard_url, or add the variable"),
    Check("L8-home", homes.check_homes, "name it in About.alerts of the panel that shows it"),
    Check("L8-metric", homes.check_named, "ask what the rule asks, or name it elsewhere"),
    Check("L8-limit", homes.check_limits, "draw a step at limit(…) of the alert"),
    Check("L8-colour", homes.check_limit_colours, "red for critical, orange for a warning"),
    Check("L10-folders", provisioning.check_folders, "add the folder with a YAML file"),
    Check("L10-keys", provisioning.check_keys, "see Grafana's page on provisioning"),
    Check("L10-sources", provisioning.check_sources, "mend grafana/provisioning/datasources"),
    Check("L10-providers", provisioning.check_providers, "mend grafana/provisioning/dashboards"),
)

CHECKS: Sequence[Check] = (*OF_QUERIES, *OF_PANELS, *OF_BOARDS, *OF_OTHERS)


def read_view() -> View:
    """Read the committed dashboards and the data to compare them with."""
    return View(
        boards=read_boards(),
        house=add_alerts(read_house()),
        units=read_units(),
        settings=provisioning.read_settings(),
    )


def find(check: Check, view: View, exclusions: Iterable[Exclusion] = ()) -> list[Finding]:
    """Return the findings of a check that no exclusion covers."""
    found = dict.fromkeys(Finding(check, fault) for fault in check.find(view))
    return [one for one in found if not any(exclusion.covers(one) for exclusion in exclusions)]


def find_unused(view: View, exclusions: Iterable[Exclusion]) -> list[Exclusion]:
    """Return the exclusions that cover no finding."""
    found = [finding for check in CHECKS for finding in find(check, view)]
    return [one for one in exclusions if not any(one.covers(finding) for finding in found)]


def read_excluded() -> tuple[Exclusion, ...]:
    """Read the committed exclusions."""
    return read_exclusions(EXCLUSIONS)
