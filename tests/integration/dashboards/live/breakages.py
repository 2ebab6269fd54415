"""A small dashboard without faults, and the ways to break it, each of which must be detected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from tests.unit.dashboards.boards import Board

Json = dict[str, Any]
Break = Callable[[Json], None]

UID = "small"


def _write_panel(kind: str, title: str, expr: str, **more: Any) -> Json:
    return {
        "type": kind,
        "title": title,
        "gridPos": {"w": 24},
        "fieldConfig": {"defaults": {"noValue": "No host", "unit": more.pop("unit", "short")}},
        "targets": [{"refId": "A", "expr": expr, "legendFormat": "{{instance}}", "range": True}],
        **more,
    }


def _write_board() -> Json:
    names = {"instance": "Host", "mountpoint": "Mounted at", "Value": "Size"}
    sizes = 'max by (instance, mountpoint) (host_filesystem_size_bytes{instance=~"$instance"})'
    table = _write_panel("table", "Sizes", sizes, unit="bytes")
    table["targets"][0] |= {"instant": True, "range": False, "format": "table"}
    table["transformations"] = [{"id": "organize", "options": {"renameByName": names}}]
    up = _write_panel("state-timeline", "Up", 'up{instance=~"$instance",job="trainvitals"}')
    up["fieldConfig"]["defaults"]["mappings"] = [{"type": "value", "options": {"0": {}, "1": {}}}]
    waiting = 'host_io_wait_ratio{instance=~"$instance"}'
    return {
        "uid": UID,
        "title": "Small",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "instance",
                    "type": "query",
                    "query": "label_values(trainvitals_build_info, instance)",
                    "includeAll": True,
                    "allValue": ".+",
                    "multi": True,
                    "sort": 7,
                }
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "Boots",
                    "expr": '1000 * host_boot_time_seconds{instance=~"$instance"}',
                    "step": "30s",
                    "useValueForTime": True,
                }
            ]
        },
        "panels": [
            _write_panel("timeseries", "Waiting", waiting, unit="percentunit"),
            table,
            up,
        ],
    }


def make_board(break_it: Break | None = None) -> Board:
    """Return the small dashboard, broken by `break_it` if given."""
    board = deepcopy(_write_board())
    if break_it is not None:
        break_it(board)
    return Board(board)


def _ask(expr: str, panel: int = 0) -> Break:
    def break_it(board: Json) -> None:
        board["panels"][panel]["targets"][0]["expr"] = expr

    return break_it


def _name_all_alike(board: Json) -> None:
    board["panels"][0]["targets"][0]["legendFormat"] = "waiting"


def _say_nothing(board: Json) -> None:
    _ask("host_io_wait_ratio > 2")(board)
    del board["panels"][0]["fieldConfig"]["defaults"]["noValue"]


def _end_the_axis_high(board: Json) -> None:
    board["panels"][0]["fieldConfig"]["defaults"] |= {"custom": {"axisSoftMax": 50}, "unit": "s"}
    _ask("up")(board)


def _show_what_is_over(board: Json) -> None:
    board["panels"][0]["type"] = "stat"
    _ask('training_eta_timestamp_seconds{run="unet"} * 0')(board)


def _forget_the_milliseconds(board: Json) -> None:
    board["annotations"]["list"][0]["expr"] = "host_boot_time_seconds"


def _ask_nonsense_in_an_annotation(board: Json) -> None:
    board["annotations"]["list"][0]["expr"] = "host_boot_time_seconds["


# For each broken part: the kind of the fault, a part of its text, and the function that breaks it.
BREAKAGES: Mapping[str, tuple[str, str, Break]] = MappingProxyType(
    {
        "many to many": (
            "error",
            "many-to-many matching not allowed",
            _ask("host_cpu_seconds_total / on (instance) host_cpu_core_busy_seconds_total"),
        ),
        "many to one": (
            "error",
            "many-to-one matching must be explicit",
            _ask("host_cpu_seconds_total / on (instance) host_io_wait_ratio"),
        ),
        "syntax": ("error", "parse error", _ask("rate(host_io_wait_ratio")),
        "syntax of an annotation": ("error", "parse error", _ask_nonsense_in_an_annotation),
        "division by zero": ("infinite", "= inf", _ask("1 / (0 * host_load1)")),
        "no number": ("nan", "only NaN for cpu-box:9200", _ask("0 * host_load1 / 0")),
        "one name for several": (
            "duplicate",
            "4 series of A are called 'waiting'",
            _name_all_alike,
        ),
        "a name without its label": (
            "nameless",
            "has no instance",
            _ask("avg(host_io_wait_ratio)"),
        ),
        "per cent": ("unit", "percentunit of cpu-box:9200", _ask("10 + host_io_wait_ratio")),
        "seconds for milliseconds": ("unit", "no time", _forget_the_milliseconds),
        "too many": ("many", "series, at most 20", _ask('{__name__=~"(host|cpu|memory)_.*"}')),
        "a flat curve": ("flat", "an axis to 50 flattens values of 1 at most", _end_the_axis_high),
        "no word": ("no-word", "does not say why", _say_nothing),
        "a value that is over": ("stale", "as if it were of now", _show_what_is_over),
        "a state without a text": ("state", "no text for [7.0]", _ask("7 * up", panel=2)),
        "a column without a title": (
            "column",
            "no title: job",
            _ask("host_filesystem_size_bytes", panel=1),
        ),
    }
)
