"""Five small dashboards without faults, their rules, and functions to change them."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from grafana.build import parts
from grafana.build.layout import Board as Written
from grafana.build.layout import Row, Variable, write_address, write_board
from grafana.build.palette import CELSIUS, CRITICAL, OK, RATIO, State
from grafana.build.panels import About, Panel, heatmap, stat, state_timeline, timeseries
from grafana.build.queries import encode, find_rise, in_buckets, now, over_time
from grafana.build.tables import Column, Key, table
from tests.support.rulebook import Rule, Rulebook
from tests.support.rulelint.house import House
from tests.unit.dashboards.boards import Board, Json
from tests.unit.dashboards.boardwide import BOARDS
from tests.unit.dashboards.catalogue import add_alerts
from tests.unit.dashboards.findings import View
from tests.unit.dashboards.provisioning import read_settings
from tests.unit.dashboards.units import read_units

_URL = "http://localhost:3000/d"
_INSTANCE = "?var-instance={{ $labels.instance | urlquery }}"
_RUN = "{{ with $labels.run }}&var-run={{ . | urlquery }}{{ end }}"
_STATES = {"ok": State(0, "works", OK), "lost": State(1, "is lost", CRITICAL)}


def _record(name: str, expr: str) -> Rule:
    return Rule(Path("sample.yml"), "thresholds", name, alert=False, expr=expr)


def _alert(name: str, expr: str, board: str, severity: str = "critical") -> Rule:
    return Rule(
        Path("sample.yml"),
        "sample",
        name,
        alert=True,
        expr=expr,
        labels={"severity": severity, "component": "sample"},
        annotations={"dashboard_url": f"{_URL}/trainvitals-{board}"},
    )


BOOK = Rulebook(
    (
        _record("threshold:card_hot:headroom_celsius", "vector(2)"),
        _record(
            "card:used:ratio", "accelerator_memory_used_bytes / accelerator_memory_total_bytes"
        ),
        _alert(
            "CardHot",
            "accelerator_temperature_headroom_celsius < scalar(threshold:card_hot:headroom_celsius)",
            "accelerators" + _INSTANCE + _RUN,
        ),
        _alert("CardFull", "card:used:ratio == 1", "host" + _INSTANCE, "warning"),
        _alert("RunDied", "training_process_exit_code != 0", "run" + _INSTANCE + _RUN),
        _alert("ContainerDied", "container_last_exit_code != 0", "containers" + _INSTANCE),
        _alert("Watchdog", "vector(1)", "fleet", "none"),
    )
)


def make_view(house: House) -> View:
    """Return a view of five dashboards without faults, with the metrics of a `House`."""
    written = [make_board(uid, title) for uid, title in BOARDS.items()]
    boards = tuple(Board(json.loads(write_board(board, written))) for board in written)
    house = add_alerts(dataclasses.replace(house, book=BOOK), {})
    return View(boards, house, read_units(), read_settings())


def make_board(uid: str, title: str) -> Written:
    """Return a dashboard without faults."""
    is_fleet, is_run = uid == "trainvitals-fleet", uid == "trainvitals-run"
    run = Variable(
        "run",
        "Run",
        'label_values(training_run_info{job=~"$job",instance=~"$instance"}, run)',
        "Runs, by the name that they gave themselves",
        is_multiple=not is_run,
    )
    moments = [parts.RUN_STARTS, parts.RUN_DEATHS, parts.CHECKPOINTS]
    if not is_run:
        moments = [dataclasses.replace(one, is_enabled=False) for one in moments]
    return Written(
        uid=uid,
        title=title,
        question="What is wrong?",
        variables=(parts.JOB, parts.HOSTS if is_fleet or is_run else parts.ONE_HOST, run),
        annotations=(parts.mark_alerts("@host"), parts.OOM_KILLS, *moments),
        rows=(_write_now(), _write_cards(), _write_details()),
        since="now-6h" if is_run else "now-1h",
        refresh="1m" if is_fleet else "30s",
    )


def _about(*alerts: str) -> About:
    return About("What this shows.", "nothing else.", "look into it.", alerts)


def _write_now() -> Row:
    full = now("max(card:used:ratio{@host})")
    dead = now("count(container_last_exit_code{@host} != 0)")
    alerts = dataclasses.replace(parts.list_alerts(), about=_about("Watchdog"))
    return Row(
        "Now",
        (
            stat(
                "Fullest",
                _about("CardFull"),
                full,
                unit=RATIO,
                empty="none",
                width=12,
                height=3,
            ),
            stat("Dead", _about("ContainerDied"), dead, empty="none", width=12, height=3),
            alerts,
        ),
    )


def _list_runs() -> Panel:
    by = "instance, run"
    samples = f"sum by ({by}) (rate(training_samples_total{{@run}}[$__rate_interval]))"
    return table(
        "Runs",
        _about("RunDied"),
        keys=(
            Key("instance", "Host", write_address(parts.HOST, instance="${__data.fields.Host}")),
            Key("run", "Run", write_address(parts.RUN, run="${__data.fields.Run}")),
        ),
        columns=(
            Column("Samples/s", samples),
            Column("Exit code", f"max by ({by}) (training_process_exit_code{{@run}})"),
        ),
        empty="No run in this range",
    )


def _write_cards() -> Row:
    card = "instance, kind, device"
    name = "{{instance}} {{kind}} {{device}}"
    used, size = "accelerator_memory_used_bytes{@host}", "accelerator_memory_total_bytes{@host}"
    throttled = "rate(accelerator_throttle_seconds_total{@host}[$__rate_interval])"
    joined = f"{throttled} * on (job, {card}) group_left () accelerator_up{{@host}}"
    headroom = f"min by ({card}) (accelerator_temperature_headroom_celsius{{@host}})"
    return Row(
        "Cards",
        (
            timeseries(
                "Headroom",
                _about("CardHot"),
                over_time(headroom, name),
                unit=CELSIUS,
                steps=((None, CRITICAL), (2, OK)),
                empty="none",
            ),
            timeseries(
                "Memory",
                _about(),
                over_time(f"{used} / ({size} > 0)", name),
                unit=RATIO,
                least=0,
                most=1,
                empty="No card here: `doctor` says why",
            ),
            timeseries(
                "Throttled",
                _about(),
                over_time(f"max by ({card}) ({joined})", name),
                unit=RATIO,
                least=0,
                most=1,
                empty="none",
            ),
        ),
    )


def _write_details() -> Row:
    errors = f"sum ({find_rise('accelerator_link_errors_total{@host}')})"
    states = encode("accelerator_state{@host", "state", _STATES, "instance, kind, device")
    busy = "accelerator_utilization_ratio{@host}"
    buckets = (
        f'label_replace(sum({busy} <= bool 0.5), "le", "0.5", "", "")'
        f' or label_replace(count({busy}), "le", "+Inf", "", "")'
    )
    return Row(
        "Details",
        (
            state_timeline(
                "States",
                _about(),
                over_time(f"topk(8, {states})", "{{instance}} {{kind}} {{device}}"),
                states=tuple(_STATES.values()),
                empty="No card here",
                width=12,
            ),
            heatmap(
                "Spread",
                _about(),
                in_buckets(buckets),
                unit=RATIO,
                empty="No card here",
                width=12,
                height=6,
            ),
            timeseries(
                "Errors",
                _about(),
                over_time(errors, "errors"),
                least=0,
                is_bars=True,
                empty="No card here",
                width=24,
            ),
            _list_runs(),
        ),
        is_collapsed=True,
    )


def change(view: View, change_boards: Callable[[list[Json]], None]) -> View:
    """Return a view with a changed copy of the dashboards' JSON."""
    copies = copy.deepcopy([board.json for board in view.boards])
    change_boards(copies)
    return dataclasses.replace(view, boards=tuple(map(Board, copies)))


def find_panel(boards: list[Json], uid: str, title: str) -> Json:
    """Return a panel's JSON by dashboard and title, also from collapsed rows."""
    (board,) = [board for board in boards if board.get("uid") == uid]
    inside = [panel for row in board["panels"] for panel in row.get("panels", ())]
    panel: Json
    (panel,) = [panel for panel in (*board["panels"], *inside) if panel["title"] == title]
    return panel
